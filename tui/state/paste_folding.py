"""Folds long pasted texts in the prompt into placeholders, and unfolds them when it is sent."""

from __future__ import annotations

import re

MAX_PASTE_LINES, MAX_PASTE_CHARACTERS = 40, 4000
"""The longest paste that is not folded."""


class PasteFolder:
    """Keeps the folded texts by their placeholders, such as ``[pasted #1: 52 lines]``."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def fold(self, text: str, times: int = 1) -> str:
        """Return the text, or a placeholder if it exceeds ``times`` the limits of a paste."""
        lines = text.removesuffix("\n").count("\n") + 1
        if lines <= times * MAX_PASTE_LINES and len(text) <= times * MAX_PASTE_CHARACTERS:
            return text
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        placeholder = f"[pasted #{len(self._texts) + 1}: {size}]"
        self._texts[placeholder] = text
        return placeholder

    def unfold(self, text: str) -> str:
        """Replace the placeholders in ``text`` by what they stand for."""
        if not self._texts:
            return text
        placeholders = re.compile("|".join(map(re.escape, self._texts)))
        return placeholders.sub(lambda match: self._texts[match[0]], text)

    def placeholder_length(self, text: str) -> int:
        """Length of the placeholder that ``text`` ends with; 0 if it ends with none."""
        return next((len(key) for key in self._texts if text.endswith(key)), 0)
