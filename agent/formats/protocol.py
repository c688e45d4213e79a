"""The protocols of a model's format: rendering messages as token ids, and parsing generated ids.

A `Parser` is fed token ids as they are sampled and returns `ParseEvent` objects, in order. For any ids
at all, each segment is ``Opened Delta* Closed``; segments follow each other and are never nested;
``Repair`` and ``Stop`` come between them. The texts of deltas and repairs together hold every content
token exactly once. For example, gpt-oss that thinks and then calls a tool::

    <|channel|>analysis<|message|>Look it up.<|end|>
    <|start|>assistant<|channel|>commentary to=functions.get <|constrain|>json<|message|>{"q":1}<|call|>

    Opened(REASONING)  Delta("Look it up.")  Closed(True, 0, 8, 4)
    Opened(TOOL, "functions.get", json=True)  Delta('{"q":1}')  Closed(True, 8, 27, 5)
    Stop("call", 26)

A format is stateless between calls but for caches; `Format.parser` makes a parser for each generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from agent.events import Phase, qualified_name

if TYPE_CHECKING:
    from concurrent.futures import Future

    from agent.engine.grammars import CompiledGrammar, Grammar, GrammarCompiler
    from agent.engine.protocol import Constraint, LoopLimits
    from agent.formats.recipients import Recipients

Effort = Literal["low", "medium", "high"]
ConstraintKind = Literal["choice", "answer", "arguments"]
"""``choice``: whether and which tools are called; ``answer``, ``arguments``: their grammars."""


class SegmentKind(StrEnum):
    """The role of a segment in a generation."""

    REASONING = "reasoning"
    PREAMBLE = "preamble"
    """Text to the user before a call (Harmony: the commentary channel without a recipient)."""
    TOOL = "tool"
    TOOL_UNKNOWN = "tool_unknown"
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class Opened:
    """A segment begins: its header is complete, and its text follows."""

    kind: SegmentKind
    recipient: str | None = None
    """The declared tool that is called, by its canonical name (``functions.f``, ``python``)."""
    raw_recipient: str | None = None
    """The recipient as the model wrote it."""
    json: bool = False
    """The header says that the body is JSON (``<|constrain|>json``)."""


@dataclass(slots=True, unsafe_hash=True)
class Delta:
    """More text of the open segment; never empty. Not frozen: one for each token, in half the time."""

    text: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The open segment ended. ``start`` and ``end`` are positions in the generated ids: of the first
    token of its message (in the header), and of that after the last (the stop token). The spans of
    segments are contiguous; tokens between two (repairs) are counted in the later one's span."""

    complete: bool
    """False when the stream ended inside the segment."""
    start: int
    end: int
    tokens: int
    """The number of content tokens, without header and stop token."""


@dataclass(frozen=True, slots=True)
class Repair:
    """The markup was malformed and has been mended; `agent.formats`' two packages list the rules."""

    rule: str
    at: int
    """The position among the generated ids."""
    text: str
    """Text that is therefore in no segment; may be empty."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The generation should end here; the parser ignores all further ids. The reasons are ``call`` (a
    tool call is complete), ``return`` (the answer is complete), ``turn`` (the model began to write
    another role's message) and ``end`` (the text ended, or ended like a call without being one)."""

    reason: str
    at: int
    """The position, among the generated ids, of the token that ended the generation."""


ParseEvent = Opened | Delta | Closed | Repair | Stop


