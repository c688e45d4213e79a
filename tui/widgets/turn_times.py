"""A waterfall of one turn: what took how long, on one axis, and the speed of generation below it."""

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from agent.events import MIN_SPEED_TOKENS
from tui.state.timeline import SpanKind, Timeline, TimeSpan, sparkline
from tui.util.format import display_text, format_seconds

COLOURS: dict[SpanKind, str] = {
    "load": "$text-muted",
    "queue": "$text-muted",
    "prefill": "$primary",
    "reasoning": "$secondary",
    "arguments": "$warning",
    "approval": "$error",
    "tool": "$warning",
    "answer": "$success",
}
NAME_COLUMNS, SECONDS_COLUMNS = 34, 13
"""Columns of the names and of the durations; a third of a narrow screen for the names."""


class TurnTimes(Widget):
    """Shows the spans of a turn as bars in the width that there is."""

    DEFAULT_CSS = "TurnTimes { height: auto; padding: 0 1; margin-bottom: 1; }"

    def __init__(self, timeline: Timeline) -> None:
        super().__init__()
        self._timeline = timeline

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return 1 + len(self._timeline.spans) + bool(self._timeline.tokens)

    def render(self) -> Content:
        timeline, width = self._timeline, self.content_size.width
        names = min(NAME_COLUMNS, width // 3)
        columns = max(1, width - names - SECONDS_COLUMNS)
        heading = f"Where the {format_seconds(timeline.seconds)} went"
        rows = [Content.styled(heading, "bold $accent")]
        rows += [self._row(span, names, columns) for span in timeline.spans]
        if sum(count for _, count in timeline.tokens) >= MIN_SPEED_TOKENS:
            speeds = timeline.speeds(columns)
            name = Content("tokens per second").truncate(names - 1, ellipsis=True, pad=True)
            highest = f"  ≤ {max(speeds):,.0f} tok/s".rjust(SECONDS_COLUMNS)
            line = (sparkline(speeds), "$success")
            rows.append(Content.assemble(name, " ", line, (highest, "$text-muted")))
        return Content("\n").join(rows)

    def _row(self, span: TimeSpan, names: int, columns: int) -> Content:
        scale = columns / max(self._timeline.seconds, 1e-9)
        start = min(columns - 1, int(span.began * scale))
        length = max(1, min(columns - start, round((span.ended - span.began) * scale)))
        bar = " " * start + "█" * length + " " * (columns - start - length)
        name = Content(display_text(span.label)).truncate(names - 1, ellipsis=True, pad=True)
        seconds = format_seconds(max(0.0, span.ended - span.began))
        return Content.assemble(
            name, " ", (bar, COLOURS[span.kind]), (seconds.rjust(SECONDS_COLUMNS), "$text-muted")
        )
