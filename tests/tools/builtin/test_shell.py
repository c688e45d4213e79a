"""The shell hand: a command does its work below the root, and nothing else anywhere."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.hosts import until
from tests.support.invariants import check as check_stream
from tests.support.program import Agent
from tools.builtin.base import HandError, check, emit
from tools.builtin.files.server import Files
from tools.builtin.shell.server import Shell
from tools.sandbox import isolation
from tools.sandbox.isolation import Isolation, Limits


class Commands:
    def __init__(self, hand: Shell) -> None:
        self.hand = hand

    async def __call__(self, line: str, **more: Any) -> str:
        return await self.hand.call("exec", {"cmd": ["bash", "-c", line], **more})

    async def succeeding(self, *lines: str) -> list[str]:
        """Those that a shell could run to the end without an error."""
        text = await self("\n".join(f"({line}) && echo did {n}." for n, line in enumerate(lines)))
        return [line for n, line in enumerate(lines) if f"did {n}." in text]

    async def fails(self, line: str, **more: Any) -> str:
        with pytest.raises(HandError) as caught:
            await self(line, **more)
        return str(caught.value)


LONG = f"4711.{os.getpid()}"
"""Seconds to sleep, as no other process of this machine does."""
LIMITS = Limits(memory=1 << 29, file_size=1 << 20, processes=40)


@pytest.fixture(params=isolation.candidates())
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Commands:
    """Under each isolation that this machine has."""
    if (reason := isolation.probe(request.param)) is not None:
        pytest.skip(f"{request.param}: {reason}")
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    return Commands(
        Shell(root, timeout=60, limits=LIMITS, isolation=Isolation(request.param, "", True))
    )


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("secret")
    return path


async def test_a_command_and_its_exit_code(shell: Commands) -> None:
    assert await shell("echo hello; echo täg >&2; exit 3") in (
        "hello\ntäg\n[exit code 3]",
        "täg\nhello\n[exit code 3]",
    )
    assert await shell("true") == "[exit code 0]"
    assert await shell("cat; printf end") == "end\n[exit code 0]"
    assert "no-such-program" in await shell("no-such-program")
    assert (await shell("kill -9 $$")) == "[exit code 137]"
    text = await shell.hand.call("exec", {"cmd": ["no-such-program"]})
    assert "no-such-program: No such file or directory" in text


async def test_a_login_shell_says_nothing_of_its_own(shell: Commands) -> None:
    for program in ("bash", "/bin/sh"):
        text = await shell.hand.call("exec", {"cmd": [program, "-lc", "echo hello"]})
        assert text == "hello\n[exit code 0]"


async def test_it_works_below_the_root(shell: Commands) -> None:
    root = shell.hand.root
    assert await shell("pwd", workdir="sub") == f"{root}/sub\n[exit code 0]"
    await shell("seq 3 | sort -r > made && mkdir -p a/b && mv made a/b/ && ln -s b a/c")
    assert (root / "a" / "c" / "made").read_text() == "3\n2\n1\n"
    assert "2\n" in await shell("git init -q . && git add -A && git status --short | wc -l")
    assert await shell("python3 -c 'print(6*7)'") == "42\n[exit code 0]"
    assert "File too large" in await shell("dd if=/dev/zero of=big bs=2M count=1")


async def test_what_git_runs_later_stays_as_it_is(shell: Commands) -> None:
    root = shell.hand.root
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / ".git" / "config").write_text("[core]\n")
    text = await shell("echo x > .git/hooks/pre-commit; echo x >> .git/config; echo x > .git/HEAD")
    assert (root / ".git" / "HEAD").exists() and text.endswith("[exit code 0]")
    if not text.startswith("[exit"):  # Landlock cannot take back a part of what it gives
        assert (root / ".git" / "config").read_text() == "[core]\n"
        assert not list((root / ".git" / "hooks").iterdir())


async def test_output_streams_and_is_cut(shell: Commands) -> None:
    seen: list[tuple[str, str]] = []
    emit.set(lambda stream, text: seen.append((stream, text)))
    call = asyncio.create_task(shell("echo on; sleep 60"))
    await until(lambda: seen)
    assert seen == [("stdout", "on\n")]
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    text = await shell("seq 1000000")
    assert text.startswith("1\n2\n") and text.endswith("\n1000000\n[exit code 0]")
    assert "characters dropped" in text and len(text) < 1_200_000


async def test_nothing_outside_can_be_touched(shell: Commands, secret: Path) -> None:
    home = Path.home() / ".ssh"
    attempts = (
        f"cat {secret}",
        f"echo x >> {secret}",
        f"echo x > {secret}.new",
        f"rm {secret}",
        f"mv {secret} mine",
        f"ln {secret} mine && cat mine",
        f"ln -s {secret} link && cat link",
        f"ls {home}",
        "echo x > /etc/x",
        "echo x > /usr/x",
    )
    assert await shell.succeeding(*attempts) == []
    await shell(f"chmod 777 {secret}; touch -d 2001-01-01 {secret}; truncate -s 0 {secret}")
    assert secret.read_text() == "secret" and secret.stat().st_mode & 0o777 != 0o777
    assert "secret" not in await shell("env")
    for workdir in ("..", "/", "made-up"):
        assert (await shell.fails("true", workdir=workdir)).startswith("Error: ")


async def test_no_network(shell: Commands, tmp_path: Path) -> None:
    name = f"agent-test-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as abstract:
        port = tcp.getsockname()[1]
        abstract.bind(f"\0{name}")
        abstract.listen()
        code = "from socket import *\n"
        for family, kind, address in (
            ("AF_INET", "STREAM", f"('127.0.0.1', {port})"),
            ("AF_INET", "DGRAM", f"('127.0.0.1', {port})"),
            ("AF_INET6", "STREAM", f"('::1', {port})"),
            ("AF_UNIX", "STREAM", f"'\\0{name}'"),
            ("AF_UNIX", "DGRAM", f"'{tmp_path}/x'"),
        ):
            code += f"try: socket({family}, SOCK_{kind}).connect({address})\n"
            code += "except PermissionError: print('refused')\n"
        text = await shell(f'python3 - <<"E"\n{code}E')
        assert text == "refused\n" * 5 + "[exit code 0]"
        assert await shell.succeeding(f"exec 3<>/dev/tcp/127.0.0.1/{port}") == []


async def test_other_processes_are_out_of_reach(shell: Commands) -> None:
    parent = os.getpid()
    attempts = (
        f"kill -TERM {parent}",
        f"kill -TERM -{parent}",
        f"cat /proc/{parent}/environ",
        f"cat /proc/{parent}/mem",
        "unshare -r true",
        f"python3 -c 'import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(16, {parent}, 0, 0))'",
        f"prlimit --pid {parent} --nofile=10:10",
    )
    assert await shell.succeeding(*attempts) == []
    await shell("kill -TERM -1; true")
    assert psutil.pid_exists(parent)
    # Its own it may signal.
    assert "[exit code 143]" in await shell("sleep 60 & kill $!; wait $!")


async def test_nothing_goes_on_after_it(shell: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = f"(setsid sleep {LONG} >/dev/null 2>&1 &)"
    daemon = f"{quiet} ; setsid bash -c 'sleep {LONG} & disown' & echo on"
    assert "on\n" in await shell(daemon)
    assert not _living(LONG)
    monkeypatch.setattr("tools.builtin.shell.server.SHORTEST", 3.0)
    text = await shell.fails(f"{daemon}; sleep {LONG}", timeout=1)
    assert text == "on\nError: stopped after 3 s"
    assert not _living(LONG)


async def test_cancelling_ends_all_of_it(shell: Commands) -> None:
    seen: list[str] = []
    emit.set(lambda stream, text: seen.append(text))
    line = f"setsid sleep {LONG} & trap '' TERM INT; echo on; sleep {LONG}"
    call = asyncio.create_task(shell(line))
    await until(lambda: seen)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not _living(LONG)


@pytest.mark.slow
async def test_bombs_are_bounded(shell: Commands) -> None:
    forks = await shell("for i in $(seq 200); do setsid sleep 20 & done; wait")
    assert "more than 40 processes" in forks
    assert "MemoryError" in await shell("python3 -c 'bytearray(1 << 30)'")
    hold = "python3 -c 'import time; x = b\"x\" * (150 << 20); time.sleep(20)'"
    many = await shell(f"for i in 1 2 3 4 5; do {hold} & done; wait")
    assert "more than 512 MiB of memory" in many
    assert not psutil.Process().children(True)


def _living(argument: str) -> list[list[str]]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if argument in (process.info["cmdline"] or []):
            found.append(process.info["cmdline"])
    return found


async def test_nothing_runs_without_isolation(tmp_path: Path) -> None:
    hand = Shell(tmp_path, isolation=Isolation("none", "nothing works here", False))
    assert not hand.contained("exec")
    with pytest.raises(HandError, match="not available: nothing works here"):
        await hand.call("exec", {"cmd": ["true"]})
    assert "needs a folder" in (Shell(Path("/")).problem() or "")


def test_gpt_oss_applies_patches_by_a_command_that_is_none(tmp_path: Path) -> None:
    hand = Shell(tmp_path, files=Files(tmp_path))
    first = "*** Begin Patch\n*** Add File: a\n+1\n*** End Patch"
    second = "*** Begin Patch\n*** Update File: a\n@@\n-1\n+2\n*** End Patch"
    calls = (
        ["apply_patch", first],
        ["bash", "-lc", f"apply_patch <<'EOF'\n{second}\nEOF\n"],
    )

    async def run() -> list[str]:
        shown = hand.preview("exec", {"cmd": calls[0]})
        assert shown is not None and shown.startswith("--- /dev/null")
        said = [await hand.call("exec", {"cmd": call}) for call in calls]
        assert hand._files is not None
        await hand._files.close()
        return said

    assert asyncio.run(run()) == ["created a", "changed a"]
    assert (tmp_path / "a").read_text() == "2\n"


CALL = (
    "<|channel|>analysis to=container.exec code<|message|>"
    '{"cmd":["bash","-lc","echo hi > made; cat made"],"timeout":10000}<|call|>'
)
DONE = "<|channel|>final<|message|>Done.<|return|>"


@pytest.mark.slow
def test_a_model_runs_a_command_that_is_allowed(agent: Agent, script: Callable[..., str]) -> None:
    engine = ("--engine", script(CALL, DONE), "--json-events")
    ran = agent("run", "go", "--tools", "shell", "--approve", "shell", *engine)
    call = check_stream(ran.events)["output"][0]
    assert (call["server_label"], call["name"], call["status"]) == ("shell", "exec", "completed")
    assert call["output"] == "hi\n[exit code 0]"
    assert "shell.exec" in ran.events[0]["tools"]


@pytest.mark.slow
def test_nobody_there_means_that_nothing_runs(agent: Agent, script: Callable[..., str]) -> None:
    engine = ("--engine", script(CALL, DONE), "--json-events")
    ran = agent("run", "go", "--tools", "all,shell", *engine)
    assert ran.code == 0
    assert "refused" in check_stream(ran.events)["output"][0]["error"]["message"]
    asked = next(e for e in ran.events if e["type"] == "agent.approval.requested")
    assert asked["preview"].endswith("$ bash -lc 'echo hi > made; cat made'")
    ran = agent("run", "go", *engine)
    error = check_stream(ran.events)["output"][0]["error"]
    assert "not among those that --tools" in error["message"]


def test_what_is_asked_shows_the_command(tmp_path: Path) -> None:
    shown = Shell(tmp_path).preview("exec", {"cmd": ["bash", "-lc", "rm -r *"]})
    assert shown == f"{tmp_path}$ bash -lc 'rm -r *'"


def test_arguments_are_checked() -> None:
    schema = Shell.tools[0].parameters
    check(schema, {"cmd": ["ls"], "timeout": 5})
    with pytest.raises(HandError, match="cmd must be a list of strings"):
        check(schema, {"cmd": "ls"})
    with pytest.raises(HandError, match="cmd must be a list of strings"):
        check(schema, {"cmd": ["ls", 1]})
