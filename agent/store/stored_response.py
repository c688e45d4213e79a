"""What is kept of a response."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agent.conversation.conversation import Entry
from agent.events import MessageItem, Response
from agent.server.input_items import History
from agent.server.schemas import InputItem

TOKEN_BYTES = 36
"""One id in a list of Python."""
LOGPROB_BYTES = 400
"""One token's log probability, or that of an alternative to it."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A response, and what the next one needs of it."""

    response: Response
    entries: tuple[Entry, ...]
    """The conversation's messages, as the model saw and wrote them."""
    history: History
    items: dict[str, InputItem] = field(default_factory=dict)
    """Items that a reference can mean, by their ids."""
    inputs: tuple[dict[str, Any], ...] = ()
    """The request's input items, as its client sent them."""
    request_bytes: int = 0
    conversation: str = ""
    """Its id, which those who go on from it share: what tools remember is kept by it."""
    vocabulary: str | None = None
    """Whose ids the entries are."""
    events: bytes = b""
    """Of a background response: its stream, packed, for those who come back to it."""

    @property
    def bytes(self) -> int:
        """About what it takes."""
        return (
            TOKEN_BYTES * sum(len(entry.ids) for entry in self.entries)
            + self.request_bytes
            + len(self.events)
            + LOGPROB_BYTES * (1 + self.response.top_logprobs) * self._logprobs()
        )

    def _logprobs(self) -> int:
        messages = (item for item in self.response.output if isinstance(item, MessageItem))
        return sum(len(part.logprobs) for message in messages for part in message.content)
