"""A text area that folds long texts into placeholders, which are units. Overrides ``_undo_batch`` and
``_redo_batch`` of ``TextArea``: private in Textual 8.2 (``<8.3``)."""

from __future__ import annotations

from collections.abc import Sequence

from textual.document._document import EditResult, Location, Selection
from textual.document._edit import Edit

from tui.state.paste_folding import Fold, FoldedText, PasteFolder
from tui.widgets.wrapped_area import WrappedArea


class FoldingArea(WrappedArea):
    """Edits a text in which long pasted ones are folded."""

    def __init__(self, *, placeholder: str) -> None:
        self._paste_folder = PasteFolder()
        super().__init__(
            placeholder=placeholder,
            show_line_numbers=False,
            soft_wrap=True,
            tab_behavior="focus",
            highlight_cursor_line=False,
        )

    def load_text(self, text: str) -> None:
        """Begin with a text that is not pasted; nothing is left to undo (extends Textual's)."""
        self._paste_folder.forget()
        super().load_text(text)

    @property
    def full_text(self) -> str:
        return self._paste_folder.unfold(self.text)

    @property
    def draft(self) -> FoldedText:
        """The text as it is, for ``replace_with``."""
        draft = FoldedText(self.full_text)
        draft.folded, draft.folds = self.text, self._paste_folder.folds
        return draft

    def replace_with(self, text: str) -> None:
        """Replace all text, which undoing brings back; one too long to be edited is folded."""
        self._put(text, (0, 0), self.document.end)
        self.move_cursor(self.document.end)

    def put_before(self, text: str) -> None:
        if not self.text:
            self.replace_with(text)
        elif text:
            self.insert("\n\n", (0, 0))
            self._put(text, (0, 0), (0, 0))

    def paste(self, text: str) -> None:
        self.move_cursor(self._put(text, *self.selection, times=1))

    def _put(self, text: str, start: Location, end: Location, times: int = 10) -> Location:
        """Replace a range by a text, folded beyond ``times`` the limits; the location behind it."""
        if isinstance(text, FoldedText):
            folded, folds = text.folded, text.folds
        else:
            placeholder = self._paste_folder.placeholder(text, times)
            folded = placeholder or text
            folds = (Fold(0, len(folded), text),) if placeholder else ()
        result = self.replace(folded, start, end)
        first = self._index(result.end_location) - len(folded)
        self._paste_folder.add(
            *(Fold(first + fold.start, first + fold.end, fold.text) for fold in folds)
        )
        self._paste_folder.remember(self.text)
        return result.end_location

    def edit(self, edit: Edit) -> EditResult:
        """Perform an edit, which takes placeholders as a whole (extends Textual's)."""
        edit.text = edit.text.replace("\r\n", "\n").replace("\r", "\n")
        start, end = self._paste_folder.widen(self._index(edit.top), self._index(edit.bottom))
        edit.from_location, edit.to_location = self._location(start), self._location(end)
        self._paste_folder.move(start, end, len(edit.text))
        result = super().edit(edit)
        self._paste_folder.remember(self.text)
        return result

    def _undo_batch(self, edits: Sequence[Edit]) -> None:
        self._paste_folder.folds = ()
        super()._undo_batch(edits)
        self._paste_folder.restore(self.text)

    def _redo_batch(self, edits: Sequence[Edit]) -> None:
        self._paste_folder.folds = ()
        super()._redo_batch(edits)
        self._paste_folder.restore(self.text)

    def validate_selection(self, selection: Selection) -> Selection:
        """Keep the cursor and the ends of a selection out of placeholders."""
        return Selection(self._visitable(selection.start), self._visitable(selection.end))

    def _visitable(self, location: Location) -> Location:
        """Return the location, or of one within a placeholder an end of it: the other end where the
        cursor comes from one, else the nearer one."""
        if not self._paste_folder.folds:
            return location
        index, cursor = self._index(location), self._index(self.cursor_location)
        if (fold := self._paste_folder.fold_at(index, index)) is None:
            return location
        nearer = fold.start if 2 * index < fold.start + fold.end else fold.end
        return self._location({fold.start: fold.end, fold.end: fold.start}.get(cursor, nearer))

    @property
    def selected_text(self) -> str:
        start, end = sorted(map(self._index, self.selection))
        return self._paste_folder.unfold(self.text, start, end)

    def _index(self, location: Location) -> int:
        row, column = location
        return sum(len(line) + 1 for line in self.document.lines[:row]) + column

    def _location(self, index: int) -> Location:
        before = self.text[:index]
        return before.count("\n"), index - (before.rfind("\n") + 1)
