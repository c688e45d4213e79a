"""Searches the transcript: finds the hits in its turns, and steps through them in a bar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from tui.guarded import Guarded
from tui.keymap import bind
from tui.markdown.highlight import format_arguments
from tui.state.item_view import ItemView
from tui.state.turn_view import TurnView
from tui.util.text_search import find_folded
from tui.widgets.assistant_message import AssistantMessage
from tui.widgets.text_stream import TextStream

if TYPE_CHECKING:
    from tui.widgets.transcript import Transcript


@dataclass(frozen=True, eq=False)
class SearchHit:
    """One occurrence of the query."""

    turn: TurnView
    item: ItemView | None
    """The item that has it; None: the prompt."""
    index_in_item: int
    """Its number among the hits in that item or prompt, from 0."""


def find_hits(turns: Sequence[TurnView], query: str) -> list[SearchHit]:
    """Find the query in prompts and items, from the first on, without regard to case."""
    hits = []
    for turn in turns:
        for item in (None, *turn.items):
            text = turn.prompt if item is None else _displayed_text(item)
            count = len(list(find_folded(text, query.casefold())))
            hits += [SearchHit(turn, item, index) for index in range(count)]
    return hits


def _displayed_text(item: ItemView) -> str:
    """Return an item's text as its widget shows it."""
    text = str(item.text) if item.final_text is None else item.final_text
    if item.kind != "call":
        return text
    runs = format_arguments(text, item.title) if item.final_text is not None else [(text, "")]
    return f"{''.join(text for text, _ in runs)}\n{item.result or ''}"


class BaseSearchBar(Guarded, Horizontal):
    """Takes the query, shows the number of hits and goes from hit to hit.

    A subclass defines ``find``, ``show_hit`` and ``leave``.
    """

    PLACEHOLDER: ClassVar[str]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,enter,shift+tab", "step(-1)", "Previous match", priority=True),
        Binding("down,tab", "step(1)", "Next match", priority=True),
        Binding("escape", "close", "Back", priority=True),
        bind("search", "close", priority=True),
    ]
    DEFAULT_CSS = """
    BaseSearchBar {
        height: 3; border: round $accent; padding: 0 1; border-subtitle-color: $text-muted;
        & > Input { width: 1fr; background: $background; }
        & > Static { width: auto; color: $text-muted; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._hits: Sequence[Any] = []
        self._current = 0
        self.border_title = "Search"
        self.border_subtitle = "↑ previous · ↓ next · Esc back"
        self._count = Static("", markup=False)

    def compose(self) -> ComposeResult:
        yield Input(placeholder=self.PLACEHOLDER, compact=True)
        yield self._count

    def on_mount(self) -> None:
        self.enter()

    def enter(self) -> None:
        """Take the focus, for the query."""
        self.screen.set_focus(self.query_one(Input))  # before the next key

    # --- for subclasses to define ---

    def find(self, query: str) -> Sequence[Any]:
        """Return the hits, from the first on."""
        raise NotImplementedError

    async def show_hit(self, hit: Any, query: str) -> None:
        """Show one of them."""
        raise NotImplementedError

    def leave(self) -> None:
        """Give the focus back."""
        raise NotImplementedError

    # --- keys ---

    async def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._hits = self.find(event.value) if event.value else []
        self._current = len(self._hits) - 1
        await self._show_current()

    async def action_step(self, by: int) -> None:
        """Go to another hit, from the last on to the first."""
        if self._hits:
            self._current = (self._current + by) % len(self._hits)
            await self._show_current()

    async def action_close(self) -> None:
        """Close the bar; the focus stays where the person has put it meanwhile."""
        self.screen.clear_selection()
        if self.has_focus_within:
            self.leave()
        await self.remove()

    async def _show_current(self) -> None:
        query = self.query_one(Input).value
        count = (
            f"{self._current + 1}/{len(self._hits)}" if self._hits else "nowhere" if query else ""
        )
        self._count.update(Content(count))
        self.screen.clear_selection()
        if self._hits:
            await self.show_hit(self._hits[self._current], query)


class SearchBar(BaseSearchBar):
    """Searches a transcript."""

    PLACEHOLDER = "Search the conversation"

    def __init__(self, transcript: Transcript) -> None:
        super().__init__()
        self._transcript = transcript

    def find(self, query: str) -> Sequence[SearchHit]:
        """Return the hits in prompts and items."""
        return find_hits(self._transcript.turns, query)

    async def show_hit(self, hit: SearchHit, query: str) -> None:
        """Select a hit and scroll to it."""
        widgets = await self._transcript.reveal(hit.turn, hit.item)
        self.call_after_refresh(self._select_hit, widgets, query, hit.index_in_item)

    def leave(self) -> None:
        """Return to the prompt."""
        self.screen.query("PromptInput").focus()

    def _select_hit(self, widgets: Sequence[Widget], query: str, number: int) -> None:
        """Select a hit and scroll to it; one that is wrapped in its middle is only scrolled to."""
        hits = [
            (widget, *hit)
            for widget in widgets
            if isinstance(widget, TextStream | AssistantMessage)
            for hit in widget.find_text(query.casefold())
        ]
        if not hits:
            for widget in widgets[:1]:
                widget.scroll_visible(animate=False, top=True)
            return
        widget, selection, row = hits[min(number, len(hits) - 1)]
        self.screen.selections = {widget: selection}
        self._transcript.scroll_to_row(widget, row)
