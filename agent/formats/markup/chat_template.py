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

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from agent.formats.markup.default_templates import TEMPLATES
from agent.formats.markup.template_child import (
    TEMPLATE_ERRORS,
    compile_template,
    error_text,
    render_template,
)
from agent.formats.markup.template_process import TemplateProcess, UnusableTemplateError
from agent.formats.protocol import Effort
from agent.util.prefix import common_prefix_length

TemplateMessage = dict[str, Any]
TemplateMessages = Sequence[TemplateMessage]
NAMESPACE = "]<]minimax[>["
"""MiniMax M3 puts this token before each tag of a call."""
_UNIT = re.compile(rf"{re.escape(NAMESPACE)}|<[^<>\n]*>|\[[^\[\]\n]*\]|.", re.DOTALL)
"""A tag or a character."""
EFFORTS: tuple[Effort, ...] = ("low", "medium", "high")


class KnownTemplate:
    """Renders a template of ours in this process."""

    def __init__(self, source: str) -> None:
        self._template = compile_template(source)

    def render(self, request: Mapping[str, Any]) -> str:
        try:
            return render_template(self._template, **request)
        except TEMPLATE_ERRORS as error:
            raise UnusableTemplateError(error_text(error)) from error


TemplateRenderer = KnownTemplate | TemplateProcess


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
class ResultFrames:
    """The markup around the results of tool calls."""

    frame: MessageFrame
    separator: str
    """The markup between the results of two calls."""
    name: str
    """The name that the markup has in place of the tool's."""
    call_end: str
    """The end of a message with a call."""

    def named(self, tool: str) -> ResultFrames:
        texts = (self.frame.before, self.frame.after, self.separator)
        before, after, separator = (text.replace(self.name, tool) for text in texts)
        frame = MessageFrame(before, after, self.frame.escaped)
        return replace(self, frame=frame, separator=separator, name=tool)


@dataclass(frozen=True, slots=True)
class Opening:
    """The beginning of an assistant message."""

    prompt: str
    """The generation prompt."""
    header: str
    """The part of it that stays in the history, where reasoning is dropped."""
    before_answer: str
    """The markup behind it in an answer without its reasoning: an empty thought, or the end of one."""
    before_call: str
    """The same in a call, with the call's beginning up to the name."""

    def instead_of_reasoning(self, following: str) -> str:
        """Return the markup in place of dropped reasoning, without that which ``following`` has."""
        for text, is_call in ((self.before_call, True), (self.before_answer, False)):
            units = _UNIT.findall(text)
            for at in range(len(units)):
                has_tag = any(len(unit) > 1 for unit in units[at:])
                if (has_tag or not is_call) and following.startswith("".join(units[at:])):
                    return "".join(units[:at])
        return self.before_answer


@dataclass(frozen=True, slots=True)
class TemplateFrames:
    """All markup that a template writes around texts."""

    user: MessageFrame
    assistant: MessageFrame
    developer: MessageFrame
    """Frame of later instructions; the user's where the template allows none."""
    results: ResultFrames
    generation_prompt: str
    """The beginning of an assistant message that a generation continues."""
    message_header: str
    """The part of it that stays in the history, where reasoning is dropped."""


