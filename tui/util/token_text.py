"""Renders token ids as readable text: markup is styled, and neighbouring tokens alternate in style."""

import codecs
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from agent.formats.protocol import Format
from tui.util.format import display_text

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
