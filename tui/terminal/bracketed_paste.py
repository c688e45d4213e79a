"""What is pasted is text, whatever is in it.

A terminal puts a mark before and behind what is pasted. Some pass a page's own marks and sequences on
as they are: they would end the paste early, and what follows would count as keys.
"""

from __future__ import annotations

import re
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable
from functools import partial

from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver
from textual.message import Message

START, END = "\x1b[200~", "\x1b[201~"
SOON = 0.1
"""Seconds behind an end in which another one tells that it was not the terminal's."""
LARGE = 1000
"""Characters: nobody types so many within that time, or behind so many in one read."""
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~])?")
_CUT = re.compile(r"\x1b(?:\[[0-?]{0,8})?\Z")
"""A sequence of which more may come."""


class Marked:
    """Input on its way to Textual, which takes an escape within a paste for keys."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._inside = False
        self._ended = float("-inf")
        self._before = self._cut = ""

    def read(self, data: str) -> str:
        """The same, with nothing in a paste that could be more than text."""
        much = len(data) > LARGE
        if self._inside:
            return self._text(data, much)
        if self._clock() - self._ended < SOON and (much or END in self._cut + data):
            shown = START + self._text(data, much)
            return shown + self._end() if self._inside else shown
        self._cut = ""
        # The mark may come in two pieces, of which Textual has the first already.
        at = (self._before + data).find(START)
        if at < 0:
            self._before = (self._before + data)[1 - len(START) :]
            return data
        at += len(START) - len(self._before)
        return data[:at] + self._text(data[at:], much)

    def _text(self, data: str, much: bool) -> str:
        """Pasted, up to the last end in it; what is behind that was typed, unless ``much`` came at
        once: then the end is the page's own, or nothing is behind it."""
        self._inside, self._before = True, ""
        whole = self._cut + data
        text, end, typed = whole.rpartition(END)
        cut = None
        if much or not end:
            text, typed = whole, ""
            cut = _CUT.search(text)
        self._cut = cut[0] if cut else ""
        text = _SEQUENCE.sub("", text.removesuffix(self._cut))
        if end:
            text += self._end()
        return text + self.read(typed) if typed else text

    def _end(self) -> str:
        self._inside, self._ended = False, self._clock()
        return END


class Parser(XTermParser):
    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self._marked = Marked()

    def feed(self, data: str) -> Iterable[Message]:
        kept = self._marked.read(data)
        return super().feed(kept) if kept or not data else ()


def guard() -> None:
    """From now on Textual reads pastes so; and bytes that are no UTF-8, which would end its reading,
    as what stands for them."""
    linux_driver.XTermParser = Parser  # type: ignore[attr-defined]
    linux_driver.getincrementaldecoder = lambda encoding: partial(  # type: ignore[attr-defined]
        getincrementaldecoder(encoding), errors="replace"
    )
