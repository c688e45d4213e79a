"""``make load``: 2,000 requests of 32 clients to the program with the embedded model."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from agent.tiny import expand
from tests.load import load
from tests.load.program import line

FLAT = 1.05
"""So much of its memory of before the server may have in the end."""


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    options.add_argument("--clients", type=int, default=32)
    options.add_argument("--requests", type=int, default=2000)
    options.add_argument("--warm", type=int, default=500, help="requests before it is measured")
    options.add_argument("--seed", type=int, default=0, help="of what the clients do")
    with tempfile.TemporaryDirectory() as folder:
        expand.ensure(Path(folder) / "cache")
        found = asyncio.run(load.run(Path(folder), **vars(options.parse_args())))
    head, *rest = found.rows()
    print(*map(line, [head, ["---"] * len(head), *rest]), sep="\n")
    return int(found.growth > FLAT)


if __name__ == "__main__":
    sys.exit(main())
