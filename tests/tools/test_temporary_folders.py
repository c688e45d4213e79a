"""Temporary folders go with their process, however that ends."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.util.temporary_folders import PROCESS_PREFIX, clear_leftovers, make_temporary_folder
from tests.support.program import RunAgent
from tests.support.scripts import hold
from tests.support.waiting import wait_until

HOLDER = """import sys
from agent.util.temporary_folders import make_temporary_folder
folder = make_temporary_folder("agent-shell-")
(folder / "locked").mkdir(0)
(folder / "file").touch()
print(folder, flush=True)
sys.stdin.read()
"""


def start_holder(temporary: Path) -> tuple[subprocess.Popen[str], Path]:
    """Start a process that makes a temporary folder and waits; return it and the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_clear_leftovers_of_killed_process_only(tmp_path: Path) -> None:
    killed, killed_folder = start_holder(tmp_path)
    living, living_folder = start_holder(tmp_path)
    other = tmp_path / "agent-other"
    other.mkdir()
    (tmp_path / f"{PROCESS_PREFIX}link").symlink_to(other)
    (other / "file").touch()
    clear_leftovers(tmp_path)
    assert killed_folder.is_dir() and living_folder.is_dir()
    killed.kill()
    killed.wait()
    assert killed_folder.is_dir()
    clear_leftovers(tmp_path)
    assert not killed_folder.parent.exists() and (other / "file").exists()
    assert (living_folder / "file").exists()
    living.communicate("")
    assert living.returncode == 0 and not living_folder.parent.exists()
    clear_leftovers(tmp_path / "missing")


def test_make_temporary_folder_while_others_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("agent.util.temporary_folders._locks", locks := dict[Path, int]())
    stopped = threading.Event()

    def clear() -> None:
        while not stopped.is_set():
            clear_leftovers(tmp_path)

    thread = threading.Thread(target=clear)
    thread.start()
    try:
        for _ in range(200):
            folder = make_temporary_folder("agent-shell-")
            assert folder.is_dir() and folder.parent.parent == tmp_path.resolve()
            os.close(locks.popitem()[1])
    finally:
        stopped.set()
        thread.join()
    clear_leftovers(tmp_path)
    assert not list(tmp_path.iterdir())


SLEEP = (
    "<|channel|>analysis to=container.exec code<|message|>"
    '{"cmd":["bash","-c","touch ~/file; sleep 500"]}<|call|>'
)
ANSWER = "<|channel|>final<|message|>Done.<|return|>"


@pytest.mark.long
async def test_run_killed_next_start_clears_its_folders(
    agent: RunAgent, home: Path, script: Callable[..., str], tmp_path: Path
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    env = {"AGENT_HOME": str(home), "TMPDIR": str(temporary)}
    options = ("--tools", "shell", "--approve", "shell", "--engine", script(SLEEP, ANSWER))
    work = tmp_path / "work"
    killed = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "agent", "run", "go", *options),
        cwd=work,
        env={**os.environ, **env},
        start_new_session=True,
    )
    await wait_until(lambda: list(temporary.glob("*/agent-shell-*/file")))
    os.killpg(killed.pid, signal.SIGKILL)
    await killed.wait()
    (left,) = temporary.iterdir()
    # The program does not wait for the thread that clears: it ends after the folder is gone.
    go = tmp_path / "go"
    engine = script(hold(ANSWER, 1, until=go))
    running = asyncio.create_task(
        asyncio.to_thread(agent, "run", "go", "--engine", engine, env=env)
    )
    await wait_until(lambda: not left.exists())
    go.touch()
    assert (await running).out == "Done.\n"
    assert not list(temporary.iterdir())
