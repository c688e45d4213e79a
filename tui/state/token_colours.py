"""Which pieces of a turn's texts are coloured how, by the probabilities of their tokens."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from agent import events as ev
from tui.util.format import StyledRun, display_text
from tui.util.token_text import SURPRISING_PROBABILITY, probability_style


@dataclass(slots=True)
class ColouredTexts:
    """The coloured texts of a turn."""

    runs: dict[str, list[StyledRun]] = field(default_factory=dict)
    """By the id of an item: its text."""
    tokens: int = 0
    """How many tokens all these texts have."""
    surprising: int = 0
    """How many of them are less likely than ``SURPRISING_PROBABILITY``."""

    @property
    def note(self) -> str:
        """The share of surprising tokens, for a footer; empty where there are none to count."""
        if not self.tokens:
            return ""
        return f"{self.surprising / self.tokens:.1%} surprising".replace("%", " %")


def colour_texts(
    items: Sequence[ev.Item],
    pieces: Sequence[tuple[bytes, float | None]],
) -> ColouredTexts:
    """Colour the texts of reasoning and messages among ``items``.

    ``pieces``: the bytes of the tokens that the turn wrote, in order, with their probabilities, None
    where one is not known. A text that these bytes do not have (it was repaired) is left out.
    """
    coloured, written = ColouredTexts(), b"".join(raw for raw, _ in pieces)
    ends, at = [], 0
    for raw, _ in pieces:
        at += len(raw)
        ends.append(at)
    at = number = 0
    for item in items:
        text = _text_of(item).encode("utf-8", "replace")
        if not text or (start := written.find(text, at)) < 0:
            continue
        at = start + len(text)
        while number < len(ends) and ends[number] <= start:
            number += 1
        inside: list[tuple[bytes, float | None]] = []
        while start < at:
            end = min(ends[number], at)
            inside.append((written[start:end], pieces[number][1]))
            start = end
            number += ends[number] <= at
        coloured.runs[item.id] = list(_runs(inside))
        coloured.tokens += len(inside)
        coloured.surprising += sum(p is not None and p < SURPRISING_PROBABILITY for _, p in inside)
    return coloured


def _text_of(item: ev.Item) -> str:
    match item:
        case ev.ReasoningItem(content=parts) | ev.MessageItem(content=parts):
            return "".join(part.text for part in parts)
        case _:
            return ""


def _runs(pieces: Sequence[tuple[bytes, float | None]]) -> Iterator[StyledRun]:
    """The texts of tokens; a character of several has the least of their probabilities."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    least = 1.0
    for raw, probability in pieces:
        least = min(least, 1.0 if probability is None else probability)
        if text := decoder.decode(raw):
            yield display_text(text), probability_style(least)
            least = 1.0
