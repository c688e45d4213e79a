"""Finished responses as a next request may need them: to continue them, to look them up, to refer to
their items. The latest are in memory, bounded in number and bytes; the store, if any, has all."""

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agent.conversation.conversation import Conversation
from agent.conversation.reasoning_token import encode_reasoning
from agent.events import Item, MessageItem, ReasoningItem, Response
from agent.server.http.clients import current_client
from agent.server.input.declared_tools import tools_from_json, tools_json
from agent.server.input.items import InputHistory
from agent.server.input.schemas import TextFormat
from agent.store.records import ServedTurn
from agent.store.responses import ResponseStore
from agent.turn.options import ApprovedCall

TOKEN_ID_BYTES = 36
"""Memory that one id takes in a list of Python."""
LOGPROB_BYTES = 400
"""Memory that the log probability of one token, or of an alternative to it, takes."""
MAX_RESPONSES, MAX_CACHED_RESPONSES = 1000, 64
"""Responses in memory: without a store, and in front of one. The least recently used goes first."""
MAX_CACHE_BYTES = 128 * 1024 * 1024
"""Memory of all of them together; ids that two conversations share are counted twice."""
PRUNE_INTERVAL_SECONDS = 3600.0


def memory_bytes(turn: ServedTurn) -> int:
    """About how much memory a response takes."""
    messages = (item for item in turn.response.output if isinstance(item, MessageItem))
    logprobs = sum(len(part.logprobs) for message in messages for part in message.content)
    return (
        TOKEN_ID_BYTES * sum(len(entry.ids) for entry in turn.conversation.entries)
        + int(turn.served["request_bytes"])
        + len(turn.events)
        + LOGPROB_BYTES * (1 + turn.response.top_logprobs) * logprobs
    )


@dataclass(frozen=True, slots=True)
class Continued:
    """The conversation that a turn continues and may change, and the history of its items."""

    conversation: Conversation
    history: InputHistory
    is_new: bool = False
    """Whether it begins with this request."""


def with_encrypted_reasoning(response: Response) -> Response:
    output: list[Item] = []
    for item in response.output:
        if isinstance(item, ReasoningItem):
            token = encode_reasoning("".join(part.text for part in item.content))
            item = item.model_copy(update={"encrypted_content": token})
        output.append(item)
    return response.model_copy(update={"output": output})


def served_json(
    history: InputHistory, inputs: Sequence[dict[str, Any]], request_bytes: int, owner: str
) -> dict[str, Any]:
    """Return the data that the store keeps with a response for `history_of`."""
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


def history_of(turn: ServedTurn) -> InputHistory:
    history = turn.served["history"]
    return InputHistory(
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
    )


def owns(turn: ServedTurn) -> bool:
    return current_client().owns(turn.served.get("owner", ""))


class ResponseCache:
    """An LRU cache of responses, in front of the store where there is one."""

    def __init__(
        self,
        store: ResponseStore | None = None,
        max_responses: int | None = None,
        max_bytes: int = MAX_CACHE_BYTES,
    ) -> None:
        """``max_responses``: None chooses by whether there is a store."""
        self.store = store
        self._responses: OrderedDict[str, ServedTurn] = OrderedDict()
        default = MAX_RESPONSES if store is None else MAX_CACHED_RESPONSES
        self._max_responses = max_responses or default
        self._max_bytes, self._bytes = max_bytes, 0
        self._pruned_at = time.monotonic()

    def add(self, stored: ServedTurn) -> None:
        if self.store is not None:
            self.store.store.submit(self.store.prune_bytes)
        self._evict(stored.response.id)
        self._responses[stored.response.id] = stored
        self._bytes += memory_bytes(stored)
        while len(self._responses) > 1 and (
            len(self._responses) > self._max_responses or self._bytes > self._max_bytes
        ):
            self._evict(next(iter(self._responses)))

    async def find(self, response_id: str) -> ServedTurn | None:
        """A response of the current client, from memory or from the store; None if there is none."""
        if (stored := self._responses.get(response_id)) is not None:
            self._responses.move_to_end(response_id)
        elif (store := self.store) is not None:
            stored = await store.store.run(lambda: store.find(response_id))
            if stored is not None and stored.response.status not in ("queued", "in_progress"):
                self.add(stored)
        return stored if stored is not None and owns(stored) else None

    async def delete(self, response_id: str) -> bool:
        """Delete a response of the current client; False if there is none. Raises sqlite3.Error."""
        stored, store, client = self._responses.get(response_id), self.store, current_client()
        if stored is not None and not owns(stored):
            return False

        def delete() -> bool:
            assert store is not None
            own = stored is not None or client.owns(store.owner(response_id))
            return own and store.delete(response_id)

        deleted = store is not None and await store.store.run(delete)
        return (stored is not None and self._evict(response_id)) or deleted

    def _evict(self, response_id: str) -> bool:
        if (stored := self._responses.pop(response_id, None)) is None:
            return False
        self._bytes -= memory_bytes(stored)
        return True

    def evict_conversation(self, conversation_id: str) -> None:
        """Forget the responses in memory of a conversation that has changed or is deleted."""
        for name, stored in list(self._responses.items()):
            extended = stored.response.conversation
            if conversation_id in (stored.conversation.id, extended and extended.id):
                self._evict(name)

    async def response_with(self, item_id: str) -> ServedTurn | None:
        """The current client's response with an item that the model wrote."""
        for stored in self._responses.values():
            if any(item.id == item_id for item in stored.response.output) and owns(stored):
                return stored
        if (store := self.store) is None:
            return None
        name = await store.store.run(lambda: store.response_with(item_id))
        return await self.find(name) if name is not None else None

    def prune_when_due(self) -> None:
        """Delete old responses from the store, at most once in `PRUNE_INTERVAL_SECONDS`."""
        now = time.monotonic()
        if self.store is not None and now - self._pruned_at > PRUNE_INTERVAL_SECONDS:
            self._pruned_at = now
            self.store.store.submit(self.store.try_prune)
