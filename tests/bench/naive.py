"""The peers of the app, on Textual as its documentation shows it.

``python -m tests.bench.naive bare`` is a screen with one TextArea; ``stream FILE LAGS TOKENS`` streams
the file's text into a Markdown widget above it, 400 tokens a second, once Enter is pressed; ``open
FILE`` shows the whole text from the start.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.widgets import TextArea

from tests.bench.lag import Lags

RATE = 400


class Bare(App[None]):
    BINDINGS = [Binding("ctrl+q", "quit", priority=True)]  # noqa: RUF012

    def compose(self) -> ComposeResult:
        yield TextArea(placeholder="Ask something")


class Whole(Bare):
    """A text from the start."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        from textual.widgets import Markdown

        with VerticalScroll():
            yield Markdown(self._text)
        area = TextArea(placeholder="Ask something")
        area.styles.height = 5
        yield area

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).anchor()
        self.query_one(TextArea).focus()


class Streaming(Whole):
    """A text as it comes."""

    BINDINGS = [Binding("enter", "go", priority=True)]  # noqa: RUF012

    def __init__(self, text: str, lags: Lags, tokens: int) -> None:
        super().__init__("")
        step = len(text) / tokens
        self._pieces = [text[int(n * step) : int((n + 1) * step)] for n in range(tokens + 1)]
        self._lags = lags

    def on_mount(self) -> None:
        super().on_mount()
        self.run_worker(self._lags.watch())

    async def action_go(self) -> None:
        self.run_worker(self._stream())

    async def _stream(self) -> None:
        from textual.widgets import Markdown

        stream = Markdown.get_stream(self.query_one(Markdown))
        began = time.monotonic()
        for number, piece in enumerate(self._pieces):
            await asyncio.sleep(max(0.0, began + number / RATE - time.monotonic()))
            await stream.write(piece)
        await stream.stop()

    def on_unmount(self) -> None:
        self._lags.write()


def main(kind: str, *files: str) -> None:
    match kind:
        case "bare":
            Bare().run()
        case "open":
            Whole(Path(files[0]).read_text()).run()
        case "stream":
            Streaming(Path(files[0]).read_text(), Lags(Path(files[1])), int(files[2])).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
