"""Runs many clients of all kinds at once, and checks what must be true of the server afterwards."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.load.clients import ServerFaultError, SimulatedClients
from tests.load.server_process import ServerProcess, start_server, surviving
from tests.support.request_fuzzer import RequestFuzzer
from tests.support.waiting import HANG_SECONDS

SERVER_OPTIONS = ("--tools", "python", "--max-output-tokens", "64", "--context", "4096")


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The measurements of a run."""

    requests: int
    seconds: float
    counts: Counter[str]
    stored_statuses: Counter[str]
    """Number of stored responses by status."""
    memory_mib: tuple[float, float]
    """MiB of the server after warming up and in the end."""
    descriptors: tuple[int, int]

    @property
    def growth(self) -> float:
        """The memory in the end over that after warming up."""
        return self.memory_mib[1] / self.memory_mib[0]

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The rows of a table, the head first."""
        yield "what", "n"
        yield "requests", self.requests
        yield "seconds", f"{self.seconds:.0f}"
        yield from sorted(self.counts.items())
        yield from (
            (f"stored as {status}", n) for status, n in sorted(self.stored_statuses.items())
        )
        yield (
            "memory, MiB",
            f"{self.memory_mib[0]:.0f} → {self.memory_mib[1]:.0f} ({self.growth - 1:+.1%})",
        )
        yield "descriptors", f"{self.descriptors[0]} → {self.descriptors[1]}"


async def run_load(
    home: Path, *, clients: int, requests: int, warm: int, seed: int = 0
) -> LoadResult:
    """Start a server, send requests from so many clients at once, and stop it.

    ``warm``: further requests before anything is measured. Raises ServerFaultError where the server
    answers with 500 or breaks, keeps a slot or a process, or does not end a response exactly once.
    """
    limits = httpx2.Limits(max_connections=None)
    async with start_server(home, *SERVER_OPTIONS) as program:
        async with httpx2.AsyncClient(timeout=HANG_SECONDS, limits=limits) as http:
            document = (await http.get(f"{program.root}/openapi.json")).json()
            rng = random.Random(seed)
            crowd = SimulatedClients(program, http, RequestFuzzer(document, rng), rng)
            await _run_clients(crowd, clients, warm)
            await program.wait_idle()
            crowd.counts.clear()
            before, began = (program.memory_mib, program.descriptors), time.monotonic()
            await _run_clients(crowd, clients, requests)
            seconds = time.monotonic() - began
            await program.wait_idle()
            after, seen = (program.memory_mib, program.descriptors), Counter(crowd.counts)
            # No slot is stuck: as many clients are served at once.
            await asyncio.gather(*(crowd.read_stream() for _ in range(clients)))
            await program.wait_idle()
        stored = _check_stored(program, crowd.accepted - crowd.deleted)
        children = program.children
        code, output = await program.stop()
        if (code, output) != (0, "") or surviving(children):
            raise ServerFaultError(f"it ended with {code}, {output!r} and {surviving(children)}")
    path = home / "state" / "agent.log"  # made with its first line
    log = path.read_text() if path.exists() else ""
    if "Traceback" in log or " ERROR " in log:
        raise ServerFaultError(f"an error is only in the log: {log[-3000:]}")
    memory, descriptors = zip(before, after, strict=True)
    return LoadResult(requests, seconds, seen, stored, memory, descriptors)


async def _run_clients(crowd: SimulatedClients, clients: int, requests: int) -> None:
    """Run so many actions, so many at a time; the first fault ends all."""
    remaining = iter(range(requests))

    async def client() -> None:
        for _ in remaining:
            await crowd.run_action()

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())


def _check_stored(program: ServerProcess, accepted: set[str]) -> Counter[str]:
    """Count the stored responses by status; all that were accepted have to be stored and ended.

    Raises ServerFaultError.
    """
    stored = program.stored_statuses()
    if missing := accepted - stored.keys():
        raise ServerFaultError(f"{len(missing)} responses were not stored: {min(missing)}")
    ends = Counter(stored.values())
    if ends["in_progress"]:
        raise ServerFaultError(f"{ends['in_progress']} responses have no end")
    return ends
