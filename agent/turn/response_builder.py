"""The one fold from events to items, and its inverse: ``output_item.added`` opens an item, deltas write
it, ``output_item.done`` ends it. For streams that may have broken off (recovery, tests)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, get_args

from agent import events as ev
from agent.formats.tool_arguments import repair_arguments
from tools.results import aborted_text

TextDelta = (
    ev.ReasoningTextDelta | ev.OutputTextDelta | ev.McpCallArgumentsDelta
    | ev.FunctionCallArgumentsDelta | ev.CustomToolCallInputDelta | ev.CodeInterpreterCallCodeDelta
)  # fmt: skip


@dataclass(eq=False, slots=True)
class ItemBuilder:
    """One item of a response, as far as its events have come."""

    item: ev.Item
    """As it was opened; complete once it is done."""
    is_done: bool = False
    deltas: list[str] = field(default_factory=list)
    """Deltas of its text: the reasoning, the message, or a call's arguments."""
    arguments: str | None = None
    """The arguments of a call that is about to run; they may have been repaired."""
    summaries: dict[int, list[str]] = field(default_factory=dict)
    """Deltas of the parts of a reasoning summary, by their indexes."""
    printed: list[str] = field(default_factory=list)
    """Deltas of the output of its running tool."""

    def interrupted(self, reason: str) -> ev.Item:
        """The item if the stream ends here. ``reason``: for calls."""
        if self.is_done:
            return self.item
        text = "".join(self.deltas) if self.arguments is None else self.arguments
        match item := self.item:
            case ev.ReasoningItem():
                summary = [ev.SummaryText(text="".join(part)) for part in self.summaries.values()]
                content = [ev.ReasoningText(text=text)]
                changes = {"content": content, "summary": summary, "status": "incomplete"}
                return item.model_copy(update=changes)
            case ev.MessageItem():
                texts = [ev.OutputText(text=text)]
                return item.model_copy(update={"content": texts, "status": "incomplete"})
            case ev.McpCallItem():
                message = aborted_text("".join(self.printed), reason)
                error = ev.McpProtocolError(code=INTERNAL_ERROR_CODE, message=message)
                arguments = repair_arguments(text, False).json
                changes = {"arguments": arguments, "error": error, "status": "failed"}
                return item.model_copy(update=changes)
            case _:
                return item


class ResponseBuilder:
    """Folds events, in order, into the items that they describe."""

    def __init__(self) -> None:
        self.response: ev.Response | None = None
        """The latest snapshot of the response; the final one once the stream has ended."""
        self._builders: dict[str, ItemBuilder] = {}

    def apply(self, event: ev.Event) -> None:
        """Fold one event in; a delta costs the same however long the text is."""
        if (fold := _FOLDS.get(type(event))) is not None:
            fold(self, event)

    def __getitem__(self, item_id: str) -> ItemBuilder:
        """An item that has been opened. Raises KeyError for others."""
        return self._builders[item_id]

    @property
    def items(self) -> list[ev.Item]:
        """The items so far, in output order; one that is still open is as it was opened."""
        return [builder.item for builder in self._builders.values()]

    def interrupted(self, reason: str) -> list[ev.Item]:
        """The items if the stream ends here: open ones have what was written. ``reason``: for calls."""
        return [builder.interrupted(reason) for builder in self._builders.values()]

    def add(self, item: ev.Item) -> None:
        """Add a complete item, in place of its events."""
        self._builders[item.id] = ItemBuilder(item, is_done=True)

    def _open_item(self, event: ev.OutputItemAdded) -> None:
        self._builders[event.item.id] = ItemBuilder(event.item)

    def _add_summary(self, event: ev.ReasoningSummaryTextDelta) -> None:
        summaries = self._builders[event.item_id].summaries
        summaries.setdefault(event.summary_index, []).append(event.delta)

    def _set_arguments(self, event: ev.McpCallArgumentsDone) -> None:
        self._builders[event.item_id].arguments = event.arguments

    def _set_response(self, event: ev.ResponseEvent) -> None:
        self.response = event.response


DELTAS = frozenset([*get_args(TextDelta), ev.ReasoningSummaryTextDelta, ev.AgentToolOutputDelta])
"""Events that only append to an item."""
_FOLDS: dict[type, Callable[[ResponseBuilder, Any], None]] = {
    **dict.fromkeys(
        get_args(TextDelta), lambda self, event: self[event.item_id].deltas.append(event.delta)
    ),
    **dict.fromkeys(ev.ResponseEvent.__subclasses__(), ResponseBuilder._set_response),
    ev.ReasoningSummaryTextDelta: ResponseBuilder._add_summary,
    ev.AgentToolOutputDelta: lambda self, event: self[event.item_id].printed.append(event.delta),
    ev.McpCallArgumentsDone: ResponseBuilder._set_arguments,
    ev.OutputItemAdded: ResponseBuilder._open_item,
    ev.OutputItemDone: lambda self, event: self.add(event.item),  # its deltas are needed no more
}
"""By type, as a ``match`` asks each class of pydantic in turn, which costs most for other events."""


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
    if response.status == "completed":
        return ev.ResponseCompleted(response=response)
    failed = response.status == "failed"
    return (ev.ResponseFailed if failed else ev.ResponseIncomplete)(response=response)
