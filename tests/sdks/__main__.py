"""Installs each SDK, runs a server on it and writes docs/mcp-versions.md: ``make sdks``.

The environments are in ``.cache/sdks``; they need PyPI and npm, the first time.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from tests.support.hosts import free_port, is_listening

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".cache" / "sdks"
PAGE = ROOT / "docs" / "mcp-versions.md"
SERVERS = Path(__file__).with_name("servers")
NEWEST = "2026-07-28"
START_SECONDS, CALL_SECONDS = 60, 10


@dataclass(frozen=True, slots=True)
class Sdk:
    """An SDK for servers: how it is called, its packages, and the server that uses it."""

    title: str
    script: str
    packages: tuple[str, ...]

    def install(self) -> list[str]:
        """Install it in a folder of its own; returns the command that runs its server."""
        folder = FOLDER / self.title.replace(" ", "-")
        script = SERVERS / self.script
        if self.script.endswith(".py"):
            python = folder / "bin" / "python"
            if not python.exists():
                run([sys.executable, "-m", "venv", str(folder)])
            run([str(python), "-m", "pip", "install", "--quiet", *self.packages])
            return [str(python), str(script)]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"private": true}')
        run(["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", *self.packages])
        return ["node", shutil.copy(script, folder)]  # it imports what lies beside it


SDKS = (
    Sdk("FastMCP 2", "fastmcp_sdk.py", ("fastmcp==2.14.7",)),
    Sdk("FastMCP 3", "fastmcp_sdk.py", ("fastmcp==3.4.10",)),
    Sdk("FastMCP 4", "fastmcp_sdk.py", ("fastmcp==4.1.2",)),
    Sdk("Python SDK 1", "python_sdk.py", ("mcp==1.30.0",)),
    Sdk("Python SDK 2", "python_sdk.py", ("mcp==2.3.0",)),
    Sdk(
        "TypeScript SDK 1",
        "typescript_1.mjs",
        ("@modelcontextprotocol/sdk@1.32.2", "express@5.3.0", "zod@4.6.7"),
    ),
    Sdk(
        "TypeScript SDK 2",
        "typescript_2.mjs",
        ("@modelcontextprotocol/server@2.4.0", "@modelcontextprotocol/node@2.1.2", "zod@4.6.7"),
    ),
)


def run(command: list[str]) -> None:
    """Run a command of an installation; its output is shown only if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stdout}{done.stderr}")


@contextmanager
def serving(command: list[str], kind: str) -> Iterator[dict[str, Any]]:
    """Yield the settings of a server, which is started unless it is one over stdio."""
    if kind == "stdio":
        yield {"command": command[0], "args": [*command[1:], "0"]}
        return
    port = free_port()
    process = subprocess.Popen(
        [*command, str(port), kind], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + START_SECONDS
        while not is_listening(port) and time.monotonic() < until:
            time.sleep(0.1)
        yield {"url": f"http://127.0.0.1:{port}/mcp"}
    finally:
        process.kill()
        process.wait()


def agent(settings: dict[str, Any], *args: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the program, with one server in its configuration."""
    with tempfile.TemporaryDirectory() as home:
        config = Path(home, "config", "mcp.json")
        config.parent.mkdir()
        entry = {**settings, "timeout": CALL_SECONDS}
        config.write_text(json.dumps({"mcpServers": {"sdk": entry}}))
        return subprocess.run(
            [sys.executable, "-m", "agent", "mcp", *args],
            env={**os.environ, "AGENT_HOME": home},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )


def ask(settings: dict[str, Any], tool: str) -> str:
    """Return whether the question of a tool was answered."""
    done = agent(settings, "call", "sdk", tool, "--answer", '{"name": "Ada"}')
    print(f"    {tool}: {(done.stdout + done.stderr).strip()[-200:]}", flush=True)
    return "yes" if done.stdout.strip() == "accept Ada" else "no"


def measure(sdk: Sdk) -> Iterator[tuple[str, ...]]:
    """Yield the rows of one SDK's servers."""
    command = sdk.install()
    version = sdk.packages[0].replace("==", " ").rpartition("@")
    package = " ".join(filter(None, (version[0], version[2])))
    for kind in ("stdio", "sessions", "stateless"):
        with serving(command, kind) as settings:
            described = json.loads(agent(settings, "inspect", "sdk", "--json").stdout)
            print(f"{sdk.title}, {kind}: {described['protocol']} {described['error']}", flush=True)
            tools = [tool["name"] for tool in described["tools"]]
            newest = {**settings, "protocol": NEWEST}
            speaks_newest = json.loads(agent(newest, "inspect", "sdk", "--json").stdout)
            yield (
                sdk.title if kind == "stdio" else "",
                package if kind == "stdio" else "",
                {"stdio": "stdio", "sessions": "HTTP", "stateless": "HTTP, stateless"}[kind],
                described["protocol"] or described["error"],
                ask(settings, "ask"),
                ask(settings, "ask_newer") if "ask_newer" in tools else "–",
                ask(newest, "ask") if speaks_newest["protocol"] else "–",
            )


def main() -> None:
    """Measure all SDKs and write the page."""
    rows = [
        ("SDK", "package", "transport", "spoken", "`ask`", "by result", "`ask`, newest"),
        ("---",) * 7,
        *(row for sdk in SDKS for row in measure(sdk)),
    ]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    page = Path(__file__).with_name("page.md").read_text()
    PAGE.write_text(page.replace("DATE", date.today().isoformat()).replace("TABLE", table))


if __name__ == "__main__":
    main()
