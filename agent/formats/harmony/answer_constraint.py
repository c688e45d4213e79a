"""Constrains a generation of Harmony to an answer without calls. Headers are compared with the few that
are allowed, id by id, and bodies are free text: there is no grammar to compile."""

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


_NO_LIMIT = 2**62
_FRAME_TOKENS = 10
"""Tokens of an answer's header and end, at most."""


class AnswerConstraint:
    """The `Constraint` of one generation after ``<|start|>assistant`` that must not call."""

    pending: None = None

    def __init__(self, max_tokens: int | None = None) -> None:
        """``max_tokens``: the budget; at most half of it precedes the answer, which ends within it."""
        self._tokens_left = max_tokens or _NO_LIMIT
        self._text_left = (max_tokens or 2 * _NO_LIMIT) // 2 - _FRAME_TOKENS
        """Tokens that the texts before the answer may have, in an answer: its own."""
        self._ends: frozenset[int] | None = None
        """The special ids that end the body; None in a header."""
        self._begin_header(tuple(_HEADERS))

    def _begin_header(self, headers: tuple[tuple[int, ...], ...]) -> None:
        self._written: tuple[int, ...] = ()
        self._headers = headers
        if self._text_left <= _FRAME_TOKENS and self._ends is not _FINAL_ENDS:
            self._headers = tuple(header for header in headers if FINAL_ID in header)
        self._ends = None

    def accept(self, token: int) -> bool:
        if self._ends is None:
            accepted = self._accept_in_header(token)
        elif token < FIRST_SPECIAL_ID:
            accepted = self._text_left > 0
            self._text_left -= accepted
        elif accepted := token in self._ends:
            self._begin_header(_AFTER_ANSWER if self._ends is _FINAL_ENDS else _NEXT_HEADERS)
        self._tokens_left -= accepted
        return accepted

    def _accept_in_header(self, token: int) -> bool:
        written = (*self._written, token)
        if not any(header[: len(written)] == written for header in self._headers):
            return False
        self._written = written
        if token == MESSAGE_ID:
            self._ends = _HEADERS[written[written.index(CHANNEL_ID) :]]
            if self._ends is _FINAL_ENDS:
                self._text_left = self._tokens_left - _FRAME_TOKENS
        return True

    def allowed(self) -> TokenIds:
        if self._ends is not None:
            text = np.arange(FIRST_SPECIAL_ID if self._text_left > 0 else 0)
            return np.append(text, sorted(self._ends))
        length = len(self._written)
        following = {
            header[length]
            for header in self._headers
            if header[:length] == self._written and len(header) > length
        }
        return np.array(sorted(following), np.intp)
