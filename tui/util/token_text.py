"""Renders token ids as readable text: markup is styled, and neighbouring tokens alternate in style."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tui.util.format import StyledRun, display_text

if TYPE_CHECKING:
    from agent.formats.protocol import Format


class TokenTextRenderer:
    """Renders one sequence of token ids, which may come in several pieces."""

    def __init__(self, form: Format, *, generated: bool) -> None:
        """``generated``: the model wrote these tokens; otherwise they are its prompt, shown faint."""
        self._format = form
        self._styles = ("", "odd") if generated else ("faint", "faint")
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._index = 0
        self._after_markup = False

    def runs(
        self, ids: Iterable[int], repairs: Mapping[int, Sequence[str]] | None = None
    ) -> Iterator[StyledRun]:
        """Render the next ids. ``repairs``: names of the repair rules applied, by token index."""
        for token in ids:
            for rule in (repairs or {}).get(self._index, ()):
                yield f" {rule} ", "repair"
            yield from self._token(token)
            self._index += 1

    def _token(self, token: int) -> Iterator[StyledRun]:
        raw = self._format.token_bytes(token)
        markup = self._format.is_markup(token)
        if markup:
            # Two markup tokens in a row: a message ends and the next begins, on a line of its own.

            yield self._decoder.decode(b"", True) + "\n" * self._after_markup, ""
            yield display_text(raw.decode("utf-8", "replace")), "mark"
        elif text := self._decoder.decode(raw):
            yield display_text(text), self._styles[self._index % 2]
        self._after_markup = markup
