"""Starts published servers by the host, calls them and writes docs/mcp-servers.md: ``make servers``.

``python -m tests.servers NAME …`` tries these alone and prints their rows. Packages come from npm and
PyPI, by npx and uvx as for any user; they, and uv itself, are kept in ``.cache/servers`` (6 GB).
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from agent.util.programs import set_root
from tests.sdks.__main__ import run
from tools.config.file import folder_environment, own_servers, read_file
from tools.config.servers import ServerConfig
from tools.mcp.host import Host
from tools.mcp.sandboxed import NPM_HOSTS, PYPI_HOSTS, ServerSandbox
from tools.networks import permits

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".cache" / "servers"
HOME, WORK, UV = FOLDER / "home", FOLDER / "work", FOLDER / "uv"
PAGE = ROOT / "docs" / "mcp-servers.md"
DATA = Path(__file__).with_name("published.toml")
HEADINGS = ("server", "version", "tools", "called", "plain", "in the sandbox", "entry")
START_SECONDS, CALL_SECONDS = 300, 60
REASON_CHARS = 90


@dataclass(frozen=True, slots=True)
class Published:
    """A server as npm or PyPI has it, and what is called of it."""

    title: str
    package: str
    command: str
    """The command line of its entry in mcp.json: ``npx`` for npm, ``uvx`` for PyPI."""
    calls: tuple[tuple[str, Mapping[str, Any], str], ...]
    """Tools with their arguments, and what the text of the result must contain; nothing where the
    server ``needs`` something."""
    env: Mapping[str, str] = field(default_factory=dict)
    sandbox: Mapping[str, Any] | None = None
    """What ``sandbox`` says where ``true`` allows too little."""
    needs: str = ""
    """What a useful result takes in addition, such as an account."""

    def entry(self, sandbox: object) -> dict[str, Any]:
        """Return the entry for mcp.json."""
        command, *args = shlex.split(self.command)
        times = {"startup_timeout_sec": START_SECONDS, "timeout": CALL_SECONDS}
        return {"command": command, "args": args, "env": self.env, "sandbox": sandbox, **times}

    def version(self) -> str:
        """Return the version that npx or uvx has installed for the plain start."""
        if self.command.startswith("npx"):
            files = HOME.glob(f".npm/_npx/*/node_modules/{self.package}/package.json")
            newest = max(files, key=lambda file: file.stat().st_mtime, default=None)
            return json.loads(newest.read_text())["version"] if newest else ""
        words = shlex.split(self.command)
        options = words[1 : words.index("--with") + 2] if "--with" in words else []
        script = f"from importlib.metadata import version; print(version({self.package!r}))"
        command = ["uvx", *options, "--from", self.package, "python", "-c", script]
        environment = {**os.environ, "HOME": str(HOME)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.stdout.strip()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one start of a server showed."""

    tools: int
    called: tuple[str, ...]
    """Each tool with the text that it answered, as far as that is of interest."""
    problem: str
    """Why it does not start, or which answer is wrong; empty: all is right."""
    started: bool = True


def published() -> list[Published]:
    """Return the servers of ``published.toml``."""
    servers = tomllib.loads(DATA.read_text())
    return [Published(title, **settings) for title, settings in servers.items()]


def prepare() -> None:
    """Make the folder that servers work in, as it was before the last of them."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    git = ["git", "-C", str(WORK), "-c", "user.name=test", "-c", "user.email=test@example.org"]
    Path(WORK, "notes.txt").write_text("The quick brown fox.\n")
    run([*git, "init", "--quiet"])
    run([*git, "add", "."])
    run([*git, "commit", "--quiet", "--message", "The first commit"])
    Path(WORK, "table.csv").write_text("name,age\nAda,36\n")


def configure(server: Published, sandbox: object) -> ServerConfig:
    """Read the server's entry from an mcp.json. Plain, its home is ours, for what it caches. In the
    sandbox it reaches the packages' hosts also where a mirror on a private address serves them."""
    file = FOLDER / "config" / "mcp.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"mcpServers": {server.title: server.entry(sandbox)}}))
    [config] = own_servers(read_file(file, folder_environment(WORK)))
    if config.sandbox is None:
        return replace(config, env={"HOME": str(HOME), **config.env})
    hosts = NPM_HOSTS if config.runs_package else PYPI_HOSTS
    private = {address for address in map(socket.gethostbyname, hosts) if not permits(address)}
    allowed = (*config.sandbox.hosts, *sorted(private))
    return replace(config, sandbox=replace(config.sandbox, hosts=allowed))


