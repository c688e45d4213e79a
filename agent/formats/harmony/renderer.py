"""Renders Harmony messages as token ids with openai-harmony, one at a time, as that alone renders
entire conversations. Markup that a text spells stays text. Headers are cached: a message is its empty
frame with the text's tokens in it."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from openai_harmony import (
    Author,
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

from agent.formats.harmony.token_ids import ASSISTANT_ID, CALL_ID, START_ID
from agent.formats.harmony.typescript import declare_function, declare_functions
from agent.formats.protocol import FunctionTool
from agent.formats.recipients import PYTHON_TOOL, without_markup
from agent.formats.tokenizer_text import TokenisedText, replace_surrogates, tokenizer_chunks
from tools.sanitize import strip_hidden

MAX_CACHED_FRAMES = 1024
_NOT_NAME_CHARACTER = re.compile(r"[^\w.-]")
TRAINED_NAMESPACES = frozenset({PYTHON_TOOL, "browser", "container"})
"""Namespaces of gpt-oss's own tools, called in the analysis channel ("normally", by the guide); all
others are in ``functions``."""


class HarmonyRenderer:
    """Renders messages with one encoding."""

    def __init__(self, encoding: HarmonyEncoding) -> None:
        self.encoding = encoding
        self._cached_frames: dict[tuple[Role | str | None, ...], list[int]] = {}
        """Messages without text, by author, channel, recipient and content type."""

    def system_message(
        self,
        *,
        date: str,
        effort: Literal["low", "medium", "high"],
        python: bool,
        builtin_tools: Sequence[FunctionTool] = (),
        functions: bool,
    ) -> list[int]:
        """Render the system message. ``functions``: some are declared. ``date``: ``YYYY-MM-DD``."""
        content = (
            SystemContent.new()
            .with_conversation_start_date(date)
            .with_reasoning_effort(ReasoningEffort[effort.upper()])
        )
        if python:
            content = content.with_python_tool()
        for namespace in _namespaces(builtin_tools):
            content = content.with_tools(namespace)
        message = Message.from_role_and_content(Role.SYSTEM, content)
        options = RenderOptions(conversation_has_function_tools=functions)
        return self._render(message, options)

    def instructions_message(
        self, instructions: str | None, functions: Sequence[FunctionTool]
    ) -> list[int]:
        if not instructions and not functions:
            return []
        parts = [f"# Instructions\n\n{instructions}"] if instructions else []
        if functions:
            parts.append(self.describe_functions(functions))
        return self._message(Author(role=Role.DEVELOPER), "\n\n".join(parts))

    def describe_functions(self, functions: Sequence[FunctionTool]) -> str:
        return declare_functions(
            declare_function(header_name(tool.model_name), tool.description, tool.parameters)
            for tool in functions
        )

    def user_message(self, text: str) -> list[int]:
        return self._message(Author(role=Role.USER), text)

    def open_assistant(self) -> list[int]:
        return [START_ID, ASSISTANT_ID]

    def assistant_message(
        self, text: str, *, phase: Literal["commentary", "final_answer"]
    ) -> list[int]:
        channel = "commentary" if phase == "commentary" else "final"
        return self._message(Author(role=Role.ASSISTANT), text, channel)

    def reasoning_message(self, text: str) -> list[int]:
        return self._message(Author(role=Role.ASSISTANT), text, "analysis")

    def tool_call(self, recipient: str, arguments: str, *, json: bool = True) -> list[int]:
        """Render a call as gpt-oss writes it, the recipient behind the channel; not ``json``: code."""
        channel = f"{_tool_channel(recipient)} to={header_name(recipient)}"
        kind = "<|constrain|>json" if json else "code"
        ids = self._message(Author(role=Role.ASSISTANT), arguments, channel, content_type=kind)
        return [*ids[:-1], CALL_ID]

    def tool_result(self, recipient: str, text: str) -> list[int]:
        author = Author.new(Role.TOOL, header_name(recipient))
        return self._message(author, text, _tool_channel(recipient), recipient="assistant")

    def _message(
        self,
        author: Author,
        text: str,
        channel: str | None = None,
        recipient: str | None = None,
        content_type: str | None = None,
    ) -> list[int]:
        key = (author.role, author.name, channel, recipient, content_type)
        if (empty := self._cached_frames.get(key)) is None:
            if len(self._cached_frames) >= MAX_CACHED_FRAMES:
                self._cached_frames.clear()
            message = Message(
                author=author,
                content=[TextContent(text="")],
                channel=channel,
                recipient=recipient,
                content_type=content_type,
            )
            empty = self._cached_frames[key] = self._render(message)
        return [*empty[:-1], *self.encode_text(text), empty[-1]]

    def encode_text(self, text: str) -> list[int]:
        if isinstance(text, TokenisedText):
            return text.ids
        ids: list[int] = []
        for part in tokenizer_chunks(replace_surrogates(text)):
            ids += self.encoding.encode(part, disallowed_special=())
        return ids

    def _render(self, message: Message, options: RenderOptions | None = None) -> list[int]:
        ids: list[int] = self.encoding.render(message, options)
        return ids


def _tool_channel(recipient: str) -> str:
    return "analysis" if recipient.split(".")[0] in TRAINED_NAMESPACES else "commentary"


def header_name(name: str) -> str:
    """Make a name of a model or a client safe as one word of a header; markup behind it is cut off."""
    name = strip_hidden(without_markup(name)).strip()
    return _NOT_NAME_CHARACTER.sub("_", name)[:256] or "unknown"


def _namespaces(builtin_tools: Sequence[FunctionTool]) -> list[ToolNamespaceConfig]:
    """Return the namespaces of the model's own tools, the browser's in the words of its training."""
    namespaces = []
    for name, group in itertools.groupby(builtin_tools, lambda tool: tool.name.partition(".")[0]):
        tools = [replace(tool, name=tool.name.partition(".")[2]) for tool in group]
        if name == "browser":
            trained = ToolNamespaceConfig.browser()
            offered = {tool.name for tool in tools}
            tools_offered = [tool for tool in trained.tools if tool.name in offered]
            namespaces.append(trained.model_copy(update={"tools": tools_offered}))
        else:
            described = [
                ToolDescription.new(tool.name, tool.description, tool.parameters) for tool in tools
            ]
            namespaces.append(ToolNamespaceConfig(name=name, description=None, tools=described))
    return namespaces
