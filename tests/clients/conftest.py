"""The program as a server, clients beside it; nothing but loopback is reached."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
NODE = HERE / "node"
AGENT = [ROOT / ".venv" / "bin" / "python", "-P", "-m", "agent"]
LOCAL = ("127.0.0.1", "localhost")
# Programs that mind proxies stay here too: nobody listens at that port.
NOBODY = "http://127.0.0.1:9"
QUIET = {
    **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), NOBODY),
    **dict.fromkeys(("no_proxy", "NO_PROXY"), ",".join(LOCAL)),
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "LANGSMITH_TRACING": "false",
    # Where others are busy, threads of llama.cpp that spin for each other keep each other waiting.
    "OMP_WAIT_POLICY": "passive",
}


def _refuse_other_hosts(event: str, arguments: tuple[Any, ...]) -> None:
    """Make every connection to another machine fail (an audit hook)."""
    match event, arguments:
        case ("socket.connect", (_, (host, *_))) | ("socket.getaddrinfo", (host, *_)):
            if host not in (*LOCAL, "::1", None):
                raise OSError(f"{host} is not this machine")


sys.addaudithook(_refuse_other_hosts)
os.environ.update(QUIET)


@contextmanager
def serve_program(
    home: Path, *options: str, program: str = "", **environment: str
) -> Iterator[str]:
    """Start `agent serve`, or that of a ``program`` in this folder; its base URL, once it is ready."""
    agent = [AGENT[0], HERE / program] if program else AGENT
    with subprocess.Popen(
        [*agent, "serve", "--port", "0", *options],
        env={**os.environ, "AGENT_HOME": str(home), "PYTHONPATH": str(ROOT)} | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout and process.stderr
            line = process.stdout.readline()
            url = re.search(r"http://\S+/v1", line)
            assert url, line + process.stderr.read()
            yield url[0]
        finally:
            process.kill()


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the embedded model and the built-in Python tool, for all tests."""
    with serve_program(
        tmp_path_factory.mktemp("home"), "--tools", "python", "--max-output-tokens", "400"
    ) as url:
        yield url


def documented_blocks() -> dict[str, list[tuple[str, str]]]:
    """The fenced blocks of each client's heading in docs/clients.md, with their languages, but for
    those that are marked as not run."""
    parts = (ROOT / "docs" / "clients.md").read_text().split("\n## ")[1:]
    titles = [part.split("\n", 1) for part in parts]
    block = re.compile(r"(?<! -->\n)^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    return {title: block.findall(text) for title, text in titles}


Scripted = Callable[..., str]


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Scripted]:
    """Start a server with a scripted engine: ``scripted("markup of a reply", …)``."""
    with ExitStack() as stack:

        def start(*replies: str | dict[str, Any], frequent_keepalives: bool = False) -> str:
            path = tmp_path / "script.jsonl"
            lines = [{"markup": reply} if isinstance(reply, str) else reply for reply in replies]
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
            return stack.enter_context(
                serve_program(
                    tmp_path / "agent-home",
                    "--engine",
                    f"script:{path}",
                    program="frequent_keepalives.py" if frequent_keepalives else "",
                )
            )

        yield start


Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a command in an empty folder that is its home, with nothing else of ours; its stdout."""

    def run(*command: str | Path, **env: str) -> str:
        tools = [Path(sys.executable).parent, NODE / "node_modules" / ".bin"]
        path = os.pathsep.join([*map(str, tools), os.environ["PATH"]])
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**QUIET, "PATH": path, "HOME": str(tmp_path), **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def node() -> Path:
    """The folder of the clients that npm installed; without them the test is skipped."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    if not (NODE / "node_modules" / "openai").is_dir():
        pytest.skip("the clients of npm could not be installed")
    return NODE
