"""Many clients of all kinds at once, and what must be true of the server then."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.load.bodies import Fuzzer
from tests.load.clients import Clients, Fault
from tests.load.program import Program, orphans, serving

OPTIONS = ("--tools", "python", "--max-output-tokens", "64", "--context", "4096")


@dataclass(frozen=True, slots=True)
class Found:
    """What a run came to."""

    requests: int
    seconds: float
    seen: Counter[str]
    stored: Counter[str]
    """Ends of the stored responses."""
    memory: tuple[float, float]
    """MiB, after warming up and in the end."""
    descriptors: tuple[int, int]

    @property
    def growth(self) -> float:
        """The memory of the end over that of before."""
        return self.memory[1] / self.memory[0]

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """As a table."""
        yield "what", "n"
        yield "requests", self.requests
        yield "seconds", f"{self.seconds:.0f}"
        yield from sorted(self.seen.items())
        yield from ((f"stored as {status}", n) for status, n in sorted(self.stored.items()))
        yield "memory, MiB", f"{self.memory[0]:.0f} → {self.memory[1]:.0f} ({self.growth - 1:+.1%})"
        yield "descriptors", f"{self.descriptors[0]} → {self.descriptors[1]}"


async def run(home: Path, *, clients: int, requests: int, warm: int, seed: int = 0) -> Found:
    """``warm``: further requests before anything is measured.

    Raises Fault where the server answers with 500 or breaks, keeps a slot or a process, or does not end
    a response exactly once.
    """
    limits = httpx2.Limits(max_connections=None)
    async with serving(home, *OPTIONS) as program:
        async with httpx2.AsyncClient(timeout=110, limits=limits) as http:
            document = (await http.get(f"{program.root}/openapi.json")).json()
            rng = random.Random(seed)
            everybody = Clients(program, http, Fuzzer(document, rng), rng)
            await _crowd(everybody, clients, warm)
            await program.quiet()
            everybody.seen.clear()
            before, began = (program.memory, program.descriptors), time.monotonic()
            await _crowd(everybody, clients, requests)
            seconds = time.monotonic() - began
            await program.quiet()
            after, seen = (program.memory, program.descriptors), Counter(everybody.seen)
            # No slot is stuck: everybody is served at once.
            await asyncio.gather(*(everybody.reads() for _ in range(clients)))
            await program.quiet()
        stored = _ends(program, everybody.accepted - everybody.deleted)
        children = program.children
        code, said = await program.end()
        if (code, said) != (0, "") or orphans(children):
            raise Fault(f"it ended with {code}, {said!r} and {orphans(children)}")
    path = home / "state" / "agent.log"  # made when there is something to say
    log = path.read_text() if path.exists() else ""
    if "Traceback" in log or " ERROR " in log:
        raise Fault(f"nobody was told what the log says: {log[-3000:]}")
    memory, descriptors = zip(before, after, strict=True)
    return Found(requests, seconds, seen, stored, memory, descriptors)


async def _crowd(everybody: Clients, clients: int, requests: int) -> None:
    """So many requests, so many at a time; the first fault ends it."""
    left = iter(range(requests))

    async def client() -> None:
        for _ in left:
            await everybody.one()

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())


def _ends(program: Program, accepted: set[str]) -> Counter[str]:
    """How the stored responses ended. Raises Fault: all that were accepted are there and have."""
    stored = program.stored()
    if lost := accepted - stored.keys():
        raise Fault(f"{len(lost)} responses were not stored: {min(lost)}")
    ends = Counter(stored.values())
    if ends["in_progress"]:
        raise Fault(f"{ends['in_progress']} responses have no end")
    return ends
