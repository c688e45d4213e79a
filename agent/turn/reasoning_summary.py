"""Summarises reasoning while it is written, without a model: ``detailed`` (and ``auto``) is all of it,
a part for each paragraph or heading with the paragraph below it; ``concise`` its first sentence."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from agent import events as ev

SummaryStyle = Literal["concise", "detailed"]

_HEADING = re.compile(r"#{1,6} [^\n]*|\*\*[^\n]+\*\*")
_UNDECIDED = re.compile(r"#{0,6}|`{1,2}")
"""Possible beginnings of a heading or of a code block's fence."""
_OPENING_NUMBER = re.compile(r"\W*\d+")
_ABBREVIATION = re.compile(r"(\w\.)+\w|vs|cf", re.IGNORECASE)
_CLOSING_MARKS = "\"'”’)]}*`"


class SummarySplitter:
    """Cuts a streamed text into parts, without outer white space, and empty lines only in code."""

    def __init__(self, style: SummaryStyle) -> None:
        self._concise = style == "concise"
        self._pending = ""
        """Undecided text: white space, and possible beginnings of a part."""
        self._part = ""
        """The open part, as far as it was handed out; empty: none is open."""
        self._fenced = False
        self.ended = False
        """Whether the summary is complete, though the reasoning may continue."""

    def feed(self, text: str, *, last: bool = False) -> Iterator[tuple[bool, str]]:
        """Take a piece (``last``: nothing follows); yields pieces, and whether each begins a part."""
        if self.ended:
            return
        text, self._pending = self._pending + text, ""
        begins, delta = not self._part, ""
        for match in re.finditer(r"(\s*)(\S*)", text):
            space, word = match.groups()
            at_line_start = not self._part or "\n" in space
            undecided = not word or (not last and at_line_start and _UNDECIDED.fullmatch(word))
            if match.end() == len(text) and undecided:
                self._pending = space + word
                break
            if self._part and self._begins_part(space, word):
                if delta:
                    yield begins, delta
                if self._concise:
                    self.ended = True
                    return
                begins, delta, self._part, self._fenced = True, "", "", False
            piece = word if not self._part else space + word
            if at_line_start and word.startswith("```"):
                self._fenced = not self._fenced
            self._part += piece
            delta += piece
        if delta:
            yield begins, delta

    def _begins_part(self, space: str, word: str) -> bool:
        """Whether ``word``, after the open part and ``space``, begins another part."""
        if not space or self._fenced:
            return False
        if self._concise:
            return "\n" in space or _ends_sentence(self._part)
        if "\n" in space and re.fullmatch("#{1,6}", word):
            return True
        return space.count("\n") > 1 and not _HEADING.fullmatch(self._part)


def _ends_sentence(text: str) -> bool:
    """Whether a sentence ends here; an abbreviation and the number of a list's item end none."""
    stripped = text.rstrip(_CLOSING_MARKS)
    if not stripped.endswith((".", "!", "?", "…")):
        return False
    body = stripped[:-1]
    word = body.rsplit(None, 1)[-1] if body else ""
    numbered = _OPENING_NUMBER.fullmatch(body) is not None
    return not (stripped.endswith(".") and (numbered or _ABBREVIATION.fullmatch(word)))


class SummaryWriter:
    """Writes the summary of one reasoning item as events, while the reasoning is written."""

    def __init__(
        self, style: SummaryStyle, emit: Callable[[ev.Event], None], at: Mapping[str, Any]
    ) -> None:
        """``at``: the fields by which events name the item."""
        self._splitter, self._emit, self._at = SummarySplitter(style), emit, at
        self.parts: list[ev.SummaryText] = []
        """The parts so far; all of them once the summary is closed."""
        self._open: list[str] = []

    def delta(self, text: str, *, last: bool = False) -> None:
        """Take the next piece of the reasoning; ``last``: nothing follows."""
        for begins, delta in self._splitter.feed(text, last=last):
            if begins:
                self._close_part()
            at = {**self._at, "summary_index": len(self.parts)}
            if begins:
                self._emit(ev.ReasoningSummaryPartAdded(**at, part=ev.SummaryText()))
            self._open.append(delta)
            self._emit(ev.ReasoningSummaryTextDelta(**at, delta=delta))

    def close(self, complete: bool) -> None:
        self.delta("", last=True)
        self._close_part("incomplete" if not complete and not self._splitter.ended else None)

    def _close_part(self, status: Literal["incomplete"] | None = None) -> None:
        if not self._open:
            return
        at = {**self._at, "summary_index": len(self.parts)}
        part = ev.SummaryText(text="".join(self._open))
        self._open.clear()
        self._emit(ev.ReasoningSummaryTextDone(**at, text=part.text))
        self._emit(ev.ReasoningSummaryPartDone(**at, part=part, status=status))
        self.parts.append(part)
