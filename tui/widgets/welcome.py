"""The banner of an empty transcript: which model runs, and the most important keys."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

KEY_HELP = """\
Enter    send                    F1      all keys
Ctrl-J   new line                F2      panes or conversation
Esc      stop the answer         Ctrl-Q  leave"""


class WelcomeBanner(Static):
    """Shows what runs, above the keys; the dialog of the first start is ``tui.screens.welcome``."""

    DEFAULT_CSS = """
    WelcomeBanner { width: 1fr; height: auto; padding: 1 2; color: $text-muted; }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self._lines = ["Starting …"]

    def on_mount(self) -> None:
        self.show_lines()

    def show_lines(self, *lines: str) -> None:
        """Show these lines, the first beside the program's name; without any, the former ones."""
        self._lines = list(lines) or self._lines
        first, *more = self._lines
        parts: list[Content | tuple[str, str]] = [("agent  ", "bold $accent"), Content(first)]
        parts += [Content(f"\n{line}") for line in more]
        self.update(Content.assemble(*parts, f"\n\n{KEY_HELP}"))
