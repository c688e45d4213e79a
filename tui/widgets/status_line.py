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

    def words(self) -> dict[str, str]:
        """What stands on the right, in order, as far as it is known."""
        used, length = self.context_used or 0, self.context_length
        words = {
            "model": self.model,
            "context": f"{count(used)}/{count(length)}" if length else "",
            "servers": f"MCP {self.servers_ready}/{self.servers}" if self.servers else "",
            "address": self.address,
            "watched": f"F3: {self.watched} served" if self.watched else "",
        }
        return {name: word for name, word in words.items() if word}


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
        """Paint it as ``status`` is now; where there is no room, the least important goes first."""
        status = self.status
        left = f"{'●' if status.busy else '○'} {status.doing}"
        if status.speed:
            left += f" · {status.speed:.0f} tok/s"
        width = max(0, self.size.width - 2)
        words = status.words()
        for least in ("address", "servers", "model", "watched"):
            if cell_len(left) + cell_len(" · ".join(words.values())) + 2 > width:
                words.pop(least, None)
        end = " · ".join(words.values())
        left = left[: max(0, width - cell_len(end) - 2)]
        gap = max(1, width - cell_len(left) - cell_len(end))
        self.update(Content(f"{left}{' ' * gap}{end}"), layout=False)
