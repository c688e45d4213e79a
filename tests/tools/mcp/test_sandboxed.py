"""MCP servers in the sandbox: what they read, write, run and reach, and what their settings mean."""

import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.hosts import SERVERS_FOLDER, Children, MakeHost
from tests.support.waiting import wait_until
from tools.audit import AuditLog
from tools.config.entry import read_entry
from tools.config.servers import ConfigError, SandboxSettings, ServerConfig
from tools.factory import ToolboxOptions, build_toolbox
from tools.mcp.host import Host
from tools.mcp.sandboxed import PYPI_HOSTS, ServerSandbox
from tools.policy.project import find_project
from tools.policy.safety import safety_report
from tools.sandbox import isolation
from tools.sandbox.isolation import NETWORK_ISOLATION, Isolation

pytestmark = pytest.mark.slow
LONG = f"4714.{os.getpid()}"
"""Seconds to sleep, as no other process of this machine does."""


def meddler(**settings: Any) -> ServerConfig:
    """A server that does what it is told."""
    entry = {
        "command": sys.executable,
        "args": ["-I", str(SERVERS_FOLDER / "meddler.py")],
        "startup_timeout_sec": 300,
    }
    return read_entry("meddler", {**entry, **settings}, {})


class Server:
    """A connected server."""

    def __init__(self, host: Host, shared: ServerSandbox) -> None:
        self.host, self.shared = host, shared

    async def __call__(self, name: str, **arguments: Any) -> str:
        tool = self.host.find_tool(f"meddler.{name}")
        assert tool is not None, self.host.server_states()
        return (await self.host.call(tool, arguments)).text


