"""Harmony as a Format: rendering and parsing bound to one vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from openai_harmony import HarmonyEncoding

from agent.formats.base import Head, Parser
from agent.formats.harmony.parser import HarmonyParser
from agent.formats.harmony.render import Renderer
from agent.formats.recipients import Recipients

START, END, CHANNEL, MESSAGE = 200006, 200007, 200005, 200008
RETURN, CALL, END_OF_TEXT = 200002, 200012, 199999

# What the model may call without being told of a function of that name.
TRAINED = ("python", "browser", "container")


class HarmonyFormat:
    """gpt-oss's own format."""

    name = "harmony"
    stop = frozenset({RETURN, CALL, END_OF_TEXT})

    def __init__(self, encoding: HarmonyEncoding) -> None:
        self.encoding = encoding
        self.render = Renderer(encoding)

    def head(self, head: Head) -> list[int]:
        system = self.render.system(
            date=head.date,
            effort=head.effort,
            python=head.python,
            functions=bool(head.functions),
        )
        return system + self.render.developer(head.instructions, head.functions)

    def user(self, text: str) -> list[int]:
        return self.render.user(text)

    def open_assistant(self) -> list[int]:
        return self.render.assistant_open()

    def close_message(self, ids: Sequence[int]) -> list[int]:
        # A finished answer ends in <|return|> only as the very last thing that was said.
        match ids[-1] if ids else None:
            case int(last) if last in (END, CALL):
                return list(ids)
            case int(last) if last in (RETURN, END_OF_TEXT):
                return [*ids[:-1], END]
            case _:
                return [*ids, END]

    def result(self, recipient: str, text: str) -> list[int]:
        return self.render.tool_result(recipient, text)

    def canonical(self, tool: str) -> str:
        return tool if tool.split(".")[0] in TRAINED else f"functions.{tool}"

    def parser(self, recipients: Recipients | None) -> Parser:
        return HarmonyParser(self.encoding, recipients)

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
