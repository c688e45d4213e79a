"""Finds code in Markdown as it streams, where tags are quoted: fenced blocks and spans, roughly as in
https://spec.commonmark.org/0.31.2/, but a span ends with its line. A parser needs entire blocks."""

import re

_RUN = re.compile(r"`+|~+")


class MarkdownCode:
    """Follows a Markdown text, in pieces of any size."""

    def __init__(self) -> None:
        self._fence = ""
        """The opening characters of the code block; a run at least as long closes it."""
        self._line = ""
        """The line so far; text that has no part in code may be missing."""

    def feed(self, text: str) -> None:
        if "\n" in text:
            *lines, text = text.split("\n")
            for line in lines:
                self._line += line
                self._fence, self._line = self._read_line()[0], ""
        self._line += text

    def _read_line(self) -> tuple[str, bool]:
        """Return the fence at the end of the line so far, and whether that is in a code span."""
        fence, span = self._fence, 0
        start = len(self._line) - len(self._line.lstrip())
        for match in _RUN.finditer(self._line):
            run, is_first = match[0], match.start() == start
            if fence:
                fence = "" if is_first and run.startswith(fence) else fence
            elif is_first and len(run) >= 3:
                fence = run
            elif run[0] == "`":
                span = 0 if span == len(run) else span or len(run)
        return fence, span > 0

    @property
    def inside(self) -> bool:
        """Whether the next character is in code."""
        return any(self._read_line())

    @property
    def at_line_start(self) -> bool:
        return not self._line or self._line.isspace()

    @property
    def in_text(self) -> bool:
        """Whether text that follows is not in new code, if it has no backtick or tilde."""
        return not self.at_line_start and self._line[-1] not in "`~"
