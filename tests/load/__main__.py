"""``make load``: 2,000 requests of 32 clients to the program with the embedded model."""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from agent.tiny import expand
from tests.load import load
from tests.load.server_process import markdown_row

MAX_MEMORY_RATIO = 1.05
"""Most memory that the server may have in the end, over its memory after warming up."""


def main() -> int:
    """Run and print the result; the exit code is 1 where the memory has grown."""
    options = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    options.add_argument("--clients", type=int, default=32)
    options.add_argument("--requests", type=int, default=2000)
    options.add_argument("--warm", type=int, default=500, help="requests before it is measured")
    options.add_argument("--seed", type=int, default=0, help="of what the clients do")
    with tempfile.TemporaryDirectory() as folder:
        expand.ensure(Path(folder) / "cache")
        result = asyncio.run(load.run_load(Path(folder), **vars(options.parse_args())))
    head, *rows = result.rows()
    print(*map(markdown_row, [head, ["---"] * len(head), *rows]), sep="\n")
    return int(result.growth > MAX_MEMORY_RATIO)


if __name__ == "__main__":
    sys.exit(main())
