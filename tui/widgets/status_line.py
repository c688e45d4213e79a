"""The status line at the bottom: what the turn does, and the model, context and servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Static

from tui.util.format import format_count, format_seconds, format_tokens

if TYPE_CHECKING:
    from tui.state.turn_view import TurnView

MIN_SECONDS = 1.0


@dataclass(slots=True)
class StatusFields:
    """Fields of the status line; empty or None where unknown."""

    activity: str = "starting"
    is_busy: bool = True
    tokens_per_second: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    """Since the running turn began; 0 while none runs."""
    mode: str = ""
    """Which calls run, where that is not asked."""
    folder: str = ""
    model: str = ""
    context_used: int | None = None
    context_length: int | None = None
    ready_servers: int = 0
    enabled_servers: int = 0
    address: str = ""
    download: str = ""
    """Name and progress of a model that is being downloaded."""
    served_running: int = 0
    tab_key: str = ""
    """The key that shows their tabs."""

    def texts(self) -> dict[str, str]:
        used, length = self.context_used or 0, self.context_length
        ready, enabled = self.ready_servers, self.enabled_servers
        served = f"{self.tab_key}: {self.served_running} served"
        texts = {
            "mode": self.mode,
            "folder": self.folder,
            "model": self.model,
            "context": f"{format_count(used)}/{format_count(length)}" if length else "",
            "servers": f"MCP {ready}/{enabled}" if enabled else "",
            "address": self.address,
            "download": self.download,
            "served": served if self.served_running else "",
        }
        return {name: text for name, text in texts.items() if text}


class StatusLine(Static):
    """Shows ``status``, as much of it as fits into one line."""

    DEFAULT_CSS = "StatusLine { height: 1; padding: 0 1; color: $text-muted; }"

    def __init__(self, tab_key: str) -> None:
        super().__init__("", markup=False)
        self.status = StatusFields(tab_key=tab_key)

    def on_resize(self) -> None:
        self.update_line()

    def follow(self, turn: TurnView | None, *, running: bool, loading: str) -> None:
        """Show the running turn, or the last one. ``loading``: what is loaded; empty: nothing is."""
        status = self.status
        if running and turn is not None:
            status.activity, status.is_busy = turn.activity or "ending", True
            status.seconds = turn.clock() - turn.began
        else:
            status.seconds = 0.0
            status.activity, status.is_busy = loading or "ready", bool(loading)
        if turn is not None:
            status.tokens = turn.tokens
            status.tokens_per_second = turn.speed if turn.decoding or not running else 0.0
            status.context_used = turn.context_used
            status.context_length = turn.context_length or status.context_length
        self.update_line()

    def update_line(self) -> None:
        """Show ``status`` as it is now; where room is short, the least important text is left out."""
        status = self.status
        left = f"{'●' if status.is_busy else '○'} {status.activity}"
        if status.seconds >= MIN_SECONDS:
            left += f" · {format_seconds(status.seconds)}"
        if status.tokens_per_second:
            left += f" · {format_tokens(status.tokens)} · {status.tokens_per_second:.0f} tok/s"
        width = max(0, self.size.width - 2)
        texts = status.texts()
        for least in ("folder", "address", "servers", "model", "served"):
            if cell_len(left) + cell_len(" · ".join(texts.values())) + 2 > width:
                texts.pop(least, None)
        right = " · ".join(texts.values())
        left = left[: max(0, width - cell_len(right) - 2)]
        gap = max(1, width - cell_len(left) - cell_len(right))
        self.update(Content(f"{left}{' ' * gap}{right}"), layout=False)
