"""Counts how alike the corpus's requests are: python -m agent.tiny.train.corpus.similarity

Two requests are near-duplicates if their sets of character 4-grams overlap by at least `NEAR_OVERLAP`
(Jaccard), slots apart. Writers who work apart from each other still write the same sentence now and
then; a corpus that mostly repeats itself would show here.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections import Counter, defaultdict

from agent.tiny.train import corpus

NEAR_OVERLAP = 0.8
HASH_COUNT = 24
BAND_SIZE = 3
"""Hashes of a band: requests that share all of one band are compared."""
GRAM_CHARACTERS = 4


def grams(request: str) -> frozenset[str]:
    """The 4-grams of a request, lower-case, with slots and values left out."""
    text = re.sub(r"\{[^{}]*\}", "_", request.lower())
    text = f" {' '.join(re.findall(r'[a-z_]+', text))} "
    return frozenset(text[i : i + GRAM_CHARACTERS] for i in range(len(text) - GRAM_CHARACTERS + 1))


def signature(some: frozenset[str]) -> list[int]:
    """The minimum of each hash over the grams (MinHash)."""
    hashed = [zlib.crc32(gram.encode()) for gram in some]
    return [
        min((h * (2 * k + 1) + k * 0x9E3779B9) & 0xFFFFFFFF for h in hashed)
        for k in range(HASH_COUNT)
    ]


def near_duplicates(requests: list[str]) -> int:
    """How many requests have a near-duplicate before them."""
    buckets: dict[tuple[int, ...], list[int]] = defaultdict(list)
    sets = [grams(request) for request in requests]
    count = 0
    for index, some in enumerate(sets):
        if len(some) < BAND_SIZE:
            continue
        marks = signature(some)
        bands = [(at, *marks[at : at + BAND_SIZE]) for at in range(0, HASH_COUNT, BAND_SIZE)]
        others = {other for band in bands for other in buckets[band][-50:]}
        if any(len(some & sets[o]) >= NEAR_OVERLAP * len(some | sets[o]) for o in others):
            count += 1
        else:
            for band in bands:
                buckets[band].append(index)
    return count


def main() -> None:
    """Print the counts of each table."""
    print("| table | requests | different words | near-duplicates % |\n|---|---|---|---|")
    for table in corpus.TABLES:
        requests = [line for entry in corpus.entries(table) for line in entry.requests]
        words = Counter(word for line in requests for word in re.findall(r"[^\W\d]+", line.lower()))
        share = 100 * near_duplicates(requests) / max(1, len(requests))
        print(f"| {table} | {len(requests):,} | {len(words):,} | {share:.1f} |")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
