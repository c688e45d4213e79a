"""Commands that may reach one host of this machine, and try to reach another, or to break the proxy."""

import asyncio
import contextlib
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Collection
from pathlib import Path

from agent.util.temporary_folders import process_folder
from tests.attack.measure import Attempt, left_processes, measured, started_processes
from tests.attack.programs import read_programs
from tools.builtin.shell.server import ShellServer
from tools.builtin_server import StructuredText, ToolError
from tools.sandbox import isolation
from tools.sandbox.isolation import NETWORK_ISOLATION, Isolation

TIMEOUT_SECONDS = 20.0
ATTACKS = read_programs("network_attacks.txt")
BEGIN = ATTACKS.pop("begin")
NAMES = [*ATTACKS, "connect to the proxy from outside"]


async def attempts(names: Collection[str]) -> AsyncIterator[Attempt]:
    """Try each attack in a command that may reach one port of this machine."""
    if isolation.probe(NETWORK_ISOLATION) is not None:
        return
    for name in names:
        yield await _attempt(name)


async def _attempt(name: str) -> Attempt:
    faults, before = list[str](), started_processes()
    reached: list[str] = []

    def listener(target: str) -> asyncio.Protocol:
        class Listener(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                if target not in ("good", "UDP"):
                    reached.append(target)

            def datagram_received(self, data: bytes, address: object) -> None:
                reached.append(f"{target}: {data!r}")

        return Listener()

    loop = asyncio.get_running_loop()
    label = f"agent-network-{os.getpid()}"
    with tempfile.TemporaryDirectory(dir=process_folder()) as folder:
        good = await loop.create_server(lambda: listener("good"), "127.0.0.1", 0)
        bad = await loop.create_server(lambda: listener("another port"), "127.0.0.1", 0)
        port, other = (each.sockets[0].getsockname()[1] for each in (good, bad))
        path = await loop.create_unix_server(lambda: listener("a Unix socket"), f"{folder}/stream")
        hidden = await loop.create_unix_server(lambda: listener("an abstract socket"), f"\0{label}")
        udp, _ = await loop.create_datagram_endpoint(
            lambda: listener("UDP"), local_addr=("127.0.0.1", other)
        )
        shell = ShellServer(
            Path(folder), isolation=Isolation(NETWORK_ISOLATION, "", True), timeout=TIMEOUT_SECONDS
        )
        script = BEGIN + ATTACKS.get(name, "open('port', 'w').write(str(PROXY)); time.sleep(600)")
        Path(folder, "attack.py").write_text(script)
        words = ["python3", "attack.py", str(port), str(other), label]
        call = shell.call("exec", {"cmd": words, "network": [f"127.0.0.1:{port}"]})
        async with measured() as load:
            if name in ATTACKS:
                answer = await _text(call)
            else:
                answer = await _from_outside(asyncio.ensure_future(call), Path(folder, "port"))
        text = await _text(shell.call("exec", {"cmd": ["echo", "here"]}))
        if "here" not in text:
            faults.append(f"the next command gave {text[:80]!r}")
        for each in (good, bad, path, hidden, udp):
            each.close()
    if "ESCAPED" in answer:
        faults.append(answer[-200:])
    faults += [f"{target} was reached" for target in dict.fromkeys(reached)]
    if left := left_processes(before):
        faults.append(f"left {', '.join(left)}")
    detail = "; ".join(faults) or " ".join(answer.split())[-200:]
    return Attempt(f"network, {NETWORK_ISOLATION}", name, not faults, detail, load)


async def _from_outside(call: asyncio.Task[object], file: Path) -> str:
    """Look for the proxy where every user of the machine could connect to it."""
    while not (file.exists() and file.read_text()) and not call.done():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    answer = "refused"
    with contextlib.suppress(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(file.read_text())), 5).close()
        answer = "ESCAPED: the proxy's port is one of this machine"
    call.cancel()
    await asyncio.wait([call])
    return answer


async def _text(call: object) -> str:
    try:
        result = await call  # type: ignore[misc]
    except ToolError as error:
        return str(error)
    return result.text if isinstance(result, StructuredText) else str(result)
