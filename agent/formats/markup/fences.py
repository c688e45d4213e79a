"""Finds code in Markdown as it streams, where tags are quoted: fenced blocks and code spans, roughly as
CommonMark (https://spec.commonmark.org/0.31.2/), except that a span ends with its line at the latest. A
Markdown parser needs entire blocks."""

from __future__ import annotations

import re

_MARKDOWN_TOKEN = re.compile(r"`+|~+|\n|[^\S\n]+|[^\s`~]+")
_MARK = re.compile(r"[`~\n]")


class MarkdownCode:
    """Follows a Markdown text, in pieces of any size."""

    def __init__(self) -> None:
        self._fence: str | None = None
        """The opening characters of the code block; a run at least as long closes it."""
        self._inline_backticks = 0
        """The number of backticks that opened the code span in this line; 0 outside one."""
        self._open_run = ""
        """A run of backticks or tildes that may continue."""
        self._line_has_text = False
        """Whether this line has had more than white space."""
        self._run_at_line_start = False

    def feed(self, text: str) -> None:
        if not self._open_run and _MARK.search(text) is None:
            self._line_has_text = self._line_has_text or bool(text.strip())
            return
        for match in _MARKDOWN_TOKEN.finditer(text):
            token = match[0]
            if token[0] in "`~":
                if self._open_run and self._open_run[0] != token[0]:
                    self._apply_run()
                if not self._open_run:
                    self._run_at_line_start = not self._line_has_text
                self._open_run += token
                self._line_has_text = True
                continue
            self._apply_run()
            if token == "\n":
                self._inline_backticks, self._line_has_text = 0, False
            elif not token.isspace():
                self._line_has_text = True

    @property
    def inside(self) -> bool:
        """Whether the next character is in code."""
        self._apply_run()
        return self._fence is not None or self._inline_backticks > 0

    @property
    def in_text(self) -> bool:
        """Whether the line goes on with text, if no backtick or tilde follows."""
        return self._line_has_text and not self._open_run

    @property
    def at_line_start(self) -> bool:
        """Whether the line has had only white space so far."""
        return not self._line_has_text

    def _apply_run(self) -> None:
        run, self._open_run = self._open_run, ""
        if not run:
            return
        if self._fence is not None:
            if self._run_at_line_start and run.startswith(self._fence):
                self._fence = None
        elif self._run_at_line_start and len(run) >= 3:
            self._fence = run
        elif run[0] == "`":
            self._inline_backticks = (
                0 if self._inline_backticks == len(run) else self._inline_backticks or len(run)
            )
