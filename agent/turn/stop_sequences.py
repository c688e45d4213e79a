"""Ends a text before the first of some sequences, while it is being written.

A piece of text that may be the beginning of a sequence waits until that is clear::

    sequences ["END"]      piece "It is."   -> "It is."
                           piece " E"       -> " "         pending "E"
                           piece "very"     -> "Every"
                           piece " END!"    -> " "         stopped
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of a text, with the log probabilities of its tokens if they were asked for."""

    text: str
    logprobs: Sequence[dict[str, Any]] = ()


class StopSequences:
    """Watches one text."""

    def __init__(self, sequences: Sequence[str]) -> None:
        """``sequences``: none of them empty."""
        self._sequences = sequences
        self._longest = max(map(len, sequences), default=0)
        self._pending: list[TextPiece] = []
        self.cut_off: str | None = None
        """The text from the sequence on, once one has come: the text ends before it."""

    @property
    def reached(self) -> str | None:
        """The sequence that ended the text."""
        cut_off = self.cut_off or ""
        return next((each for each in self._sequences if cut_off.startswith(each)), None)

    def feed(self, text: str, logprobs: Sequence[dict[str, Any]] = ()) -> list[TextPiece]:
        """Take the next piece; return those that are before any sequence, divided only if they must."""
        self._pending.append(TextPiece(text, logprobs))
        pending = "".join(piece.text for piece in self._pending)
        found = [at for stop in self._sequences if (at := pending.find(stop)) >= 0]
        if found:
            self.cut_off = pending[min(found) :]
            return self._take(min(found), divide=True)
        return self._take(len(pending) - self._open_length(pending), divide=False)

    def flush(self) -> list[TextPiece]:
        pending, self._pending = self._pending, []
        return pending

    def _open_length(self, text: str) -> int:
        """Length of the longest end of the text that a sequence may begin with."""
        most = min(self._longest - 1, len(text))
        ends = (text[len(text) - length :] for length in range(most, 0, -1))
        begun = (len(end) for end in ends if any(s.startswith(end) for s in self._sequences))
        return next(begun, 0)

    def _take(self, length: int, *, divide: bool) -> list[TextPiece]:
        taken = []
        while self._pending and length > 0:
            piece = self._pending[0]
            if (rest := piece.text[length:]) and piece.logprobs and not divide:
                break
            self._pending[:1] = [TextPiece(rest)] if rest else []
            taken.append(replace(piece, text=piece.text[:length]))
            length -= len(piece.text)
        return taken
