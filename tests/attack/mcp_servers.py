"""Connects the host to `mcp_floods` in each of its modes."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Collection, Iterator
from pathlib import Path

from tests.attack.mcp_floods import MODES
from tests.attack.measure import Attempt, left_processes, measured, started_processes
from tests.support.hosts import free_port, is_listening
from tests.support.waiting import wait_until
from tools.config.servers import ServerConfig
from tools.mcp.host import Host

FLOODS = str(Path(__file__).with_name("mcp_floods.py"))
MAX_SECONDS = 60.0


NAMES = [mode["mode"] for mode in MODES]


async def attempts(names: Collection[str]) -> AsyncIterator[Attempt]:
    """Connect to modes over each transport that they have."""
    for mode in MODES:
        if mode["mode"] not in names:
            continue
        for transport in ("stdio", "http"):
            if mode["transport"] in (transport, "both"):
                yield await _attack(mode["mode"], mode["does"], transport)


async def _attack(mode: str, does: str, transport: str) -> Attempt:
    faults, before = list[str](), started_processes()
    with _served(mode) if transport == "http" else contextlib.nullcontext() as url:
        limits = {"startup_timeout_sec": 10.0, "tool_timeout_sec": 10.0}
        if url:
            await wait_until(lambda: is_listening(int(url.split(":")[2].split("/")[0])))
            config = ServerConfig("hostile", url=url, **limits)
        else:
            arguments = ("-I", FLOODS, mode)
            config = ServerConfig("hostile", command=sys.executable, args=arguments, **limits)
        host = Host([config])
        answer = ""
        async with measured() as load:
            try:
                async with asyncio.timeout(MAX_SECONDS):
                    answer = await _use(host)
            except TimeoutError:
                faults.append("it did not end")
            except Exception as error:
                faults.append(f"raised {type(error).__name__}: {error}")
            await host.close()
    if left := left_processes(before):
        faults.append(f"left {', '.join(left)}")
    name = f"{mode} ({transport}): {does}"
    return Attempt("hostile MCP servers", name, not faults, "; ".join([*faults, answer]), load)


async def _use(host: Host) -> str:
    """Start the server and call its tool; returns the result or why there is none."""
    await host.start()
    await host.wait_started()
    (state,) = host.server_states()
    tools = [tool for tool in host.tools() if tool.server == "hostile"]
    if not tools:
        return f"{state.status}: {state.error}"
    attack = next((tool for tool in tools if tool.name == "attack"), tools[0])
    result = await host.call(attack, {})
    return f"{len(tools)} tools, {len(result.text):,} characters: {result.text[:80]}"


@contextlib.contextmanager
def _served(mode: str) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-I", FLOODS, "--http", str(port), mode]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()
