"""Long texts in the prompt: a word stands for each until it is sent."""

from __future__ import annotations

import re

LINES, CHARACTERS = 40, 4000
"""A paste of more is folded."""


class Pasted:
    """The texts by the words that stand for them."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def fold(self, text: str, times: int = 1) -> str:
        """The text, or where it is ``times`` as long as a paste may be, the word for it."""
        lines = text.count("\n") + 1
        if lines <= times * LINES and len(text) <= times * CHARACTERS:
            return text
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        word = f"[pasted #{len(self._texts) + 1}: {size}]"
        self._texts[word] = text
        return word

    def unfold(self, text: str) -> str:
        """With the texts instead of their words."""
        if not self._texts:
            return text
        words = re.compile("|".join(map(re.escape, self._texts)))
        return words.sub(lambda found: self._texts[found[0]], text)

    def ends(self, text: str) -> int:
        """How many characters at the end of this are one such word."""
        return next((len(word) for word in self._texts if text.endswith(word)), 0)
