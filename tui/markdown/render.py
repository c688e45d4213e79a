"""Markdown as rows of cells: one pass over the text, where a widget for each block, item and cell
would cost the screen twenty times as much."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import (
    CodeBlock,
    Heading,
    Markdown,
    MarkdownElement,
    Paragraph,
    TableElement,
)
from rich.segment import Segment
from rich.style import Style
from rich.syntax import ANSISyntaxTheme, Syntax
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from tui.markdown.blocks import parse
from tui.util.format import shown, wrap

Look = Mapping[str, Style]
"""How the parts of a text look: a style for each of paper's PARTS."""
_TOKENS = {
    ("Comment",): "comment",
    ("Keyword",): "keyword",
    ("Literal",): "number",
    ("Literal", "String"): "string",
    ("Name", "Builtin"): "function",
    ("Name", "Class"): "function",
    ("Name", "Decorator"): "function",
    ("Name", "Function"): "function",
}
"""Of Pygments' kinds of tokens, those that are told apart."""
_GOES_ON, _GOES_ON_AFTER_A_BLANK = (Style.from_meta({"joined": by}) for by in ("", " "))


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the screen."""

    segments: list[Segment]
    end: str = "\n"
    """What stands between it and the next one in the text: nothing or a blank where it was wrapped."""

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments)


def plain(text: str, width: int) -> list[Row]:
    """The text as it is, wrapped."""
    rows = []
    for line in text.split("\n"):
        *wrapped, (start, end) = wrap(line, width)
        rows += [Row([Segment(line[a:b])], _end(line[a:b])) for a, b in wrapped]
        rows.append(Row([Segment(line[start:end])]))
    return rows


def rendered(text: str, width: int, look: Look) -> list[Row]:
    """Markdown, without blank rows around it; safe in any thread."""
    return laid_out(text, width, look)[0]


def laid_out(
    text: str, width: int, look: Look, columns: Sequence[int] = ()
) -> tuple[list[Row], tuple[int, ...]]:
    """The same, and how wide the cells of its first table are. ``columns``: this table begins with a
    row of such cells."""
    styles = {
        "markdown.code": look["code"],
        "markdown.block_quote": look["quote"],
        "markdown.hr": look["rule"],
        "markdown.table.border": look["rule"],
        "markdown.table.header": Style(bold=True),
        "markdown.link_url": look["link"],
        "markdown.item.bullet": look["quote"],
        "markdown.item.number": look["quote"],
        "markdown.paragraph": Style.null(),
        **{f"markdown.h{level}": look["heading"] for level in range(1, 7)},
    }
    console = Console(file=io.StringIO(), width=width, theme=Theme(styles), force_terminal=True)
    document = _Document(text, look, columns)
    rows = [_row(line) for line in console.render_lines(document, pad=False)]
    filled = [number for number, row in enumerate(rows) if row.text.strip()]
    return rows[filled[0] : filled[-1] + 1] if filled else [], next(iter(document.tables), ())


def _row(line: Sequence[Segment]) -> Row:
    end, segments = "\n", []
    for text, style, _ in line:
        if style is not None and style._meta is not None:
            end = style.meta.get("joined", end)
        if style is not None and style.link:
            # Opened by the app, which asks where it leads; the terminal learns nothing of it.
            action = Style.from_meta({"@click": ("app.link", (style.link,))})
            style = style.update_link(None) + action
        # An entity can stand for what would turn the text around.
        segments.append(Segment(text if text.isprintable() else shown(text), style))
    return Row(segments, end)


def _wrapped(text: Text, width: int) -> Iterator[Text]:
    """Rows of a text that know how they go on."""
    for line in text.split("\n", allow_blank=True):
        line.end = ""
        *wrapped, (start, end) = wrap(line.plain, width)
        for a, b in wrapped:
            row = line[a:b]
            row.stylize(_GOES_ON_AFTER_A_BLANK if _end(row.plain) else _GOES_ON)
            yield row
        yield line[start:end]


def _end(row: str) -> str:
    return " " if row.endswith(" ") else ""


class _Paragraph(Paragraph):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _wrapped(self.text, options.max_width)


class _Heading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _wrapped(self.text, options.max_width)


class _Code(CodeBlock):
    look: Look

    @classmethod
    def create(cls, markdown: Markdown, token: object) -> _Code:
        assert isinstance(markdown, _Document)
        made = cls((getattr(token, "info", "") or "text").split(" ")[0], "")
        made.look = markdown.look
        return made

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        look, width = self.look, max(1, options.max_width - 2)
        theme = ANSISyntaxTheme({kind: look[part] for kind, part in _TOKENS.items()})
        code = str(self.text).rstrip()
        highlighted = Syntax("", self.lexer_name, theme=theme).highlight(code)
        highlighted.rstrip()
        for row in _wrapped(highlighted, width):
            row.style = ""
            row.pad_left(1)
            row.pad_right(options.max_width - row.cell_len)
            row.stylize_before(look["block"])
            yield row


class _Table(TableElement):
    document: _Document

    @classmethod
    def create(cls, markdown: Markdown, token: object) -> _Table:
        assert isinstance(markdown, _Document)
        made = cls()
        made.document = markdown
        return made

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(
            box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, style="markdown.table.border"
        )
        document, heads = self.document, []
        if self.header is not None and self.header.row is not None:
            heads = [cell.content for cell in self.header.row.cells]
        for head in heads:
            head.stylize("markdown.table.header")
            table.add_column(head)
        rows = [[Text("x" * cells) for cells in document.columns]] if document.columns else []
        for row in self.body.rows if self.body is not None else ():
            rows.append([cell.content for cell in row.cells])
        for texts in rows:
            table.add_row(*texts)
        document.columns = ()
        columns = zip(heads, *rows, strict=False)
        document.tables.append(tuple(max(cell_len(t.plain) for t in texts) for texts in columns))
        yield table


class _Document(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "paragraph_open": _Paragraph,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "table_open": _Table,
    }

    def __init__(self, text: str, look: Look, columns: Sequence[int] = ()) -> None:
        super().__init__("")
        self.look, self.columns = look, columns
        self.tables: list[tuple[int, ...]] = []
        """How wide the cells of each are, once it is laid out."""
        self.parsed = parse(text)
