"""Many clients at once: ``python -m tests.load [--clients N] [--requests N] [--seed N]``.

Raises where the server answers with 500, keeps a slot or memory, or ends a response not exactly once.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import httpx2

from tests.load.bodies import Fuzzer
from tests.load.clients import Clients, Fault
from tests.load.program import Program, orphans, serving

OPTIONS = ("--tools", "python", "--max-output-tokens", "64", "--context", "4096")
FLAT = 1.05
"""So much of its memory of before the server may have in the end."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a run came to."""

    seconds: float
    requests: int
    seen: Counter[str]
    stored: Counter[str]
    """Ends of the stored responses."""
    memory: tuple[float, float]
    """MiB, after warming up and in the end."""
    descriptors: tuple[int, int]


async def run(
    home: Path, *, clients: int = 32, requests: int = 2000, warm: int = 500, seed: int = 0
) -> Found:
    """``warm``: requests before memory is measured. Raises Fault."""
    async with serving(home, *OPTIONS) as program:
        async with httpx2.AsyncClient(timeout=110, limits=httpx2.Limits(max_connections=None)) as http:
            document = (await http.get(f"{program.root}/openapi.json")).json()
            rng = random.Random(seed)
            all_of = Clients(program, http, Fuzzer(document, rng), rng)
            await _crowd(all_of, clients, warm)
            await program.quiet()
            before, began = (program.memory, program.descriptors), time.monotonic()
            await _crowd(all_of, clients, requests)
            seconds = time.monotonic() - began
            await program.quiet()
            await _all_slots(all_of, clients)
        ends = await _ends(program, all_of.accepted - all_of.deleted)
        after = program.memory, program.descriptors
        children = program.children
        code, said = await program.end()
        if (code, said) != (0, "") or orphans(children):
            raise Fault(f"it ended with {code}, {said!r} and {orphans(children)}")
    _sound(home)
    if after[0] > FLAT * before[0]:
        raise Fault(f"memory grew from {before[0]:.0f} to {after[0]:.0f} MiB")
    memory, descriptors = (before[0], after[0]), (before[1], after[1])
    return Found(seconds, requests, all_of.seen, ends, memory, descriptors)


async def _crowd(all_of: Clients, clients: int, requests: int) -> None:
    """So many requests, so many at a time; the first fault ends it."""
    left = iter(range(requests))

    async def client() -> None:
        for _ in left:
            await all_of.one()

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())


async def _all_slots(all_of: Clients, clients: int) -> None:
    """Everybody is still served at once."""
    await asyncio.gather(*(all_of.reads() for _ in range(clients)))


async def _ends(program: Program, accepted: set[str]) -> Counter[str]:
    """How the stored responses ended; all have. Raises Fault."""
    await program.quiet()
    stored = program.stored()
    open_ = [name for name in accepted if stored.get(name) in (None, "in_progress", "queued")]
    if open_ or "in_progress" in stored.values():
        raise Fault(f"{len(open_)} responses have no end: {open_[:3]}")
    return Counter(stored.values())


def _sound(home: Path) -> None:
    """Nothing broke that nobody was told of."""
    log = (home / "state" / "agent.log").read_text()
    if "Traceback" in log or " ERROR " in log:
        raise Fault(f"the log has errors: {log[-3000:]}")


def main() -> None:
    import argparse
    import tempfile

    from agent.tiny import expand
    from tests.load.program import table

    options = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    options.add_argument("--clients", type=int, default=32)
    options.add_argument("--requests", type=int, default=2000)
    options.add_argument("--warm", type=int, default=500)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        expand.ensure(home / "cache")
        found = asyncio.run(run(home, **vars(chosen)))
    print(found)