@pytest.fixture(params=isolation.candidates())
def best(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each isolation of this machine, as the best one."""
    if (reason := isolation.probe(request.param)) is not None:
        pytest.skip(f"{request.param}: {reason}")
    chosen = Isolation(request.param, "", True)
    monkeypatch.setattr(isolation, "best_isolation", lambda: chosen)
    return chosen.name


Connect = Callable[..., Any]


@pytest.fixture
def connect(best: str, make_host: MakeHost, tmp_path: Path) -> Connect:
    (root := tmp_path / "root").mkdir()
    shared = ServerSandbox(root, tmp_path / "homes", AuditLog(tmp_path / "audit"))

    async def connect(config: ServerConfig) -> Server:
        host = make_host(config, sandbox=shared)
        await host.start()
        await host.wait_started()
        return Server(host, shared)

    return connect


@pytest.mark.long
async def test_server_reads_and_writes_what_settings_name(
    connect: Connect, tmp_path: Path, best: str
) -> None:
    secret, named, written = tmp_path / "secret", tmp_path / "named", tmp_path / "root"
    secret.write_text("hunter2")
    named.write_text("a note")
    (written / ".git").mkdir()
    (written / "sub").mkdir()
    server = await connect(meddler(sandbox={"write": [str(written)]}, env={"NOTES": str(named)}))
    assert "a note" in await server("read", path=str(named))
    assert "written" in await server("write", path=str(written / "sub" / "new"), text="x")
    assert (written / "sub" / "new").read_text() == "x"
    for path in (secret, tmp_path / "audit", Path.home() / ".bashrc", Path("/etc/shadow")):
        text = await server("read", path=str(path))
        assert text.startswith("Error executing tool read"), path
    for path in (named, secret, written / ".git" / "config", SERVERS_FOLDER / "meddler.py"):
        before = path.read_text() if path.exists() else None
        assert "written" not in await server("write", path=str(path), text="evil")
        assert (path.read_text() if path.exists() else None) == before, path
    assert "AGENT" not in await server("run", line="env") and "uid=" in await server(
        "run", line="id"
    )
    assert "executing tool reach" in await server("reach", host="127.0.0.1", port=80)
    await server("write", path=str(written / "sub" / ".envrc"), text="evil")
    await server.host.close()
    assert not (written / "sub" / ".envrc").exists(), "renamed at the end, or never written"


async def test_server_variables_are_those_of_no_program_outside(
    connect: Connect, children: Children
) -> None:
    """The loader of any program obeys LD_PRELOAD, that of the sandbox's own programs too."""
    variables = {"LD_PRELOAD": "/nowhere/e.so", "TOKEN": "x1", "PATH": "/usr/bin:/bin:/x"}
    server = await connect(meddler(sandbox=True, env=variables))
    inside = await server("run", line="env")
    assert all(f"{name}={text}" in inside for name, text in variables.items())
    assert "AGENT_SET_" not in inside
    outside = [
        process.environ() for process in children() if "supervise.py" in str(process.cmdline())
    ]
    assert outside and not any({"LD_PRELOAD", "TOKEN"} & set(each) for each in outside)


@pytest.mark.long
async def test_server_home_stays_and_is_its_own(connect: Connect, tmp_path: Path) -> None:
    server = await connect(meddler(sandbox=True))
    await server("run", line="echo kept > ~/file")
    await server.host.close()
    again = await connect(meddler(sandbox=True))
    assert "kept" in await again("run", line="cat ~/file; pwd")
    homes = [*(tmp_path / "homes").iterdir()]
    assert [(home / "file").read_text() for home in homes] == ["kept\n"]


async def test_server_ends_with_all_that_it_started(connect: Connect, children: Children) -> None:
    server = await connect(meddler(sandbox=True))
    await server("run", line=f"setsid sleep {LONG} >/dev/null 2>&1 & disown")

    def sleeping() -> list[psutil.Process]:
        return [child for child in children() if LONG in child.cmdline()]

    await wait_until(lambda: len(sleeping()) == 1)  # the command ends before sleep is executed
    (sleeper,) = sleeping()
    await server.host.close()
    assert not psutil.pid_exists(sleeper.pid) and not children()


@pytest.mark.long
async def test_server_killed_supervisor_leaves_nothing(
    connect: Connect, children: Children
) -> None:
    await connect(meddler(sandbox=True))
    supervisor = next(c for c in children() if "supervise.py" in " ".join(c.cmdline()))
    inner = children()
    os.kill(supervisor.pid, signal.SIGKILL)
    await wait_until(lambda: not any(each.is_running() for each in inner if each != supervisor))


async def test_server_reaches_named_hosts_only(connect: Connect, best: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        server = await connect(meddler(sandbox={"hosts": [f"127.0.0.1:{port}"]}))
        state = server.host.server_states()[0]
        if best != NETWORK_ISOLATION:
            assert state.status == "failed" and "bubblewrap only" in (state.error or "")
            return
        assert "200 Connection" in await server("reach", host="127.0.0.1", port=port)
        assert "403 Forbidden" in await server("reach", host="127.0.0.1", port=port + 1)
    assert server.shared.contacts["meddler"][f"127.0.0.1:{port}"] == ""
    log = (tmp_path / "audit").read_text()
    assert f"127.0.0.1:{port}" in log and '"allowed"' in log and '"refused"' in log


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"write": ["/"]}, "which holds your home folder"),
        ({"write": ["~"]}, "which holds your home folder"),
        ({"write": ["missing"]}, "does not exist"),
    ],
)
async def test_server_too_wide_settings_are_refused(
    connect: Connect, settings: Any, problem: str
) -> None:
    server = await connect(meddler(sandbox=settings))
    state = server.host.server_states()[0]
    assert state.status == "failed" and problem in (state.error or "")


