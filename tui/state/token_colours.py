"""Which pieces of a turn's texts are coloured how, by the probabilities of their tokens."""

import codecs
import contextlib
import json
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
    surprising: int = 0
    """Number of them that are less likely than ``SURPRISING_PROBABILITY``."""

    @property
    def note(self) -> str:
        """The share of surprising tokens, for a footer; empty where there are none to count."""
        if not self.tokens:
            return ""
        return f"{self.surprising / self.tokens:.1%} surprising".replace("%", " %")


def colour_texts(
    items: Sequence[ev.Item], pieces: Sequence[tuple[bytes, float | None]]
) -> ColouredTexts:
    """Colour the texts of reasoning and messages that ``pieces`` have: the bytes of the turn's tokens,
    in order, with their probabilities (None: not known)."""
    coloured, written = ColouredTexts(), b"".join(raw for raw, _ in pieces)
    ends, at = [], 0
    for raw, _ in pieces:
        at += len(raw)
        ends.append(at)
    at = number = 0
    for item in items:
        for text in _texts_of(item):
            if (start := _find_text(written, text, at)) >= 0:
                break
        else:
            continue
        at = start + len(text)
        if not isinstance(item, ev.ReasoningItem | ev.MessageItem):
            continue  # a call: what comes after it is not looked for in its arguments
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


def _find_text(written: bytes, text: bytes, start: int) -> int:
    """Find a text behind ``start``: a whole message if there is one, not a part of markup; or -1."""
    for before, after in ((b"<|message|>", b"<|"), (b"<|message|>", b""), (b"", b"")):
        if (at := written.find(before + text + after, start)) >= 0:
            return at + len(before)
    return -1


def _texts_of(item: ev.Item) -> list[bytes]:
    """Texts of an item that the model may have written; code can be within JSON of the parser."""
    texts: list[str] = []
    match item:
        case ev.ReasoningItem(content=parts) | ev.MessageItem(content=parts):
            texts = ["".join(part.text for part in parts)]
        case ev.McpCallItem(arguments=arguments) | ev.FunctionCallItem(arguments=arguments):
            texts = [arguments]
            with contextlib.suppress(ValueError, LookupError, TypeError):
                texts.append(str(json.loads(arguments)["code"]))
        case ev.CodeInterpreterCallItem(code=code):
            texts = [code or ""]
        case ev.CustomToolCallItem(input=text):
            texts = [text]
        case _:
            pass
    return [text.encode("utf-8", "replace") for text in texts if text]


def _runs(pieces: Sequence[tuple[bytes, float | None]]) -> Iterator[StyledRun]:
    """The texts of tokens; a character of several has the least of their probabilities."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    least = 1.0
    for raw, probability in pieces:
        least = min(least, 1.0 if probability is None else probability)
        if text := decoder.decode(raw):
            yield display_text(text), probability_style(least)
            least = 1.0