class ChatTemplate:
    """The frames that a template writes around messages; may raise UnusableTemplateError."""

    def __init__(
        self, source: str, renderer: TemplateRenderer | None = None, begin: str = "", end: str = ""
    ) -> None:
        """``renderer``: one that was started already. ``begin``, ``end``: the texts of BOS and EOS."""
        self._begin, self._end = begin, end
        nonce = secrets.token_hex(6)
        self._x, self._y, self._z, self._v = (f"{name}{nonce}{name}" for name in "xyzv")
        self._name, self._reasoning = f"f{nonce}", f"r{nonce}"
        self._thought = dict.fromkeys(("reasoning_content", "thinking"), self._reasoning)
        self.has_thinking = "</think>" in source
        self._instruction_roles = ("system", "developer") if "developer" in source else ("system",)
        self._renderer = renderer or start_renderer(source)
        self._no_tools: list[TemplateMessage] | None = None
        self._settings: dict[Effort, dict[str, Any]] = {}
        self._call_kind: type | None = dict
        self._knows_results = True
        self.effort_control = False
        """Whether the effort changes what the template writes."""
        try:
            self.frames = self._derive_frames()
        except UnusableTemplateError:
            self._no_tools = []  # some templates test for tools, others iterate over them
            self.frames = self._derive_frames()
        called = [self._called(self._v), *self._results(self._y)]
        parts = {"content": thinking_parts(self._reasoning)}
        if not self.has_thinking:
            self.has_thinking = self._shows_reasoning(called, [], self._thought, parts)
        finished = [message("assistant", self._y), message("user", self._z)]
        tool = tool_schema("f", "", {"type": "object", "properties": {}})
        shows = self._shows_reasoning
        self.keeps_reasoning = {bool(tools): shows(finished, tools) for tools in ([], [tool])}
        """Whether the template leaves reasoning in finished turns, without and with tools."""

    def prompt_header(
        self, instructions: bool, tools: TemplateMessages, day: date, effort: Effort = "medium"
    ) -> MessageFrame:
        """Render what precedes the first message, around the instructions. Raises
        UnusableTemplateError if the instructions or tools have no place."""
        system = [message("system", self._v)] if instructions else []
        messages = [*system, message("user", self._x)]
        text = self.render(messages, tools, day, effort=effort).partition(self._x)[0]
        names = [tool["function"]["name"] for tool in tools]
        if any(part not in text for part in (*names, *([self._v] if instructions else []))):
            raise UnusableTemplateError("it leaves out what was said")
        before, _, after = _remove_suffix(text, self.frames.user.before).partition(self._v)
        return MessageFrame(before, after)

    def opening(self, effort: Effort, *, after_result: bool = False) -> Opening:
        """Derive the beginning of an assistant message after a user's, or after a tool result, where it
        may continue the one with the call."""
        frames, z = self.frames, self._z
        messages, last, after = [message("user", self._x)], self._x, frames.user.after
        if after_result and self._knows_results:
            messages += [self._called(self._v), *self._results(self._y)]
            last, after = self._y, frames.results.frame.after
        try:
            text = self.render(messages, generate=True, effort=effort)
            header = prompt = _remove_prefix(_between(text, last, None), after)
        except UnusableTemplateError:
            prompt, header = frames.generation_prompt, frames.message_header

        def history(begun: TemplateMessage, *more: TemplateMessage) -> str:
            """Render the beginning of a finished turn's message, whose reasoning is dropped."""
            for thought in (self._thought, {}):
                with suppress(UnusableTemplateError):
                    finished = [*messages, begun | thought, *more, message("user", self._v)]
                    text = _between(self.render(finished, effort=effort), last, z)
                    if self._reasoning not in text:
                        return _remove_prefix(text, after)
            return header

        answer, call = history(message("assistant", z)), ""
        header = common_prefix(prompt, answer)
        if self._knows_results:
            results = self._results(self._x if last == self._y else self._y)
            call = history(self._called(z), *results).partition(self._name)[0]
        before_call = call[len(header) :] if call.startswith(header) else ""
        return Opening(prompt, header, answer[len(header) :], before_call)

    def _shows_reasoning(
        self, turn: TemplateMessages, tools: TemplateMessages, *thoughts: TemplateMessage
    ) -> bool:
        """Whether the template writes the reasoning of the first of these messages, in any form."""
        for thought in thoughts or (self._thought,):
            messages = [message("user", self._x), turn[0] | thought, *turn[1:]]
            with suppress(UnusableTemplateError):
                text = self.render(messages, tools)
                if self._reasoning in text and not shows_parts(text):
                    return True
        return False

    def _derive_settings(self, user: TemplateMessage) -> None:
        """Choose the variables for how much the model reasons: levels, or a switch, off if low."""
        for switch in (False, True):
            texts = {}
            for effort in EFFORTS:
                for tried in (effort, "high"):  # some templates know two levels
                    self._settings[effort] = _thinking_variables(tried, switch=switch)
                    with suppress(UnusableTemplateError):
                        texts[effort] = self.render([user], generate=True, effort=effort)
                        break
            self.effort_control = texts.get("low") != texts.get("high")
            if self.effort_control:
                return
        self._settings = dict.fromkeys(EFFORTS, _thinking_variables("medium", switch=False))

    def _derive_frames(self) -> TemplateFrames:
        """Derive all frames, as in the module's example. Raises UnusableTemplateError."""
        x, y, z = self._x, self._y, self._z
        user, assistant = message("user", x), message("assistant", y)
        turn, following_user = [user, assistant], message("user", z)
        self._derive_settings(user)
        text = self.render([*turn, following_user])
        prompt = _between(self.render([user], generate=True), x, None)
        user_after = common_prefix(_between(text, x, y), self._ending([user], x, prompt))
        following = _between(text, y, z)
        assistant_after = common_prefix(following, self._ending(turn, y, prompt))
        user_before = common_suffix(text.partition(x)[0], following[len(assistant_after) :])
        user_frame = MessageFrame(user_before, user_after)
        assistant_frame = MessageFrame(
            _remove_prefix(_between(text, x, y), user_after), _remove_suffix(following, user_before)
        )
        generation_prompt = _remove_prefix(prompt, user_after)
        beginning = _remove_suffix(text, f"{x}{_between(text, x, None)}")
        if (
            self.render([user], generate=True) != f"{beginning}{x}{prompt}"
            or self.render([*turn, following_user], generate=True)
            != f"{_remove_suffix(text, _between(text, z, None))}{prompt}"
        ):
            raise UnusableTemplateError("what it writes around a message depends on others")
        developer = user_frame  # where the template knows no later instructions
        for role in self._instruction_roles:
            with suppress(UnusableTemplateError):
                changed = self.render([*turn, message(role, self._v), following_user])
                developer = MessageFrame(
                    _remove_prefix(_between(changed, y, self._v), assistant_frame.after),
                    _remove_suffix(_between(changed, self._v, z), user_frame.before),
                )
                break
        return TemplateFrames(
            user=user_frame,
            assistant=assistant_frame,
            developer=developer,
            results=self._derive_result_frames(user_frame, assistant_frame, generation_prompt),
            generation_prompt=generation_prompt,
            message_header=common_prefix(generation_prompt, assistant_frame.before),
        )

    def _ending(self, messages: list[TemplateMessage], last: str, prompt: str) -> str:
        """Render what follows the last message's text: where a template always adds the generation
        prompt, before a system message."""
        end = _between(self.render(messages), last, None)
        if end.endswith(prompt):
            with suppress(UnusableTemplateError):
                return _between(self.render([*messages, message("system", self._v)]), last, self._v)
        return end

    def _derive_result_frames(
        self, user: MessageFrame, answer: MessageFrame, prompt: str
    ) -> ResultFrames:
        """Derive the frames of tool results, after calls as the template may know them: with an object
        as arguments, with JSON text, or as the text of an answer."""
        for self._call_kind in (dict, str, None):
            with suppress(UnusableTemplateError):
                return self._derive_results_after_calls(answer, prompt)
        # The template knows no results: they become user messages.
        self._knows_results = False
        opening, closing = "<tool_response>\n", "\n</tool_response>"
        frame = MessageFrame(user.before + opening, closing + user.after)
        return ResultFrames(frame, f"{closing}\n{opening}", self._name, answer.after)

    def _derive_results_after_calls(self, answer: MessageFrame, prompt: str) -> ResultFrames:
        x, y, z, v = self._x, self._y, self._z, self._v
        called = [message("user", x), self._called(v)]
        text = self.render([*called, *self._results(y)], generate=True)
        following, after = _between(text, v, y), _between(text, y, None)
        end = _between(self.render(called), v, None)
        try:
            two = self.render([called[0], self._called(v, z), *self._results(y, x)])
            closing = common_prefix(_between(two, v, z), following)
        except UnusableTemplateError:  # a message has one call
            two = self.render([*called, *self._results(y, x)])
            closing = end.partition(answer.after)[0] if answer.after else end
        opening = _remove_prefix(following, closing)
        if end.startswith(closing):
            end = end[len(closing) :]
        else:  # the last message's calls are written otherwise
            end = next(end[at:] for at in range(len(end) + 1) if opening.startswith(end[at:]))
        end = common_prefix(opening, end)
        if after.endswith(prompt):
            after = _remove_suffix(after, prompt)
        else:  # the message with the call continues
            text = self.render([*called, *self._results(y), message("user", z)])
            after = common_prefix(after, _between(text, y, z))
        quoted = self.render([*called, *self._results(f'{y}"')])
        frame = MessageFrame(opening[len(end) :], after, escaped=f'{y}\\"' in quoted)
        return ResultFrames(frame, _between(two, y, x), self._name, end)

    def _called(self, *values: str) -> TemplateMessage:
        if self._call_kind is None:
            return message("assistant", values[0])
        arguments: list[Any] = [{"k": value} for value in values]
        if self._call_kind is str:
            arguments = [json.dumps(one) for one in arguments]
        return message("assistant", "", [(self._name, one) for one in arguments])

    def _results(self, *texts: str) -> list[TemplateMessage]:
        return [
            message("tool", text) | {"name": self._name, "tool_call_id": f"call0000{at}"}
            for at, text in enumerate(texts)
        ]

    def render(
        self,
        messages: TemplateMessages,
        tools: TemplateMessages = (),
        day: date = date(2025, 1, 1),
        *,
        generate: bool = False,
        effort: Effort = "medium",
    ) -> str:
        """Render a conversation. Raises UnusableTemplateError."""
        return self._renderer.render({
            "messages": [dict(one) for one in messages],
            "tools": list(tools) or self._no_tools,
            "day": day.isoformat(), "generate": generate, "begin": self._begin, "end": self._end,
            "variables": self._settings[effort],
        })  # fmt: skip


