"""The last line: what happens right now, and on what it runs."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Static

from tui.words import count


@dataclass(slots=True)
class Status:
    """What the line tells."""

    doing: str = "starting"
    busy: bool = True
    speed: float = 0.0
    model: str = ""
    context_used: int | None = None
    context_length: int | None = None
    servers_ready: int = 0
    servers: int = 0
    address: str = ""
    watched: int = 0
    """Turns of other programs that run right now."""


class StatusLine(Static):
    DEFAULT_CSS = """
    StatusLine { height: 1; padding: 0 1; color: $text-muted; }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self.status = Status()

    def on_mount(self) -> None:
        self.show()

    def on_resize(self) -> None:
        self.show()

    def show(self) -> None:
        """Paint it as ``status`` is now; what has no room is left out from the middle."""
        status = self.status
        left = f"{'●' if status.busy else '○'} {status.doing}"
        if status.speed:
            left += f" · {status.speed:.0f} tok/s"
        right = [status.model]
        if status.context_length:
            right.append(f"{count(status.context_used or 0)}/{count(status.context_length)}")
        if status.servers:
            right.append(f"MCP {status.servers_ready}/{status.servers}")
        if status.address:
            right.append(status.address)
        if status.watched:
            right.append(f"F3: {status.watched} served")
        width = max(0, self.size.width - 2)
        words = [word for word in right if word]
        while len(words) > 1 and cell_len(left) + cell_len(" · ".join(words)) + 2 > width:
            words.pop(1 if len(words) > 2 else 0)
        end = " · ".join(words)
        left = left[: max(0, width - cell_len(end) - 2)]
        gap = max(1, width - cell_len(left) - cell_len(end))
        self.update(Content(f"{left}{' ' * gap}{end}"), layout=False)
