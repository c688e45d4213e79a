"""Renders Markdown as rows of styled cells, in place of Textual's ``Markdown`` widget.

Textual's widget (``MarkdownStream`` while text comes) mounts a widget for each block, list item and
table cell, and parses and lays out again with every piece. Here one pass of Rich's Markdown
renderer gives rows that a single widget paints, ``tui.markdown.streaming`` renders a closed block
only once, and freezes most of the open one (docs/performance.md compares the two).

Rows know what separates them in the text (``RenderedRow.separator``), so that what is copied has
the lines that were written; links become actions of the app instead of OSC 8.

Uses what Rich does not document: the element classes of ``rich.markdown``, ``Markdown.parsed`` and
``Style._meta`` (pyproject.toml: ``rich>=14,<16``).
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement, Paragraph, TableElement
from rich.segment import Segment
from rich.style import Style
from rich.syntax import ANSISyntaxTheme, Syntax
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from agent.util.latex import read_formulas
from tui.util.format import display_text, wrap_line

_markdown = read_formulas(MarkdownIt("gfm-like", {"html": False}))
TextStyles = Mapping[str, Style]
"""The style of each of ``tui.base_screen.MARKDOWN_STYLES``."""
_LINE_BREAK = re.compile(r" *<br ?/?> *", re.IGNORECASE)
_TOKEN_PARTS = {
    ("Comment",): "comment",
    ("Keyword",): "keyword",
    ("Literal",): "number",
    ("Literal", "String"): "string",
    ("Name", "Builtin"): "function",
    ("Name", "Class"): "function",
    ("Name", "Decorator"): "function",
    ("Name", "Function"): "function",
}
_WRAPPED, _WRAPPED_AT_BLANK = (Style.from_meta({"joined": by}) for by in ("", " "))
"""Styles that carry a row's separator through Rich's renderer."""
_BEFORE_CODE, _BEHIND_CODE = (Style.from_meta({"margin": side}) for side in ("left", "right"))
"""Styles of the blanks around a row of code, by which it is known after Rich has indented it."""


RowSpan = tuple[int, int, int]
"""Where a row begins in the text of all, and the start and end in it of what was written."""


@dataclass(frozen=True, slots=True)
class RenderedRow:
    """One row of rendered Markdown or plain text."""

    segments: list[Segment]
    separator: str = "\n"
    """The text between this row and the next: empty or a blank where the line was wrapped."""
    code: tuple[int, int] | None = None
    """Where the characters of code start and end, in a row of a code block."""

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments)

    def written_span(self, *, continues: bool) -> tuple[int, int]:
        """Start and end of what was written, not laid out; ``continues``: of a wrapped line."""
        if self.code is not None:
            return self.code
        text = self.text
        end = len(text.rstrip())
        return (min(end, len(text) - len(text.lstrip())) if continues else 0), end


def join_rows(rows: Sequence[RenderedRow]) -> tuple[str, list[RowSpan]]:
    """Return the text of all rows, where wrapped lines are one again, and the span of each row."""
    text, spans = "", []
    for row in rows:
        start, end = row.written_span(continues=bool(text) and not text.endswith("\n"))
        spans.append((len(text), start, end))
        text += row.text[start:end] + row.separator
    return text, spans


def wrap_plain(text: str, width: int) -> list[RenderedRow]:
    rows = []
    for line in text.split("\n"):
        *wrapped, (start, end) = wrap_line(line, width)
        rows += [RenderedRow([Segment(line[a:b])], _separator(line[a:b])) for a, b in wrapped]
        rows.append(RenderedRow([Segment(line[start:end])]))
    return rows


def parse(text: str) -> list[Token]:
    """Parse GitHub's Markdown; HTML is text, and every line break is one, as models mean it."""
    tokens = _markdown.parse(text)
    for token in tokens:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type = "hardbreak"
    return tokens


def render_markdown(text: str, width: int, styles: TextStyles) -> list[RenderedRow]:
    """Render Markdown ``width`` cells wide, without blank rows around it. Safe in any thread."""
    return render_with_cell_widths(text, width, styles)[0]


def render_with_cell_widths(
    text: str, width: int, styles: TextStyles, cell_widths: Sequence[int] = ()
) -> tuple[list[RenderedRow], tuple[int, ...]]:
    """As `render_markdown`, with the columns of the first table, no narrower than ``cell_widths``."""
    rich_styles = {
        "markdown.code": styles["code"],
        "markdown.block_quote": styles["quote"],
        "markdown.hr": styles["rule"],
        "markdown.table.border": styles["rule"],
        "markdown.table.header": Style(bold=True),
        "markdown.link_url": styles["link"],
        "markdown.item.bullet": styles["quote"],
        "markdown.item.number": styles["quote"],
        "markdown.paragraph": Style.null(),
        **{f"markdown.h{level}": styles["heading"] for level in range(1, 7)},
    }
    theme = Theme(rich_styles)
    console = Console(file=io.StringIO(), width=width, theme=theme, force_terminal=True)
    document = _Document(text, styles, cell_widths)
    rows = [_to_row(line) for line in console.render_lines(document, pad=False)]
    filled = [number for number, row in enumerate(rows) if not _is_gap(row)]
    rows = rows[filled[0] : filled[-1] + 1] if filled else []
    # Rich puts two blank rows between some blocks; code is as it was written.
    pairs = zip(rows, [None, *rows], strict=False)
    rows = [row for row, above in pairs if not (_is_gap(row) and above and _is_gap(above))]
    return rows, next(iter(document.table_cell_widths), ())


