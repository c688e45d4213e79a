"""Entries of the transcript that belong to no turn."""

from collections.abc import Callable, Mapping

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from tui.util.format import display_text, wrap_line
from tui.widgets.virtual_scroll import VirtualEntry


class NoticeEntries:
    """The single entry of what the program shows between the turns."""

    turn = None

    def __init__(self, create: Callable[[], Widget], height: int = 1) -> None:
        """``height``: an estimate, as in `VirtualEntry`."""
        self.entries = [VirtualEntry(create, height)]


class FieldsTable(Widget):
    """A heading, and names with their texts in two columns; each text is wrapped within its own."""

    DEFAULT_CSS = "FieldsTable { height: auto; padding: 0 1; margin-bottom: 1; max-width: 120; }"

    def __init__(self, heading: str, fields: Mapping[str, str]) -> None:
        super().__init__()
        self._heading = heading
        self._fields = {name: display_text(text) for name, text in fields.items()}

    def _rows(self, width: int) -> list[tuple[str, str]]:
        indent = max(map(len, self._fields)) + 2
        rows = []
        for name, text in self._fields.items():
            for line in text.split("\n"):
                for start, end in wrap_line(line, max(1, width - indent)):
                    rows.append((name.ljust(indent), line[start:end]))
                    name = ""
        return rows

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return 1 + len(self._rows(width))

    def render(self) -> Content:
        rows = self._rows(self.content_size.width)
        lines = [Content.assemble((name, "$text-muted"), text) for name, text in rows]
        return Content("\n").join([Content.styled(self._heading, "bold $accent"), *lines])
