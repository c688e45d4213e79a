"""Renders Markdown for a terminal with rich, as its author broke the lines. Imported only where an
answer is shown on a terminal: rich's Markdown takes 60 ms."""

from typing import ClassVar

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement, TableElement
from rich.table import Table

from agent.util.latex import read_formulas
from agent.util.sanitize import sanitize

HIDING_RULES = ("html_inline", "html_block", "reference", "image", "autolink")
"""Rules that hide text (tags, comments, ``<placeholders>``, addresses), or repeat it."""


class LeftHeading(Heading):
    """A heading at the left margin, as in the app; rich centres some levels."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class UncutTable(TableElement):
    """A table that breaks long words; rich cuts them off."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for part in super().__rich_console__(console, options):
            if isinstance(part, Table):
                for column in part.columns:
                    column.overflow = "fold"
            yield part


class AnswerMarkdown(Markdown):
    """Markdown that shows all of its text, with its line breaks: models rely on them (verse)."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": LeftHeading,
        "table_open": UncutTable,
    }

    def __init__(self, markup: str) -> None:
        super().__init__(markup, hyperlinks=False)  # else links have no address
        parser = MarkdownIt().enable(["strikethrough", "table"]).disable(HIDING_RULES)
        read_formulas(parser)
        self.parsed = parser.parse(markup)
        for token in self.parsed:
            for child in token.children or ():
                child.content = sanitize(child.content)  # entities may be control characters
                if child.type == "softbreak":
                    child.type = "hardbreak"
