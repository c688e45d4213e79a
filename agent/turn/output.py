"""The items of a response while they are written, and the writers of its texts (those of tool calls:
`agent.turn.call_writers`). A writer opens its item when it is made, takes text as it comes, and closes
it once. Each call becomes events, in the order that the Responses API prescribes."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

from agent import events as ev
from agent.conversation.compaction import encode_summary
from agent.conversation.reasoning_token import encode_reasoning
from agent.turn.logprobs import event_logprobs
from agent.turn.reasoning_summary import SummaryStyle, SummaryWriter
from agent.util.ids import new_id
from tools.types import Source

Emit = Callable[[ev.Event], None]
_CITATION = re.compile(r"【(\d{1,9})†L(\d{1,9})[^】\n]{0,80}】")
"""As GPT-OSS writes them, ``【cursor†L3-L5】`` (https://github.com/openai/gpt-oss)."""
FindSource = Callable[[int, int], Source | None]
"""Finds what a line of a browsed page refers to, by the page's cursor and the line's number."""


def citations(text: str, find_source: FindSource) -> list[dict[str, Any]]:
    """The ``url_citation`` annotations; positions in characters, the end exclusive."""
    return [
        {
            "type": "url_citation",
            "start_index": mark.start(),
            "end_index": mark.end(),
            "title": source.title,
            "url": source.url,
        }
        for mark in _CITATION.finditer(text)
        if (source := find_source(int(mark[1]), int(mark[2]))) is not None
    ]


class Output:
    """The items of a response so far; hands out the output indexes."""

    def __init__(self, emit: Emit, find_source: FindSource | None = None) -> None:
        """``find_source``: resolves the citations in a message's text."""
        self.emit, self.find_source = emit, find_source
        self._done: dict[int, ev.Item] = {}
        self._opened = 0

    @property
    def items(self) -> list[ev.Item]:
        """The items that are done, in the order in which they were opened."""
        return [self._done[index] for index in sorted(self._done)]

    @property
    def answer(self) -> ev.MessageItem | None:
        messages = (item for item in reversed(self.items) if isinstance(item, ev.MessageItem))
        return next((item for item in messages if item.phase == "final_answer"), None)

    def open(self, item: ev.Item) -> int:
        """Emit ``response.output_item.added`` and return the item's output index."""
        index = self._opened
        self._opened += 1
        self.emit(ev.OutputItemAdded(output_index=index, item=item))
        return index

    def repeat(self, event: ev.Event) -> None:
        """Emit an event of an item that an earlier turn has written, which this response has too."""
        match event:
            case ev.OutputItemAdded():
                self._opened += 1
            case ev.OutputItemDone(output_index=index, item=item):
                self._done[index] = item
        self.emit(event)

    def close(self, index: int, item: ev.Item) -> None:
        """Emit ``response.output_item.done`` and hold ``item`` as its final form."""
        self._done[index] = item
        self.emit(ev.OutputItemDone(output_index=index, item=item))


class ItemWriter:
    """Base of the writers: one open item of a response."""

    def __init__(self, output: Output, item: ev.Item) -> None:
        self._output, self._opened, self.id = output, item, item.id
        self._index = output.open(item)
        self.at: dict[str, Any] = {"item_id": self.id, "output_index": self._index}
        """The fields by which events name the item."""
        self._chunks: list[str] = []

    @property
    def text(self) -> str:
        """The text so far, of a writer that keeps it."""
        return "".join(self._chunks)

    def close_item(self, **changes: object) -> None:
        """Close the item with the fields that differ from the opened one's."""
        self._output.close(self._index, self._opened.model_copy(update=changes))


class ReasoningWriter(ItemWriter):
    """Writes a reasoning item."""

    def __init__(
        self, output: Output, summary: SummaryStyle | None = None, *, encrypted: bool = False
    ) -> None:
        """``summary``: how it is summarised. ``encrypted``: the item also holds its text as a token."""
        super().__init__(output, ev.ReasoningItem(id=new_id("rs")))
        self._encrypted = encrypted
        self._summary = SummaryWriter(summary, output.emit, self.at) if summary else None
        output.emit(ev.ContentPartAdded(**self.at, part=ev.ReasoningText()))

    def delta(self, text: str) -> None:
        self._chunks.append(text)
        self._output.emit(
            ev.ReasoningTextDelta(item_id=self.id, output_index=self._index, delta=text)
        )
        if self._summary is not None:
            self._summary.delta(text)

    def close(self, complete: bool) -> None:
        """End the item; ``complete``: the model ended it, nothing cut it off."""
        part = ev.ReasoningText(text=self.text)
        self._output.emit(ev.ReasoningTextDone(**self.at, text=part.text))
        self._output.emit(ev.ContentPartDone(**self.at, part=part))
        if self._summary is not None:
            self._summary.close(complete)
        self.close_item(
            summary=self._summary.parts if self._summary is not None else [],
            content=[part],
            encrypted_content=encode_reasoning(part.text) if self._encrypted else None,
            status="completed" if complete else "incomplete",
        )


class MessageWriter(ItemWriter):
    """Writes a message item: the answer, or the preamble of a tool call."""

    def __init__(self, output: Output, phase: Literal["commentary", "final_answer"]) -> None:
        super().__init__(output, ev.MessageItem(id=new_id("msg"), phase=phase))
        self._logprobs: list[dict[str, Any]] = []
        output.emit(ev.ContentPartAdded(**self.at, part=ev.OutputText()))

    def delta(self, text: str, logprobs: Sequence[dict[str, Any]] = ()) -> None:
        """Add text; ``logprobs``: of its tokens, as `agent.turn.logprobs.part_logprobs` writes them."""
        self._chunks.append(text)
        self._logprobs += logprobs
        self._output.emit(
            ev.OutputTextDelta(
                item_id=self.id,
                output_index=self._index,
                delta=text,
                logprobs=event_logprobs(logprobs) if logprobs else [],
            )
        )

    def close(self, complete: bool) -> None:
        part = ev.OutputText(text=self.text, logprobs=self._logprobs)
        if self._output.find_source is not None:
            part.annotations = citations(part.text, self._output.find_source)
        for number, annotation in enumerate(part.annotations):
            at = {**self.at, "annotation_index": number}
            self._output.emit(ev.OutputTextAnnotationAdded(**at, annotation=annotation))
        logprobs = event_logprobs(self._logprobs)
        self._output.emit(ev.OutputTextDone(**self.at, text=part.text, logprobs=logprobs))
        self._output.emit(ev.ContentPartDone(**self.at, part=part))
        self.close_item(content=[part], status="completed" if complete else "incomplete")


class CompactionWriter(ItemWriter):
    """Writes a compaction item: a summary as a token, for the client to send back."""

    def __init__(self, output: Output) -> None:
        super().__init__(output, ev.CompactionItem(id=new_id("cmp")))
        output.emit(ev.CompactionCompacting(**self.at))

    def close(self, summary: str) -> None:
        self.close_item(encrypted_content=encode_summary(summary) if summary else "")
