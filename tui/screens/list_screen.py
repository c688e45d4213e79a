"""The base of the screens of conversations, models and servers: a searchable list with details."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from tui.guarded import GuardedScreen, Result

DETAILS_DELAY_SECONDS = 0.06
"""Time on a row before its details are shown: a held arrow key passes most rows."""


class ListScreen(GuardedScreen[Result]):
    """Shows rows, and the details of one; subclasses call ``refresh_rows`` when rows change."""

    HEADING: ClassVar[str]
    KEY_HINT: ClassVar[str]
    SEARCH_HINT: ClassVar[str] = "Type to search"
    EMPTY_TEXT: ClassVar[str] = "Nothing here yet."
    AUTO_FOCUS = "Input"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Back", show=False),
        Binding("up", "move_highlight('cursor_up')", show=False),
        Binding("down", "move_highlight('cursor_down')", show=False),
        Binding("pageup", "scroll_details(-1)", show=False),
        Binding("pagedown", "scroll_details(1)", show=False),
        # With priority, like the app's own binding: whatever has the focus.
        Binding("ctrl+q", "app.leave", show=False, priority=True),
    ]
    DEFAULT_CSS = """
    ListScreen {
        & > .name { height: 1; padding: 0 1; color: $accent; text-style: bold; }
        & > Input {
            height: 1; padding: 0 1; border: none; background: $surface;
            &:focus { border: none; }
        }
        & > Horizontal { height: 1fr; margin-top: 1; }
        & OptionList {
            width: 5fr; max-width: 60; height: 1fr; padding: 0; border: none;
            background: $background; scrollbar-size-vertical: 1;
            text-wrap: nowrap; text-overflow: ellipsis;
            &:focus { border: none; }
            & > .option-list--option { padding: 0 1; }
            & > .option-list--option-highlighted { background: $panel; color: $text; }
        }
        &:ansi OptionList > .option-list--option-highlighted { text-style: bold underline; }
        & VerticalScroll {
            width: 6fr; padding: 0 1; border-left: solid $rule; scrollbar-size-vertical: 1;
        }
        & .details { height: auto; }
        & > .keys { height: auto; padding: 0 1; color: $text-muted; }
    }
    """

    def compose(self) -> ComposeResult:
        yield from self.compose_head()
        with Horizontal():
            yield OptionList(markup=False)
            with VerticalScroll(can_focus=False):
                yield Static("", classes="details", markup=False)
        yield Static(self.KEY_HINT, classes="keys", markup=False)

    def on_mount(self) -> None:
        self.refresh_rows()

    def compose_head(self) -> ComposeResult:
        yield Static(self.HEADING, classes="name", markup=False)
        yield Input(placeholder=self.SEARCH_HINT)

    # --- for subclasses to define ---

    def make_rows(self, search: str) -> Sequence[Option]:
        """Return the rows that match the search text, each with an id; all where it is empty."""
        raise NotImplementedError

    def row_details(self, row_id: str, search: str) -> Content:
        raise NotImplementedError

    def choose_row(self, row_id: str) -> None:
        """Do what Enter does on a row; by default nothing."""

    @property
    def search_text(self) -> str:
        return self.query_one(Input).value.strip()

    @property
    def option_list(self) -> OptionList:
        return self.query_one(OptionList)

    @property
    def has_widgets(self) -> bool:
        """Whether it can be updated: one that is closed loses its widgets first, in any order."""
        return bool(self.query(OptionList)) and bool(self.query(".details"))

    @property
    def highlighted_id(self) -> str | None:
        option = self.option_list.highlighted_option
        return option.id if option else None

    def refresh_rows(self) -> None:
        """Make the rows again; the same row stays highlighted, or the one now in its place."""
        if not self.has_widgets:
            return
        before, index = self.highlighted_id, self.option_list.highlighted or 0
        rows = self.make_rows(self.search_text)
        self.option_list.clear_options()
        self.option_list.add_options(rows)
        index = next((n for n, row in enumerate(rows) if row.id == before), index)
        self.option_list.highlighted = min(index, len(rows) - 1) if rows else None
        self.show_details()

    def show_details(self) -> None:
        row_id = self.highlighted_id
        empty = "No matches." if self.search_text else self.EMPTY_TEXT
        text = Content(empty) if row_id is None else self.row_details(row_id, self.search_text)
        self.query_one(".details", Static).update(text)
        self.query_one(VerticalScroll).scroll_home(animate=False)

    def on_input_changed(self) -> None:
        self.on_search_changed()

    def on_search_changed(self) -> None:
        """Show the rows that match; a subclass that has to read them first overrides it."""
        self.refresh_rows()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.choose_highlighted()

    def choose_highlighted(self) -> None:
        if (row_id := self.highlighted_id) is not None:
            self.choose_row(row_id)

    def on_option_list_option_highlighted(self) -> None:
        self.set_timer(
            DETAILS_DELAY_SECONDS, self._show_details_late, name=str(self.highlighted_id)
        )

    def _show_details_late(self) -> None:
        if self.has_widgets:
            self.show_details()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        if event.option_id is not None:
            self.choose_row(event.option_id)

    def action_move_highlight(self, move: str) -> None:
        getattr(self.option_list, f"action_{move}")()

    def action_scroll_details(self, pages: int) -> None:
        scroll = self.query_one(VerticalScroll)
        scroll.scroll_relative(y=pages * (scroll.size.height - 1), animate=False)
