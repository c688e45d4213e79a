"""Derives from a model's Jinja chat template the markup around each kind of message.

A conversation here grows message by message and is never rendered again, while a template renders
entire conversations. So the template is rendered a few times with *sentinels*, random strings X, Y, Z
and V, in place of texts; the difference between the outputs is the markup. The texts themselves never
pass through the template: they are tokenised apart from the markup, so that no text can forge it.

For example, a template in ChatML that opens ``<think>`` and writes an empty thought into the last
assistant message (␊ is a line break)::

    [user X]             <|im_start|>user␊X<|im_end|>␊
    [user X] + prompt    <|im_start|>user␊X<|im_end|>␊<|im_start|>assistant␊<think>␊
    [user X, asst Y]     <|im_start|>user␊X<|im_end|>␊
                         <|im_start|>assistant␊<think>␊␊</think>␊␊Y<|im_end|>␊
    [user X, asst Y,     <|im_start|>user␊X<|im_end|>␊<|im_start|>assistant␊Y<|im_end|>␊
     user Z]             <|im_start|>user␊Z<|im_end|>␊

    between X and Y and after X, as far as equal        user.after        <|im_end|>␊
    between Y and Z and after Y, as far as equal        assistant.after   <|im_end|>␊
    the rest between Y and Z                            user.before       <|im_start|>user␊
    the rest between X and Y in the last                assistant.before  <|im_start|>assistant␊
    what follows X with the prompt, without user.after  generation_prompt <|im_start|>assistant␊<think>␊
    common prefix of that and assistant.before          message_header    <|im_start|>assistant␊

user.before must also end what precedes X, which decides where a template ends the last message
otherwise than earlier ones. Comparisons cut no tag.

A tool's result and a later system message are derived in the same way: V is the value in the call's
arguments, or the system message. With tools, what precedes X depends on them, and so `prompt_header`
renders the template for each new set of them.

Each step checks that the markup is where it must be. A template that fails is not used; see
`default_templates`. llama.cpp, too, compares renderings
(https://github.com/ggml-org/llama.cpp/blob/master/docs/autoparser.md). Variables and filters are those
of Hugging Face (https://huggingface.co/docs/transformers/chat_templating_writing).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import Any, Protocol

from agent.formats.markup.default_templates import TEMPLATES
from agent.formats.markup.template_child import (
    TEMPLATE_ERRORS,
    compile_template,
    error_text,
    render_template,
)
from agent.formats.markup.template_process import TemplateProcess, UnusableTemplateError
from agent.util.prefix import common_prefix_length

TemplateMessage = dict[str, Any]
_UNIT = re.compile(r"<[^<>\n]*>|\[[^\[\]\n]*\]|.", re.DOTALL)
"""A tag or a character."""


class TemplateRenderer(Protocol):
    """Renders one template."""

    def render(self, request: Mapping[str, Any]) -> str:
        """Render; ``request`` has the parameters of `render_template`. Raises UnusableTemplateError."""


class KnownTemplate:
    """Renders a template of ours in this process."""

    def __init__(self, source: str) -> None:
        self._template = compile_template(source)

    def render(self, request: Mapping[str, Any]) -> str:
        try:
            return render_template(self._template, **request)
        except TEMPLATE_ERRORS as error:
            raise UnusableTemplateError(error_text(error)) from error


def start_renderer(source: str) -> TemplateRenderer:
    """Render our own templates here, others in a process started now. Raises UnusableTemplateError."""
    return KnownTemplate(source) if source in TEMPLATES.values() else TemplateProcess(source)


@dataclass(frozen=True, slots=True)
class MessageFrame:
    """The markup around a text."""

    before: str
    after: str
    escaped: bool = False
    """Whether the text is in a JSON string, and has to be escaped."""


@dataclass(frozen=True, slots=True)
class TemplateFrames:
    """All markup that a template writes around texts."""

    user: MessageFrame
    assistant: MessageFrame
    developer: MessageFrame
    """Frame of a later system message; the user's where the template allows none."""
    result: MessageFrame
    result_separator: str
    """The markup between the results of two calls."""
    generation_prompt: str
    """The beginning of an assistant message that a generation continues."""
    message_header: str
    """The part of it that stays in the history, where reasoning is dropped."""


