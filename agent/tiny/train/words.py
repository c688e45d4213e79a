"""Values: numbers, words, places, paths; each belongs to training or to evaluation, never both."""

from __future__ import annotations

import random
import zlib
from functools import cache
from typing import Literal

from agent.tiny import vocabulary
from agent.tiny.train import phrases

Split = Literal["train", "eval"]
Node = str | tuple["Node", ...] | list["Node"]


@cache
def _parse(text: str) -> Node:
    """A grammar as nested data: a tuple is a sequence, a list is a choice."""
    at = 0

    def choice() -> Node:
        nonlocal at
        options: list[Node] = []
        while True:
            options.append(sequence("|]"))
            at += 1
            if text[at - 1] == "]":
                return options

    def sequence(stop: str) -> Node:
        nonlocal at
        items: list[Node] = []
        plain = ""
        while at < len(text) and text[at] not in stop:
            if text[at] == "[":
                at += 1
                items.append(plain)
                plain = ""
                items.append(choice())
            else:
                plain += text[at]
                at += 1
        items.append(plain)
        return tuple(items)

    return sequence("")


def _pick(rng: random.Random, node: Node) -> str:
    match node:
        case str():
            return node
        case list():
            return _pick(rng, rng.choice(node))
        case _:
            return "".join(_pick(rng, item) for item in node)


def expand(rng: random.Random, grammar: str, values: list[str], topic: str = "") -> str:
    """One sentence of a grammar, with a little of the noise of real typing around the values."""
    text = _pick(rng, _parse(grammar))
    noise = rng.random()
    if noise < 0.35:
        text = text[:1].upper() + text[1:]
    elif noise < 0.38:
        text = text.upper()
    if rng.random() < 0.03:
        spot = rng.randrange(len(text))
        if text[spot].isalpha():
            text = text[:spot] + text[spot + 1 :]
    text = text.replace("{TOPIC}", "{topic}")
    if text[-1:].isalnum() or text[-1:] == "}":
        text += rng.choice(["", "", "", ".", ".", "?", "!"])
    for index, value in enumerate(values):
        text = text.replace(f"{{{index}}}", value)
    return " ".join(text.replace("{topic}", topic).split())


def belongs(value: str, split: Split) -> bool:
    """A fixed eighth of all values is kept for evaluation."""
    return (zlib.crc32(value.lower().encode()) % 8 == 0) == (split == "eval")


def number(rng: random.Random, split: Split) -> str:
    """A number as it is typed."""
    while True:
        digits = rng.choice([1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 6])
        low = 10 ** (digits - 1)
        value = str(rng.randrange(low, low * 10))
        if rng.random() < 0.1:
            value += "." + str(rng.randrange(1, 100))
        if digits == 1 or belongs(value, split):
            return value


@cache
def pool(split: Split) -> tuple[list[str], list[str]]:
    """Lower-case words and capitalised words of the vocabulary, of any language."""
    lower: list[str] = []
    upper: list[str] = []
    for token in vocabulary.tokens():
        if not 4 <= len(token) <= 13 or token[:1] != b" ":
            continue
        try:
            word = token[1:].decode()
        except UnicodeDecodeError:
            continue
        if not word.isalpha() or len(word) < 3 or not belongs(word, split):
            continue
        if word.islower():
            lower.append(word)
        elif word.istitle():
            upper.append(word)
    return lower, upper


CITIES = phrases.word_list("cities")
LONG_CITIES = phrases.word_list("long_cities")
AREAS = phrases.word_list("areas")
FILE_ENDINGS = phrases.word_list("endings")
SPECIAL_NAMES = phrases.word_list("special_names")
STEMS = phrases.word_list("stems")
FOLDERS = phrases.word_list("folders")
COMMON = phrases.word_list("common")
"""Ordinary words, those of the templates among them: they must be copied like any others."""


def known(rng: random.Random, split: Split, values: list[str]) -> str:
    """A value of a list that belongs to the split."""
    while True:
        value = rng.choice(values)
        if belongs(value, split):
            return value


def word(rng: random.Random, split: Split, common: float = 0.12) -> str:
    """A word; in training `common` of them are ordinary ones, which no evaluation can hold out."""
    if split == "train" and rng.random() < common:
        found = rng.choice(COMMON)
        return found if rng.random() < 0.8 else found.title()
    lower, upper = pool(split)
    return rng.choice(upper if rng.random() < 0.2 else lower)


def phrase(rng: random.Random, split: Split, most: int = 4) -> str:
    """One to `most` words."""
    common = rng.choice([0.0, 0.3, 0.95, 0.95])
    return " ".join(word(rng, split, common) for _ in range(rng.randint(1, most)))


def city(rng: random.Random, split: Split) -> str:
    """A city."""
    kind = rng.random()
    if kind < 0.45:
        return known(rng, split, CITIES)
    if kind < 0.6:
        return known(rng, split, LONG_CITIES)
    if kind < 0.92:
        return rng.choice(pool(split)[1])
    return " ".join(rng.choice(pool(split)[1]) for _ in range(2))


def timezone(rng: random.Random, split: Split) -> str:
    """An IANA-like time zone."""
    place = city(rng, split)
    while not place.isascii() or "." in place:
        place = city(rng, split)
    return f"{rng.choice(AREAS)}/{place.replace(' ', '_')}"


def stem(rng: random.Random, split: Split) -> str:
    """A file name's stem."""
    kind = rng.random()
    lower, upper = pool(split)
    if kind < 0.3:
        return known(rng, split, STEMS)
    if kind < 0.36:
        return known(rng, split, SPECIAL_NAMES) if split == "train" else rng.choice(upper)
    if kind < 0.65:
        return rng.choice(lower)
    if kind < 0.72:
        return rng.choice(upper)
    joint = rng.choice(["_", "-", "_", ""])
    if kind < 0.88:
        return rng.choice(lower) + joint + rng.choice(lower)
    return rng.choice(lower) + rng.choice(["_", "-", ""]) + str(rng.randrange(1, 2030))


def folder(rng: random.Random, split: Split) -> str:
    """A folder of one or two parts."""

    def part() -> str:
        kind = rng.random()
        if kind < 0.45:
            return known(rng, split, FOLDERS)
        return stem(rng, split) if kind > 0.8 else rng.choice(pool(split)[0])

    parts = [part() for _ in range(rng.choice([1, 1, 1, 2]))]
    if split == "train" and rng.random() < 0.06:
        parts = parts[:1] * 2
    return "/".join(parts)


def path(rng: random.Random, split: Split) -> str:
    """A path of a file."""
    while True:
        name = stem(rng, split)
        if name not in SPECIAL_NAMES or rng.random() < 0.5:
            name += "." + rng.choice(FILE_ENDINGS)
        if rng.random() < 0.35:
            name = folder(rng, split) + "/" + name
        if belongs(name, split):
            return name


def query(rng: random.Random, split: Split) -> str:
    """A text to search for."""
    kind = rng.random()
    if kind < 0.55:
        return word(rng, split)
    if kind < 0.75:
        return phrase(rng, split, 3)
    if kind < 0.85:
        return rng.choice(pool(split)[0]) + "_" + rng.choice(pool(split)[0])
    if kind < 0.92:
        return rng.choice(pool(split)[0]).upper()
    return number(rng, split)
