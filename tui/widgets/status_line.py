"""The last line: what happens right now, and on what it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Static

from tui.util.format import count

if TYPE_CHECKING:
    from tools.types import ServerState
    from tui.state.turn_view import Said


@dataclass(slots=True)
class Status:
    """What the line tells."""

    doing: str = "starting"
    busy: bool = True
    speed: float = 0.0
    tokens: int = 0
    """That the turn has written."""
    model: str = ""
    context_used: int | None = None
    context_length: int | None = None
    servers_ready: int = 0
    servers: int = 0
    address: str = ""
    pulling: str = ""
    """A model that is being downloaded, and how far that is."""
    watched: int = 0
    """Turns of other programs that run right now."""

    def count_servers(self, states: Sequence[ServerState]) -> None:
        states = [state for state in states if state.status != "disabled"]
        self.servers = len(states)
        self.servers_ready = sum(state.status == "ready" for state in states)

    def words(self) -> dict[str, str]:
        """What stands on the right, in order, as far as it is known."""
        used, length = self.context_used or 0, self.context_length
        words = {
            "model": self.model,
            "context": f"{count(used)}/{count(length)}" if length else "",
            "servers": f"MCP {self.servers_ready}/{self.servers}" if self.servers else "",
            "address": self.address,
            "pulling": self.pulling,
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

    def follow(self, said: Said | None, *, running: bool, loading: str) -> None:
        """Show the exchange that runs, or that ran last; ``loading``: what else is being waited for."""
        status = self.status
        if running and said is not None:
            status.doing, status.busy = said.doing or "ending", True
        else:
            status.doing, status.busy = loading or "ready", bool(loading)
        if said is not None:
            status.tokens = said.tokens
            status.speed = said.speed if said.decoding or not running else 0.0
            status.context_used = said.context_used
            status.context_length = said.context_length or status.context_length
        self.show()

    def show(self) -> None:
        """Paint it as ``status`` is now; where there is no room, the least important goes first."""
        status = self.status
        left = f"{'●' if status.busy else '○'} {status.doing}"
        if status.speed:
            left += f" · {count(status.tokens)} tokens · {status.speed:.0f} tok/s"
        width = max(0, self.size.width - 2)
        words = status.words()
        for least in ("address", "servers", "model", "watched"):
            if cell_len(left) + cell_len(" · ".join(words.values())) + 2 > width:
                words.pop(least, None)
        end = " · ".join(words.values())
        left = left[: max(0, width - cell_len(end) - 2)]
        gap = max(1, width - cell_len(left) - cell_len(end))
        self.update(Content(f"{left}{' ' * gap}{end}"), layout=False)
