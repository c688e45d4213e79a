"""The one fold from events to items, and its inverse: ``output_item.added`` opens an item, deltas write
it, ``output_item.done`` ends it. For streams that may have broken off (recovery, tests)."""

from __future__ import annotations

from collections import defaultdict

from agent import events as ev
from agent.formats.tool_arguments import repair_arguments
from tools.results import aborted_text


class ResponseBuilder:
    """Folds events, in order, into the items that they describe."""

    def __init__(self) -> None:
        self.response: ev.Response | None = None
        """The latest snapshot of the response; the final one once the stream has ended."""
        self._items: dict[str, ev.Item] = {}
        self._done: set[str] = set()
        self._written: defaultdict[str, list[str]] = defaultdict(list)
        self._summaries: defaultdict[str, dict[int, list[str]]] = defaultdict(dict)
        self._printed: defaultdict[str, list[str]] = defaultdict(list)

    def apply(self, event: ev.Event) -> None:
        match event:
            case (
                ev.ReasoningTextDelta(item_id=key, delta=delta)
                | ev.OutputTextDelta(item_id=key, delta=delta)
                | ev.McpCallArgumentsDelta(item_id=key, delta=delta)
                | ev.FunctionCallArgumentsDelta(item_id=key, delta=delta)
                | ev.CustomToolCallInputDelta(item_id=key, delta=delta)
                | ev.CodeInterpreterCallCodeDelta(item_id=key, delta=delta)
            ):
                self._written[key].append(delta)
            case ev.ReasoningSummaryTextDelta(item_id=key, summary_index=index, delta=delta):
                self._summaries[key].setdefault(index, []).append(delta)
            case ev.McpCallArgumentsDone(item_id=key, arguments=text):
                self._written[key] = [text]
            case ev.AgentToolOutputDelta(item_id=key, delta=delta):
                self._printed[key].append(delta)
            case ev.OutputItemAdded(item=item):
                self._items[item.id] = item
            case ev.OutputItemDone(item=item):
                self._items[item.id] = item
                self._done.add(item.id)
            case (
                ev.ResponseCreated(response=response)
                | ev.ResponseQueued(response=response)
                | ev.ResponseInProgress(response=response)
                | ev.ResponseCompleted(response=response)
                | ev.ResponseIncomplete(response=response)
                | ev.ResponseFailed(response=response)
            ):
                self.response = response
            case _:
                pass

    @property
    def items(self) -> list[ev.Item]:
        """The items so far, in output order; one that is still open is as it was opened."""
        return list(self._items.values())

    def interrupted(self, reason: str) -> list[ev.Item]:
        """The items if the stream ends here: open ones have what was written. ``reason``: for calls."""
        return [
            item if key in self._done else self._interrupt(item, reason)
            for key, item in self._items.items()
        ]

    def _interrupt(self, item: ev.Item, reason: str) -> ev.Item:
        text = "".join(self._written[item.id])
        match item:
            case ev.ReasoningItem():
                changes = {
                    "content": [ev.ReasoningText(text=text)],
                    "summary": [
                        ev.SummaryText(text="".join(deltas))
                        for deltas in self._summaries[item.id].values()
                    ],
                    "status": "incomplete",
                }
                return item.model_copy(update=changes)
            case ev.MessageItem():
                texts = [ev.OutputText(text=text)]
                return item.model_copy(update={"content": texts, "status": "incomplete"})
            case ev.McpCallItem():
                message = aborted_text("".join(self._printed[item.id]), reason)
                error = ev.McpProtocolError(code=INTERNAL_ERROR_CODE, message=message)
                arguments = repair_arguments(text, False).json
                return item.model_copy(
                    update={"arguments": arguments, "error": error, "status": "failed"}
                )
            case _:
                return item


INTERNAL_ERROR_CODE = -32603
"""JSON-RPC 2.0's code for an internal error, section 5.1."""


def response_events(response: ev.Response) -> list[ev.Event]:
    """A stream that folds to a finished ``response``, with its items one by one and no deltas."""
    begun = response.model_copy(update={"status": "in_progress", "output": [], "error": None})
    events: list[ev.Event] = [ev.ResponseCreated(response=begun)]
    for index, item in enumerate(response.output):
        events.append(ev.OutputItemAdded(output_index=index, item=item))
        events.append(ev.OutputItemDone(output_index=index, item=item))
    return [*events, terminal_event(response)]


def terminal_event(response: ev.Response) -> ev.Terminal:
    match response.status:
        case "completed":
            return ev.ResponseCompleted(response=response)
        case "failed":
            return ev.ResponseFailed(response=response)
        case _:
            return ev.ResponseIncomplete(response=response)
