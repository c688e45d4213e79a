"""Finds a text in another without regard to case."""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

from textual.content import Content


def find_folded(text: str, query: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each occurrence of ``query``, which is case-folded; without overlap.
    Folding makes some characters longer (ß is ss): one that an occurrence touches belongs to it."""
    folded = text.casefold()
    at = folded.find(query)
    if at < 0 or not query:
        return
    if len(folded) == len(text):  # folding makes no character shorter
        while at >= 0:
            yield at, at + len(query)
            at = folded.find(query, at + len(query))
        return
    starts = list(accumulate((len(character.casefold()) for character in text), initial=0))
    while at >= 0:
        first = bisect_right(starts, at) - 1
        end = bisect_right(starts, at + len(query) - 1)
        yield first, end
        at = folded.find(query, starts[end])


def highlight_matches(content: Content, *queries: str) -> Content:
    for query in queries:
        for start, end in find_folded(content.plain, query.casefold()):
            content = content.stylize("reverse", start, end)
    return content
