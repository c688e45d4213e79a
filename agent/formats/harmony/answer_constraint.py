"""Holds a generation of Harmony to answering: reasoning, preambles and the answer, but no call.

Headers are compared with the few that are allowed, id by id, and bodies are free text: there is no
grammar to compile, and a token of a body costs one comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agent.formats.harmony.token_ids import (
    ANALYSIS_ID,
    ASSISTANT_ID,
    CHANNEL_ID,
    COMMENTARY_IDS,
    CONSTRAIN_ID,
    END_ID,
    FINAL_ID,
    FIRST_SPECIAL_ID,
    JSON_ID,
    MESSAGE_ID,
    RETURN_ID,
    SPACE_ID,
    START_ID,
)

if TYPE_CHECKING:
    from agent.engine.grammars import TokenIds

_FINAL_ENDS = frozenset({END_ID, RETURN_ID})
_HEADERS = {
    (CHANNEL_ID, ANALYSIS_ID, MESSAGE_ID): frozenset({END_ID}),
    (CHANNEL_ID, *COMMENTARY_IDS, MESSAGE_ID): frozenset({END_ID}),
    (CHANNEL_ID, FINAL_ID, MESSAGE_ID): _FINAL_ENDS,
    (CHANNEL_ID, FINAL_ID, CONSTRAIN_ID, JSON_ID, MESSAGE_ID): _FINAL_ENDS,
    (CHANNEL_ID, FINAL_ID, SPACE_ID, CONSTRAIN_ID, JSON_ID, MESSAGE_ID): _FINAL_ENDS,
}
"""The headers after ``<|start|>assistant``, and the special ids that may end the message of each."""
_NEXT_HEADERS = tuple((START_ID, ASSISTANT_ID, *header) for header in _HEADERS)
_AFTER_ANSWER = ((RETURN_ID,),)
"""Some models end an answer as any message, and would then write the user's next one."""


class AnswerConstraint:
    """The `Constraint` of one generation after ``<|start|>assistant`` that must not call."""

    pending: None = None

    def __init__(self) -> None:
        self._ends: frozenset[int] | None = None
        """The special ids that end the body; None in a header."""
        self._written: tuple[int, ...] = ()
        """The header so far."""
        self._headers: tuple[tuple[int, ...], ...] = tuple(_HEADERS)
        """What the header may be."""

    def accept(self, token: int) -> bool:
        """Take the token if it is allowed; tell whether it was."""
        if self._ends is None:
            return self._accept_in_header(token)
        if token < FIRST_SPECIAL_ID:
            return True
        if token not in self._ends:
            return False
        self._headers = _NEXT_HEADERS if self._ends is not _FINAL_ENDS else _AFTER_ANSWER
        self._ends, self._written = None, ()
        return True

    def _accept_in_header(self, token: int) -> bool:
        written = (*self._written, token)
        if not any(header[: len(written)] == written for header in self._headers):
            return False
        self._written = written
        if token == MESSAGE_ID:
            self._ends = _HEADERS[written[written.index(CHANNEL_ID) :]]
        return True

    def allowed(self) -> TokenIds:
        """Return the ids that may come next."""
        if self._ends is not None:
            return np.append(np.arange(FIRST_SPECIAL_ID), sorted(self._ends))
        length = len(self._written)
        following = {
            header[length]
            for header in self._headers
            if header[:length] == self._written and len(header) > length
        }
        return np.array(sorted(following), np.intp)
