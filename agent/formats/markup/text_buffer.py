"""Generated text that is not decided yet, with the token that each character came from."""

from __future__ import annotations

from collections import deque


class Source:
    """Text is added at its end and taken from its beginning."""

    def __init__(self) -> None:
        self.text = ""
        self.last = -1
        """The token of the character that was taken last."""
        self._tokens: deque[tuple[int, int, int]] = deque()
        """Where each token's text begins and ends, and the token's position."""
        self._added = self._taken = 0

    def add(self, text: str, token: int) -> None:
        if text:
            start, self._added = self._added, self._added + len(text)
            self.text += text
            self._tokens.append((start, self._added, token))

    def take(self, count: int) -> str:
        taken, self.text = self.text[:count], self.text[count:]
        self._taken += len(taken)
        while self._tokens and self._tokens[0][1] <= self._taken:
            self.last = self._tokens.popleft()[2]
        if self._tokens and self._tokens[0][0] < self._taken:
            self.last = self._tokens[0][2]
        return taken

    @property
    def next(self) -> int:
        """The token of the first character that is left; of what comes next where none is."""
        return self._tokens[0][2] if self._tokens else self.last + 1
