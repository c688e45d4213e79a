"""Messages as token ids, one at a time, by openai-harmony.

What a text spells is never markup: only headers hold special ids. A message is rendered once; to append
to a conversation costs the new message only.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from openai_harmony import (
    Author,
    DeveloperContent,
    HarmonyEncoding,
    Message,
    ReasoningEffort,
    RenderOptions,
    Role,
    SystemContent,
    TextContent,
    ToolDescription,
    ToolNamespaceConfig,
)

from agent.formats.harmony.schema_normaliser import normalise
from agent.formats.harmony.token_ids import ASSISTANT, CALL, START
from agent.formats.protocol import FunctionTool
from agent.formats.tokenizer_text import Tokenised, line, parts, unbroken, whole

MOST_EMPTY = 1024
_NO_NAME = re.compile(r"[^\w.-]")
_THOUGHT = frozenset({"python", "browser", "container"})
"""Namespaces that gpt-oss calls while it thinks, in the analysis channel."""


class Renderer:
    """Renders with one vocabulary."""

    def __init__(self, encoding: HarmonyEncoding) -> None:
        self._encoding = encoding
        self._empty: dict[tuple[Role | str | None, ...], list[int]] = {}
        """Messages without text, by who speaks to whom: the rest of a message is its text."""

    def system(
        self,
        *,
        date: str,
        effort: Literal["low", "medium", "high"],
        python: bool,
        own: Sequence[FunctionTool] = (),
        functions: bool,
    ) -> list[int]:
        """The system message; ``functions``: the developer message declares some."""
        content = (
            SystemContent.new()
            .with_conversation_start_date(date)
            .with_reasoning_effort(ReasoningEffort[effort.upper()])
        )
        if python:
            content = content.with_python_tool()
        for namespace in _namespaces(own):
            content = content.with_tools(namespace)
        message = Message.from_role_and_content(Role.SYSTEM, content)
        options = RenderOptions(conversation_has_function_tools=functions)
        return self._rendered(message, options)

    def developer(self, instructions: str | None, functions: Sequence[FunctionTool]) -> list[int]:
        """Instructions and tools; nothing when there are neither."""
        if not instructions and not functions:
            return []
        content = DeveloperContent.new()
        if instructions:
            content = content.with_instructions(unbroken(whole(instructions)))
        if functions:
            content = content.with_function_tools([_described(tool) for tool in functions])
        return self._rendered(Message.from_role_and_content(Role.DEVELOPER, content))

    def user(self, text: str) -> list[int]:
        return self._message(Author(role=Role.USER), text)

    def assistant_open(self) -> list[int]:
        """What a generation continues."""
        return [START, ASSISTANT]

    def assistant_final(self, text: str) -> list[int]:
        return self._message(Author(role=Role.ASSISTANT), text, "final")

    def assistant_analysis(self, text: str) -> list[int]:
        return self._message(Author(role=Role.ASSISTANT), text, "analysis")

    def assistant_preamble(self, text: str) -> list[int]:
        return self._message(Author(role=Role.ASSISTANT), text, "commentary")

    def call(self, recipient: str, arguments: str, json: bool) -> list[int]:
        """A call as gpt-oss writes it: the recipient stands in the channel's part of the header."""
        channel = f"{_channel(recipient)} to={header_name(recipient)}"
        kind = "<|constrain|>json" if json else "code"
        ids = self._message(Author(role=Role.ASSISTANT), arguments, channel, content_type=kind)
        return [*ids[:-1], CALL]

    def tool_result(self, recipient: str, text: str) -> list[int]:
        """The result of a call, written by the tool that was called as ``recipient``."""
        author = Author.new(Role.TOOL, header_name(recipient))
        return self._message(author, text, _channel(recipient), recipient="assistant")

    def _message(
        self,
        author: Author,
        text: str,
        channel: str | None = None,
        recipient: str | None = None,
        content_type: str | None = None,
    ) -> list[int]:
        key = (author.role, author.name, channel, recipient, content_type)
        if (empty := self._empty.get(key)) is None:
            if len(self._empty) >= MOST_EMPTY:
                self._empty.clear()
            message = Message(
                author=author,
                content=[TextContent(text="")],
                channel=channel,
                recipient=recipient,
                content_type=content_type,
            )
            empty = self._empty[key] = self._rendered(message)
        return [*empty[:-1], *self.body(text), empty[-1]]

    def body(self, text: str) -> list[int]:
        """A message's text; whatever it spells is text."""
        if isinstance(text, Tokenised):
            return text.ids
        ids: list[int] = []
        for part in parts(whole(text)):
            ids += self._encoding.encode(part, disallowed_special=())
        return ids

    def _rendered(self, message: Message, options: RenderOptions | None = None) -> list[int]:
        ids: list[int] = self._encoding.render(message, options)
        return ids


def _channel(recipient: str) -> str:
    return "analysis" if recipient.split(".")[0] in _THOUGHT else "commentary"


def header_name(name: str) -> str:
    """A name that is one word of a header, whatever a model or a client made of it."""
    return _NO_NAME.sub("_", line(name))[:256] or "unknown"


def _namespaces(own: Sequence[FunctionTool]) -> list[ToolNamespaceConfig]:
    """The model's own namespaces: the browser in the words that it was trained on."""
    found = []
    for name, group in itertools.groupby(own, lambda tool: tool.name.partition(".")[0]):
        tools = [replace(tool, name=tool.name.partition(".")[2]) for tool in group]
        if name == "browser":
            trained = ToolNamespaceConfig.browser()
            offered = {tool.name for tool in tools}
            kept = [tool for tool in trained.tools if tool.name in offered]
            found.append(trained.model_copy(update={"tools": kept}))
        else:
            described = [_described(tool) for tool in tools]
            found.append(ToolNamespaceConfig(name=name, description=None, tools=described))
    return found


def _described(tool: FunctionTool) -> ToolDescription:
    description = "\n".join(line(text) for text in tool.description.splitlines()).strip()
    return ToolDescription.new(header_name(tool.name), description, normalise(tool.parameters))
