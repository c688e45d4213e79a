"""``make attack``: runs all attacks, prints what did not hold and a table of what was tried."""

import argparse
import asyncio
import importlib
import re
import sys
import time
from collections.abc import Collection
from pathlib import Path

from tests.attack import GROUPS
from tests.attack.measure import Attempt, markdown_table

DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"
MARKS = ("<!-- make attack -->\n", "<!-- end -->")


async def run(groups: Collection[str], names: Collection[str], every: int) -> list[Attempt]:
    """Run the groups one after another; prints each attempt that did not hold.

    ``names``: run only these; empty: every ``every``-th attack of each group.
    """
    attempts: list[Attempt] = []
    for group in groups:
        began, module = time.monotonic(), importlib.import_module(f"tests.attack.{group}")
        chosen = [name for name in module.NAMES if name in names] or module.NAMES[::every]
        async for attempt in module.attempts(chosen):
            attempts.append(attempt := attempt.with_goals())
            if not attempt.repelled:
                print(f"not held: {attempt.group}: {attempt.name}: {attempt.detail}", flush=True)
        print(f"{group}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return attempts


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    options.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    options.add_argument("--name", action="append", default=[], help="only attacks of this name")
    options.add_argument("--every", type=int, default=10, help="of each group, run every N-th (10)")
    options.add_argument("--all", action="store_true", help="print also what held")
    options.add_argument(
        "--write", action="store_true", help=f"write the table of all groups to {DOCUMENT.name}"
    )
    arguments = options.parse_args()
    if unknown := set(arguments.groups) - set(GROUPS):
        sys.exit(f"No such group: {', '.join(unknown)} (there are {', '.join(GROUPS)})")
    groups = arguments.groups or GROUPS
    modules = [importlib.import_module(f"tests.attack.{group}") for group in groups]
    if unknown := set(arguments.name).difference(*(module.NAMES for module in modules)):
        sys.exit(f"No such attack: {', '.join(unknown)}")
    attempts = asyncio.run(run(groups, arguments.name, arguments.every))
    if arguments.all:
        for attempt in attempts:
            load = f"{attempt.load.memory_mib:.0f} MiB, {attempt.load.lateness_ms:.0f} ms"
            print(f"{attempt.group}: {attempt.name}: {load}: {attempt.detail}")
    table = markdown_table(attempts)
    print(table)
    if arguments.write and not (arguments.groups or arguments.name):
        first, last = MARKS
        text = DOCUMENT.read_text()
        block = re.compile(f"(?<={re.escape(first)}).*?(?={re.escape(last)})", re.DOTALL)
        DOCUMENT.write_text(block.sub(lambda _: f"{table}\n", text))
    return int(any(not attempt.repelled for attempt in attempts))


if __name__ == "__main__":
    sys.exit(main())
