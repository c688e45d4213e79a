"""Searches the transcript: finds the hits in its turns, and steps through them in a bar."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from rich.style import Style
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from tui.base_screen import MARKDOWN_STYLES
from tui.guarded import Guarded
from tui.keymap import bind
from tui.markdown.highlight import format_arguments
from tui.markdown.render import join_rows, render_markdown
from tui.markdown.streaming import INLINE_CHARS
from tui.state.item_view import ItemView
from tui.state.turn_view import TurnView
from tui.util.text_search import find_folded
from tui.widgets.assistant_message import AssistantMessage
from tui.widgets.text_stream import TextStream
from tui.widgets.transcript import Transcript
from tui.widgets.user_message import UserMessage, prompt_content

NO_STYLES = dict.fromkeys(MARKDOWN_STYLES, Style.null())


SearchHit = tuple[TurnView, ItemView | None, int]
"""A hit's turn and item (None: the prompt), and its number among the hits in that, from 0."""


class BaseSearchBar(Guarded, Horizontal):
    """Takes the query and goes from hit to hit; subclasses define ``find``, ``show_hit``, ``leave``."""

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
        self._count = Static("", markup=False)
        super().__init__(Input(placeholder=self.PLACEHOLDER, compact=True), self._count)
        self._hits: Sequence[Any] = []
        self._current = 0
        self.border_title = "Search"
        self.border_subtitle = "↑ previous · ↓ next · Esc back"

    def on_mount(self) -> None:
        self.enter()

    def enter(self) -> None:
        self.screen.set_focus(self.query_one(Input))  # before the next key

    # --- for subclasses to define ---

    async def find(self, query: str) -> Sequence[Any]:
        """Return the hits, from the first on."""
        raise NotImplementedError

    async def show_hit(self, hit: Any, query: str) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    async def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._hits = await self.find(event.value) if event.value else []
        self._current = len(self._hits) - 1
        await self._show_current()

    async def action_step(self, by: int) -> None:
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
        if not self.is_attached:  # it was closed meanwhile
            return
        query = self.query_one(Input).value
        count = f"{self._current + 1}/{len(self._hits)}"
        self._count.update(Content(count if self._hits else "nowhere" if query else ""))
        self.screen.clear_selection()
        if self._hits:
            await self.show_hit(self._hits[self._current], query)


class SearchBar(BaseSearchBar):
    """Searches a transcript."""

    PLACEHOLDER = "Search the conversation"

    def __init__(self, transcript: Transcript) -> None:
        super().__init__()
        self._transcript = transcript
        widths = (message.size.width for message in transcript.query(AssistantMessage))
        self._text_width = next(widths, transcript.size.width)
        """Columns of the messages, which tables and rules depend on."""
        self._rendered: dict[ItemView, tuple[str, str]] = {}
        """Markdown and rendered text of each message."""

    async def find(self, query: str) -> Sequence[SearchHit]:
        hits = []
        for turn in self._transcript.turns:
            for item in (None, *turn.items):
                found = find_folded(await self._text_of(turn, item), query.casefold())
                hits += [(turn, item, index) for index, _ in enumerate(found)]
        return hits

    async def _text_of(self, turn: TurnView, item: ItemView | None) -> str:
        """Return the text of an item, or with None of the prompt, with all that can be unfolded."""
        if item is None:
            return prompt_content(turn, expanded=True).plain
        if item.coloured is not None:
            return "".join(text for text, _ in item.coloured)
        if item.kind in ("answer", "commentary"):
            return await self._render_text(item)
        text = str(item.text) if item.final_text is None else item.final_text
        if item.kind != "call":
            return text
        runs = format_arguments(text, item.title) if item.final_text is not None else [(text, "")]
        return "\n".join(["".join(text for text, _ in runs), item.result or "", item.changes])

    async def _render_text(self, item: ItemView) -> str:
        source = item.displayed_markdown
        if self._rendered.get(item, ("", ""))[0] != source:
            render = partial(render_markdown, source, self._text_width, NO_STYLES)
            # The keys typed meanwhile are handled: all messages together may take seconds.
            is_long = len(source) > INLINE_CHARS
            rows = await (asyncio.to_thread(render) if is_long else asyncio.sleep(0, render()))
            self._rendered[item] = source, join_rows(rows)[0]
        return self._rendered.get(item, ("", ""))[1]

    async def show_hit(self, hit: SearchHit, query: str) -> None:
        turn, item, index = hit
        if turn in self._transcript.turns:
            widgets = await self._transcript.reveal(turn, item)
            self.call_after_refresh(self._select_hit, widgets, query, index)

    def leave(self) -> None:
        self.screen.query("PromptInput").focus()

    def _select_hit(self, widgets: Sequence[Widget], query: str, number: int) -> None:
        if not self.is_attached:  # it was closed before the refresh
            return
        hits = [
            (widget, *hit)
            for widget in widgets
            if isinstance(widget, TextStream | AssistantMessage | UserMessage)
            for hit in widget.find_text(query.casefold())
        ]
        if not hits:
            for widget in widgets[:1]:
                widget.scroll_visible(animate=False, top=True)
            return
        widget, selection, row = hits[min(number, len(hits) - 1)]
        self.screen.selections = {widget: selection}
        self._transcript.scroll_to_row(widget, row)
