"""A model's own chat template, taken apart: what it writes around each kind of message.

A conversation here grows message by message and is never rendered anew, so the template is asked once,
with marks for what people, tools and the model say: from where the marks stand in small conversations,
with and without a message, follows what stands before and after each. The texts themselves never pass
through the template; they are encoded apart from the markup. A template that cannot be taken apart so
(because a message changes what was written before it) is not used.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agent.formats.tokenizer_text import alike

_GENERATION = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
_FAILURES = (
    *(TemplateError, TypeError, ValueError, AttributeError),
    *(LookupError, ArithmeticError, RecursionError),
)
"""What a template may raise; it is somebody else's program."""
Message = dict[str, Any]


class TemplateUnusable(Exception):
    """Why the template cannot be used."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Markup around a text."""

    before: str
    after: str
    escaped: bool = False
    """The text stands in a JSON string."""


class ChatTemplate:
    """Raises TemplateUnusable where it is made."""

    def __init__(self, source: str, *, begin: str = "", end: str = "") -> None:
        """``begin``, ``end``: how the model's own tokens for that are spelled."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _tojson
        environment.globals |= {"raise_exception": _refuse, "bos_token": begin, "eos_token": end}
        mark = secrets.token_hex(6)
        self._x, self._y, self._z, self._v = (f"{name}{mark}{name}" for name in "xyzv")
        self.thinks = "</think>" in source
        try:
            # Training frameworks mark what the model writes; to Jinja these tags are unknown.
            self._template = environment.from_string(_GENERATION.sub("", source))
        except TemplateError as error:
            raise TemplateUnusable(str(error)) from error
        self._no_tools: list[Message] | None = None
        try:
            self._take_apart()
        except TemplateUnusable:
            self._no_tools = []  # some ask whether there are tools, some go through them
            self._take_apart()

    def head(self, instructions: bool, tools: Sequence[Message], day: date) -> tuple[str, str]:
        """What stands before the first message: up to the instructions, and after them.

        Without a place for instructions, the second part is empty and the first holds none.
        """
        system = [_message("system", self._v)] if instructions else []
        talk = [_message("user", self._x), _message("assistant", self._y)]
        text = self._rendered([*system, *talk, _message("user", self._z)], tools, day)
        head = _cut_end(text.partition(self._x)[0], self.user.before)
        before, _, after = head.partition(self._v)
        return before, after

    def _take_apart(self) -> None:
        x, y, z = self._x, self._y, self._z
        user, said, again = _message("user", x), _message("assistant", y), _message("user", z)
        text = self._rendered([user, said, again])
        closing = _between(text, z, None)
        ending = _between(self._rendered([user, said]), y, None)
        self.user = Frame(_cut_begin(_between(text, y, z), ending), closing)
        self.said = Frame(_cut_begin(_between(text, x, y), closing), ending)
        begun = _cut_end(text.partition(x)[0], self.user.before)
        if self._rendered([user]) != f"{begun}{self.user.before}{x}{closing}":
            raise TemplateUnusable("what it writes around a message depends on others")
        opening = _between(self._rendered([user], generate=True), x, None)
        self.opening = _cut_begin(opening, closing)
        """What a generation goes on from."""
        self.header = self.opening[: alike(self.opening, self.said.before)]
        """What is left of it in history, where thoughts are dropped."""
        self.further = ""
        """What stands between two results."""
        self.result = self._result([user], again)
        self.developer = self._developer([user, said], again)

    def _result(self, before: list[Message], again: Message) -> Frame:
        function = {"name": "f", "arguments": {"k": self._v}}
        call = {"id": "call00000", "type": "function", "function": function}
        called = {**_message("assistant", ""), "tool_calls": [call]}
        result = _message("tool", self._y) | {"name": "f", "tool_call_id": "call00000"}
        try:
            ending = _between(self._rendered([*before, called]), self._v, None)
            text = self._rendered([*before, called, result, again])
            both = self._rendered([*before, called, result, result | {"content": self._x}])
            self.further = _between(both, self._y, self._x)
            quoted = self._rendered([*before, called, {**result, "content": f'{self._y}"'}, again])
            return Frame(
                _cut_begin(_between(text, self._v, self._y), ending),
                _cut_end(_between(text, self._y, self._z), self.user.before),
                escaped=f'{self._y}\\"' in quoted,
            )
        except TemplateUnusable:
            # It knows no results: they are told as a person would tell them.
            before_it, behind = "<tool_response>\n", "\n</tool_response>"
            self.further = f"{behind}\n{before_it}"
            return Frame(self.user.before + before_it, behind + self.user.after)

    def _developer(self, before: list[Message], again: Message) -> Frame:
        try:
            text = self._rendered([*before, _message("system", self._v), again])
            return Frame(
                _cut_begin(_between(text, self._y, self._v), self.said.after),
                _cut_end(_between(text, self._v, self._z), self.user.before),
            )
        except TemplateUnusable:
            return self.user

    def _rendered(
        self,
        messages: Sequence[Message],
        tools: Sequence[Message] = (),
        day: date = date(2025, 1, 1),
        *,
        generate: bool = False,
    ) -> str:
        try:
            return self._template.render(
                messages=[dict(message) for message in messages],
                tools=list(tools) or self._no_tools,
                add_generation_prompt=generate,
                enable_thinking=True,
                tools_in_user_message=False,
                date_string=day.strftime("%d %b %Y"),
                strftime_now=day.strftime,
            )
        except _FAILURES as error:
            raise TemplateUnusable(str(error)) from error


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _between(text: str, start: str, end: str | None) -> str:
    """What stands between two marks that must be there."""
    _, found, rest = text.rpartition(start)
    if end is not None and found:
        rest, found, _ = rest.partition(end)
    if not found:
        raise TemplateUnusable("it leaves out what was said")
    return rest


def _cut_begin(text: str, begin: str) -> str:
    if not text.startswith(begin):
        raise TemplateUnusable("what it writes around a message depends on others")
    return text[len(begin) :]


def _cut_end(text: str, end: str) -> str:
    if not text.endswith(end):
        raise TemplateUnusable("what it writes around a message depends on others")
    return text[: len(text) - len(end)]


def _tojson(value: object, indent: int | None = None, **_: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(reason: str) -> None:
    raise TemplateError(reason)


def described(name: str, description: str, parameters: Mapping[str, Any]) -> Message:
    """A tool as templates want it: OpenAI's way."""
    function = {"name": name, "description": description, "parameters": dict(parameters)}
    return {"type": "function", "function": function}
