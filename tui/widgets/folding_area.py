"""Text areas: one is painted well after a resize, one also folds long texts into placeholders."""

import re

from textual.document._document import EditResult, Location, Selection
from textual.document._edit import Edit
from textual.geometry import Offset
from textual.strip import Strip
from textual.widgets import TextArea

MAX_PASTE_LINES, MAX_PASTE_CHARACTERS = 40, 4000
_PLACEHOLDER = re.compile(r"\[pasted #\d+:\xa0[\d,]+\xa0(?:lines|characters)\]")
"""With no-break spaces: what a person types looks the same, and is text."""


class FoldedText(str):
    """A text of the prompt, and how it is shown there."""

    folded = ""
    """The text with placeholders."""


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

    def action_newline(self) -> None:
        self.insert("\n")
        self.scroll_cursor_visible()

    def render_line(self, y: int) -> Strip:
        """Paint nothing where there is no room, which Textual cannot wrap a placeholder for."""
        return super().render_line(y) if self.content_size.width > 0 else Strip.blank(0)


class FoldingArea(WrappedArea):
    """Edits a text in which long pasted ones are folded."""

    def __init__(self, *, placeholder: str) -> None:
        self._folded_texts: dict[str, str] = {}
        """By their placeholders, such as ``[pasted #1: 52 lines]``."""
        super().__init__(placeholder=placeholder, highlight_cursor_line=False)

    @property
    def full_text(self) -> str:
        return self._unfold(self.text)

    @property
    def draft(self) -> FoldedText:
        """The text as it is, for ``replace_with``."""
        draft = FoldedText(self.full_text)
        draft.folded = self.text
        return draft

    def replace_with(self, text: str) -> None:
        """Replace all text, which undoing brings back; one too long to be edited is folded."""
        self.replace(self._fold(text), (0, 0), self.document.end)
        self.move_cursor(self.document.end)

    def put_before(self, text: str) -> None:
        if not self.text:
            self.replace_with(text)
        elif text:
            self.insert(self._fold(text) + "\n\n", (0, 0))

    def paste(self, text: str) -> None:
        self.move_cursor(self.replace(self._fold(text, times=1), *self.selection).end_location)

    def _fold(self, text: str, times: int = 10) -> str:
        """Return the text, or a placeholder if it exceeds ``times`` the limits of a paste."""
        if isinstance(text, FoldedText):
            return text.folded
        lines = text.removesuffix("\n").count("\n") + 1
        if lines <= times * MAX_PASTE_LINES and len(text) <= times * MAX_PASTE_CHARACTERS:
            return text
        size = f"{lines:,}\xa0lines" if lines > 1 else f"{len(text):,}\xa0characters"
        placeholder = f"[pasted #{len(self._folded_texts) + 1}:\xa0{size}]"
        self._folded_texts[placeholder] = text
        return placeholder

    def _unfold(self, text: str) -> str:
        return _PLACEHOLDER.sub(lambda match: self._folded_texts.get(match[0], match[0]), text)

    def edit(self, edit: Edit) -> EditResult:
        """Perform an edit, which takes placeholders as a whole (extends Textual's)."""
        edit.text = edit.text.replace("\r\n", "\n").replace("\r", "\n")
        start, end = self._index(edit.top), self._index(edit.bottom)
        for first, behind in self._touched_placeholders(start, end):
            # No text goes into one.
            start, end = (min(start, first), max(end, behind)) if start < end else (behind, behind)
        edit.from_location, edit.to_location = self._location(start), self._location(end)
        return super().edit(edit)

    def _touched_placeholders(self, start: int, end: int) -> list[tuple[int, int]]:
        """Where the placeholders are that have characters between two indices, or around equal ones."""
        spans = (m.span() for m in _PLACEHOLDER.finditer(self.text) if m[0] in self._folded_texts)
        return [(first, behind) for first, behind in spans if first < end and start < behind]

    def validate_selection(self, selection: Selection) -> Selection:
        """Keep the cursor and the ends of a selection out of placeholders."""
        return Selection(self._visitable(selection.start), self._visitable(selection.end))

    def _visitable(self, location: Location) -> Location:
        """Move a location out of a placeholder: to the other end, coming from one, or the nearer."""
        if not self._folded_texts:
            return location
        index, cursor = self._index(location), self._index(self.cursor_location)
        for first, behind in self._touched_placeholders(index, index):
            nearer = first if 2 * index < first + behind else behind
            return self._location({first: behind, behind: first}.get(cursor, nearer))
        return location

    @property
    def selected_text(self) -> str:
        return self._unfold(super().selected_text)

    def _index(self, location: Location) -> int:
        row, column = location
        return sum(len(line) + 1 for line in self.document.lines[:row]) + column

    def _location(self, index: int) -> Location:
        before = self.text[:index]
        return before.count("\n"), index - (before.rfind("\n") + 1)
