"""Where the time of a turn went: its stored events (those of ``--trace``, in hundredths of a second),
folded into spans on one axis of seconds."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from agent import events as ev
from agent.store.event_codec import TimedEvent

SpanKind = Literal[
    "load", "queue", "prefill", "reasoning", "arguments", "approval", "tool", "answer"
]
SPARKS = "▁▂▃▄▅▆▇█"
MAX_BATCH_SECONDS = 0.5
"""Longest pause between two batches of tokens that counts as decoding."""
SMOOTH_SECONDS = 0.2
"""Over which the speed is averaged: the app reads tokens in batches, 25 times a second."""


@dataclass(slots=True)
class TimeSpan:
    """Something that took time; seconds since the turn began."""

    kind: SpanKind
    began: float
    ended: float
    name: str = ""
    """The called tool; of a prefill how many of its tokens were new and cached."""

    @property
    def label(self) -> str:
        return f"{self.kind} {self.name}".strip()


@dataclass(slots=True)
class Timeline:
    """The spans of one turn, in the order in which they began."""

    spans: list[TimeSpan]
    seconds: float
    tokens: list[tuple[float, float]] = field(default_factory=list)
    """When how many tokens were generated: counted, or estimated from the lengths of texts."""

    def speeds(self, columns: int) -> list[float]:
        """Tokens per second in ``columns`` equal parts of the turn, smoothed a little."""
        width = max(self.seconds, 1e-9) / columns
        counts, before = [0.0] * columns, -math.inf
        for at, count in self.tokens:
            # A batch was generated since the one before, unless a tool or a prefill came between.
            since = before if at - before < MAX_BATCH_SECONDS else at - SMOOTH_SECONDS
            first, last = (min(columns - 1, max(0, int(end / width))) for end in (since, at))
            for column in range(first, last + 1):
                counts[column] += count / (last + 1 - first)
            before = at
        reach = math.ceil(SMOOTH_SECONDS / width / 2) - 1
        windows = (counts[max(0, n - reach) : n + reach + 1] for n in range(columns))
        return [sum(window) / len(window) / width for window in windows]


def sparkline(values: Sequence[float]) -> str:
    """A row of bars, one for each value; blank where it is 0."""
    highest = max(values, default=0)
    if highest <= 0:
        return " " * len(values)
    last = len(SPARKS) - 1
    return "".join(
        SPARKS[min(last, int(value / highest * len(SPARKS)))] if value > 0 else " "
        for value in values
    )


def read_timeline(
    events: Iterable[TimedEvent], counted: Sequence[tuple[float, float]] = ()
) -> Timeline:
    """Fold a turn's events. ``counted``: when how many tokens came, where that is known."""
    fold = _Fold()
    for seconds, event in events:
        fold.apply(seconds, event)
    total = sum(length for _, length in fold.texts)
    scale = fold.output_tokens / total if total else 0
    estimated = [(at, length * scale) for at, length in fold.texts]
    return Timeline(fold.spans, fold.seconds, list(counted) or estimated)


class _Fold:
    def __init__(self) -> None:
        self.spans: list[TimeSpan] = []
        self.seconds = 0.0
        self.texts: list[tuple[float, int]] = []
        """When text was written, and how many characters."""
        self.output_tokens = 0
        self._open: dict[str, TimeSpan] = {}
        self._phase: TimeSpan | None = None
        self._idle_since = 0.0  # since when nothing was known to happen

    def apply(self, at: float, event: ev.Event) -> None:
        self.seconds = max(self.seconds, at)
        match event:
            case ev.AgentLoad():
                if self._phase is None or self._phase.kind != "load":
                    self._phase = TimeSpan("load", self._idle_since, at)
                    self.spans.append(self._phase)
                self._phase.ended = self._idle_since = at
            case ev.AgentPrefill(total=total, cached=cached):
                if self._phase is None or self._phase.kind != "prefill":
                    self._end_phase(at)
                    if at - self._idle_since >= 0.01:
                        self.spans.append(TimeSpan("queue", self._idle_since, at))
                    name = f"{total - cached:,} + {cached:,} cached"
                    self._phase = TimeSpan("prefill", at, at, name)
                    self.spans.append(self._phase)
                self._phase.ended = at
                self._move_begun(at)
            case ev.OutputItemAdded(item=item):
                self._open_item(at, item)
            case (
                ev.ReasoningTextDelta(delta=delta)
                | ev.OutputTextDelta(delta=delta)
                | ev.McpCallArgumentsDelta(delta=delta)
                | ev.CodeInterpreterCallCodeDelta(delta=delta)
            ):
                self.texts.append((at, len(delta)))
            case ev.McpCallArgumentsDone(item_id=key) | ev.CodeInterpreterCallCodeDone(item_id=key):
                self._next_part(key, "tool", at)
            case ev.AgentApprovalRequested(item_id=key):
                self._next_part(key, "approval", at)
            case ev.AgentApprovalResolved(item_id=key):
                self._next_part(key, "tool", at)
            case ev.OutputItemDone(item=item):
                self._close(item.id, at)
            case ev.AgentStats(output_tokens=tokens):
                self.output_tokens = tokens

    def _move_begun(self, at: float) -> None:
        """Move the start of a given item to the end of the prefill: the model continues it then."""
        for span in self._open.values():
            if span.kind in ("reasoning", "arguments", "answer"):
                span.began = span.ended = at
                self.spans.remove(span)
                self.spans.append(span)

    def _end_phase(self, at: float) -> None:
        if self._phase is not None:
            self._idle_since = self._phase.ended
            self._phase = None

    def _open_item(self, at: float, item: ev.Item) -> None:
        kind: SpanKind = "answer" if isinstance(item, ev.MessageItem) else "arguments"
        if isinstance(item, ev.ReasoningItem):
            kind = "reasoning"
        began = at
        if self._phase is not None and self._phase.kind == "prefill":
            began = self._phase.ended  # its header was written until now
        self._end_phase(at)
        self._open[item.id] = span = TimeSpan(kind, began, at, getattr(item, "name", ""))
        self.spans.append(span)

    def _next_part(self, key: str, kind: SpanKind, at: float) -> None:
        if (span := self._open.get(key)) is None or span.kind == kind:
            return
        span.ended = at
        if at - span.began < 0.005 and span.kind == "tool":
            self.spans.remove(span)  # it was about to run, and asked first
        self._open[key] = TimeSpan(kind, at, at, span.name)
        self.spans.append(self._open[key])

    def _close(self, key: str, at: float) -> None:
        if (span := self._open.pop(key, None)) is not None:
            span.ended = self._idle_since = at
