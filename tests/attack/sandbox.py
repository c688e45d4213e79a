"""Runs `sandbox_probes` as the code of the python tool and as a shell command."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from agent.util.temporary_folders import process_folder
from tests.attack.measure import Attempt
from tests.attack.sandbox_probes import outside_view
from tests.support.hosts import SERVERS_FOLDER
from tools.builtin.python.server import PythonServer
from tools.builtin.shell.server import ShellServer
from tools.config.entry import read_entry
from tools.mcp.host import Host
from tools.mcp.sandboxed import ServerSandbox
from tools.sandbox import isolation
from tools.sandbox.isolation import Isolation

PROBES = Path(__file__).with_name("sandbox_probes.py")
SECRET = "the-secret-of-the-person"


def isolations() -> list[Isolation]:
    """Those that work here."""
    names = [name for name in isolation.candidates() if isolation.probe(name) is None]
    return [Isolation(name, "", True) for name in names]


@contextmanager
def outside(folder: Path, kind: str, work_folder: Path) -> Iterator[dict[str, Any]]:
    """Make what must not be reached: files, listeners, a process; gives the configuration of the
    probes, and afterwards a key "effects" with what was seen from outside."""
    with ExitStack() as stack:
        mine = folder / "outside"
        other = folder / "other"
        mine.mkdir()
        other.mkdir()
        (mine / "file").write_text(SECRET)
        (other / "private").write_text(SECRET)
        marker, program = mine / "marker", mine / "program"
        program.write_text(f"#!/bin/sh\ntouch {marker}\n")
        program.chmod(0o755)
        stream, datagram, abstract, tcp, udp = (
            stack.enter_context(socket.socket(family, kind_of))
            for family, kind_of in (
                (socket.AF_UNIX, socket.SOCK_STREAM),
                (socket.AF_UNIX, socket.SOCK_DGRAM),
                (socket.AF_UNIX, socket.SOCK_DGRAM),
                (socket.AF_INET, socket.SOCK_STREAM),
                (socket.AF_INET, socket.SOCK_DGRAM),
            )
        )
        name = f"agent-attack-{os.getpid()}-{kind}"
        stream.bind(str(mine / "stream"))
        datagram.bind(str(mine / "datagram"))
        abstract.bind(f"\0{name}")
        tcp.bind(("127.0.0.1", 0))
        udp.bind(("127.0.0.1", 0))
        for listener in (stream, tcp):
            listener.listen()
        victim = stack.enter_context(
            subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        )
        stack.callback(victim.kill)
        config: dict[str, Any] = {
            "kind": kind,
            "secret": SECRET,
            "outside_file": str(mine / "file"),
            "outside_folder": str(mine),
            "outside_program": str(program),
            "stream_socket": str(mine / "stream"),
            "datagram_socket": str(mine / "datagram"),
            "abstract_socket": name,
            "tcp_port": tcp.getsockname()[1],
            "udp_port": udp.getsockname()[1],
            "victim_pid": victim.pid,
            "parent_pid": os.getpid(),
            "environment_secret": SECRET,
            "home": str(Path.home()),
            "work_folder": str(work_folder),
            "other_folder": str(other),
        }
        config |= outside_view([config["home"], str(mine), str(other), sys.prefix])
        before = sorted(mine.iterdir())
        yield config
        effects = [
            f"{what} was reached"
            for what, listener in {
                "the stream socket": stream,
                "the datagram socket": datagram,
                "the abstract socket": abstract,
                "TCP": tcp,
                "UDP": udp,
            }.items()
            if _received(listener)
        ]
        if sorted(mine.iterdir()) != before or (mine / "file").read_text() != SECRET:
            effects.append("files outside were changed")
        if victim.poll() is not None:
            effects.append(f"the victim ended by {signal.Signals(-victim.returncode).name}")
        config["effects"] = effects


def _received(listener: socket.socket) -> bool:
    listener.setblocking(False)
    try:
        if listener.type == socket.SOCK_STREAM:
            listener.accept()[0].close()
        else:
            listener.recv(1)
    except BlockingIOError:
        return False
    return True


NAMES = ["all probes"]


async def attempts(names: Collection[str]) -> AsyncIterator[Attempt]:
    """Run all probes under each isolation that works here."""
    os.environ["AGENT_ATTACK_SECRET"] = SECRET
    for each in isolations():
        for kind in ("python", "shell", "server"):
            with tempfile.TemporaryDirectory(dir=process_folder()) as name:
                async for attempt in _probe(each, kind, Path(name)):
                    yield attempt


async def _probe(each: Isolation, kind: str, folder: Path) -> AsyncIterator[Attempt]:
    work_folder = folder / "work"
    work_folder.mkdir()
    with outside(folder, kind, work_folder) as config:
        config["kind"] = "python" if kind == "python" else "shell"
        if kind == "python":
            server = PythonServer(isolation=each, work_folder=work_folder)
            code = (
                f"space = {{'__name__': 'probes'}}\nexec({PROBES.read_text()!r}, space)\n"
                f"import json\nprint(json.dumps(space['probe']({config!r})))"
            )
            text = await server.call("python", {"code": code})
            await server.close()
        elif kind == "server":
            (work_folder / "probes.py").write_text(PROBES.read_text())
            (work_folder / "config").write_text(json.dumps(config) + "\n")
            text = await _as_server(
                each, folder, f"cd {work_folder}; {sys.executable} probes.py < config"
            )
        else:
            (work_folder / "probes.py").write_text(PROBES.read_text())
            (work_folder / "config").write_text(json.dumps(config) + "\n")
            shell = ShellServer(work_folder, isolation=each)
            line = f"{sys.executable} probes.py < config; true"
            result = await shell.call("exec", {"cmd": ["bash", "-c", line]})
            text = result if isinstance(result, str) else result.text
            text = text.rpartition("\n[exit code")[0]
    group = f"{'an MCP server' if kind == 'server' else kind}, {each.name}"
    try:
        results = json.loads(text.strip().splitlines()[-1])
    except (ValueError, IndexError):
        yield Attempt(group, "all probes", False, f"gave no result: {text[-300:]}")
        return
    made = [result for result in results if result["outcome"] != "skipped"]
    if not made:
        yield Attempt(group, "all probes", False, "none was made in time")
    for result in made:
        yield Attempt(group, result["name"], result["outcome"] != "escaped", result["evidence"])
    effects = config["effects"]
    yield Attempt(group, "effects seen from outside", not effects, "; ".join(effects))


async def _as_server(each: Isolation, folder: Path, line: str) -> str:
    """Run a line in an MCP server that runs in the sandbox and may write the working folder."""
    best, isolation.best_isolation = isolation.best_isolation, lambda: each  # type: ignore[assignment]
    args = ["-I", str(SERVERS_FOLDER / "meddler.py")]
    entry = {
        "command": sys.executable,
        "args": args,
        "sandbox": {"write": [str(folder / "work")]},
        "startup_timeout_sec": 300,
    }
    host = Host(
        [read_entry("meddler", entry, {})], sandbox=ServerSandbox(folder / "work", folder / "homes")
    )
    try:
        await host.start()
        await host.wait_started()
        tool = host.find_tool("meddler.run")
        return (await host.call(tool, {"line": line})).text if tool else str(host.server_states())
    finally:
        await host.close()
        isolation.best_isolation = best
