"""A text area that shows its text and its cursor after a resize, too."""

from textual.geometry import Offset
from textual.strip import Strip
from textual.widgets import TextArea


class WrappedArea(TextArea):
    """Is painted again after every resize, where Textual does so only if the number of rows changes:
    text and cursor would be elsewhere."""

    def on_resize(self) -> None:
        """Paint the text as it is wrapped now, and keep the cursor in sight (extends Textual's)."""
        self.refresh()
        self.call_after_refresh(self.scroll_cursor_visible)

    def scroll_cursor_visible(self, center: bool = False, animate: bool = False) -> Offset:
        """Leave out a cursor behind the text, where Textual puts it for a moment of an undo."""
        row, _ = self.cursor_location
        is_in_text = row < min(self.document.line_count, self.wrapped_document.height)
        return super().scroll_cursor_visible(center, animate) if is_in_text else Offset()

    def render_line(self, y: int) -> Strip:
        """Paint nothing where there is no room, which Textual cannot wrap a placeholder for."""
        return super().render_line(y) if self.content_size.width > 0 else Strip.blank(0)
