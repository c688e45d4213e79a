"""How a request of the corpus is said this time: its wording varies around the values.

A small model remembers whole sentences where it can. What does not matter changes therefore from
one time to the next: who speaks, what else is said, small words that are left out, equal words,
slips of the keyboard. Braces, with what stands in them, stay as they are.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from agent.tiny.train import phrases
from agent.tiny.train.words import expand

OPENINGS = phrases.NOISE["openings"]
ENDINGS = phrases.NOISE["endings"]
ASIDES = phrases.NOISE["asides"]
"""Sentences that have nothing to do with what is asked."""
DROPPED = frozenset(phrases.NOISE["dropped"])
"""Small words that people leave out."""
EQUAL = tuple(tuple(group) for group in phrases.NOISE["equal"])
"""Groups of words that say the same."""

_PIECE = re.compile(r"\{[^{}]*\}|[^{}]+")
_SAYS = tuple(
    (re.compile(r"(?<![\w'{])" + re.escape(form) + r"(?![\w'}])", re.IGNORECASE), form, group)
    for group in EQUAL
    for form in sorted(group, key=len, reverse=True)
)


def vary(rng: random.Random, text: str) -> str:
    """A request as somebody else might have typed it."""
    if rng.random() < 0.35:
        text = _outside(text, lambda part: _say_otherwise(rng, part))
    if rng.random() < 0.2:
        share = rng.choice((0.3, 0.6, 1.0))
        text = _outside(text, lambda part: _drop_words(rng, part, share)).strip()
    case = rng.random()
    if case < 0.12:
        text = text[:1].swapcase() + text[1:]
    elif case < 0.22:
        text = _outside(text, str.lower)
    elif case < 0.23:
        text = _outside(text, str.upper)
    if rng.random() < 0.15:
        text = text.rstrip(".?! ") + rng.choice(("", "", "?", ".", " ?", "!", "..."))
    around = rng.random()
    if around < 0.1 and text[:1].isalpha():
        text = rng.choice(OPENINGS) + " " + text[:1].lower() + text[1:]
    elif around < 0.16:
        text = f"{_stop(rng.choice(ASIDES))} {text}"
    elif around < 0.21:
        text = f"{_stop(text)} {rng.choice(ASIDES)}"
    if rng.random() < 0.1:
        text = text.rstrip(".?! ") + rng.choice(ENDINGS)
    for _ in range(rng.choice((0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2))):
        text = _slip(rng, text)
    return text


def say(rng: random.Random, grammar: str, values: list[str]) -> str:
    """A sentence of a grammar (see phrases.py) as somebody might have typed it, with its values."""
    text = vary(rng, expand(rng, grammar, []))
    for index, value in enumerate(values):
        text = text.replace(f"{{{index}}}", value)
    return text


def _outside(text: str, change: Callable[[str], str]) -> str:
    """The text with what stands outside of braces changed."""
    return "".join(part if part.startswith("{") else change(part) for part in _PIECE.findall(text))


def _say_otherwise(rng: random.Random, part: str) -> str:
    """One expression replaced by another that says the same."""
    found = [
        (match, form, group) for pattern, form, group in _SAYS if (match := pattern.search(part))
    ]
    if not found:
        return part
    match, form, group = rng.choice(found)
    other: str = rng.choice([one for one in group if one != form])
    if match.group()[:1].isupper():
        other = other[:1].upper() + other[1:]
    return part[: match.start()] + other + part[match.end() :]


def _drop_words(rng: random.Random, part: str, share: float) -> str:
    """Without some of the small words."""
    words = re.split(r"(\s+)", part)
    kept = [
        word
        for index, word in enumerate(words)
        if not (word.lower() in DROPPED and index + 1 < len(words) and rng.random() < share)
    ]
    return re.sub(r" {2,}", " ", "".join(kept))


def _stop(text: str) -> str:
    """The text as a whole sentence."""
    return text if text[-1:] in ".?!:" else text.rstrip(", ") + "."


def _slip(rng: random.Random, text: str) -> str:
    """One letter missing, doubled or exchanged with the next."""
    at = rng.randrange(len(text))
    outside = text.count("{", 0, at + 2) == text.count("}", 0, at + 1)
    if not (outside and text[at].isalpha() and text[at + 1 : at + 2].isalpha()):
        return text
    slip = rng.choice((text[at + 1], text[at] * 2 + text[at + 1], text[at + 1] + text[at]))
    return text[:at] + slip + text[at + 2 :]
