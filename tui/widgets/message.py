"""What the model says to the person: Markdown, its closed blocks rendered while the rest comes."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical

from tui.blocks import Blocks
from tui.said import Part
from tui.widgets.markdown import Text
from tui.widgets.stream import Stream


class Message(Vertical):
    """One message. A closed block is never touched again until the end, when all is rendered once more:
    references defined later and some nested lists only come out right in one piece."""

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
        if not new:
            return
        if closed := self._blocks.feed(new):
            self.mount(Text(closed), before=self._open)
            self._open.cut()
            self._open.write(self._blocks.open)
        else:
            self._open.write(new)

    async def _settle(self, text: str) -> None:
        whole = Text("")
        whole.display = False
        await self.mount(whole)
        await whole.update(text)
        with self.app.batch_update():
            whole.display = True
            for child in [c for c in self.children if c is not whole]:
                await child.remove()
