"""Runs `http_floods` against `agent serve`, while another process asks how it is."""

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2

from agent.tiny import expand
from agent.util.temporary_folders import process_folder
from tests.attack.http_floods import ATTACKS, MANY_CONNECTIONS, Target
from tests.attack.measure import MAX_LATENESS_MS, Attempt, Load, PeakMemory
from tests.load.server_process import ServerProcess, start_server

MAX_LATENESS_MANY_MS = 1000.0
"""Goal for attacks that take every connection."""
RECOVERY_SECONDS = 60.0
"""Time after which an ordinary request must be answered again."""
ASK_HEALTH = Path(__file__).with_name("ask_health.py")


@asynccontextmanager
async def health_watched(target: Target, load: Load) -> AsyncIterator[None]:
    """Ask for /health every 50 ms from another process; what has no answer counts as 20 s."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", str(ASK_HEALTH), target.host, str(target.port)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout
    await process.stdout.readline()
    try:
        yield
    finally:
        out, _ = await process.communicate(b"")
        load.lateness_ms = float(out) * 1000


NAMES = list(ATTACKS)


async def attempts(names: Collection[str]) -> AsyncIterator[Attempt]:
    """Run attacks against a server with the embedded model."""
    with tempfile.TemporaryDirectory(dir=process_folder()) as name:
        home = Path(name)
        expand.ensure(home / "cache")
        async with start_server(home) as server:
            target = Target(*server.host, "tiny")
            await _ordinary_request(server)  # what is loaded once is no attack's
            for attack in names:
                yield await _attack(server, target, attack)
                if server.process.returncode is not None:
                    return


async def _attack(server: ServerProcess, target: Target, name: str) -> Attempt:
    most = MAX_LATENESS_MANY_MS if name in MANY_CONNECTIONS else MAX_LATENESS_MS
    load, memory, faults = Load(max_lateness_ms=most), PeakMemory(server.process.pid), []
    memory.reset()
    answer = ""
    async with health_watched(target, load):
        try:
            async with asyncio.timeout(60):
                answer = await ATTACKS[name](target)
        except OSError as error:
            answer = f"{type(error).__name__}: {error}"
    try:
        load.memory_mib = memory.growth()
        await _ordinary_request(server)
    except (OSError, httpx2.HTTPError, LookupError, AssertionError) as error:
        faults.append(f"an ordinary request afterwards: {error or type(error).__name__}")
    return Attempt("HTTP and WebSocket", name, not faults, "; ".join([*faults, answer]), load)


async def _ordinary_request(server: ServerProcess) -> None:
    async with httpx2.AsyncClient(timeout=60) as http:
        body = {"model": "tiny", "input": "What is 2*3?", "store": False}
        deadline = time.monotonic() + RECOVERY_SECONDS
        answer = await http.post(f"{server.url}/responses", json=body)
        while answer.status_code == 429 and time.monotonic() < deadline:
            await asyncio.sleep(float(answer.headers["retry-after"]))
            answer = await http.post(f"{server.url}/responses", json=body)
        assert answer.json()["status"] == "completed", answer.text[:200]
