"""Renders tokens as readable text, and colours a turn's texts by their probabilities."""

import codecs
import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from agent import events as ev
from agent.formats.protocol import Format
from tui.util.format import StyledRun, display_text

PROBABILITY_STEPS = (0.9, 0.5, 0.1, 0.01)
"""A token less likely than each of them is coloured one step stronger; the likelier ones are plain."""
SURPRISING_PROBABILITY = 0.1


def probability_style(probability: float) -> str:
    step = sum(probability < bound for bound in PROBABILITY_STEPS)
    return f"chance{step}" if step else ""


class TokenRun(NamedTuple):
    """A piece of text and its style: all of a token's text, or with ``is_token`` False of none."""

    text: str
    style: str
    is_token: bool = True


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
        self,
        ids: Iterable[int],
        repairs: Mapping[int, Sequence[str]] | None = None,
        probabilities: Mapping[int, float] | None = None,
    ) -> Iterator[TokenRun]:
        """Render the next ids. ``repairs`` (names of rules), ``probabilities``: by token index."""
        for token in ids:
            for rule in (repairs or {}).get(self._index, ()):
                yield TokenRun(f" {rule} ", "repair", is_token=False)
            yield from self._token(token, (probabilities or {}).get(self._index))
            self._index += 1

    def _token(self, token: int, probability: float | None) -> Iterator[TokenRun]:
        raw = self._format.token_bytes(token)
        markup = self._format.is_markup(token)
        style = "mark" if markup else self._styles[self._index % 2]
        if probability is not None:
            style = f"{style} {probability_style(probability)}".strip()
        if markup:
            # Two markup tokens in a row: a message ends and the next begins, on a line of its own.
            pending = self._decoder.decode(b"", True) + "\n" * self._after_markup
            yield TokenRun(pending, "", is_token=False)
            yield TokenRun(display_text(raw.decode("utf-8", "replace")), style)
        else:
            yield TokenRun(display_text(self._decoder.decode(raw)), style)
        self._after_markup = markup


def colour_texts(
    items: Sequence[ev.Item], pieces: Sequence[tuple[bytes, float | None]]
) -> tuple[dict[str, list[StyledRun]], str]:
    """Colour the texts of reasoning and messages, by item id, and note the share of surprising tokens.
    ``pieces``: the bytes of the turn's tokens, in order, with their probabilities (None: not known)."""
    runs: dict[str, list[StyledRun]] = {}
    tokens = surprising = 0
    written = b"".join(raw for raw, _ in pieces)
    ends = list(accumulate(len(raw) for raw, _ in pieces))
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
        runs[item.id] = list(_runs(inside))
        tokens += len(inside)
        surprising += sum(p is not None and p < SURPRISING_PROBABILITY for _, p in inside)
    return runs, f"{surprising / tokens:.1%} surprising".replace("%", " %") if tokens else ""


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
