"""What the model says to the person: Markdown, its closed blocks rendered while the rest comes."""

from __future__ import annotations

import asyncio
import time

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import AwaitMount

from tui.blocks import Blocks, same
from tui.said import Part
from tui.widgets.markdown import Group, Text
from tui.widgets.stream import Stream

FREEZE = 0.25
"""Seconds between two renderings of what is closed: each costs a layout of all that stands above."""
GROUP = 16
"""So many renderings share a container: a layout looks at containers, not into those unchanged."""


class Message(Vertical):
    """One message. What is rendered is not touched again; only where references defined later or some
    nested list come out differently in one piece, all is rendered once more at the end."""

    DEFAULT_CSS = """
    Message {
        height: auto;
        Markdown { padding: 0; background: transparent; }
        &.-commentary Markdown { color: $text-muted; }
    }
    """

    def __init__(self, part: Part) -> None:
        super().__init__(classes=f"-{part.kind}")
        self.part = part
        self._seen = 0
        self._blocks = Blocks()
        self._to_freeze = ""
        """Blocks that nothing can change any more, but that are not rendered yet."""
        self._pieces: list[str] = []
        self._froze = 0.0
        self._group: Group | None = None
        self._open = Stream(grows=True, classes="open-block")
        self._settled = self._ready = False

    def compose(self) -> ComposeResult:
        yield self._open

    def on_mount(self) -> None:
        self._ready = True
        self.follow()

    def follow(self) -> None:
        """Show what came since the last call."""
        if self._settled or not self._ready:
            return
        if self.part.settled:
            self._settled = True
            self.run_worker(self._settle(self.part.whole or str(self.part.text)))
            return
        new = self.part.text.after(self._seen)
        self._seen = len(self.part.text)
        self._to_freeze += self._blocks.feed(new)
        if self._to_freeze and time.monotonic() - self._froze > FREEZE:
            self._freeze(self._to_freeze)
            self._open.cut()
            self._open.write(self._blocks.open)
            self._to_freeze = ""
        else:
            self._open.write(new)

    def _freeze(self, piece: str) -> AwaitMount:
        self._froze = time.monotonic()
        self._pieces.append(piece)
        if self._group is None or len(self._pieces) % GROUP == 1:
            self._group = Group()
            self.mount(self._group, before=self._open)
        return self._group.mount(Text(piece))

    async def _settle(self, text: str) -> None:
        """The end: the rest is rendered too, or all once more where that makes a difference."""
        rest = self._to_freeze + self._blocks.open + self.part.text.after(self._seen)
        pieces = [*self._pieces, rest]
        unchanged: bool = bool(self._pieces) and await asyncio.to_thread(same, pieces, text)
        if unchanged:
            await self._freeze(rest)
            await self._open.remove()
            return
        whole = Text("")
        whole.display = False
        await self.mount(whole)
        await whole.update(text)
        with self.app.batch_update():
            whole.display = True
            for child in [c for c in self.children if c is not whole]:
                await child.remove()