def _thinking_variables(effort: Effort, *, switch: bool) -> dict[str, Any]:
    """Return the variables by which templates know the effort. ``switch``: low turns reasoning off."""
    thinks = not switch or effort != "low"
    names = ("reasoning_effort", "thinking_effort", "reasoning_strength")
    return {
        **dict.fromkeys(names, effort if thinks else "none"),
        **dict.fromkeys(("enable_thinking", "thinking"), thinks),
        "thinking_mode": "enabled" if thinks else "disabled",
        "thinking_budget": {"low": 512, "medium": 4096, "high": -1}[effort],
    }


def message(role: str, content: str, calls: Sequence[tuple[str, Any]] = ()) -> TemplateMessage:
    """Return a message as templates expect it; ``calls``: the names and arguments of its calls."""
    called = [
        {"id": f"call0000{at}", "type": "function", "function": {"name": name, "arguments": given}}
        for at, (name, given) in enumerate(calls)
    ]
    return {"role": role, "content": content} | ({"tool_calls": called} if called else {})


def thinking_parts(thought: str, answer: str = "") -> list[dict[str, str]]:
    """Return the content of a message whose reasoning is a part of it, as Mistral's templates do."""
    return [{"type": "thinking", "thinking": thought}, {"type": "text", "text": answer}]


