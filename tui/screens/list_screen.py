"""A room beside the conversation: a list to search as one types, and what its rows are about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

Result = TypeVar("Result")
SETTLED = 0.06
"""Seconds on a row before its details are looked up: who holds an arrow key passes most of them."""


@dataclass(frozen=True, slots=True)
class Row:
    id: str
    label: Content


class Room(Screen[Result]):
    """``rows`` and ``details`` say what is shown, ``choose`` what Enter does."""

    NAME: ClassVar[str]
    KEYS: ClassVar[str]
    """The line at the bottom."""
    SEARCH: ClassVar[str] = "Type to search"
    EMPTY: ClassVar[str] = "Nothing is here."
    AUTO_FOCUS = "Input"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Back", show=False),
        Binding("up", "list('cursor_up')", show=False),
        Binding("down", "list('cursor_down')", show=False),
        Binding("pageup", "scroll_details(-1)", show=False),
        Binding("pagedown", "scroll_details(1)", show=False),
        # The prompt lies below, and takes what is typed elsewhere.
        Binding("ctrl+q", "app.leave", show=False, priority=True),
    ]
    DEFAULT_CSS = """
    Room {
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
        yield Static(self.NAME, classes="name", markup=False)
        yield Input(placeholder=self.SEARCH)
        with Horizontal():
            yield OptionList(markup=False)
            with VerticalScroll(can_focus=False):
                yield Static("", classes="details", markup=False)
        yield Static(self.KEYS, classes="keys", markup=False)

    def on_mount(self) -> None:
        self.fill()

    # --- what a room is ---

    def rows(self, search: str) -> Sequence[Row]:
        raise NotImplementedError

    def details(self, row: str, search: str) -> Content:
        raise NotImplementedError

    def choose(self, row: str) -> None:
        raise NotImplementedError

    # --- the parts ---

    @property
    def search(self) -> str:
        return self.query_one(Input).value.strip()

    @property
    def list(self) -> OptionList:
        return self.query_one(OptionList)

    @property
    def chosen(self) -> str | None:
        """The id of the row in front."""
        option = self.list.highlighted_option
        return option.id if option else None

    def fill(self) -> None:
        """List again, and stay at the row in front where it is still there."""
        before, place = self.chosen, self.list.highlighted or 0
        rows = self.rows(self.search)
        self.list.clear_options()
        self.list.add_options([Option(row.label, id=row.id) for row in rows])
        at = next((n for n, row in enumerate(rows) if row.id == before), place)
        self.list.highlighted = min(at, len(rows) - 1) if rows else None
        self.show_details()

    def show_details(self) -> None:
        row = self.chosen
        nothing = "Nothing has this." if self.search else self.EMPTY
        text = Content(nothing) if row is None else self.details(row, self.search)
        self.query_one(".details", Static).update(text)
        self.query_one(VerticalScroll).scroll_home(animate=False)

    # --- what the person does ---

    def on_input_changed(self) -> None:
        self.fill()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if (row := self.chosen) is not None:
            self.choose(row)

    def on_option_list_option_highlighted(self) -> None:
        self.set_timer(SETTLED, self._settled, name=str(self.chosen))

    def _settled(self) -> None:
        self.show_details()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        if event.option_id is not None:
            self.choose(event.option_id)

    def action_list(self, move: str) -> None:
        getattr(self.list, f"action_{move}")()

    def action_scroll_details(self, pages: int) -> None:
        scroll = self.query_one(VerticalScroll)
        scroll.scroll_relative(y=pages * (scroll.size.height - 1), animate=False)
