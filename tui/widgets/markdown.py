"""Markdown as this app shows it: tables compact, and nothing of the text read as markup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.geometry import Size
from textual.widget import Widget
from textual.widgets import Markdown
from textual.widgets._markdown import (
    MarkdownBlock,
    MarkdownTable,
    MarkdownTableCellContents,
    MarkdownTableContent,
)

if TYPE_CHECKING:
    _Mixed = Widget
else:
    # Not a widget itself: of two of those Textual takes the rules of the first alone.
    _Mixed = object


class Cells(MarkdownTableContent):
    """Without the tooltips of the original, which take what a cell says for markup."""

    DEFAULT_CSS = """
    Cells {
        grid-gutter: 0 1; keyline: none;
        & > .cell, & > .header { padding: 0 1 0 0; }
        & > .header { color: $text; text-style: bold; border-bottom: solid $rule; }
    }
    """

    def compose(self) -> ComposeResult:
        for header in self.headers:
            yield MarkdownTableCellContents(header, classes="header")
        for number, row in enumerate(self.rows, 1):
            for cell in row:
                yield MarkdownTableCellContents(cell, classes=f"row{number} cell")
            self.last_row = number


class Table(MarkdownTable):
    DEFAULT_CSS = """
    Table { width: auto; max-width: 100%; background: transparent; }
    """

    def compose(self) -> ComposeResult:
        self._headers, self._rows = self._get_headers_and_rows()
        yield Cells(self._headers, self._rows)


class Measured(_Mixed):
    """As high as its content, measured once. By itself Textual measures again whenever the height of
    what is around it changes, which for a growing conversation is at every line."""

    _measured = (-1, -1, -1)
    _height = 0

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        if (now := (width, self._layout_updates, self._nodes._updates)) != self._measured:
            self._measured = now
            self._height = super().get_content_height(container, viewport, width)
        return self._height


class Group(Measured, Vertical):
    """Some pieces that belong together."""

    DEFAULT_CSS = """
    Group { height: auto; }
    """


class Text(Measured, Markdown):
    """A piece of Markdown; its links are opened by nobody but the app."""

    def __init__(self, markdown: str) -> None:
        super().__init__(markdown, open_links=False)

    def get_block_class(self, block_name: str) -> type[MarkdownBlock]:
        return Table if block_name == "table_open" else super().get_block_class(block_name)
