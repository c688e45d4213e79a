"""Folds long pasted texts in the prompt into placeholders, and unfolds them when it is sent."""

from __future__ import annotations

from dataclasses import dataclass, replace

MAX_PASTE_LINES, MAX_PASTE_CHARACTERS = 40, 4000


@dataclass(frozen=True, slots=True)
class Fold:
    """A folded text, and where its placeholder is in the prompt."""

    start: int
    end: int
    text: str


class FoldedText(str):
    """A text of the prompt, and how it is shown there."""

    folded = ""
    """The text with placeholders."""
    folds: tuple[Fold, ...] = ()


class PasteFolder:
    """Knows the placeholders in the prompt, such as ``[pasted #1: 52 lines]``, by where they are: one
    that a person types is text."""

    def __init__(self) -> None:
        self.folds: tuple[Fold, ...] = ()
        """Those in the prompt, in order."""
        self._count = 0
        self._folds_by_text: dict[str, tuple[Fold, ...]] = {}
        """The folds in each former state of the prompt, to which undoing may return."""

    def placeholder(self, text: str, times: int = 1) -> str | None:
        """Return a placeholder for the text if it exceeds ``times`` the limits of a paste."""
        lines = text.removesuffix("\n").count("\n") + 1
        if lines <= times * MAX_PASTE_LINES and len(text) <= times * MAX_PASTE_CHARACTERS:
            return None
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        self._count += 1
        return f"[pasted #{self._count}: {size}]"

    def fold_at(self, start: int, end: int) -> Fold | None:
        """Return a fold of which some characters are between two indices; of equal ones, within it."""
        return next((fold for fold in self.folds if fold.start < end and start < fold.end), None)

    def widen(self, start: int, end: int) -> tuple[int, int]:
        """Return the range with all of the placeholders that it touches; no text goes into one."""
        touched = [fold for fold in self.folds if fold.start < end and start < fold.end]
        if touched and start == end:
            return touched[0].end, touched[0].end
        return (
            min([start, *(fold.start for fold in touched)]),
            max([end, *(fold.end for fold in touched)]),
        )

    def move(self, start: int, end: int, length: int) -> None:
        """Keep up with an edit that puts ``length`` characters in place of a range."""
        by = length - (end - start)
        self.folds = tuple(
            fold if fold.end <= start else replace(fold, start=fold.start + by, end=fold.end + by)
            for fold in self.folds
            if fold.end <= start or end <= fold.start
        )

    def add(self, *folds: Fold) -> None:
        self.folds = tuple(sorted((*self.folds, *folds), key=lambda fold: fold.start))

    def remember(self, text: str) -> None:
        """Remember the folds of the prompt's present text, for ``restore``."""
        if self.folds:
            self._folds_by_text[text] = self.folds

    def restore(self, text: str) -> None:
        self.folds = self._folds_by_text.get(text, ())

    def unfold(self, text: str, start: int = 0, end: int | None = None) -> str:
        """Return the prompt's text, or a range of it, with what the placeholders stand for."""
        end = len(text) if end is None else end
        pieces = []
        for fold in self.folds:
            if start <= fold.start and fold.end <= end:
                pieces += [text[start : fold.start], fold.text]
                start = fold.end
        return "".join([*pieces, text[start:end]])

    def forget(self) -> None:
        """Forget all texts: the prompt is empty, and nothing brings them back."""
        self.folds, self._folds_by_text = (), {}
