"""Harmony as a `Format`: renderer, parser and constraints with one encoding."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from openai_harmony import HarmonyEncoding

from agent.engine.grammars import GrammarCompiler, TokenBytes
from agent.engine.protocol import Constraint
from agent.formats.constraints import ConstraintKind, GenerationConstraints
from agent.formats.harmony.answer_constraint import AnswerConstraint
from agent.formats.harmony.constraint import HarmonyConstraint
from agent.formats.harmony.parser import HarmonyParser
from agent.formats.harmony.renderer import TRAINED_NAMESPACES, HarmonyRenderer
from agent.formats.harmony.token_ids import (
    ANALYSIS_ID,
    CALL_ID,
    CHANNEL_ID,
    COMMENTARY_IDS,
    END_ID,
    END_OF_TEXT_ID,
    FINAL_ID,
    FIRST_SPECIAL_ID,
    LAST_ID,
    MESSAGE_ID,
    RETURN_ID,
    harmony_vocabulary,
)
from agent.formats.protocol import Effort, Parser, PromptHeader
from agent.formats.recipients import PYTHON_TOOL, Recipients, without_markup

MAX_CACHED_HEADERS = 8

_SPELLED_SPECIAL = re.compile(r"<\|[a-z0-9_]{1,32}\|>")
_CHANNELS = {ANALYSIS_ID: "analysis", FINAL_ID: "final", COMMENTARY_IDS[0]: "commentary"}


class HarmonyFormat(HarmonyRenderer):
    """The format of gpt-oss."""

    name, source, parses_calls = "harmony", "built in", True
    supported_constraints: frozenset[ConstraintKind] = frozenset({"choice", "answer", "arguments"})
    stop_ids = frozenset({RETURN_ID, CALL_ID, END_OF_TEXT_ID})
    begin_id: int | None = None
    effort_control = True

    def __init__(self, encoding: HarmonyEncoding, *, keep_calls: bool = False) -> None:
        """``keep_calls``: for a model that was trained so."""
        super().__init__(encoding)
        self.keep_calls = keep_calls
        self._cached_headers: deque[tuple[PromptHeader, list[int]]] = deque(
            maxlen=MAX_CACHED_HEADERS
        )

    def with_effort(self, effort: Effort) -> HarmonyFormat:
        """Return this format: the effort is in the system message."""
        return self

    def prompt_header(self, header: PromptHeader) -> list[int]:
        """Render system and developer message, cached: that takes a millisecond or more."""
        known = next((ids for cached, ids in self._cached_headers if cached == header), None)
        if known is None:
            known = self.system_message(
                date=header.date,
                effort=header.effort,
                python=header.python,
                builtin_tools=header.builtin_tools,
                functions=bool(header.functions),
            ) + self.instructions_message(header.instructions, header.functions)
            self._cached_headers.append((header, known))
        return known

    def open_answer(self) -> list[int]:
        empty = self.assistant_message("", phase="final_answer")
        return empty[len(self.open_assistant()) : -1]

    def begin_message(self, reasoning: str | None, answer: str | None) -> list[int]:
        """Return ``<|channel|>analysis<|message|>…`` or ``<|channel|>final<|message|>…``, or both."""
        ids, opening = [], len(self.open_assistant())
        if reasoning is not None:
            ids = self.reasoning_message(reasoning)[opening:]
            if answer is None:
                return ids[:-1]
            ids += self.open_assistant()
        final = self.assistant_message(answer or "", phase="final_answer")
        return ids + final[opening:-1]

    def end_reasoning(self, *, before_call: bool = False) -> list[int]:
        answer = [] if before_call else self.open_answer()
        return [END_ID, *self.open_assistant(), *answer]

    def may_be_call(self, ids: Sequence[int]) -> bool:
        """Tell whether ids may become a call's header: in the commentary channel, as is trained."""
        channels = [after for before, after in pairwise(ids) if before == CHANNEL_ID]
        return not channels or channels[-1] not in (ANALYSIS_ID, FINAL_ID)

    def split_message(self, ids: Sequence[int]) -> tuple[list[int], list[int]]:
        """Split at the first ``<|message|>``; a message without one is all header."""
        opening, message = self.open_assistant(), list(ids)
        if message[: len(opening)] == opening:
            del message[: len(opening)]
        at = message.index(MESSAGE_ID) + 1 if MESSAGE_ID in message else len(message)
        header, body = message[:at], message[at:]
        if body and self.is_markup(body[-1]):
            body.pop()
        return header, body

    def open_call(self, recipient: str | None) -> list[int]:
        """Return the header of a call to the tool or, with None, its beginning up to the recipient."""
        if recipient is None:
            return [CHANNEL_ID, *self.encoding.encode("commentary to")]
        # A call without text, without its generation prompt and its end.
        empty = self.tool_call(recipient, "", json=recipient != PYTHON_TOOL)
        return empty[len(self.open_assistant()) : -1]

    def close_message(self, ids: Sequence[int], *, call: bool) -> list[int]:
        """End a generated message with ``<|call|>`` or ``<|end|>``, and complete its beginning."""
        if ids and ids[0] in (CHANNEL_ID, MESSAGE_ID):
            # The model left <|start|>assistant out; the message before may be dropped from history.
            ids = [*self.open_assistant(), *ids]
        # The Harmony guide: in a history, an answer's <|return|> becomes <|end|>.
        body = ids[:-1] if ids and ids[-1] in (END_ID, CALL_ID, RETURN_ID, END_OF_TEXT_ID) else ids
        return [*body, CALL_ID if call else END_ID]

    def encode_markup(self, text: str) -> list[int]:
        ids: list[int] = []
        start = 0
        for match in _SPELLED_SPECIAL.finditer(text):
            special = self.encoding.encode(match[0], allowed_special="all")
            if len(special) == 1 and self.is_markup(special[0]):
                ids += [*self.encode_text(text[start : match.start()]), *special]
                start = match.end()
        return ids + self.encode_text(text[start:])

    def canonical_name(self, tool: str, *, function: bool = False) -> str:
        tool = without_markup(tool).removeprefix("functions.")
        own = not function and tool.split(".")[0] in TRAINED_NAMESPACES
        return tool if own else f"functions.{tool}"

    def channel(self, ids: Sequence[int]) -> str | None:
        """Return a message's channel; of several, which only a malformed header has, the last one."""
        for before, after in reversed([*pairwise(self.split_message(ids)[0])]):
            if before == CHANNEL_ID:
                return _CHANNELS.get(after)
        return None

    def parser(self, recipients: Recipients | None) -> Parser:
        return HarmonyParser(self.encoding, recipients)

    def token_bytes(self, token: int) -> bytes:
        """Return an id's bytes, or a special token's text; empty for an id that does not exist."""
        vocabulary = harmony_vocabulary(self.encoding)
        raw = vocabulary.token_bytes(token)
        return vocabulary.special_text(token).encode() if raw is None else raw

    def is_markup(self, token: int) -> bool:
        return token >= FIRST_SPECIAL_ID

    @property
    def grammars(self) -> GrammarCompiler:
        return _grammars(self.encoding)

    def new_constraint(
        self, constraints: GenerationConstraints, recipients: Recipients
    ) -> Constraint:
        if constraints.calls == "none" and constraints.answer_grammar is None:
            return AnswerConstraint(constraints.max_tokens)
        return HarmonyConstraint(self.encoding, constraints, recipients, self.grammars)

    def developer_message(self, text: str) -> list[int]:
        return self.instructions_message(text, ())


@lru_cache(maxsize=1)
def _grammars(encoding: HarmonyEncoding) -> GrammarCompiler:
    """Make the grammar compiler that all runtimes share: a process has one encoding."""

    def token_bytes() -> TokenBytes:
        decode = encoding._inner.decode_bytes
        tokens = [decode([token]) for token in range(LAST_ID)]
        return TokenBytes(tokens, frozenset(range(FIRST_SPECIAL_ID, LAST_ID)))

    return GrammarCompiler(token_bytes)