class ChatTemplate:
    """The frames that a template writes around messages; may raise UnusableTemplateError."""

    def __init__(
        self,
        source: str,
        renderer: TemplateRenderer | None = None,
        *,
        begin: str = "",
        end: str = "",
    ) -> None:
        """Derive the frames. ``renderer``: one that was started already. ``begin``, ``end``: the texts
        of the model's BOS and EOS tokens."""
        self._begin, self._end = begin, end
        nonce = secrets.token_hex(6)
        self._x, self._y, self._z, self._v = (f"{name}{nonce}{name}" for name in "xyzv")
        self.has_thinking = "</think>" in source
        self._renderer = renderer or start_renderer(source)
        self._no_tools: list[TemplateMessage] | None = None
        try:
            self.frames = self._derive_frames()
        except UnusableTemplateError:
            self._no_tools = []  # some templates test for tools, others iterate over them
            self.frames = self._derive_frames()

    def render(self, messages: Sequence[TemplateMessage], tools: Sequence[TemplateMessage]) -> str:
        """Render a conversation. Raises UnusableTemplateError."""
        return self._render(messages, tools)

    def prompt_header(
        self, instructions: bool, tools: Sequence[TemplateMessage], day: date
    ) -> tuple[str, str]:
        """Render what precedes the first message, before and after the instructions. Raises
        UnusableTemplateError if the instructions or tools have no place."""
        system = [_message("system", self._v)] if instructions else []
        messages = [_message("user", self._x), _message("assistant", self._y)]
        text = self._render([*system, *messages, _message("user", self._z)], tools, day)
        header = _remove_suffix(text.partition(self._x)[0], self.frames.user.before)
        before, _, after = header.partition(self._v)
        return before, after

    def _derive_frames(self) -> TemplateFrames:
        """Derive all frames, as in the module's example. Raises UnusableTemplateError."""
        x, y, z = self._x, self._y, self._z
        user, assistant = _message("user", x), _message("assistant", y)
        next_user = _message("user", z)
        text = self._render([user, assistant, next_user])
        prompt = _between(self._render([user], generate=True), x, None)
        user_after = _common_prefix(_between(text, x, y), self._ending([user], x, prompt))
        following = _between(text, y, z)
        assistant_after = _common_prefix(following, self._ending([user, assistant], y, prompt))
        user_before = _common_suffix(text.partition(x)[0], following[len(assistant_after) :])
        user_frame = MessageFrame(user_before, user_after)
        assistant_frame = MessageFrame(
            _remove_prefix(_between(text, x, y), user_after), _remove_suffix(following, user_before)
        )
        generation_prompt = _remove_prefix(prompt, user_after)
        beginning = _remove_suffix(text, f"{x}{_between(text, x, None)}")
        if (
            self._render([user], generate=True) != f"{beginning}{x}{prompt}"
            or self._render([user, assistant, next_user], generate=True)
            != f"{_remove_suffix(text, _between(text, z, None))}{prompt}"
        ):
            raise UnusableTemplateError("what it writes around a message depends on others")
        result, separator = self._derive_result_frame(user_frame, [user], next_user)
        return TemplateFrames(
            user=user_frame,
            assistant=assistant_frame,
            developer=self._derive_developer_frame(
                user_frame, assistant_frame, [user, assistant], next_user
            ),
            result=result,
            result_separator=separator,
            generation_prompt=generation_prompt,
            message_header=_common_prefix(generation_prompt, assistant_frame.before),
        )

    def _ending(self, messages: list[TemplateMessage], last: str, prompt: str) -> str:
        """Render what follows the last message's text: where a template always adds the generation
        prompt, before a system message."""
        end = _between(self._render(messages), last, None)
        if end.endswith(prompt):
            with suppress(UnusableTemplateError):
                text = self._render([*messages, _message("system", self._v)])
                return _between(text, last, self._v)
        return end

    def _derive_result_frame(
        self, user: MessageFrame, before: list[TemplateMessage], following: TemplateMessage
    ) -> tuple[MessageFrame, str]:
        """Derive a tool result's frame, and what separates two results of one message's calls."""
        function = {"name": "f", "arguments": {"k": self._v}}
        call = {"id": "call00000", "type": "function", "function": function}
        called = {**_message("assistant", ""), "tool_calls": [call]}
        result = _message("tool", self._y) | {"name": "f", "tool_call_id": "call00000"}
        try:
            call_after = _between(self._render([*before, called]), self._v, None)
            text = self._render([*before, called, result, following])
            two_results = self._render([*before, called, result, result | {"content": self._x}])
            separator = _between(two_results, self._y, self._x)
            quoted = self._render(
                [*before, called, {**result, "content": f'{self._y}"'}, following]
            )
            frame = MessageFrame(
                _remove_prefix(_between(text, self._v, self._y), call_after),
                _remove_suffix(_between(text, self._y, self._z), user.before),
                escaped=f'{self._y}\\"' in quoted,
            )
            return frame, separator
        except UnusableTemplateError:
            # The template knows no results: they become user messages.
            opening, closing = "<tool_response>\n", "\n</tool_response>"
            frame = MessageFrame(user.before + opening, closing + user.after)
            return frame, f"{closing}\n{opening}"

    def _derive_developer_frame(
        self,
        user: MessageFrame,
        assistant: MessageFrame,
        before: list[TemplateMessage],
        following: TemplateMessage,
    ) -> MessageFrame:
        """Derive the frame of a later system message, or the user's if it is not allowed."""
        try:
            text = self._render([*before, _message("system", self._v), following])
            return MessageFrame(
                _remove_prefix(_between(text, self._y, self._v), assistant.after),
                _remove_suffix(_between(text, self._v, self._z), user.before),
            )
        except UnusableTemplateError:
            return user

    def _render(
        self,
        messages: Sequence[TemplateMessage],
        tools: Sequence[TemplateMessage] = (),
        day: date = date(2025, 1, 1),
        *,
        generate: bool = False,
    ) -> str:
        return self._renderer.render(
            {
                "messages": [dict(message) for message in messages],
                "tools": list(tools) or self._no_tools,
                "day": day.isoformat(),
                "generate": generate,
                "begin": self._begin,
                "end": self._end,
            }
        )