class Parser(Protocol):
    """The incremental parser of one generation."""

    def feed(self, ids: Sequence[int]) -> list[ParseEvent]:
        """Parse the next ids. Never raises, for any ids, and however they are split into calls."""

    def finish(self) -> list[ParseEvent]:
        """End the stream: an open segment is closed with ``complete=False``."""


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A tool as it is declared to the model."""

    name: str
    description: str
    parameters: dict[str, Any]
    """The JSON Schema of its arguments; empty: it takes none."""
    namespace: str | None = None
    """The client's group of tools that this belongs to; the model sees ``namespace__name``."""
    constrained: bool = True
    """Decoding is constrained to the schema, as far as a grammar can express it."""
    strict: bool = False
    """A schema that cannot be enforced in full is refused."""
    custom: bool = False
    """The call's input is free text instead of JSON (the Responses API's ``custom`` tools)."""
    grammar: Grammar | None = None
    deferred: bool = False
    """The prompt does not declare it: the model finds it by a search."""
    kind: Literal["function", "tool_search", "shell", "apply_patch"] = "function"
    """The tool of OpenAI's API that it is to the client, which runs it."""

    @property
    def model_name(self) -> str:
        return qualified_name(self.name, self.namespace)

    @property
    def argument_schema(self) -> dict[str, Any]:
        return self.parameters or {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class PromptHeader:
    """The part of a prompt before the conversation's first message: settings, instructions, tools."""

    date: str
    """The current date, as ``YYYY-MM-DD``."""
    effort: Effort = "medium"
    instructions: str | None = None
    functions: tuple[FunctionTool, ...] = ()
    python: bool = False
    """Whether gpt-oss's own ``python`` tool is offered."""
    builtin_tools: tuple[FunctionTool, ...] = ()
    """Further tools that gpt-oss was trained on, in full: ``browser.search``, ``container.exec``."""


@dataclass(frozen=True, slots=True)
class GenerationConstraints:
    """The constraints of one generation; a grammar of arguments is compiled when a call begins."""

    calls: Literal["may", "must", "none", "further"] = "may"
    """``further``: a call without reasoning before it, or an answer."""
    argument_grammars: Mapping[str, Grammar] = field(default_factory=dict)
    """The grammars of calls' arguments, by the declared tool's canonical name."""
    answer_grammar: Future[CompiledGrammar] | None = None
    declared_tools_only: bool = False
    """Only well-formed messages, as in the model's training, and only calls of declared tools."""
    answer_source: Grammar | None = None
    answer_limits: LoopLimits | None = None
    """Limits beyond which endless parts of the answer's JSON are closed; None: none."""
    max_tokens: int | None = None
    """Token budget of an answer without calls and grammar; the format ends it at the last token."""
    reasoning_until: int | None = None
    """Generated tokens after which no more reasoning begins; None: no limit. With ``choice`` only."""

    def spec(self, recipients: Recipients, prefix: Sequence[int]) -> dict[str, Any]:
        """JSON from which `constraint_of` makes the same constraint. ``prefix``: accepted ids."""
        return {
            "calls": self.calls,
            "arguments": {name: asdict(one) for name, one in self.argument_grammars.items()},
            "answer": self.answer_source and asdict(self.answer_source),
            "declared_tools_only": self.declared_tools_only,
            "answer_limits": self.answer_limits and asdict(self.answer_limits),
            "max_tokens": self.max_tokens,
            "reasoning_until": self.reasoning_until,
            "recipients": recipients.as_json(),
            "prefix": list(prefix),
        }


class Format(Protocol):
    """A model family's prompt format: renders messages as token ids and parses generated ids."""

    name: str
    keep_calls: bool
    """Whether prompts keep finished turns' calls in the channel of reasoning, and their results."""
    stop_ids: frozenset[int]
    """Ids at which the engine ends a generation."""
    parses_calls: bool
    """Whether the model's calls can be parsed; tools cannot be used with it otherwise."""
    source: str
    """Where the syntax of its messages is from: ``built in``, ``models.toml``, ``repository``,
    ``table``, ``chat template``, or ``none``: its messages are plain text."""
    begin_id: int | None
    """The id that every prompt of the model begins with; None: there is none."""

    @property
    def effort_control(self) -> bool:
        """Whether the reasoning effort changes prompts."""

    def with_effort(self, effort: Effort) -> Format:
        """Return the format with the generation prompt of an effort."""

    def prompt_header(self, header: PromptHeader) -> list[int]:
        """Render what precedes the first message: system message, instructions and tools."""

    def user_message(self, text: str) -> list[int]: ...
    def open_assistant(self) -> list[int]:
        """Return the generation prompt: the beginning of an assistant message."""

    def open_answer(self) -> list[int]:
        """Return the beginning of an answer without reasoning, after `open_assistant`."""

    def begin_message(self, reasoning: str | None, answer: str | None) -> list[int]:
        """Return the beginning of a message, after `open_assistant`, whose text the model continues. It
        has this reasoning and this answer; None: without. The last of the two stays open. Raises
        ValueError for reasoning in a format that has none."""

    def end_reasoning(self, *, before_call: bool = False) -> list[int]:
        """Return what ends open reasoning and begins the answer; empty if the family has no reasoning.
        ``before_call``: a call may follow too, if the format begins that differently."""

    def open_call(self, recipient: str | None) -> list[int]:
        """Return the beginning of a call of this tool or (None) of any tool, after `open_assistant`."""

    def close_message(self, ids: Sequence[int], *, call: bool) -> list[int]:
        """Return a generated message as the history keeps it: ended. ``call``: its result follows."""

    def tool_result(self, recipient: str, text: str) -> list[int]:
        """Render the result of the tool that was called as ``recipient``."""

    def describe_functions(self, functions: Sequence[FunctionTool]) -> str:
        """Declare functions in the result of a call, as `prompt_header` does, by their model names."""

    def encode_text(self, text: str) -> list[int]:
        """Tokenise a short text within a message; markup that it spells stays text."""

    def encode_markup(self, text: str) -> list[int]:
        """Tokenise a raw prompt: special tokens that it spells become their ids."""

    def canonical_name(self, tool: str, *, function: bool = False) -> str:
        """Return a declared tool's name as a recipient: ``files__read`` → ``functions.files__read``.
        ``function``: a client's, not a tool of the model's own even if its name is ``python``."""

    def channel(self, ids: Sequence[int]) -> str | None:
        """Return a message's channel: Harmony's ``analysis``, ``commentary``, ``final``; else None."""

    def parser(self, recipients: Recipients | None) -> Parser:
        """Make a parser for one generation after `open_assistant`. With ``recipients`` None no tools
        are known, and calls are reported as they are written."""

    def token_bytes(self, token: int) -> bytes:
        """Return an id's bytes; empty for an id that does not exist."""

    def is_markup(self, token: int) -> bool:
        """Tell whether the id has a meaning beyond its text: a special token, or one that stops."""

    def assistant_message(self, text: str, *, phase: Phase) -> list[int]:
        """Render an assistant's message of an imported history."""

    def tool_call(self, recipient: str, arguments: str, *, json: bool = True) -> list[int]:
        """Render a call of an imported history; with ``json`` False its body is code."""

    def reasoning_message(self, text: str) -> list[int]:
        """Render reasoning of an imported history; empty if the format has none in histories."""

    def developer_message(self, text: str) -> list[int]:
        """Render instructions in the middle of a history."""

    @property
    def supported_constraints(self) -> frozenset[ConstraintKind]:
        """The kinds of constraints that this format can enforce."""

    @property
    def grammars(self) -> GrammarCompiler:
        """The grammar compiler of the model's vocabulary."""

    def new_constraint(
        self, constraints: GenerationConstraints, recipients: Recipients
    ) -> Constraint:
        """Make the constraint of one generation that begins after `open_assistant`."""


@runtime_checkable
class SingleMessageFormat(Protocol):
    """A format in which one generation is one message, with one header and one end, which
    `Format.close_message` adds; the segments in it have no ends of their own."""

    def message_header(self) -> list[int]:
        """Return the message's beginning in the history, where reasoning may be dropped. This is the
        first part of `Format.open_assistant`; the rest of that belongs to the first segment."""

    def message_end(self, *, call: bool = False) -> list[int]:
        """Return the end of a message; ``call``: one that ends with a call."""

    def join_calls(self, call: list[int], following: list[int]) -> tuple[list[int], list[int]]:
        """Return two imported calls as they follow each other in a message."""

    def after_result(self) -> Format:
        """Return the format of a generation after a tool result, which may continue the message."""

    def keeps_reasoning(self, *, tools: bool) -> bool:
        """Whether prompts keep the reasoning of finished turns. ``tools``: the model has some."""

    def without_reasoning(self, header: Sequence[int], following: Sequence[int]) -> list[int]:
        """Return a message's beginning, the header or the generation prompt, as the history has it
        without reasoning; ``following``: the ids behind the reasoning."""

    def part_separator(self) -> list[int]:
        """Return the separator of two parts of an imported message."""

    def append_result(self, results: Sequence[int], recipient: str, text: str) -> list[int]:
        """Return rendered results with the result of another call of the same generation added."""


@runtime_checkable
class EditableFormat(Protocol):
    """A format whose messages each stand for themselves, so that any of them can be continued."""

    def may_be_call(self, ids: Sequence[int]) -> bool:
        """Whether ids generated after `Format.open_assistant` may become a call's header."""

    def split_message(self, ids: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return a message's header from after `Format.open_assistant` on, and its body without end."""


def decode(form: Format, ids: Iterable[int]) -> str:
    """The text of ids, special tokens included."""
    return b"".join(map(form.token_bytes, ids)).decode("utf-8", "replace")
