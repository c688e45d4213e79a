"""The items of a response while they are written: each call here becomes events, in the right order.

A writer opens its item when it is made, takes text as it comes, and closes it once. The item that it
puts into ``response.output_item.done`` is the one that the final response holds.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic_core import from_json

from agent import events as ev
from agent.turn.citations import FindSource, citations
from agent.turn.logprobs import streamed
from tools.types import Tool

Emit = Callable[[ev.Event], None]


def new_id(prefix: str) -> str:
    """``rs_…``, ``msg_…``, ``mcp_…``, ``fc_…``, ``call_…``, ``resp_…``"""
    return f"{prefix}_{uuid.uuid4().hex}"


class Output:
    """A response's items so far; hands out the output indexes."""

    def __init__(self, emit: Emit, source: FindSource | None = None) -> None:
        """``source``: what the marks in a message's text cite."""
        self.emit, self.source = emit, source
        self._done: dict[int, ev.Item] = {}
        self._opened = 0

    @property
    def items(self) -> list[ev.Item]:
        """Those that are done, in the order in which they were opened."""
        return [self._done[index] for index in sorted(self._done)]

    @property
    def answer(self) -> str:
        """The text of the last answer."""
        for item in reversed(self.items):
            if isinstance(item, ev.MessageItem) and item.phase == "final_answer":
                return "".join(part.text for part in item.content)
        return ""

    def open(self, item: ev.Item) -> int:
        index = self._opened
        self._opened += 1
        self.emit(ev.OutputItemAdded(output_index=index, item=item))
        return index

    def close(self, index: int, item: ev.Item) -> None:
        self._done[index] = item
        self.emit(ev.OutputItemDone(output_index=index, item=item))


class ReasoningWriter:
    def __init__(self, output: Output) -> None:
        self._output, self._chunks = output, list[str]()
        self.id = new_id("rs")
        self._index = output.open(ev.ReasoningItem(id=self.id))
        self._at: dict[str, Any] = {"item_id": self.id, "output_index": self._index}
        output.emit(ev.ContentPartAdded(**self._at, part=ev.ReasoningText()))

    def delta(self, text: str) -> None:
        self._chunks.append(text)
        self._output.emit(
            ev.ReasoningTextDelta(item_id=self.id, output_index=self._index, delta=text)
        )

    def close(self, complete: bool) -> None:
        part = ev.ReasoningText(text="".join(self._chunks))
        self._output.emit(ev.ReasoningTextDone(**self._at, text=part.text))
        self._output.emit(ev.ContentPartDone(**self._at, part=part))
        status: ev.ItemStatus = "completed" if complete else "incomplete"
        self._output.close(self._index, ev.ReasoningItem(id=self.id, content=[part], status=status))


class MessageWriter:
    def __init__(self, output: Output, phase: Literal["commentary", "final_answer"]) -> None:
        self._output, self._phase, self._chunks = output, phase, list[str]()
        self._logprobs: list[dict[str, Any]] = []
        self.id = new_id("msg")
        self._index = output.open(ev.MessageItem(id=self.id, phase=phase))
        self._at: dict[str, Any] = {"item_id": self.id, "output_index": self._index}
        output.emit(ev.ContentPartAdded(**self._at, part=ev.OutputText()))

    def delta(self, text: str, logprobs: Sequence[dict[str, Any]] = ()) -> None:
        """``logprobs``: of the text's tokens, as a part shows them."""
        self._chunks.append(text)
        self._logprobs += logprobs
        self._output.emit(
            ev.OutputTextDelta(
                item_id=self.id,
                output_index=self._index,
                delta=text,
                logprobs=streamed(logprobs),
            )
        )

    def close(self, complete: bool) -> None:
        part = ev.OutputText(text="".join(self._chunks), logprobs=self._logprobs)
        if self._output.source is not None:
            part.annotations = citations(part.text, self._output.source)
        for number, one in enumerate(part.annotations):
            self._output.emit(
                ev.OutputTextAnnotationAdded(**self._at, annotation_index=number, annotation=one)
            )
        done = streamed(self._logprobs)
        self._output.emit(ev.OutputTextDone(**self._at, text=part.text, logprobs=done))
        self._output.emit(ev.ContentPartDone(**self._at, part=part))
        status: ev.ItemStatus = "completed" if complete else "incomplete"
        self._output.close(
            self._index,
            ev.MessageItem(id=self.id, phase=self._phase, content=[part], status=status),
        )


