"""Steering: a client says something while one of the responses of its WebSocket runs.

The response ends before its next generation, or by itself, and a further one continues it with the new
input. One that ended with calls that the client runs waits for their results, and so does the input::

    client  ──▶ {"type": "response.steer", "previous_response_id": A, "input": …}
    server  ◀── response.steer.accepted, the rest of A, then one of
                a response that continues A with the input: its response.created
                response.steer.pending: the input joins the request that brings what A waits for
                response.steer.failed, with the input
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from agent import events as ev
from agent.server.input.schemas import ConfigModel, ContentPart
from agent.turn.loop import Turn

MAX_PENDING_STEERS, MAX_PENDING_BYTES = 16, 1024 * 1024
"""Messages that may be queued on one connection, and their length together."""


class SteerPart(ContentPart):
    """A text or a file."""

    type: Literal["input_text", "input_file"]


class SteerMessage(ConfigModel):
    """A message of the user."""

    type: Literal["message"] = "message"
    role: Literal["user"]
    content: str | list[SteerPart]
    id: str | None = None
    status: str | None = None


class SteerRequest(ConfigModel):
    """A ``response.steer`` message."""

    type: Literal["response.steer"]
    previous_response_id: str
    input: Annotated[str | list[SteerMessage], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Steer:
    """The input of such a message; ``id``: once it was accepted."""

    target: str
    sent: Any
    size: int
    id: str | None = None

    @property
    def items(self) -> list[dict[str, Any]]:
        sent = [{"role": "user", "content": self.sent}] if isinstance(self.sent, str) else self.sent
        return [{**item, "type": "message"} for item in sent]


@dataclass(slots=True, eq=False)
class SteeredResponse:
    """A response of a connection, and what was said while it ran."""

    turn: Turn
    stream_id: str | None
    steers: list[Steer] = field(default_factory=list)
    number: int = 0
    """That of its latest event."""
    inserted: int = 0
    """Number of its events that the turn does not count."""

    def continued(self, value: dict[str, Any]) -> dict[str, Any]:
        """The request that continues it once it has ended, made of its own."""
        details = self.turn.response.incomplete_details
        goes_on = details is not None and details.reason == "steered"  # so does its reasoning
        items = self._items(phase="commentary") if goes_on else self._items()
        return {**value, "previous_response_id": self.turn.response.id, "input": items}

    def joined(self, value: dict[str, Any]) -> dict[str, Any]:
        """The request that brings what it waits for; the model reads what was said after that."""
        sent = value.get("input")
        if isinstance(sent, str):
            sent = [{"role": "user", "content": sent}]
        if not isinstance(sent, list):
            return value  # which is refused
        kinds = [str(item.get("type")) if isinstance(item, dict) else "" for item in sent]
        at = [*(kind.endswith(("_output", "_response")) for kind in kinds), False].index(False)
        return {**value, "input": [*sent[:at], *self._items(phase="commentary"), *sent[at:]]}

    def _items(self, **fields: str) -> list[dict[str, Any]]:
        return [{**item, **fields} for steer in self.steers for item in steer.items]


def required_input(response: ev.Response) -> list[dict[str, str]]:
    """The items that a completed response waits for, without what they bring."""
    needed = []
    for item in response.output if response.status == "completed" else ():
        if isinstance(item, ev.McpApprovalRequestItem):
            needed.append({"type": "mcp_approval_response", "approval_request_id": item.id})
        elif ev.client_tool(item) and getattr(item, "status", None) != "incomplete":
            call = {"type": f"{item.type}_output", "call_id": str(getattr(item, "call_id", ""))}
            if isinstance(item, ev.FunctionCallItem):
                call["name"] = item.name
            elif isinstance(item, ev.ToolSearchCallItem):
                call |= {"type": "tool_search_output", "execution": "client"}
            needed.append(call)
    return needed