def _message(role: str, content: str) -> TemplateMessage:
    return {"role": role, "content": content}


def _between(text: str, start: str, end: str | None) -> str:
    """Return the text between two sentinels, or (None) after the first, which must be there."""
    _, sentinel, rest = text.rpartition(start)
    if end is not None and sentinel:
        rest, sentinel, _ = rest.partition(end)
    if not sentinel:
        raise UnusableTemplateError("it leaves out what was said")
    return rest


def _common_prefix(first: str, second: str) -> str:
    """Return the common prefix of two texts, without a part of a tag."""
    units = _UNIT.findall(first)
    return "".join(units[: common_prefix_length(units, _UNIT.findall(second))])


def _common_suffix(first: str, second: str) -> str:
    units = _UNIT.findall(first)[::-1]
    return "".join(units[: common_prefix_length(units, _UNIT.findall(second)[::-1])][::-1])


def _remove_prefix(text: str, begin: str) -> str:
    if not text.startswith(begin):
        raise UnusableTemplateError("what it writes around a message depends on others")
    return text[len(begin) :]


def _remove_suffix(text: str, end: str) -> str:
    if not text.endswith(end):
        raise UnusableTemplateError("what it writes around a message depends on others")
    return text[: len(text) - len(end)]


def tool_schema(name: str, description: str, parameters: Mapping[str, Any]) -> TemplateMessage:
    """Describe a tool as templates expect it: as in OpenAI's Chat Completions API."""
    function = {"name": name, "description": description, "parameters": dict(parameters)}
    return {"type": "function", "function": function}
