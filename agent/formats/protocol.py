"""How a model family writes: the pieces that a parser finds in generated tokens, and the protocol.

A parser is fed token ids as they are sampled and answers with pieces, in order. For any ids at all:
``Opened Delta* Closed`` for each segment, one after the other, never nested; ``Repair`` and ``Stop``
between them. The texts of deltas and repairs together hold every content token exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from agent.engine.grammars import Grammar
    from agent.formats.recipients import Recipients


class Kind(StrEnum):
    """What a segment is."""

    REASONING = "reasoning"
    PREAMBLE = "preamble"
    """Said before a call, to the person (Harmony: commentary without recipient)."""
    TOOL = "tool"
    TOOL_UNKNOWN = "tool_unknown"
    """A call of something that was never declared."""
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class Opened:
    """A segment's header is complete; its text follows."""

    kind: Kind
    recipient: str | None = None
    """A call's declared tool, in its canonical name (``functions.f``, ``python``)."""
    raw_recipient: str | None = None
    """The recipient as the model wrote it."""
    json: bool = False
    """The header says that the body is JSON (``<|constrain|>json``)."""


@dataclass(frozen=True, slots=True)
class Delta:
    """More text of the open segment; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The open segment ended.

    ``start`` and ``end`` are positions in the generated ids: the message's first token (of its header)
    and the one after its last (its stop token). The spans of all segments follow each other; what lies
    between two (repairs) belongs to the later one.
    """

    complete: bool
    """False when the stream ended inside it."""
    start: int
    end: int
    tokens: int
    """Content tokens, without header and stop token."""


@dataclass(frozen=True, slots=True)
class Repair:
    """The markup was malformed: which rule mended it, at which generated token, and the text (may be
    empty) that therefore stands in no segment."""

    rule: str
    at: int
    text: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Generation should end here; nothing that is fed afterwards counts.

    reason: ``call`` (a completed tool call), ``return`` (the answer is whole), ``turn`` (the model
    began to write somebody else's turn, at the token ``at``), ``end`` (the text ended, or it ended as a
    call without being one).
    """

    reason: str
    at: int


Piece = Opened | Delta | Closed | Repair | Stop


class Parser(Protocol):
    """One generation's parser; a new one for each generation."""

    def feed(self, ids: Sequence[int]) -> list[Piece]:
        """Parse the next ids. Never raises, for any ids; cuts may be anywhere."""
        ...

    def finish(self) -> list[Piece]:
        """The stream ended: close what is open (``complete=False``)."""
        ...


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A tool as the model is told of it; ``parameters`` is the JSON Schema of its arguments."""

    name: str
    description: str
    parameters: dict[str, Any]
    namespace: str | None = None
    """A client's group of tools that it belongs to; the model sees ``namespace__name``."""
    constrained: bool = True
    """The model is held to the schema, as far as that can be."""
    strict: bool = False
    """A schema that it cannot be held to in full is refused."""
    custom: bool = False
    """What the model writes is a text, instead of JSON."""
    grammar: Grammar | None = None
    """The form of that text."""

    @property
    def model_name(self) -> str:
        return f"{self.namespace}__{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Head:
    """What stands before the first message of a conversation."""

    date: str
    """YYYY-MM-DD"""
    effort: Literal["low", "medium", "high"] = "medium"
    instructions: str | None = None
    functions: tuple[FunctionTool, ...] = ()
    python: bool = False
    """The model's own python tool is offered."""
    own: tuple[FunctionTool, ...] = ()
    """Others that gpt-oss was trained on, by their full names: ``browser.search``,
    ``container.exec``."""


class Format(Protocol):
    """A model family's way of writing: what was said as ids, and ids as what was said."""

    name: str
    stop: frozenset[int]
    """Ids at which the engine ends a generation."""

    def head(self, head: Head) -> list[int]: ...

    def user(self, text: str) -> list[int]: ...

    def open_assistant(self) -> list[int]:
        """What the generation goes on from."""
        ...

    def open_call(self, recipient: str | None) -> list[int]:
        """After `open_assistant`: what makes the model call this tool, or (None) any."""
        ...

    def close_message(self, ids: Sequence[int], *, call: bool) -> list[int]:
        """A generated message as history has it: ended, as one that others follow.

        ``call``: it is a whole call, whose result follows.
        """
        ...

    def result(self, recipient: str, text: str) -> list[int]:
        """A tool's result, from the tool that was called as ``recipient``."""
        ...

    def plain(self, text: str) -> list[int]:
        """A short text within a message; what it spells is never markup."""
        ...

    def canonical(self, tool: str) -> str:
        """A declared tool's name as a recipient: ``files__read`` → ``functions.files__read``."""
        ...

    def parser(self, recipients: Recipients | None) -> Parser: ...

    def spelling(self, token: int) -> bytes:
        """An id's bytes; empty for one that does not exist."""
        ...

    def is_markup(self, token: int) -> bool:
        """Whether the id is more than its text: a mark, or a stop."""
        ...

    def said(self, text: str, *, phase: Literal["commentary", "final_answer"]) -> list[int]:
        """An assistant's message of an imported history."""
        ...

    def call(self, recipient: str, arguments: str, *, json: bool = True) -> list[int]:
        """A call of an imported history; ``json`` False: the body is code."""
        ...

    def thought(self, text: str) -> list[int]:
        """Reasoning of an imported history."""
        ...

    def developer(self, text: str) -> list[int]:
        """Instructions in the middle of a history."""
        ...


@runtime_checkable
class OneMessage(Protocol):
    """A format in which all that one generation says is one message, with one header and one end.

    `close_message` then ends the whole message; the segments in it have no ends of their own.
    """

    def header(self) -> list[int]:
        """What the message begins with in history, where its thoughts may be dropped: the beginning
        of `open_assistant`, whose rest goes with the first segment."""
        ...

    def ending(self) -> list[int]:
        """What the message ends with in history."""
        ...

    def between(self) -> list[int]:
        """What stands between two parts of a message that came from elsewhere."""
        ...

    def further_result(self, results: Sequence[int], text: str) -> list[int]:
        """Results, and one more of the same generation's calls."""
        ...
