"""The records that the store returns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agent.conversation.conversation import Conversation
from agent.events import AgentFileChanges, Item, Response


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """A conversation as a list shows it; times in seconds since 1970."""

    id: str
    title: str
    model: str
    created: float
    updated: float
    parent: str | None
    """The conversation that it branched from, if that still exists."""
    shared: int
    """Number of its entries that are the parent's."""
    turns: int
    folder: str = ""
    """The folder in which a person began it; empty: not known."""


@dataclass(slots=True)
class ItemTimes:
    """When an item of a response came, in seconds since its turn began."""

    began: float
    ended: float | None = None
    tool_started: float | None = None
    """When its tool began to run; None: it has none, or it did not run."""
    tokens: int | None = None
    """Tokens of complete reasoning."""


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """Data of a turn's recorded events that its response lacks."""

    steered: tuple[tuple[int, str], ...] = ()
    """The user's messages in its middle: the number of items before, and the text."""
    times: tuple[ItemTimes, ...] = ()
    """Times of the response's items, in their order; empty: not recorded."""
    tokens: int = 0
    """Generated tokens; 0: not recorded, as the speed."""
    tokens_per_second: float = 0.0
    changes: tuple[AgentFileChanges, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """A turn of a conversation: the prompt and the response to it."""

    prompt: str
    response: Response
    start: int | None
    """The conversation's entry that it began with; None: not known."""
    record: TurnRecord = TurnRecord()

    def timeline(self) -> Iterator[Item | str]:
        """The response's items, and between them what the user wrote meanwhile."""
        steered = [said for said in self.record.steered if said[1]]  # others are deleted
        for at, item in enumerate(self.response.output):
            while steered and steered[0][0] <= at:
                yield steered.pop(0)[1]
            yield item
        yield from (text for _, text in steered)


@dataclass(frozen=True, slots=True)
class ServedTurn:
    """A turn that answers a request of ``/v1/responses``, as its next request may need it."""

    response: Response
    conversation: Conversation
    """As it was when the turn had ended; a next turn continues a copy."""
    served: dict[str, Any]
    """Data that the endpoint stored with it (JSON)."""
    events: bytes = b""
    """The stream of a background response (`event_codec`); empty: not stored."""


def title_from(text: str) -> str:
    """A title for a conversation that begins with this text: its first line, at most 80 characters."""
    return (text.strip().splitlines() or [""])[0].strip()[:80]


def prompt_of(inputs: Sequence[dict[str, Any]]) -> str:
    """The last text of a user among input items of the Responses API; empty where there is none."""
    for item in reversed(inputs):
        if item.get("type") == "message" and item.get("role") == "user":
            content = item.get("content")
            if isinstance(content, str):
                return content
            texts = (part.get("text") for part in content or () if isinstance(part, dict))
            return "\n".join(text for text in texts if isinstance(text, str))
    return ""
