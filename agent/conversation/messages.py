"""The messages that are added to a conversation, before a format renders them as ids."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

Role = Literal["user", "developer", "assistant", "result", "part", "steering"]
"""Who wrote an entry of a conversation. ``part``: it continues the message of the entry before it."""
NO_RESULT = "the call was not run: there is no result"
"""Why there is no result of a client's call that was not answered."""


@dataclass(frozen=True, slots=True)
class User:
    """A user's message."""

    role: ClassVar[Role] = "user"
    text: str


@dataclass(frozen=True, slots=True)
class Assistant:
    """An assistant's message of a history that came from elsewhere."""

    role: ClassVar[Role] = "assistant"
    text: str
    phase: Literal["commentary", "final_answer"] = "final_answer"


@dataclass(frozen=True, slots=True)
class Developer:
    """Instructions in the middle of a history."""

    role: ClassVar[Role] = "developer"
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningMessage:
    """Reasoning in a history that came from elsewhere; dropped when its turn is over."""

    role: ClassVar[Role] = "assistant"
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallMessage:
    """A tool call in a history that came from elsewhere."""

    role: ClassVar[Role] = "assistant"
    tool: str
    """The name that was declared."""
    arguments: str
    json: bool = True
    """False: the arguments are code."""
    function: bool = False
    """Whether the tool is a function that the client runs."""
    call_id: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ToolResultMessage:
    """The result of a tool call."""

    role: ClassVar[Role] = "result"
    tool: str
    text: str
    function: bool = False
    late: tuple[int, int] | None = None
    """For a result that replaces a `NO_RESULT`: its index and the number of its tool's results."""
    failed: bool = False
    """Whether ``text`` says why the call failed."""


@dataclass(frozen=True, slots=True)
class Steering:
    """A user's message in the middle of a turn."""

    role: ClassVar[Role] = "steering"
    text: str


Message = (
    User | Steering | Developer | Assistant | ReasoningMessage | ToolCallMessage | ToolResultMessage
)
