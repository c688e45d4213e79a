"""Token ids as they can be read: markup told from text, and one token from the next."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tui.util.format import shown

if TYPE_CHECKING:
    from agent.formats.protocol import Format

Run = tuple[str, str]
"""A text and its style: one of `stream.STYLES`, or none."""


class Spelling:
    """One stretch of ids, in any number of pieces."""

    def __init__(self, form: Format, *, own: bool) -> None:
        """``own``: the model wrote it, else it only read it."""
        self._form = form
        self._styles = ("", "odd") if own else ("faint", "faint")
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at = 0
        self._after_markup = False

    def runs(
        self, ids: Iterable[int], repairs: Mapping[int, Sequence[str]] | None = None
    ) -> Iterator[Run]:
        """``repairs``: the rules that mended what stands at a token, by its place."""
        for token in ids:
            for rule in (repairs or {}).get(self._at, ()):
                yield f" {rule} ", "repair"
            yield from self._token(token)
            self._at += 1

    def _token(self, token: int) -> Iterator[Run]:
        raw = self._form.spelling(token)
        markup = self._form.is_markup(token)
        if markup:
            # One message ends, another begins: on a line of its own.
            yield self._decoder.decode(b"", True) + "\n" * self._after_markup, ""
            yield shown(raw.decode("utf-8", "replace")), "mark"
        elif text := self._decoder.decode(raw):
            yield shown(text), self._styles[self._at % 2]
        self._after_markup = markup