async def test_server_without_sandbox_here_does_not_start(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = Isolation("none", "no isolation works here", False)
    monkeypatch.setattr(isolation, "best_isolation", lambda: none)
    state = (await connect(meddler(sandbox=True))).host.server_states()[0]
    assert "there is no sandbox here: no isolation works here" in (state.error or "")


def test_project_servers_run_in_the_sandbox_unless_they_say_otherwise(tmp_path: Path) -> None:
    servers = {
        "plain": {"command": "python3", "args": ["x.py"]},
        "package": {"command": "npx", "args": ["-y", "x"]},
        "free": {"command": "python3", "sandbox": False},
        "wide": {"command": "uvx", "sandbox": {"write": ["${workspaceFolder}"], "hosts": ["a.b"]}},
        "writer": {"command": "npx", "args": ["-y", "x"], "sandbox": {"write": ["."]}},
        "alone": {"command": "npx", "args": ["-y", "x"], "sandbox": {"hosts": []}},
        "web": {"url": "https://example.org/mcp"},
    }
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    project = find_project(tmp_path)
    assert project is not None
    assert {server.name: server.sandbox for server in project.servers} == {
        "plain": SandboxSettings(),
        "package": SandboxSettings(packages=True),
        "free": None,
        "wide": SandboxSettings((str(tmp_path),), ("a.b",)),
        "writer": SandboxSettings((".",), packages=True),
        "alone": SandboxSettings(),
        "web": None,
    }
    assert project.command_lines() == [
        "plain: python3 x.py  (in a sandbox)",
        "package: npx -y x  (in a sandbox, reaches where its packages come from)",
        "free: python3  (with all your rights)",
        f"wide: uvx  (in a sandbox, writes {tmp_path}, reaches a.b)",
        "writer: npx -y x  (in a sandbox, writes ., reaches where its packages come from)",
        "alone: npx -y x  (in a sandbox)",
        "web: https://example.org/mcp",
    ]


def test_package_hosts_are_those_of_pip() -> None:
    index = importlib.import_module("pip._internal.models.index").PyPI
    assert (index.netloc, index.file_storage_domain) == PYPI_HOSTS


async def test_project_server_gets_nothing_outside_of_its_folder(tmp_path: Path) -> None:
    if not isolation.best_isolation().ok:
        pytest.skip("no isolation here")
    (root := tmp_path / "root").mkdir()
    (tmp_path / "secret").write_text("hunter2")
    (root / "inside").write_text("a note")
    (root / "meddler.py").write_text((SERVERS_FOLDER / "meddler.py").read_text())
    entry = {"command": sys.executable, "args": ["-I", "meddler.py", str(tmp_path / "secret")]}
    outside = {**entry, "sandbox": {"write": [str(tmp_path)]}}
    servers = {"meddler": entry, "outside": outside}
    (root / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    box = build_toolbox(ToolboxOptions(
        tools="meddler,outside", root=root, trust_project=True, server_homes=tmp_path / "homes",
        user_config=tmp_path / "none",
    ))  # fmt: skip
    await box.host.start()
    await box.host.wait_started()
    server = Server(box.host, ServerSandbox())
    assert "a note" in await server("read", path=str(root / "inside"))
    assert "hunter2" not in await server("read", path=str(tmp_path / "secret"))
    assert "written" not in await server("write", path=str(root / "inside"), text="evil")
    states = {state.name: state for state in box.host.server_states()}
    assert "outside of the folder that names it" in (states["outside"].error or "")
    report = safety_report(box.host, box.policy)
    assert report["Can run"] == ["meddler, a server in a sandbox"]
    assert report["Can change"] == report["Can reach"] == ["nothing"]
    await box.host.close()


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"command": "x", "sandbox": 1}, "sandbox must be true or"),
        ({"command": "x", "sandbox": {"read": []}}, "sandbox must be true or"),
        ({"command": "x", "sandbox": {"write": "a"}}, "write must be a list of strings"),
        ({"command": "x", "sandbox": {"hosts": ["*"]}}, "sandbox.hosts: '*' is not a host"),
        ({"url": "https://a.b", "sandbox": True}, "sandbox is for servers with a command"),
    ],
)
def test_entry_wrong_sandbox_is_one_sentence(entry: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_entry("x", entry, {})
    assert problem in str(caught.value)
