"""Fixtures that run the program in folders of its own, with the embedded model expanded once."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent.engine.placement import cpu_probe
from agent.formats.harmony.encoding import RANKS_FILE
from agent.models.loader import EMBEDDED_TENSOR_TYPES
from agent.store import reserve
from agent.tiny import expand, vocabulary
from tests.support import forks
from tests.support.waiting import HANG_SECONDS
from tools.config import servers
from tools.mcp import start_wait

ROOT = Path(__file__).parents[2]
PROBE = "probe.json"
"""The cache's file with what the probe of the processor has found."""


@pytest.fixture(scope="session", autouse=True)
def isolated_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Point AGENT_HOME at an empty folder: no test touches the folders of the person who runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENT_HOME", str(tmp_path_factory.mktemp("nobody")))
        yield


@pytest.fixture(scope="session", autouse=True)
def small_reserve() -> None:
    """Let stores reserve 64 KiB instead of 2 MiB, which each would write twice."""
    reserve.RESERVED_PAGES = 16


@pytest.fixture(scope="session", autouse=True)
def long_startup_limit() -> None:
    """Let MCP servers start for as long as tests wait for anything, and rest meanwhile for longer than
    a machine with more to do than it can lets them, or this process that they wait for."""
    servers.STARTUP_SECONDS = HANG_SECONDS
    start_wait.MAX_IDLE_SECONDS, start_wait.MAX_UNPRODUCTIVE_SECONDS = 5.0, 20.0


@pytest.fixture(scope="session")
def model_cache(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Path:
    """A cache that holds the embedded model, which is expanded once for all runs."""
    cache = tmp_path_factory.mktemp("cache")
    pytest_cache = getattr(pytestconfig, "cache", None)  # none with -p no:cacheprovider
    expanded = pytest_cache.mkdir("tiny") if pytest_cache else cache
    gguf = expand.ensure(expanded)
    if expanded != cache:
        for file in (gguf, gguf.with_suffix(".ends")):
            (cache / file.name).symlink_to(file)
    (cache / "vocabulary").mkdir()
    (cache / "vocabulary" / RANKS_FILE).write_bytes(vocabulary.ranks())
    same = cpu_probe.Speed(100.0, 100.0)
    cpu_probe.store_result(cache, EMBEDDED_TENSOR_TYPES, cpu_probe.ProbeResult(same, same))
    return cache


@pytest.fixture(scope="session")
def tiny_gguf(model_cache: Path) -> Path:
    """The embedded model's GGUF."""
    return expand.ensure(model_cache)


@pytest.fixture
def home(tmp_path: Path, model_cache: Path) -> Path:
    """A fresh AGENT_HOME whose cache already holds the embedded model, and no prompts.

    It holds the result of the processor's probe too, which would take 3 s of CPU time.
    """
    home = tmp_path / "home"
    (home / "cache").mkdir(parents=True)
    for each in model_cache.iterdir():
        if each.name == PROBE:
            shutil.copy(each, home / "cache")
        elif each.name != "prefixes":  # what other tests' prompts have left
            (home / "cache" / each.name).symlink_to(each)
    return home


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path is short, as the address of a Unix socket has to be (107 bytes)."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


@dataclass
class CommandResult:
    """What a command left behind."""

    code: int
    """Its exit code."""
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events of ``--json-events``."""
        return [json.loads(line) for line in self.out.splitlines()]


RunAgent = Callable[..., CommandResult]


@pytest.fixture
def agent(home: Path, tmp_path: Path) -> RunAgent:
    """Run the program in an empty folder: ``agent("run", "hello", stdin="…")``."""
    work = tmp_path / "work"
    work.mkdir()

    def run(
        *args: str, stdin: str | None = None, cwd: Path = work, env: dict[str, str] | None = None
    ) -> CommandResult:
        started = forks.is_read_at_start(env or {})
        command = [sys.executable, "-P", "-m", "agent"] if started else forks.relay()
        done = subprocess.run(
            [*command, *args],
            cwd=cwd,
            env={**os.environ, "AGENT_HOME": str(home), **(env or {})},
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return CommandResult(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., str]:
    """Write a scripted engine's replies; the value of ``--engine``."""

    def write(*lines: str | dict[str, Any]) -> str:
        path = tmp_path / "script.jsonl"
        entries = [{"markup": line} if isinstance(line, str) else line for line in lines]
        path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
        return f"script:{path}"

    return write
