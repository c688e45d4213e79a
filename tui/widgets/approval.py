"""A call that waits for the person's yes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from tui.widgets.stream import Stream
from tui.words import arguments, shown

Answer = Literal["once", "session", "no"]
ANSWERS: dict[str, Answer] = {"y": "once", "a": "session", "n": "no"}
GRACE = 0.5
"""After so many seconds without a key it takes the focus: what is being typed is not meant for it."""


class Approval(Vertical, can_focus=True):
    """``await answer()``; shown as long as it waits."""

    DEFAULT_CSS = """
    Approval {
        height: auto; max-height: 14; padding: 0 1; border: round $warning;
        border-title-color: $text-warning;
        & > Stream { max-height: 9; }
        & > .keys { height: 1; color: $text-muted; }
        &:focus { border: heavy $warning; }
        &:focus > .keys { color: $text-warning; }
    }
    """

    def __init__(self, server: str, tool: str, given: str, quiet: Callable[[], float]) -> None:
        """``quiet``: for how many seconds the person has pressed no key."""
        super().__init__()
        self.border_title = Content(f"Run {shown(server)} · {shown(tool)}?")
        self._given = arguments(shown(given))
        self._quiet = quiet
        self._stream = Stream(grows=True)
        self._decided: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def compose(self) -> ComposeResult:
        yield self._stream
        yield Static("y once · a always in this session · n no", classes="keys", markup=False)

    def on_mount(self) -> None:
        self._stream.write(self._given)
        self._stream.can_focus = False
        self.set_timer(GRACE, self._take_focus)

    def _take_focus(self) -> None:
        if (left := GRACE - self._quiet()) > 0:
            self.set_timer(left, self._take_focus)
        else:
            self.focus()

    async def answer(self) -> Answer:
        return await self._decided

    def on_key(self, event: events.Key) -> None:
        if event.key in ANSWERS and not self._decided.done():
            self._decided.set_result(ANSWERS[event.key])
        if event.is_printable:
            event.stop()  # nothing of it belongs into the prompt
