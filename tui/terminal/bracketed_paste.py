"""Keeps pasted text from pressing keys.

In bracketed paste mode (DEC private mode 2004) a terminal sends ``ESC [200~`` before pasted text and
``ESC [201~`` behind it. Some do not filter these out of the text itself: a hostile page that contains
``ESC [201~`` ends the paste early, and what follows counts as keys. ``PasteScanner`` reads the input
before Textual does and ends a paste at the last end mark; where the page's own arrives in an earlier
read, the rest becomes a second paste.

``patch_textual`` replaces ``XTermParser`` and ``getincrementaldecoder`` in
``textual.drivers.linux_driver``, private in Textual 8.2 (pinned ``>=8.2.8,<8.3``), as are the parser's
``_sequence_to_key_events`` and ``_character_to_key``.
"""

import re
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable
from functools import partial

from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver
from textual.events import Key
from textual.keys import _character_to_key
from textual.message import Message

START, END = "\x1b[200~", "\x1b[201~"
REPEATED_END_SECONDS = 0.1
"""Time after an end mark within which another one shows that the first was not the terminal's."""
MAX_TYPED_CHARS = 1000
"""Characters of one read; a longer one was pasted: typing is slower."""
STRING_STARTS = "NOPX"
"""Letters behind Esc that begin a longer sequence."""
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~])?")
_INCOMPLETE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]{0,8})?\Z")
"""The beginning of a sequence whose rest may come with the next read."""


class PasteScanner:
    """Filters terminal input: pastes in it hold no escape sequences and end at their last end mark."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._in_paste = False
        self._ended_at = float("-inf")
        self._tail = self._incomplete = ""

    def scan(self, data: str) -> str:
        """Filter one read of input; ``data`` may begin or end within a sequence."""
        is_long = len(data) > MAX_TYPED_CHARS
        if self._in_paste:
            return self._scan_paste(data, is_long)
        just_ended = self._clock() - self._ended_at < REPEATED_END_SECONDS
        if just_ended and (is_long or END in self._incomplete + data):
            pasted = START + self._scan_paste(data, is_long)
            return pasted + self._end_paste() if self._in_paste else pasted
        self._incomplete = ""
        # The mark may come in two pieces, of which Textual has the first already.
        at = (self._tail + data).find(START)
        if at < 0:
            self._tail = (self._tail + data)[1 - len(START) :]
            return data
        at += len(START) - len(self._tail)
        return data[:at] + self._scan_paste(data[at:], is_long)

    def _scan_paste(self, data: str, is_long: bool) -> str:
        """Filter input that begins within a paste, which goes to the last end mark. In a long read all
        of it is pasted: there the end mark is the page's own, or nothing is behind it."""
        self._in_paste, self._tail = True, ""
        pending = self._incomplete + data
        text, end, typed = pending.rpartition(END)
        incomplete = None
        if is_long or not end:
            text, typed = pending, ""
            incomplete = _INCOMPLETE_SEQUENCE.search(text)
        self._incomplete = incomplete[0] if incomplete else ""
        text = _SEQUENCE.sub("", text.removesuffix(self._incomplete))
        if end:
            text += self._end_paste()
        return text + self.scan(typed) if typed else text

    def _end_paste(self) -> str:
        self._in_paste, self._ended_at = False, self._clock()
        return END


class PasteXTermParser(XTermParser):
    """Textual's parser of terminal input, behind a ``PasteScanner``."""

    def __init__(self, debug: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(debug)
        self._scanner = PasteScanner(clock)

    def feed(self, data: str) -> Iterable[Message]:
        """Parse input into events; without ``data`` (the end of the input) as well."""
        filtered = self._scanner.scan(data)
        return super().feed(filtered) if filtered or not data else ()

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[Key]:
        """Make a key of Alt with a digit or punctuation, and at once one of Alt with a letter: if Esc
        followed, Textual would write ``^`` and the letter (extends Textual's)."""
        is_alt = alt or (len(sequence) == 2 and sequence[0] == "\x1b")
        keys = list(super()._sequence_to_key_events(sequence, alt))
        if is_alt and not keys and sequence[-1].isalpha() and sequence[-1] not in STRING_STARTS:
            keys = list(super()._sequence_to_key_events(sequence[-1], alt=True))
        for key in keys:
            if is_alt and key.is_printable and not key.key.startswith("alt+"):
                yield Key(f"alt+{_character_to_key(sequence[-1])}", None)
            else:
                yield key


def patch_textual() -> None:
    """Make Textual filter pastes, and replace bytes that are not UTF-8, which would end its reader."""
    linux_driver.XTermParser = PasteXTermParser  # type: ignore[attr-defined]
    linux_driver.getincrementaldecoder = lambda encoding: partial(  # type: ignore[attr-defined]
        getincrementaldecoder(encoding), errors="replace"
    )
