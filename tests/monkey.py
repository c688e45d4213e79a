"""`make monkey`: many calls of `tests/support/command_monkey.py`; ``--only N`` repeats one of them."""

import argparse
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agent.tiny import expand
from tests.support.command_monkey import CommandMonkey


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    faulty = 0
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder, "cache")
        expand.ensure(cache)
        monkey = CommandMonkey(Path(folder), cache, options.seed)
        numbers = range(options.calls) if options.only is None else [options.only]
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            for call in pool.map(monkey.call, numbers):
                if call.faults or options.only is not None:
                    faulty += bool(call.faults)
                    print(f"{call}\n", flush=True)
    print(f"{len(numbers)} calls, {faulty} with faults; --seed {options.seed} repeats them.")
    return min(faulty, 1)


if __name__ == "__main__":
    sys.exit(main())