class FunctionCallWriter:
    """A call that the client runs."""

    def __init__(self, output: Output, name: str, namespace: str | None = None) -> None:
        self._output, self.name, self.namespace = output, name, namespace
        self.id, self.call_id = new_id("fc"), new_id("call")
        self._index = output.open(self._item("", "in_progress"))

    def _item(self, arguments: str, status: ev.ItemStatus) -> ev.FunctionCallItem:
        return ev.FunctionCallItem(
            id=self.id,
            call_id=self.call_id,
            name=self.name,
            namespace=self.namespace,
            arguments=arguments,
            status=status,
        )

    def delta(self, text: str) -> None:
        self._output.emit(
            ev.FunctionCallArgumentsDelta(item_id=self.id, output_index=self._index, delta=text)
        )

    def close(self, arguments: str, complete: bool) -> None:
        self._output.emit(
            ev.FunctionCallArgumentsDone(
                item_id=self.id, output_index=self._index, name=self.name, arguments=arguments
            )
        )
        status: ev.ItemStatus = "completed" if complete else "incomplete"
        self._output.close(self._index, self._item(arguments, status))


class CustomCallWriter:
    """A call of a client's tool whose input is a text."""

    def __init__(
        self, output: Output, name: str, namespace: str | None = None, *, free: bool = True
    ) -> None:
        """``free``: no grammar holds the model to the text, so it may wrap it in JSON."""
        self._output, self.name, self.namespace, self._free = output, name, namespace, free
        self.id, self.call_id = new_id("ctc"), new_id("call")
        self._held = ""
        self._index = output.open(self._item(""))
        self._at: dict[str, Any] = {"item_id": self.id, "output_index": self._index}

    def _item(self, text: str) -> ev.CustomToolCallItem:
        return ev.CustomToolCallItem(
            id=self.id,
            call_id=self.call_id,
            name=self.name,
            namespace=self.namespace,
            input=text,
        )

    def delta(self, text: str) -> None:
        self._held += text
        if not self._free or self._held.lstrip()[:1] not in ("", "{"):
            self._send(self._held)
            self._free, self._held = False, ""

    def _send(self, text: str) -> None:
        if text:
            self._output.emit(ev.CustomToolCallInputDelta(**self._at, delta=text))

    def close(self, text: str) -> None:
        """``text``: all that was written."""
        if self._free:
            text = _unwrapped(text)
            self._send(text)
        self._output.emit(ev.CustomToolCallInputDone(**self._at, input=text))
        self._output.close(self._index, self._item(text))


def _unwrapped(text: str) -> str:
    try:
        value = from_json(text)  # refuses what no event could carry: half a surrogate pair
    except ValueError:
        return text
    match value:
        case {"input": str(inner), **rest} if not rest:
            return inner
        case _:
            return text


class McpCallWriter:
    """A call that this process runs: arguments first, then the run, then completed or failed."""

    def __init__(self, output: Output, server: str, name: str, *, asked: str | None = None) -> None:
        """``asked``: the id of the request by which the client approved it."""
        self._output, self.server, self.name, self._asked = output, server, name, asked
        self.id, self.arguments = new_id("mcp"), ""
        self._index = output.open(ev.McpCallItem(id=self.id, server_label=server, name=name))
        self._at: dict[str, Any] = {"item_id": self.id, "output_index": self._index}
        output.emit(ev.McpCallInProgress(**self._at))

    def delta(self, text: str) -> None:
        self._output.emit(
            ev.McpCallArgumentsDelta(item_id=self.id, output_index=self._index, delta=text)
        )

    def arguments_done(self, arguments: str) -> None:
        self.arguments = arguments
        self._output.emit(ev.McpCallArgumentsDone(**self._at, arguments=arguments))

    def begins(self) -> None:
        """It has begun when it is shown."""

    def completed(self, output: str) -> None:
        self._output.emit(ev.McpCallCompleted(**self._at))
        self._close("completed", output=output)

    def failed(self, error: ev.McpError) -> None:
        self._output.emit(ev.McpCallFailed(**self._at))
        self._close("failed", error=error)

    def _close(
        self,
        status: Literal["completed", "failed"],
        output: str | None = None,
        error: ev.McpError | None = None,
    ) -> None:
        item = ev.McpCallItem(
            id=self.id,
            server_label=self.server,
            name=self.name,
            arguments=self.arguments,
            output=output,
            error=error,
            approval_request_id=self._asked,
            status=status,
        )
        self._output.close(self._index, item)


def list_tools(
    output: Output, server: str, tools: Sequence[Tool], error: str | None = None
) -> None:
    """The item that tells a client which tools a server offers it; ``error``: why there are none."""
    item = ev.McpListToolsItem(id=new_id("mcpl"), server_label=server, tools=[])
    index = output.open(item)
    output.emit(ev.McpListToolsInProgress(item_id=item.id, output_index=index))
    listed = [
        ev.McpListedTool(
            name=tool.name,
            description=tool.description,
            input_schema=tool.parameters,
            annotations={"readOnlyHint": tool.read_only},
        )
        for tool in tools
    ]
    end = ev.McpListToolsCompleted if error is None else ev.McpListToolsFailed
    output.emit(end(item_id=item.id, output_index=index))
    output.close(index, item.model_copy(update={"tools": listed, "error": error}))
