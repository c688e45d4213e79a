"""A call that waits for the person's yes."""

from __future__ import annotations

import asyncio
import time
from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from tui.widgets.stream import Stream
from tui.words import arguments, shown

Answer = Literal["once", "session", "no"]
GRACE = 0.5
"""Seconds during which no key answers: what was being typed when it appeared was not meant for it."""


class Approval(Vertical, can_focus=True):
    """``await answer()``; shown as long as it waits."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer('once')", "Run it", show=False),
        Binding("a", "answer('session')", "Always, this session", show=False),
        Binding("n", "answer('no')", "Do not run it", show=False),
    ]
    DEFAULT_CSS = """
    Approval {
        height: auto; max-height: 14; padding: 0 1; border: round $warning;
        border-title-color: $text-warning;
        & > Stream { max-height: 9; scrollbar-size-vertical: 1; }
        & > .keys { height: 1; color: $text-muted; }
    }
    """

    def __init__(self, server: str, tool: str, given: str, *, grace: float = GRACE) -> None:
        super().__init__()
        title = Content(f"Run {shown(server)} · {shown(tool)}?")
        self.border_title = title
        self._given = arguments(shown(given))
        self._stream = Stream(grows=True)
        self._decided: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._from = time.monotonic() + grace

    def compose(self) -> ComposeResult:
        yield self._stream
        yield Static("y once · a always in this session · n no", classes="keys", markup=False)

    def on_mount(self) -> None:
        self._stream.write(self._given)
        self._stream.can_focus = False
        self.focus()

    async def answer(self) -> Answer:
        return await self._decided

    def action_answer(self, answer: Answer) -> None:
        if time.monotonic() >= self._from and not self._decided.done():
            self._decided.set_result(answer)
