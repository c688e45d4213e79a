"""A million mutated streams through Harmony's parser: ``python -m tests.fuzz [--count N] [--seed N]``.

Each is parsed token by token and at once, and must keep what
`tests.support.harmony_streams.check` says; a
twentieth as many made-up ones go through each of the other families' parsers.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter

from agent.formats.harmony.encoding import encoding as load
from agent.formats.markup.dialects import FAMILIES
from agent.formats.protocol import Repair
from agent.tiny.vocabulary import ranks
from tests.support import harmony_streams, markup


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    options.add_argument(
        "--count", type=int, default=1_000_000, help="streams (default: a million)"
    )
    options.add_argument("--seed", type=int, default=0, help="the same seed gives the same streams")
    chosen = options.parse_args()
    encoding, rng = load(ranks), random.Random(chosen.seed)
    began = time.monotonic()
    rules: Counter[str] = Counter()
    tokens = 0
    for number in range(1, chosen.count + 1):
        ids = harmony_streams.mutated(rng)
        tokens += len(ids)
        try:
            harmony_streams.check(encoding, ids, steps=(rng.randint(2, 100),))
            if number % 100 == 0:
                pieces = harmony_streams.parse(encoding, ids, step=100)
                rules.update(piece.rule for piece in pieces if isinstance(piece, Repair))
        except Exception:
            print(f"stream {number} of seed {chosen.seed} fails:\n{ids}", file=sys.stderr)
            raise
        if number % 50_000 == 0:
            seconds = time.monotonic() - began
            print(f"{number:,} streams, {number / seconds:,.0f} a second", flush=True)
    print(
        f"{chosen.count:,} streams of {tokens:,} tokens, seed {chosen.seed}: nothing raised or lost."
    )
    others(chosen.count // 20, chosen.seed)
    print("Repairs in every 100th:", ", ".join(f"{rule} {n}" for rule, n in rules.most_common()))
    return 0


def others(count: int, seed: int) -> None:
    """The families that write markup over text."""
    for name in FAMILIES:
        rng, reader = random.Random(seed), markup.Reader(name)
        for number in range(1, count + 1):
            text, markers = markup.made(rng)
            try:
                reader.check(reader.encoder.markup(text), markers)
            except Exception:
                print(f"{name}: stream {number} of seed {seed} fails:\n{text}", file=sys.stderr)
                raise
        print(f"{name}: {count:,} streams, seed {seed}: nothing raised or lost.")


if __name__ == "__main__":
    sys.exit(main())
