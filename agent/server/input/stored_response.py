"""A response as a next request may need it: to continue it, to look it up, to refer to its items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from agent.conversation.conversation import Conversation
from agent.conversation.reasoning_token import encode_reasoning
from agent.events import MessageItem, ReasoningItem, Response
from agent.server.input.declared_tools import tools_from_json, tools_json
from agent.server.input.items import InputHistory, items_by_id
from agent.server.input.schemas import InputItem, TextFormat
from agent.store.records import ServedTurn
from agent.turn.options import ApprovedCall

TOKEN_ID_BYTES = 36
"""Memory that one id takes in a list of Python."""
LOGPROB_BYTES = 400
"""Memory that the log probability of one token, or of an alternative to it, takes."""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response that has ended, with the conversation as it was then."""

    response: Response
    conversation: Conversation
    history: InputHistory
    items: dict[str, InputItem] = field(default_factory=dict)
    """Items that a reference can mean, by their ids."""
    inputs: tuple[dict[str, Any], ...] = ()
    """The request's input items, as ``/input_items`` lists them."""
    request_bytes: int = 0
    events: bytes = b""
    """The stream of a background response (`agent.store.event_codec`)."""
    owner: str = ""
    """The mark of the client that owns it (`agent.server.http.clients`)."""

    @property
    def bytes(self) -> int:
        """About how much memory it takes."""
        return (
            TOKEN_ID_BYTES * sum(len(entry.ids) for entry in self.conversation.entries)
            + self.request_bytes
            + len(self.events)
            + LOGPROB_BYTES * (1 + self.response.top_logprobs) * self._logprobs()
        )

    def _logprobs(self) -> int:
        messages = (item for item in self.response.output if isinstance(item, MessageItem))
        return sum(len(part.logprobs) for message in messages for part in message.content)

    def continued(self) -> Conversation:
        entries = [replace(entry) for entry in self.conversation.entries]
        return replace(self.conversation, entries=entries, unanswered=[])


@dataclass(frozen=True, slots=True)
class Continued:
    """The conversation that a turn continues and may change, and the history of its items."""

    conversation: Conversation
    history: InputHistory


def with_encrypted_reasoning(response: Response) -> Response:
    output = [
        item.model_copy(
            update={"encrypted_content": encode_reasoning("".join(p.text for p in item.content))}
        )
        if isinstance(item, ReasoningItem)
        else item
        for item in response.output
    ]
    return response.model_copy(update={"output": output})


def served_json(
    history: InputHistory, inputs: Sequence[dict[str, Any]], request_bytes: int, owner: str
) -> dict[str, Any]:
    """Return the data that the store keeps with a response for `from_served_turn`."""
    return {
        "history": {
            "instructions": history.instructions,
            "calls": history.call_names,
            "unanswered": history.pending_calls,
            "answered": sorted(history.answered_calls),
            "listed": sorted(history.listed_servers),
            "asked": [list(asdict(call).values()) for call in history.pending_approvals.values()],
            "tools": tools_json(history.added_tools.values()),
            "effort": history.effort,
            "text_format": history.text_format and history.text_format.model_dump(by_alias=True),
        },
        "inputs": list(inputs),
        "request_bytes": request_bytes,
        "owner": owner,
    }


def from_served_turn(turn: ServedTurn) -> StoredResponse:
    history, response = turn.served["history"], turn.response
    return StoredResponse(
        response,
        turn.conversation,
        InputHistory(
            [],
            history["instructions"],
            history["calls"],
            set(history["listed"]),
            {values[0]: ApprovedCall(*values) for values in history["asked"]},
            pending_calls=history.get("unanswered", {}),
            answered_calls=set(history.get("answered", ())),
            added_tools=tools_from_json(history.get("tools", ())),
            effort=history.get("effort"),
            text_format=(form := history.get("text_format")) and TextFormat.model_validate(form),
        ),
        items_by_id(response.output),
        tuple(turn.served["inputs"]),
        turn.served["request_bytes"],
        turn.events,
        turn.served.get("owner", ""),
    )
