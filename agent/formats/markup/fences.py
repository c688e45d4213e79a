"""Where prose is code: what stands in Markdown's fences and backticks is shown, never meant."""

from __future__ import annotations

import re

_STEP = re.compile(r"`+|~+|\n|[^\S\n]+|[^\s`~]+")


class Fences:
    """Follows prose as it comes, cut anywhere."""

    def __init__(self) -> None:
        self._fence: str | None = None
        """What opened the fence that is open; at least as much closes it."""
        self._inline = 0
        """So many backticks opened the code in this line."""
        self._run = ""
        """Backticks or tildes that may go on."""
        self._begun = False
        """This line has more than white space."""
        self._run_begins_line = False

    def feed(self, text: str) -> None:
        for step in _STEP.finditer(text):
            found = step[0]
            if found[0] in "`~":
                if self._run and self._run[0] != found[0]:
                    self._settle()
                if not self._run:
                    self._run_begins_line = not self._begun
                self._run += found
                self._begun = True
                continue
            self._settle()
            if found == "\n":
                self._inline, self._begun = 0, False
            elif not found.isspace():
                self._begun = True

    @property
    def inside(self) -> bool:
        """What comes next is code."""
        self._settle()
        return self._fence is not None or self._inline > 0

    @property
    def line_begins(self) -> bool:
        """What comes next is the first in its line."""
        return not self._begun

    def _settle(self) -> None:
        run, self._run = self._run, ""
        if not run:
            return
        if self._fence is not None:
            if self._run_begins_line and run.startswith(self._fence):
                self._fence = None
        elif self._run_begins_line and len(run) >= 3:
            self._fence = run
        elif run[0] == "`":
            self._inline = 0 if self._inline == len(run) else self._inline or len(run)
