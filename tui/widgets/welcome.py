"""What stands where nothing was said yet."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

KEYS = """\
Enter    send                    F1      all keys
Ctrl-J   new line                F2      panes or conversation
Esc      stop the answer         Ctrl-Q  leave"""


class Welcome(Static):
    DEFAULT_CSS = """
    Welcome { width: 1fr; height: auto; padding: 1 2; color: $text-muted; }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self._lines = ["Starting …"]

    def on_mount(self) -> None:
        self.tell()

    def tell(self, *lines: str) -> None:
        """What runs here, in a few lines; without any, what was told before."""
        self._lines = list(lines) or self._lines
        first, *more = self._lines
        parts: list[Content | tuple[str, str]] = [("agent  ", "bold $accent"), Content(first)]
        for line in more:
            parts.append(Content(f"\n{line}"))
        self.update(Content.assemble(*parts, f"\n\n{KEYS}"))
