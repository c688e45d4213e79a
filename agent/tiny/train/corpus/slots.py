"""Fills slots of requests with values, each as it stands in the request and in the code."""

from __future__ import annotations

import datetime
import json
import random
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agent.tiny import vocabulary

VALUES: dict[str, list[str]] = {
    name: text.split()
    for name, text in json.loads(Path(__file__).with_name("values.json").read_text()).items()
}
"""Word lists by name."""


@cache
def _any_words() -> tuple[str, ...]:
    """Lower-case ASCII words that are one token with a space before them: natural ones and others."""
    lower = (token.decode("utf-8", "ignore") for token in vocabulary.tokens() if token[:1] == b" ")
    return tuple(sorted({w[1:] for w in lower if re.fullmatch(r" [a-z]{3,10}", w)}))


def _word(rng: random.Random) -> str:
    return rng.choice(VALUES["words"] if rng.random() < 0.3 else _any_words())


@dataclass(frozen=True, slots=True)
class SlotValue:
    """A slot's value."""

    text: str
    """As it stands in the request."""
    code: str
    """As it stands in the code."""


def spell(number: int) -> str:
    """A number of 0 to 99 in words."""
    if number < 20:
        return VALUES["below_twenty"][number]
    tens, ones = divmod(number, 10)
    return VALUES["tens"][tens] + (f"-{VALUES['below_twenty'][ones]}" if ones else "")


def _listed(rng: random.Random, values: list[str]) -> str:
    """Values as people list them."""
    if len(values) == 1:
        return values[0]
    style = rng.random()
    if style < 0.45:
        return ", ".join(values[:-1]) + rng.choice([" and ", " and ", ", and "]) + values[-1]
    if style < 0.85:
        return ", ".join(values)
    return rng.choice([" ", ","]).join(values)


def _same(text: str) -> SlotValue:
    return SlotValue(text, text)


def _decimal(rng: random.Random, low: str, high: str, digits: str) -> str:
    return f"{rng.uniform(float(low), float(high)):.{int(digits)}f}"


def _date(rng: random.Random) -> datetime.date:
    return datetime.date(1950, 1, 1) + datetime.timedelta(rng.randrange(36_500))


def value(rng: random.Random, kind: str) -> SlotValue:
    """A new value. ``kind`` is a row of the table in README.md. Raises ValueError if it is none."""
    name, _, rest = kind.partition(" ")
    match name, rest.split():
        case "int", [low, high]:
            # Short numbers are as frequent as long ones.
            top = min(int(high), int(low) + 10 ** rng.randint(1, len(high)))
            number = rng.randint(int(low), top)
            return SlotValue(f"{number:,}" if rng.random() < 0.25 else str(number), str(number))
        case "decimal", [low, high, digits]:
            return _same(_decimal(rng, low, high, digits))
        case "numbers", [least, most, low, high]:
            count = rng.randint(int(least), int(most))
            numbers = [str(rng.randint(int(low), int(high))) for _ in range(count)]
            return SlotValue(_listed(rng, numbers), ", ".join(numbers))
        case "decimals", [least, most, low, high, digits]:
            count = rng.randint(int(least), int(most))
            numbers = [_decimal(rng, low, high, digits) for _ in range(count)]
            return SlotValue(_listed(rng, numbers), ", ".join(numbers))
        case "spelled", [low, high]:
            number = rng.randint(int(low), int(high))
            return SlotValue(spell(number), str(number))
        case "choice", _:
            return _same(rng.choice(rest.split("|")))
        case "map", _:
            text, _, code = rng.choice(rest.split("|")).partition("=")
            return SlotValue(text, code)
        case "word", []:
            return _same(_word(rng))
        case "phrase", [least, most]:
            return _same(" ".join(_word(rng) for _ in range(rng.randint(int(least), int(most)))))
        case "words", [least, most]:
            some = [_word(rng) for _ in range(rng.randint(int(least), int(most)))]
            return SlotValue(_listed(rng, some), ", ".join(f"'{one}'" for one in some))
        case "date", []:
            return _same(_date(rng).isoformat())
        case "longdate", []:
            day = _date(rng)
            return _same(f"{day.day} {VALUES['months'][day.month - 1]} {day.year}")
        case "year", []:
            return _same(str(rng.randint(1800, 2100)))
        case "clock", []:
            return _same(f"{rng.randint(0, 23):02}:{rng.choice(range(0, 60, 5)):02}")
        case _, []:
            pools = {
                "name": VALUES["names"],
                "city": VALUES["cities"],
                "noun": VALUES["nouns"],
                "nouns": VALUES["things"],
            }
            pools |= {"month": VALUES["months"], "weekday": VALUES["weekdays"]}
            if name in pools:
                return _same(rng.choice(pools[name]))
    raise ValueError(f"no such slot: {kind}")


def fill(rng: random.Random, kinds: dict[str, str]) -> dict[str, SlotValue]:
    """A value for each slot, each another one."""
    while True:
        values = {name: value(rng, kind) for name, kind in kinds.items()}
        texts = [one.text for one in values.values()]
        if len(set(texts)) == len(texts) or rng.random() < 0.1:
            return values
