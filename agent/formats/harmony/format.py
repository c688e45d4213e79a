"""Harmony as a Format: rendering and parsing bound to one vocabulary."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from openai_harmony import HarmonyEncoding

from agent.engine.grammars import Grammars, Spelling
from agent.engine.protocol import Constraint
from agent.formats.constraints import Held, Rules
from agent.formats.harmony.constraint import HarmonyGuide
from agent.formats.harmony.parser import HarmonyParser
from agent.formats.harmony.renderer import Renderer
from agent.formats.harmony.token_ids import (
    CALL,
    CHANNEL,
    END,
    ENDOFTEXT,
    LAST,
    MESSAGE,
    ORDINARY,
    RETURN,
    vocabulary,
)
from agent.formats.protocol import Head, Parser
from agent.formats.recipients import Recipients

HEADS = 8
"""So many of the last are remembered."""

# What the model may call without being told of a function of that name.
TRAINED = ("python", "browser", "container")


class HarmonyFormat:
    """gpt-oss's own format."""

    name = "harmony"
    holds: frozenset[Held] = frozenset({"choice", "answer", "arguments"})
    stop = frozenset({RETURN, CALL, ENDOFTEXT})

    def __init__(self, encoding: HarmonyEncoding) -> None:
        self.encoding = encoding
        self.render = Renderer(encoding)
        self._heads: deque[tuple[Head, list[int]]] = deque(maxlen=HEADS)

    def head(self, head: Head) -> list[int]:
        """Clients send the same one again and again; to render it takes a millisecond and more."""
        known = next((ids for one, ids in self._heads if one == head), None)
        if known is None:
            known = self._rendered(head)
            self._heads.append((head, known))
        return known

    def _rendered(self, head: Head) -> list[int]:
        system = self.render.system(
            date=head.date,
            effort=head.effort,
            python=head.python,
            own=head.own,
            functions=bool(head.functions),
        )
        return system + self.render.developer(head.instructions, head.functions)

    def user(self, text: str) -> list[int]:
        return self.render.user(text)

    def open_assistant(self) -> list[int]:
        return self.render.assistant_open()

    def open_call(self, recipient: str | None) -> list[int]:
        if recipient is None:
            return [CHANNEL, *self.encoding.encode("commentary to")]
        # A call with nothing in it, without what opens and ends it.
        empty = self.call(recipient, "", json=recipient != "python")
        return empty[len(self.open_assistant()) : -1]

    def close_message(self, ids: Sequence[int], *, call: bool) -> list[int]:
        if ids and ids[0] in (CHANNEL, MESSAGE):
            # The model left the opening out; what it stood after may be dropped from history.
            ids = [*self.open_assistant(), *ids]
        # A finished answer ends in <|return|> only as the very last thing that was said.
        body = ids[:-1] if ids and ids[-1] in (END, CALL, RETURN, ENDOFTEXT) else ids
        return [*body, CALL if call else END]

    def result(self, recipient: str, text: str) -> list[int]:
        return self.render.tool_result(recipient, text)

    def plain(self, text: str) -> list[int]:
        return self.render.body(text)

    def canonical(self, tool: str) -> str:
        return tool if tool.split(".")[0] in TRAINED else f"functions.{tool}"

    def parser(self, recipients: Recipients | None) -> Parser:
        return HarmonyParser(self.encoding, recipients)

    def spelling(self, token: int) -> bytes:
        known = vocabulary(self.encoding)
        raw = known.raw(token)
        return known.spelled(token).encode() if raw is None else raw

    def is_markup(self, token: int) -> bool:
        return token >= ORDINARY

    @property
    def grammars(self) -> Grammars:
        return _grammars(self.encoding)

    def guide(self, rules: Rules, recipients: Recipients) -> Constraint:
        return HarmonyGuide(self.encoding, rules, recipients, self.grammars)

    def said(self, text: str, *, phase: Literal["commentary", "final_answer"]) -> list[int]:
        if phase == "commentary":
            return self.render.assistant_preamble(text)
        return self.render.assistant_final(text)

    def call(self, recipient: str, arguments: str, *, json: bool = True) -> list[int]:
        return self.render.call(recipient, arguments, json=json)

    def thought(self, text: str) -> list[int]:
        return self.render.assistant_analysis(text)

    def developer(self, text: str) -> list[int]:
        return self.render.developer(text, ())


@lru_cache(maxsize=1)
def _grammars(encoding: HarmonyEncoding) -> Grammars:
    """A process has one encoding, and so one tokenizer for all its runtimes."""

    def spelling() -> Spelling:
        decode = encoding._inner.decode_bytes
        tokens = [decode([token]) for token in range(LAST)]
        return Spelling(tokens, frozenset(range(ORDINARY, LAST)))

    return Grammars(spelling)
