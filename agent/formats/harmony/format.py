"""Harmony as a `Format`: renderer, parser and constraints with one encoding.

openai-harmony renders messages, one at a time, as that alone renders entire conversations. Markup that
a text spells stays text. Headers are cached: a message is its empty frame with the text's tokens in it.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

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

from agent.engine.grammars import GrammarCompiler, TokenBytes
from agent.engine.protocol import Constraint
from agent.events import Phase
from agent.formats.harmony import token_ids
from agent.formats.harmony.constraint import AnswerConstraint, HarmonyConstraint
from agent.formats.harmony.parser import HarmonyParser
from agent.formats.harmony.typescript import declare_function, declare_functions
from agent.formats.protocol import (
    ConstraintKind,
    Effort,
    FunctionTool,
    GenerationConstraints,
    Parser,
    PromptHeader,
)
from agent.formats.recipients import (
    PYTHON_TOOL,
    TRAINED_NAMESPACES,
    Recipients,
    header_name,
    without_markup,
)
from agent.formats.tokenizer_text import TokenisedText, replace_surrogates, tokenizer_chunks

MAX_CACHED_HEADERS = 8
MAX_CACHED_FRAMES = 1024

_SPELLED_SPECIAL = re.compile(r"<\|[a-z0-9_]{1,32}\|>")
_CHANNELS = {
    token_ids.ANALYSIS_ID: "analysis",
    token_ids.FINAL_ID: "final",
    token_ids.COMMENTARY_IDS[0]: "commentary",
}


class HarmonyFormat:
    """The format of gpt-oss."""

    name, source, parses_calls = "harmony", "built in", True
    supported_constraints: frozenset[ConstraintKind] = frozenset({"choice", "answer", "arguments"})
    stop_ids = frozenset({token_ids.RETURN_ID, token_ids.CALL_ID, token_ids.END_OF_TEXT_ID})
    begin_id: int | None = None
    effort_control = True

    def __init__(self, encoding: HarmonyEncoding, *, keep_calls: bool = False) -> None:
        """``keep_calls``: for a model that was trained so."""
        self.encoding, self.keep_calls = encoding, keep_calls
        self._cached_frames: dict[tuple[Role | str | None, ...], list[int]] = {}
        """Messages without text, by author, channel, recipient and content type."""
        self._cached_headers = deque[tuple[PromptHeader, list[int]]](maxlen=MAX_CACHED_HEADERS)

    def with_effort(self, effort: Effort) -> HarmonyFormat:
        """Return this format: the effort is in the system message."""
        return self

    def prompt_header(self, header: PromptHeader) -> list[int]:
        """Render system and developer message, cached: that takes a millisecond or more."""
        known = next((ids for cached, ids in self._cached_headers if cached == header), None)
        if known is None:
            known = self._system_message(header)
            known += self.instructions_message(header.instructions, header.functions)
            self._cached_headers.append((header, known))
        return known

    def _system_message(self, header: PromptHeader) -> list[int]:
        content = (
            SystemContent.new()
            .with_conversation_start_date(header.date)
            .with_reasoning_effort(ReasoningEffort[header.effort.upper()])
        )
        if header.python:
            content = content.with_python_tool()
        for namespace in _namespaces(header.builtin_tools):
            content = content.with_tools(namespace)
        message = Message.from_role_and_content(Role.SYSTEM, content)
        options = RenderOptions(conversation_has_function_tools=bool(header.functions))
        return list(self.encoding.render(message, options))

    def instructions_message(
        self, instructions: str | None, functions: Sequence[FunctionTool]
    ) -> list[int]:
        if not instructions and not functions:
            return []
        parts = [f"# Instructions\n\n{instructions}"] if instructions else []
        if functions:
            parts.append(self.describe_functions(functions))
        return self._message(Author(role=Role.DEVELOPER), "\n\n".join(parts))

    def developer_message(self, text: str) -> list[int]:
        return self.instructions_message(text, ())

    def describe_functions(self, functions: Sequence[FunctionTool]) -> str:
        return declare_functions(
            declare_function(header_name(tool.model_name), tool.description, tool.parameters)
            for tool in functions
        )

    def user_message(self, text: str) -> list[int]:
        return self._message(Author(role=Role.USER), text)

    def assistant_message(self, text: str, *, phase: Phase) -> list[int]:
        channel = "commentary" if phase == "commentary" else "final"
        return self._message(Author(role=Role.ASSISTANT), text, channel)

    def reasoning_message(self, text: str) -> list[int]:
        return self._message(Author(role=Role.ASSISTANT), text, "analysis")

    def tool_call(self, recipient: str, arguments: str, *, json: bool = True) -> list[int]:
        """Render a call as gpt-oss writes it, the recipient behind the channel; not ``json``: code."""
        channel = f"{_tool_channel(recipient)} to={header_name(recipient)}"
        kind = "<|constrain|>json" if json else "code"
        ids = self._message(Author(role=Role.ASSISTANT), arguments, channel, content_type=kind)
        return [*ids[:-1], token_ids.CALL_ID]

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
            empty = self._cached_frames[key] = self.encoding.render(message)
        return [*empty[:-1], *self.encode_text(text), empty[-1]]

    def encode_text(self, text: str) -> list[int]:
        if isinstance(text, TokenisedText):
            return text.ids
        ids: list[int] = []
        for part in tokenizer_chunks(replace_surrogates(text)):
            ids += self.encoding.encode(part, disallowed_special=())
        return ids

    # --- generation ---

    def open_assistant(self) -> list[int]:
        return [token_ids.START_ID, token_ids.ASSISTANT_ID]

    def open_answer(self) -> list[int]:
        return self.begin_message(None, "")

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
        return [token_ids.END_ID, *self.open_assistant(), *answer]

    def may_be_call(self, ids: Sequence[int]) -> bool:
        """Tell whether ids may become a call's header: in the commentary channel, as is trained."""
        channels = [after for before, after in pairwise(ids) if before == token_ids.CHANNEL_ID]
        return not channels or channels[-1] not in (token_ids.ANALYSIS_ID, token_ids.FINAL_ID)

    def split_message(self, ids: Sequence[int]) -> tuple[list[int], list[int]]:
        """Split at the first ``<|message|>``; a message without one is all header."""
        opening, message = self.open_assistant(), list(ids)
        if message[: len(opening)] == opening:
            del message[: len(opening)]
        marker = token_ids.MESSAGE_ID
        at = message.index(marker) + 1 if marker in message else len(message)
        header, body = message[:at], message[at:]
        if body and self.is_markup(body[-1]):
            body.pop()
        return header, body

    def open_call(self, recipient: str | None) -> list[int]:
        """Return the header of a call to the tool or, with None, its beginning up to the recipient."""
        if recipient is None:
            return [token_ids.CHANNEL_ID, *self.encoding.encode("commentary to")]
        # A call without text, without its generation prompt and its end.
        empty = self.tool_call(recipient, "", json=recipient != PYTHON_TOOL)
        return empty[len(self.open_assistant()) : -1]

    def close_message(self, ids: Sequence[int], *, call: bool) -> list[int]:
        """End a generated message with ``<|call|>`` or ``<|end|>``, and complete its beginning."""
        if ids and ids[0] in (token_ids.CHANNEL_ID, token_ids.MESSAGE_ID):
            # The model left <|start|>assistant out; the message before may be dropped from history.
            ids = [*self.open_assistant(), *ids]
        # The Harmony guide: in a history, an answer's <|return|> becomes <|end|>.
        body = ids[:-1] if ids and ids[-1] in token_ids.STOP_IDS else ids
        return [*body, token_ids.CALL_ID if call else token_ids.END_ID]

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
            if before == token_ids.CHANNEL_ID:
                return _CHANNELS.get(after)
        return None

    def parser(self, recipients: Recipients | None) -> Parser:
        return HarmonyParser(self.encoding, recipients)

    def token_bytes(self, token: int) -> bytes:
        vocabulary = token_ids.harmony_vocabulary(self.encoding)
        raw = vocabulary.token_bytes(token)
        return vocabulary.special_text(token).encode() if raw is None else raw

    def is_markup(self, token: int) -> bool:
        return token >= token_ids.FIRST_SPECIAL_ID

    @property
    def grammars(self) -> GrammarCompiler:
        return _grammars(self.encoding)

    def new_constraint(
        self, constraints: GenerationConstraints, recipients: Recipients
    ) -> Constraint:
        if constraints.calls == "none" and constraints.answer_grammar is None:
            return AnswerConstraint(constraints.max_tokens)
        return HarmonyConstraint(self.encoding, constraints, recipients, self.grammars)


@lru_cache(maxsize=1)
def _grammars(encoding: HarmonyEncoding) -> GrammarCompiler:
    """Make the grammar compiler that all runtimes share: a process has one encoding."""

    def token_bytes() -> TokenBytes:
        decode = encoding._inner.decode_bytes
        tokens = [decode([token]) for token in range(token_ids.LAST_ID)]
        return TokenBytes(tokens, frozenset(range(token_ids.FIRST_SPECIAL_ID, token_ids.LAST_ID)))

    return GrammarCompiler(token_bytes)


def _tool_channel(recipient: str) -> str:
    return "analysis" if recipient.split(".")[0] in TRAINED_NAMESPACES else "commentary"


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
            described = [ToolDescription.new(t.name, t.description, t.parameters) for t in tools]
            namespaces.append(ToolNamespaceConfig(name=name, description=None, tools=described))
    return namespaces