async def try_server(server: Published, sandbox: object) -> Outcome:
    """Start a server and call its tools."""
    prepare()
    config = configure(server, sandbox)
    host = Host([config], roots=[WORK], sandbox=ServerSandbox(WORK, FOLDER / "homes"))
    try:
        await host.start()
        await host.wait_started()
        [state] = host.server_states()
        tools = {tool.name: tool for tool in host.tools()}
        if state.status != "ready":
            return Outcome(0, (), quoted(state.error or ""), started=False)
        called, problem = [], ""
        for name, arguments, text in server.calls:
            if name not in tools:
                return Outcome(len(tools), tuple(called), f"it has no tool `{name}`")
            written = json.dumps(arguments).replace("${workspaceFolder}", str(WORK))
            result = await host.call(tools[name], json.loads(written))
            print(f"    {name}: {result.text[:300]}", flush=True)
            called.append(f"`{name}`: {quoted(text or result.text)}")
            if not problem and (text not in result.text or (result.failed and text)):
                problem = f"`{name}`: {quoted(result.text)}"
        return Outcome(len(tools), tuple(called), problem)
    finally:
        await host.close()


def quoted(text: str) -> str:
    """Return as code the last line of an error's stderr or the start of a result; no paths of ours."""
    head, _, stderr = text.strip().partition("; last on its stderr: ")
    line = stderr.strip().rpartition("\n")[2] or " ".join(head.split())
    for folder, name in ((WORK, "…"), (FOLDER, "…"), (ROOT, "…"), (Path.home(), "~")):
        line = line.replace(str(folder), name)
    line = line.replace("`", "'")
    return f"`{line[:REASON_CHARS].strip()}{'…' if len(line) > REASON_CHARS else ''}`"


async def measure(server: Published) -> tuple[bool, tuple[str, ...]]:
    """Return whether a server starts, and its row; of one that does not, its title and the reason."""
    print(server.title, flush=True)
    plain = await try_server(server, False)
    if not plain.started:
        needs = f"; it needs {server.needs}" if server.needs else ""
        return False, (server.title, server.package, plain.problem + needs)
    fine = f"starts; results need {server.needs}" if server.needs else "yes"
    boxed, setting = await try_server(server, True), "true"
    if boxed.problem and server.sandbox:
        boxed, setting = await try_server(server, server.sandbox), json.dumps(server.sandbox)
    works = "starts" if server.needs else "yes"
    works += f", with `{setting}`" if setting != "true" else ""
    env = "".join(f" {name}={value}" for name, value in server.env.items())
    return True, (
        server.title,
        server.version(),
        str(plain.tools),
        "; ".join(plain.called),
        f"no: {plain.problem}" if plain.problem else fine,
        f"no: {boxed.problem}" if boxed.problem else works,
        f"`{server.command}`" + (f", env `{env.strip()}`" if env else ""),
    )


def table_row(cells: Iterable[str]) -> str:
    """Return a row of the page's table."""
    return " | ".join(("", *(cell.replace("|", r"\|") for cell in cells), "")).strip()


async def main(names: list[str]) -> None:
    """Measure the servers of these names, or all of them and write the page."""
    HOME.mkdir(parents=True, exist_ok=True)
    if not (UV / "bin" / "uvx").exists():
        run([sys.executable, "-m", "venv", str(UV)])
        run([str(UV / "bin" / "pip"), "install", "--quiet", "uv"])
    os.environ["PATH"] = f"{UV / 'bin'}{os.pathsep}{os.environ['PATH']}"
    os.chdir(HOME)  # no program is taken from the working folder
    set_root(WORK)
    rows, failed = [HEADINGS, ("---",) * len(HEADINGS)], []
    for server in published():
        if not names or server.title in names:
            started, cells = await measure(server)
            rows += [cells] if started else []
            failed += [] if started else [f"- {cells[0]} (`{cells[1]}`): {cells[2]}"]
            print(table_row(cells), flush=True)
    if not names:
        page = Path(__file__).with_name("page.md").read_text()
        page = page.replace("DATE", date.today().isoformat())
        page = page.replace("TABLE", "\n".join(map(table_row, rows)))
        PAGE.write_text(page.replace("FAILED", "\n".join(failed)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
