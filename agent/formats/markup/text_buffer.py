"""A buffer of generated text that is still undecided, with the token of each character."""

from __future__ import annotations

from collections import deque


class TokenTextBuffer:
    """Text that is added at the end and taken from the beginning."""

    def __init__(self) -> None:
        self.text = ""
        self.last_position = -1
        """The position of the token whose character was taken last; -1 at first."""
        self._token_spans: deque[tuple[int, int, int]] = deque()
        """Each token's first character, the one after its last, and the token's position."""
        self._added = self._taken = 0

    def add(self, text: str, position: int) -> None:
        if text:
            start, self._added = self._added, self._added + len(text)
            self.text += text
            self._token_spans.append((start, self._added, position))

    def take(self, count: int) -> str:
        taken, self.text = self.text[:count], self.text[count:]
        self._taken += len(taken)
        while self._token_spans and self._token_spans[0][1] <= self._taken:
            self.last_position = self._token_spans.popleft()[2]
        if self._token_spans and self._token_spans[0][0] < self._taken:
            self.last_position = self._token_spans[0][2]
        return taken

    @property
    def next_position(self) -> int:
        """The position of the token with the next character, or of the next token if none is left."""
        return self._token_spans[0][2] if self._token_spans else self.last_position + 1
