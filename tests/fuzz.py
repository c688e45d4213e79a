"""A million mutated streams through Harmony's parser: ``python -m tests.fuzz [--count N] [--seed N]``.

Each is parsed token by token and in larger steps, and must hold the invariants of
`tests.support.harmony_streams.check`; a twentieth as many random ones go through the markup parser in
each dialect.
"""

import argparse
import random
import sys
import time
from collections import Counter

from agent.formats.harmony.encoding import load_encoding
from agent.formats.markup.known import SYNTAXES
from agent.formats.protocol import Repair
from agent.tiny.vocabulary import ranks
from tests.support import harmony_streams, markup


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    options.add_argument(
        "--count", type=int, default=1_000_000, help="streams (default: a million)"
    )
    options.add_argument("--seed", type=int, default=0, help="the same seed gives the same streams")
    arguments = options.parse_args()
    encoding, rng = load_encoding(ranks), random.Random(arguments.seed)
    began = time.monotonic()
    rules: Counter[str] = Counter()
    tokens = 0
    for number in range(1, arguments.count + 1):
        ids = harmony_streams.mutated(rng)
        tokens += len(ids)
        try:
            harmony_streams.check(encoding, ids, steps=(rng.randint(2, 100),))
            if number % 100 == 0:
                events = harmony_streams.parse(encoding, ids, step=100)
                rules.update(event.rule for event in events if isinstance(event, Repair))
        except Exception:
            print(f"stream {number} of seed {arguments.seed} fails:\n{ids}", file=sys.stderr)
            raise
        if number % 50_000 == 0:
            seconds = time.monotonic() - began
            print(f"{number:,} streams, {number / seconds:,.0f} a second", flush=True)
    print(
        f"{arguments.count:,} streams of {tokens:,} tokens, seed {arguments.seed}:"
        " nothing raised or lost."
    )
    fuzz_markup(arguments.count // 20, arguments.seed)
    print("Repairs in every 100th:", ", ".join(f"{rule} {n}" for rule, n in rules.most_common()))
    return 0


def fuzz_markup(count: int, seed: int) -> None:
    """Fuzz the markup parser in each dialect."""
    for name in SYNTAXES:
        rng, harness = random.Random(seed), markup.DialectHarness(name)
        for number in range(1, count + 1):
            text, markers = markup.random_markup(rng)
            try:
                harness.check(harness.encoder.encode_markup(text), markers)
            except Exception:
                print(f"{name}: stream {number} of seed {seed} fails:\n{text}", file=sys.stderr)
                raise
        print(f"{name}: {count:,} streams, seed {seed}: nothing raised or lost.")


if __name__ == "__main__":
    sys.exit(main())