def _is_gap(row: RenderedRow) -> bool:
    return row.code is None and not row.text.strip()


def _to_row(line: Sequence[Segment]) -> RenderedRow:
    separator, segments = "\n", []
    column, code_start, code_end = 0, None, None
    for text, style, _ in line:
        if style is not None and style._meta is not None:
            separator = style.meta.get("joined", separator)
            match style.meta.get("margin"):
                case "left":
                    code_start = column + len(text)
                case "right":
                    code_end = column
        column += len(text)
        if style is not None and style.link:
            # Opened by the app, which checks the address; the terminal gets no OSC 8 link.
            action = Style.from_meta({"@click": ("app.link", (style.link,))})
            style = style.update_link(None) + action
        # An entity can stand for a control character, or one that turns the text around.
        segments.append(Segment(text if text.isprintable() else display_text(text), style))
    if code_start is None:
        return RenderedRow(segments, separator)
    # A blank at which code was wrapped is in the row, as all blanks of code are.
    code = code_start, column if code_end is None else code_end
    return RenderedRow(segments, separator.strip(" "), code)


def _wrap_text(text: Text, width: int) -> Iterator[Text]:
    for line in text.split("\n", allow_blank=True):
        line.end = ""
        *wrapped, (start, end) = wrap_line(line.plain, width)
        for a, b in wrapped:
            row = line[a:b]
            row.stylize(_WRAPPED_AT_BLANK if _separator(row.plain) else _WRAPPED)
            yield row
        yield line[start:end]


def _separator(row: str) -> str:
    return " " if row.endswith(" ") else ""


class _Paragraph(Paragraph):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _wrap_text(self.text, options.max_width)


class _Heading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _wrap_text(self.text, options.max_width)


class _Code(CodeBlock):
    text_styles: TextStyles

    @classmethod
    def create(cls, markdown: Markdown, token: object) -> _Code:
        assert isinstance(markdown, _Document)
        block = cls((getattr(token, "info", "") or "text").split(" ")[0], "")
        block.text_styles = markdown.text_styles
        return block

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        styles, width = self.text_styles, max(1, options.max_width - 2)
        theme = ANSISyntaxTheme({kind: styles[part] for kind, part in _TOKEN_PARTS.items()})
        if not (code := str(self.text).rstrip()):
            return
        highlighted = Syntax("", self.lexer_name, theme=theme).highlight(code)
        highlighted.rstrip()
        for row in _wrap_text(highlighted, width):
            row.style = ""
            row.pad_left(1)
            row.stylize(_BEFORE_CODE, 0, 1)
            end = len(row)
            row.pad_right(options.max_width - row.cell_len)
            row.stylize(_BEHIND_CODE, end)
            row.stylize_before(styles["block"])
            yield row


class _Table(TableElement):
    document: _Document

    @classmethod
    def create(cls, markdown: Markdown, token: object) -> _Table:
        assert isinstance(markdown, _Document)
        table = cls()
        table.document = markdown
        return table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(
            box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, style="markdown.table.border"
        )
        document, styles, heads = self.document, self.document.text_styles, []
        if self.header is not None and self.header.row is not None:
            heads = [cell.content for cell in self.header.row.cells]
        for head in heads:
            head.stylize("markdown.table.header")
            table.add_column(head)
        widths = document.cell_widths
        rows = [[Text("x" * cells) for cells in widths]] if widths else []
        for row in self.body.rows if self.body is not None else ():
            rows.append([_break_lines(cell.content, styles["code"]) for cell in row.cells])
        for texts in rows:
            table.add_row(*texts)
        document.cell_widths = ()
        widths = tuple(
            max(cell_len(line) for text in column for line in text.plain.split("\n"))
            for column in zip(heads, *rows, strict=False)
        )
        document.table_cell_widths.append(widths)
        yield table


def _break_lines(cell: Text, code: Style) -> Text:
    """End a line at each ``<br>`` of a table's cell, which has no other way to; not within code."""
    breaks = [
        match.span()
        for match in _LINE_BREAK.finditer(cell.plain)
        if not any(
            span.start <= match.start() < span.end
            and code
            and isinstance(span.style, Style)
            and (span.style.color, span.style.bgcolor) == (code.color, code.bgcolor)
            for span in cell.spans
        )
    ]
    if not breaks:
        return cell
    return Text("\n").join(cell.divide([at for span in breaks for at in span])[::2])


class _Document(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "paragraph_open": _Paragraph,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "table_open": _Table,
    }

    def __init__(self, text: str, styles: TextStyles, cell_widths: Sequence[int] = ()) -> None:
        super().__init__("")
        self.text_styles = styles
        self.cell_widths: Sequence[int] = cell_widths
        """Widths of the first row that the next table gets."""
        self.table_cell_widths: list[tuple[int, ...]] = []
        """Column widths of each table that is rendered already."""
        self.parsed = parse(text)
