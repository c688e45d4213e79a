"""Runs turns with tools, cancels and branches for an hour: ``make soak`` (``--minutes N``).

Each minute it prints what the process uses. Memory and descriptors must stay as they were after warming
up, and no process may survive the server.
"""

import argparse
import asyncio
import random
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import psutil

from agent.tiny import expand
from tests.load.clients import ServerFaultError, SimulatedClients
from tests.load.load import SERVER_OPTIONS
from tests.load.server_process import markdown_row, start_server, surviving
from tests.support.request_fuzzer import RequestFuzzer
from tests.support.waiting import HANG_SECONDS

CLIENT_COUNT = 4
MAX_MEMORY_RATIO = 1.05
"""Most memory that the server may have, over its memory after warming up."""
CITY_SCHEMA = {
    "type": "json_schema", "name": "city",
    "schema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
}  # fmt: skip
SPARE_DESCRIPTORS = 8
"""Descriptors that it may have more than after warming up, for connections that are about to close."""


class SoakRow(NamedTuple):
    """A row of the report: counts since the beginning, then the current use; memory in MiB."""

    minutes: float
    turns: int
    tools: int
    branches: int
    cancels: int
    memory: float
    descriptors: int
    children: int


class SoakClients(SimulatedClients):
    """Clients that call a tool in every third turn."""

    def action_weights(self) -> dict[Callable[[], Awaitable[str]], int]:
        return {
            self.call_tool: 30, self.branch_turns: 15, self.cancel: 10, self.drop_stream: 10,
            self.read_stream: 10, self.replay_background: 5, self.use_websocket: 5,
            self.retrieve_or_delete: 5, self.answer_under_schema: 5,
        }  # fmt: skip

    async def answer_under_schema(self) -> str:
        """Ask for an answer under a JSON Schema, whose grammar is compiled once and stays in memory."""
        return await self.read_stream(text={"format": CITY_SCHEMA})


async def soak(
    home: Path,
    *,
    seconds: float,
    warm: float,
    interval: float = 60,
    settled: bool = True,
    least: int = 0,
) -> SoakRow:
    """Run the clients and print a row each ``interval``; returns the last one.

    ``warm``: seconds before the first row. ``settled``: the run is long enough for memory and
    descriptors to be compared with the first row. ``least``: calls of tools and cancels after which
    it may end. Raises ServerFaultError.
    """
    empty_document: dict[str, Any] = {"components": {"schemas": {}}, "paths": {}}
    rng, children = random.Random(0), set[psutil.Process]()
    async with (
        start_server(home, *SERVER_OPTIONS) as program,
        httpx2.AsyncClient(timeout=HANG_SECONDS) as http,
    ):
        clients = SoakClients(program, http, RequestFuzzer(empty_document, rng), rng)
        began, first = time.monotonic() + warm, None
        while True:
            now = time.monotonic()
            end = max(began + seconds, now + 1)
            until = began if first is None else min(now + interval, end)
            await _run_clients(clients, until)
            await program.wait_idle()
            children |= program.children
            row = _row(clients, time.monotonic() - began)
            print(markdown_row(row), flush=True)
            first = first or row
            if until >= began + seconds and min(row.tools, row.cancels) >= least:
                break
        grew = (
            row.memory > MAX_MEMORY_RATIO * first.memory
            or row.descriptors > first.descriptors + SPARE_DESCRIPTORS
        )
        if settled and grew:
            raise ServerFaultError(f"it grew: {first} became {row}")
        if ends := Counter(program.stored_statuses().values())["in_progress"]:
            raise ServerFaultError(f"{ends} responses have no end")
        code, output = await program.stop()
        if (code, output) != (0, "") or surviving(children):
            raise ServerFaultError(f"it ended with {code}, {output!r} and {surviving(children)}")
    return row


async def _run_clients(clients: SoakClients, until: float) -> None:
    """Run CLIENT_COUNT clients until a monotonic time."""

    async def client() -> None:
        while time.monotonic() < until:
            await clients.run_action()

    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENT_COUNT):
            group.create_task(client())


def _row(clients: SoakClients, seconds: float) -> SoakRow:
    program, counts = clients.program, clients.counts
    turns = sum(counts[status] for status in ("completed", "incomplete", "cancelled"))
    return SoakRow(
        seconds / 60, turns, counts["call_tool"], counts["branch_turns"],
        counts["cancel"] + counts["drop_stream"],
        program.memory_mib, program.descriptors, len(program.children),
    )  # fmt: skip


def main() -> None:
    """Run as the command line says and print the report."""
    options = argparse.ArgumentParser(prog="python -m tests.load.soak", description=__doc__)
    options.add_argument("--minutes", type=float, default=60)
    options.add_argument("--warm", type=float, default=2, help="minutes before it is measured")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        expand.ensure(Path(folder) / "cache")
        print(
            markdown_row(SoakRow._fields),
            markdown_row(["---"] * len(SoakRow._fields)),
            sep="\n",
            flush=True,
        )
        asyncio.run(soak(Path(folder), seconds=arguments.minutes * 60, warm=arguments.warm * 60))


if __name__ == "__main__":
    main()