def shows_parts(text: str) -> bool:
    """Tell whether a template wrote a list of parts as it is: it knows no such content."""
    return re.search(r"""['"]thinking['"]\s*:""", text) is not None


def _between(text: str, start: str, end: str | None) -> str:
    """Return the text between two sentinels, or (None) after the first, which must be there."""
    _, sentinel, rest = text.rpartition(start)
    if end is not None and sentinel:
        rest, sentinel, _ = rest.partition(end)
    if not sentinel:
        raise UnusableTemplateError("it leaves out what was said")
    return rest


def common_prefix(first: str, second: str) -> str:
    """Return the common prefix of two texts, without a part of a tag."""
    units = _UNIT.findall(first)
    return "".join(units[: common_prefix_length(units, _UNIT.findall(second))])


def common_suffix(first: str, second: str) -> str:
    units, others = (_UNIT.findall(text)[::-1] for text in (first, second))
    return "".join(units[: common_prefix_length(units, others)][::-1])


def _remove_prefix(text: str, begin: str) -> str:
    if not text.startswith(begin):
        raise UnusableTemplateError("what it writes around a message depends on others")
    return text[len(begin) :]


def _remove_suffix(text: str, end: str) -> str:
    return _remove_prefix(text[::-1], end[::-1])[::-1]


def tool_schema(name: str, description: str, parameters: Mapping[str, Any]) -> TemplateMessage:
    """Describe a tool as templates expect it: as in OpenAI's Chat Completions API."""
    function = {"name": name, "description": description, "parameters": dict(parameters)}
    return {"type": "function", "function": function}
