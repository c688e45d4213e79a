"""Finds tools by words: Okapi BM25 over their names, descriptions and parameters."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

SATURATION, LENGTH_WEIGHT = 1.2, 0.5
"""BM25's k1 and b: how fast a repeated word counts less, and how much a long text does."""
NAME_WEIGHT, SERVER_WEIGHT, PARAMETER_WEIGHT = 3.0, 2.0, 0.5
"""How often a word of a name counts, where one of a description counts once."""
PREFIX_WEIGHT, MIN_PREFIX_CHARS = 0.6, 3
"""Weight of a word that begins another: repo, repository."""
SYNONYM_WEIGHT = 0.4
MAX_QUERY_WORDS, MAX_PARAMETERS = 64, 60
_WORD = re.compile(r"[^\W\d_]+|\d+")
_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2,}")
_SUFFIX = re.compile(r"(?<=\w{3})(?:ings?|ed|es|s|e|ors?|ers?|ions?)\Z")
_STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be by can do for from get has have how i if in into is it its me my of on"
        " or our that the their them then there these this those to tool use using want was we what"
        " when where which who will with you your",
    )
)


_GROUPS = """
create add make new write insert open file
update change edit modify set
delete remove drop forget clear
list show get read view fetch display retrieve what
search find look lookup query
run execute start launch call
send post publish write
download fetch get save
navigate go visit open
folder directory
document file page
email mail message gmail inbox
web website page site url internet link online
song track music album
picture image screenshot photo
ticket issue bug task
meeting event appointment calendar
alert warning alarm
rain snow storm weather forecast
spreadsheet sheet worksheet excel
person people user member customer
place location near nearby restaurant cafe shop
text content words
high height elevation altitude
database table sql
log history output
"""
"""Words of similar meaning, by the line."""


class Searchable(NamedTuple):
    """A tool as it is searched for."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    server: str = ""


class ToolIndex:
    """An index of tools, which are named by their positions."""

    def __init__(self, tools: Sequence[Searchable]) -> None:
        self._weights = [_weigh(tool) for tool in tools]
        self._count = Counter(chain.from_iterable(self._weights))
        self._mean = sum(map(_length, self._weights)) / len(tools) if tools else 1.0

    def search(self, query: str, limit: int) -> list[int]:
        """Return the positions of at most ``limit`` tools with a common word, the best first."""
        words = dict.fromkeys([*_words(query)][:MAX_QUERY_WORDS])
        variants = {word: dict(self._variants(word)) for word in words}
        scores = [(self._score(variants, weights), -at) for at, weights in enumerate(self._weights)]
        return [-at for score, at in sorted(scores, reverse=True)[:limit] if score > 0]

    def _variants(self, word: str) -> Iterator[tuple[str, float]]:
        """Yield the words of tools that a word of a query stands for, and their weights."""
        similar = _SYNONYMS.get(word, ())
        for known in self._count:
            shorter, longer = sorted((word, known), key=len)
            if known == word:
                yield known, 1.0
            elif len(shorter) >= MIN_PREFIX_CHARS and longer.startswith(shorter):
                yield known, PREFIX_WEIGHT
            elif known in similar:
                yield known, SYNONYM_WEIGHT

    def _score(
        self, query: Mapping[str, Mapping[str, float]], weights: Mapping[str, float]
    ) -> float:
        norm = 1 - LENGTH_WEIGHT + LENGTH_WEIGHT * _length(weights) / (self._mean or 1.0)
        score = 0.0
        for variants in query.values():
            found = [
                share * self._rarity(known) * weight / (weight + SATURATION * norm)
                for known, share in variants.items()
                if (weight := weights.get(known))
            ]
            score += max(found, default=0.0)
        return score

    def _rarity(self, word: str) -> float:
        count = self._count[word]
        return math.log(1 + (len(self._weights) - count + 0.5) / (count + 0.5))


def _length(weights: Mapping[str, float]) -> float:
    return sum(weights.values())


def _weigh(tool: Searchable) -> dict[str, float]:
    """How often each word of a tool counts."""
    weights: Counter[str] = Counter()
    texts = [(tool.name, NAME_WEIGHT), (tool.server, SERVER_WEIGHT), (tool.description, 1.0)]
    properties = tool.parameters.get("properties")
    for name, schema in [*(properties.items() if isinstance(properties, dict) else ())][
        :MAX_PARAMETERS
    ]:
        about = schema.get("description") if isinstance(schema, dict) else None
        texts.append((f"{name} {about if isinstance(about, str) else ''}", PARAMETER_WEIGHT))
    for text, weight in texts:
        for word in _words(text):
            weights[word] += weight  # type: ignore[assignment]
    return dict(weights)


def _words(text: str) -> Iterator[str]:
    """Yield the words of a text, without endings; of Chinese and the like pairs of characters."""
    for word in _WORD.findall(_CAMEL_CASE.sub(" ", text)):
        if run := _CJK.search(word):
            pairs = run.group()
            yield from (pairs[at : at + 2] for at in range(len(pairs) - 1))
        elif (lower := word.lower()) not in _STOP_WORDS:
            yield _SUFFIX.sub("", lower)


_SYNONYMS: dict[str, set[str]] = {}
for _line in _GROUPS.split("\n"):
    for _each in (_group := [*_words(_line)]):
        _SYNONYMS.setdefault(_each, set()).update(_group)
