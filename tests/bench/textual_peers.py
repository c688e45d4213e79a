"""The peers of the app: programs written with Textual's own widgets, as its documentation shows.

``python -m tests.bench.textual_peers …`` runs one of them:

- ``bare``: a screen with one TextArea;
- ``open FILE``: a Markdown widget with the file's text above it;
- ``stream FILE LAGS TOKENS``: once Enter is pressed the file's text streams into that widget as so many
  tokens; the loop's lags are written to LAGS.
"""

import asyncio
import sys
import time
from pathlib import Path

from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.widgets import TextArea

from tests.bench.loop_lag import LagRecorder

TOKENS_PER_SECOND = 400
"""Rate at which text streams, here and in the app."""


class TextAreaApp(App[None]):
    """A screen with one TextArea."""

    BINDINGS = [Binding("ctrl+q", "quit", priority=True)]  # noqa: RUF012

    def compose(self) -> ComposeResult:
        yield TextArea(placeholder="Ask something")


class MarkdownApp(TextAreaApp):
    """A Markdown widget with a text, above the TextArea."""

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


class StreamingApp(MarkdownApp):
    """Streams a text into the Markdown widget once Enter is pressed."""

    BINDINGS = [Binding("enter", "go", priority=True)]  # noqa: RUF012

    def __init__(self, text: str, lags: LagRecorder, tokens: int) -> None:
        super().__init__("")
        step = len(text) / tokens
        self._chunks = [text[int(n * step) : int((n + 1) * step)] for n in range(tokens + 1)]
        self._lags = lags

    def on_mount(self) -> None:
        super().on_mount()
        self.run_worker(self._lags.record())

    async def action_go(self) -> None:
        """Begin to stream."""
        self.run_worker(self._stream())

    async def _stream(self) -> None:
        from textual.widgets import Markdown

        stream = Markdown.get_stream(self.query_one(Markdown))
        began = time.monotonic()
        for number, chunk in enumerate(self._chunks):
            await asyncio.sleep(max(0.0, began + number / TOKENS_PER_SECOND - time.monotonic()))
            await stream.write(chunk)
        await stream.stop()

    def on_unmount(self) -> None:
        self._lags.save()


def main(kind: str, *files: str) -> None:
    """Run one of the programs; ``files``: its other arguments."""
    match kind:
        case "bare":
            TextAreaApp().run()
        case "open":
            MarkdownApp(Path(files[0]).read_text()).run()
        case "stream":
            StreamingApp(
                Path(files[0]).read_text(), LagRecorder(Path(files[1])), int(files[2])
            ).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
