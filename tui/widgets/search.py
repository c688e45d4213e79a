"""The line in which the person searches the conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.geometry import Offset
from textual.selection import Selection
from textual.widget import Widget
from textual.widgets import Input, Static

from tui.markdown.highlight import arguments
from tui.state.item_view import Part
from tui.state.turn_view import Said
from tui.widgets.assistant_message import Message
from tui.widgets.text_stream import Stream

if TYPE_CHECKING:
    from tui.widgets.transcript import Transcript


@dataclass(frozen=True, eq=False)
class Hit:
    """One place where it stands."""

    said: Said
    part: Part | None
    """None: in the prompt."""
    number: int
    """Which of those in this part, from 0."""


def hits(exchanges: Sequence[Said], wanted: str) -> list[Hit]:
    """All places, in order; capitals and small letters are alike."""
    found = []
    for said in exchanges:
        for part in (None, *said.parts):
            text = said.prompt if part is None else _text(part)
            found += [Hit(said, part, n) for n in range(text.casefold().count(wanted.casefold()))]
    return found


def _text(part: Part) -> str:
    """As it is shown."""
    text = str(part.text) if part.whole is None else part.whole
    if part.kind != "call":
        return text
    runs = arguments(text, part.title) if part.whole is not None else [(text, "")]
    return f"{''.join(text for text, _ in runs)}\n{part.result or ''}"


class Search(Horizontal):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,enter,shift+tab", "step(-1)", "The one before", priority=True),
        Binding("down,tab", "step(1)", "The next", priority=True),
        Binding("escape,ctrl+f", "close", "Back", priority=True),
    ]
    DEFAULT_CSS = """
    Search {
        height: 3; border: round $accent; padding: 0 1; border-subtitle-color: $text-muted;
        & > Input { width: 1fr; background: $background; }
        & > Static { width: auto; color: $text-muted; }
    }
    """

    def __init__(self, transcript: Transcript) -> None:
        super().__init__()
        self._transcript = transcript
        self._hits: list[Hit] = []
        self._at = 0
        self.border_title = "Search"
        self.border_subtitle = "↑ before · ↓ next · Esc back"
        self._count = Static("", markup=False)

    def compose(self) -> ComposeResult:
        yield Input(placeholder="What was said", compact=True)
        yield self._count

    def on_mount(self) -> None:
        self.screen.set_focus(self.query_one(Input))  # before the next key

    async def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._hits = hits(self._transcript.said, event.value) if event.value else []
        self._at = len(self._hits) - 1
        await self._show()

    async def action_step(self, by: int) -> None:
        if self._hits:
            self._at = (self._at + by) % len(self._hits)
            await self._show()

    async def action_close(self) -> None:
        self.screen.clear_selection()
        self.screen.query("Prompt").focus()
        await self.remove()

    async def _show(self) -> None:
        wanted = self.query_one(Input).value
        of = f"{self._at + 1}/{len(self._hits)}" if self._hits else "nowhere" if wanted else ""
        self._count.update(Content(of))
        self.screen.clear_selection()
        if self._hits:
            hit = self._hits[self._at]
            widgets = await self._transcript.reveal(hit.said, hit.part)
            self.call_after_refresh(self._mark, widgets, wanted, hit.number)

    def _mark(self, widgets: Sequence[Widget], wanted: str, number: int) -> None:
        """Show the place; what is wrapped in its middle has no mark, but is in sight."""
        places = [
            (widget, *place)
            for widget in widgets
            if isinstance(widget, Stream | Message)
            for place in widget.places(wanted.casefold())
        ]
        if not places:
            for widget in widgets[:1]:
                widget.scroll_visible(animate=False, top=True)
            return
        widget, line, column, row = places[min(number, len(places) - 1)]
        start = Offset(column, line)
        self.screen.selections = {widget: Selection(start, start + (len(wanted), 0))}
        self._transcript.bring(widget, row)
