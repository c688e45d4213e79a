"""A tool call in the conversation: who is called, with what, and what came back."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from tui.said import Part, duration
from tui.widgets.stream import Stream
from tui.words import arguments

FOLDED = 12
"""So many lines of a result are shown until it is opened."""
MARKS = {"writing": "○", "waiting": "?", "running": "◐", "done": "●", "failed": "✗"}


class Call(Vertical):
    DEFAULT_CSS = """
    Call {
        height: auto;
        & > .head { height: 1; color: $accent; }
        & > .arguments { color: $text; margin-left: 2; }
        & > .result {
            color: $text-muted; margin-left: 2; padding-left: 1; border-left: solid $rule;
        }
        &.-failed > .head { color: $text-error; }
    }
    """

    def __init__(self, part: Part) -> None:
        super().__init__()
        self.part = part
        self._head = Static("", classes="head", markup=False)
        self._arguments = Stream(grows=True, classes="arguments")
        self._result = Stream(grows=True, classes="result")
        self._seen = self._seen_output = 0
        self._whole = self._settled = self._open = False

    def compose(self) -> ComposeResult:
        yield self._head
        yield self._arguments
        yield self._result

    def on_mount(self) -> None:
        self.follow()

    @property
    def open(self) -> bool:
        """The whole result is shown, however long it is."""
        return self._open

    @open.setter
    def open(self, value: bool) -> None:
        self._open = value
        if self._settled:
            self._show_result()

    def follow(self) -> None:
        """Show what came since the last call."""
        part = self.part
        beside = duration(part) if part.state in ("done", "failed") else part.progress
        words = [f"{MARKS[part.state]} {part.title}", "" if part.state == "done" else part.state]
        self._head.update(Content("  ".join(filter(None, [*words, beside]))), layout=False)
        self.set_class(part.state == "failed", "-failed")
        if part.whole is None:
            self._arguments.write(part.text.after(self._seen))
            self._seen = len(part.text)
        elif not self._whole:
            self._whole = True
            self._arguments.cut()
            self._arguments.write(arguments(part.whole))
        if part.result is None:
            self._result.write(part.output.after(self._seen_output))
            self._seen_output = len(part.output)
        elif not self._settled:
            self._settled = True
            self._show_result()

    def _show_result(self) -> None:
        lines = (self.part.result or "").strip("\n").split("\n")
        hidden = 0 if self._open else max(0, len(lines) - FOLDED)
        shown = lines[: len(lines) - hidden] if lines != [""] else ["(no output)"]
        self._result.cut()
        self._result.write("\n".join(shown), "error" if self.part.state == "failed" else "")
        if hidden:
            self._result.line(f"… {hidden} more lines (Ctrl-O opens)", "faint")
