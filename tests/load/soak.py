"""Turns with tools, cancels and branches, for long: ``make soak`` (``--minutes N``).

Says each minute what the process takes; memory and descriptors must stay as they were after warming
up, and nothing may be left behind in the end.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import httpx2
import psutil

from agent.tiny import expand
from tests.load.bodies import Fuzzer
from tests.load.clients import Clients, Fault
from tests.load.load import OPTIONS
from tests.load.program import line, orphans, serving

CLIENTS = 4
FLAT = 1.05
"""So much of its memory of after warming up the process may have."""
FORM = {
    "type": "json_schema", "name": "city",
    "schema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
}  # fmt: skip
SPARE = 8
"""Descriptors more than then it may have: connections that are about to close."""


class Row(NamedTuple):
    """What is told of a minute; all but the last three since the beginning, memory in MiB."""

    minutes: float
    turns: int
    tools: int
    branches: int
    cancels: int
    memory: float
    descriptors: int
    children: int


class People(Clients):
    """What they do all day: a tool in every third turn."""

    def kinds(self) -> dict[Callable[[], Awaitable[str]], int]:
        return {
            self.calls: 30, self.goes_on: 15, self.cancels: 10, self.leaves: 10, self.reads: 10,
            self.comes_back: 5, self.talks: 5, self.looks: 5, self.forms: 5,
        }  # fmt: skip

    async def forms(self) -> str:
        """An answer under a schema: what that needs is made at the first of them, and stays."""
        return await self.reads(text={"format": FORM})


async def soak(
    home: Path, *, seconds: float, warm: float, interval: float = 60, settled: bool = True
) -> Row:
    """Prints a row each ``interval``; the last one. ``warm``: seconds before it is measured.
    ``settled``: it is long enough for what it takes to be the same in the end. Raises Fault.
    """
    nothing = {"components": {"schemas": {}}, "paths": {}}
    rng, left = random.Random(0), set[psutil.Process]()
    async with serving(home, *OPTIONS) as program, httpx2.AsyncClient(timeout=110) as http:
        people = People(program, http, Fuzzer(nothing, rng), rng)
        began, first = time.monotonic() + warm, None
        while True:
            now = time.monotonic()
            until = began if first is None else min(now + interval, began + seconds)
            await _together(people, until)
            await program.quiet()
            left |= program.children
            row = _row(people, time.monotonic() - began)
            print(line(row), flush=True)
            first = first or row
            if until >= began + seconds:
                break
        more = row.memory > FLAT * first.memory or row.descriptors > first.descriptors + SPARE
        if settled and more:
            raise Fault(f"it grew: {first} became {row}")
        if ends := Counter(program.stored().values())["in_progress"]:
            raise Fault(f"{ends} responses have no end")
        code, said = await program.end()
        if (code, said) != (0, "") or orphans(left):
            raise Fault(f"it ended with {code}, {said!r} and {orphans(left)}")
    return row


async def _together(people: People, until: float) -> None:
    """All of them, until then."""

    async def one() -> None:
        while time.monotonic() < until:
            await people.one()

    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(one())


def _row(people: People, passed: float) -> Row:
    program, seen = people.program, people.seen
    turns = sum(seen[end] for end in ("completed", "incomplete", "cancelled"))
    return Row(
        passed / 60, turns, seen["calls"], seen["goes_on"], seen["cancels"] + seen["leaves"],
        program.memory, program.descriptors, len(program.children),
    )  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.load.soak", description=__doc__)
    options.add_argument("--minutes", type=float, default=60)
    options.add_argument("--warm", type=float, default=2, help="minutes before it is measured")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        expand.ensure(Path(folder) / "cache")
        print(line(Row._fields), line(["---"] * len(Row._fields)), sep="\n", flush=True)
        asyncio.run(soak(Path(folder), seconds=chosen.minutes * 60, warm=chosen.warm * 60))


if __name__ == "__main__":
    main()
