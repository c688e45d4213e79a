"""The shell builtin: a command does its work below the root, and nothing else anywhere."""

import asyncio
import os
import re
import shutil
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from agent.util.temporary_folders import process_folder
from tests.support.commands import LIMITS, Commands
from tests.support.hosts import Children
from tests.support.invariants import check as check_stream
from tests.support.program import RunAgent
from tests.support.waiting import HANG_SECONDS, wait_until
from tools.builtin.shell.server import ShellServer
from tools.builtin_server import ToolError, check_arguments, output_listener, turn_id
from tools.sandbox.isolation import Isolation

LONG = f"4711.{os.getpid()}"
"""Seconds to sleep, as no other process of this machine does."""


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("secret")
    return path


async def test_exec_output_and_exit_code(shell: Commands) -> None:
    assert await shell("echo hello; echo täg >&2; exit 3") in (
        "hello\ntäg\n[exit code 3]",
        "täg\nhello\n[exit code 3]",
    )
    assert await shell("true") == "[exit code 0]"
    assert await shell("cat; printf end") == "end\n[exit code 0]"
    assert "no-such-program" in await shell("no-such-program")
    assert (await shell("kill -9 $$")) == "[exit code 137]"
    text = await shell.exec(["no-such-program"])
    assert "no-such-program: No such file or directory" in text


async def test_exec_home_that_is_full_ends_it(shell: Commands) -> None:
    """Counted by itself, whatever others do on its file system."""
    shell.builtin.limits = replace(LIMITS, written_files=50)
    line = 'for i in $(seq 100); do : > "$HOME/$i"; done; sleep 60'
    assert re.search("more than 50 (files in its home|new files since it began)", await shell(line))
    # Other tests create files on the file system meanwhile.
    assert "in its home" not in await shell("sleep 0.2")


async def test_exec_cancelled_before_it_begins_leaves_no_open_step(
    shell: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what the person changes later would count as the command's, and be taken back with it."""
    journal, go, turn = shell.builtin.files.journal, threading.Event(), "resp_1"
    begin, begun = journal.begin, threading.Event()

    def wait_and_begin(tool: str) -> int | None:
        begun.set()
        go.wait(HANG_SECONDS)
        return begin(tool)

    monkeypatch.setattr(journal, "begin", wait_and_begin)
    token = turn_id.set(turn)
    try:
        calling = asyncio.create_task(shell("true"))
        await asyncio.to_thread(begun.wait, HANG_SECONDS)
        calling.cancel()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await calling
    finally:
        turn_id.reset(token)
    (shell.builtin.root / "mine").write_text("mine")
    assert journal.undo({turn}).changes == [] and (shell.builtin.root / "mine").exists()


async def test_exec_odd_arguments_are_taken_or_refused(shell: Commands) -> None:
    with pytest.raises(ToolError, match="not a path"):
        await shell("true", workdir="\0")
    assert await shell("true", timeout=10**400) == "[exit code 0]"


@pytest.mark.long
async def test_exec_editors_wait_for_nobody(shell: Commands) -> None:
    assert await shell('echo "$TERM"; $EDITOR made') == "dumb\n[exit code 1]"
    assert await shell("$GIT_EDITOR made") == "[exit code 1]"
    if shutil.which("vim") is not None:
        text = await shell("vim made; echo ended; vim -c 'normal itext' -c wq made; cat made")
        assert "ended" in text and "text" in text.splitlines()


async def test_exec_login_shell_is_silent(shell: Commands) -> None:
    for program in ("bash", "/bin/sh"):
        text = await shell.exec([program, "-lc", "echo hello"])
        assert text == "hello\n[exit code 0]"


async def test_exec_works_below_root(shell: Commands) -> None:
    root = shell.builtin.root
    assert await shell("pwd", workdir="sub") == f"{root}/sub\n[exit code 0]"
    await shell("seq 3 | sort -r > made && mkdir -p a/b && mv made a/b/ && ln -s b a/c")
    assert (root / "a" / "c" / "made").read_text() == "3\n2\n1\n"
    assert await shell("python3 -c 'print(6*7)'") == "42\n[exit code 0]"
    assert "File too large" in await shell("dd if=/dev/zero of=big bs=2M count=1")
    (root / "big").unlink()
    assert "2\n" in await shell("git init -q . && git add -A && git status --short | wc -l")


ATTRIBUTES = """
import os
for change in (lambda: os.chmod("{0}", 0o640), lambda: os.utime("{0}", (1, 1)),
               lambda: os.chmod("made", 0o640), lambda: os.utime("made", (1, 1)),
               lambda: os.chmod("gone", 0o640), lambda: os.chmod("made", 0o4755)):
    try:
        change()
        print("done", end=" ")
    except OSError as error:
        print(error.strerror, end="; ")
"""


@pytest.mark.long
async def test_exec_modes_and_times_change_below_root_only(shell: Commands, secret: Path) -> None:
    """Whoever reports such a change as done has made it."""
    root = shell.builtin.root
    (root / "run.py").write_text(ATTRIBUTES.format("link"))
    (root / "link").symlink_to(secret)
    before = secret.stat()
    text = await shell("touch made; python3 run.py; echo; chmod 751 .; touch -d 2001-02-03Z sub")
    words = text.splitlines()[0]
    refused = (
        "No such file or directory; " if "No such" in words[:9] else "Operation not permitted; "
    )
    assert words == f"{refused * 2}done done No such file or directory; Operation not permitted; "
    after = secret.stat()
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)
    made = (root / "made").stat()
    assert (made.st_mode & 0o7777, made.st_mtime) == (0o640, 1)
    assert root.stat().st_mode & 0o777 == 0o751 and (root / "sub").stat().st_mtime == 981158400
    text = await shell("install -m 700 made copy && cp -a made other && stat -c '%a %Y' copy other")
    assert text.splitlines()[0].startswith("700 ") and text.splitlines()[1] == "640 1"
    assert "reported as done" not in text


async def test_exec_output_streams_and_is_cut(shell: Commands) -> None:
    seen: list[tuple[str, str]] = []
    output_listener.set(lambda stream, text: seen.append((stream, text)))
    call = asyncio.create_task(shell("echo on; sleep 60"))
    await wait_until(lambda: seen)
    assert seen == [("stdout", "on\n")]
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    text = await shell("seq 1000000")
    assert text.startswith("1\n2\n") and text.endswith("\n1000000\n[exit code 0]")
    assert "characters dropped" in text and len(text) < 1_200_000


async def test_exec_files_outside_out_of_reach(shell: Commands, secret: Path) -> None:
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
    for workdir, why in (("..", "outside"), ("/", "outside"), ("made-up", "no such folder")):
        assert why in await shell.fails("true", workdir=workdir)


async def test_exec_no_network(shell: Commands, tmp_path: Path) -> None:
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


@pytest.mark.long
async def test_exec_no_datagrams_or_foreign_signals(shell: Commands, short_folder: Path) -> None:
    inbox = short_folder / "inbox"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(inbox))
        attempts = (
            f"socketpair(AF_UNIX, SOCK_DGRAM)[0].sendto(b'x', {str(inbox)!r})",
            f"socketpair(AF_UNIX, SOCK_SEQPACKET)[0].connect({str(inbox)!r})",
            f"pair[0].connect({str(inbox)!r})",
            f"fcntl(pair[0], F_SETOWN, {os.getpid()})",
            f"fcntl(pair[0], 15, struct.pack('ii', 1, {os.getpid()}))",
            "fcntl(pair[0], F_SETSIG, 9)",
            f"ioctl(pair[0], 0x8901, struct.pack('i', {os.getpid()}))",
            f"ioctl(pair[0], 0x8902, struct.pack('i', {os.getpid()}))",
        )
        code = "import struct\nfrom fcntl import *\nfrom socket import *\npair = socketpair()\n"
        for attempt in attempts:
            code += f"try: {attempt}\nexcept PermissionError: print('refused')\n"
        text = await shell(f'python3 - <<"E"\n{code}E')
        assert text == "refused\n" * len(attempts) + "[exit code 0]"
        receiver.setblocking(False)
        with pytest.raises(BlockingIOError):
            receiver.recv(1)


async def test_exec_asyncio_runs(shell: Commands) -> None:
    code = """import asyncio, multiprocessing
async def main():
    process = await asyncio.create_subprocess_exec("echo", "on", stdout=asyncio.subprocess.PIPE)
    print((await process.communicate())[0], await asyncio.to_thread(int, 6))
asyncio.run(main())
near, far = multiprocessing.Pipe()
near.send(7)
print(far.recv())
"""
    assert await shell(f"python3 - <<'E'\n{code}E") == "b'on\\n' 6\n7\n[exit code 0]"


async def test_exec_connections_of_machine_unseen(shell: Commands) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = f"{server.getsockname()[1]:04X}"
        for name in ("net/tcp", "task/self/net/tcp", "task/*/net/tcp", "root/proc/net/tcp"):
            assert port not in await shell(f"cat /proc/self/{name} /proc/thread-self/net/tcp")
    assert await shell("grep -c Name /proc/self/status") == "1\n[exit code 0]"
    if shell.isolation == "landlock":  # the other sees no files that it could watch
        watch = "import ctypes; print(ctypes.CDLL(None).inotify_init1(0))"
        assert await shell(f"python3 -c '{watch}'") == "-1\n[exit code 0]"


async def test_exec_other_processes_out_of_reach(shell: Commands) -> None:
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


async def test_exec_leaves_no_process(shell: Commands) -> None:
    quiet = f"(setsid sleep {LONG} >/dev/null 2>&1 &)"
    daemon = f"{quiet} ; setsid bash -c 'sleep {LONG} & disown' & echo on"
    assert "on\n" in await shell(daemon)
    assert not _living(LONG)
    text = await shell.fails(f"{daemon}; sleep {LONG}", timeout=15_000)
    assert text == "on\nError: stopped after 15 s"
    assert await shell.fails(f"sleep {LONG}", timeout=1) == "stopped after 3 s"
    assert not _living(LONG)


@pytest.mark.long
async def test_exec_cancelled_ends_all_processes_and_lists_changes(shell: Commands) -> None:
    seen: list[str] = []
    output_listener.set(lambda stream, text: seen.append(text))
    line = f"setsid sleep {LONG} & trap '' TERM INT; touch made; echo on; sleep {LONG}"
    call = asyncio.create_task(shell(line))
    await wait_until(lambda: seen)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not _living(LONG)
    assert seen == ["on\n", '\n[until it was interrupted: created "made"]']


@pytest.mark.long
async def test_exec_deep_home_is_deleted(shell: Commands) -> None:
    nest = "import os; os.chdir(os.environ['HOME'])\n"
    nest += "[(os.mkdir('n'), os.chdir('n')) for _ in '.' * 1500]"
    assert await shell(f'python3 -c "{nest}"') == "[exit code 0]"
    assert not list(process_folder().glob("agent-shell-*"))


@pytest.mark.slow
async def test_exec_fork_and_memory_bombs_bounded(shell: Commands, children: Children) -> None:
    forks = await shell("for i in $(seq 200); do setsid sleep 20 & done; wait")
    assert "more than 40 processes" in forks
    assert "MemoryError" in await shell("python3 -c 'bytearray(1 << 30)'")
    hold = "python3 -c 'import time; x = b\"x\" * (150 << 20); time.sleep(20)'"
    many = await shell(f"for i in 1 2 3 4 5; do {hold} & done; wait")
    assert "more than 512 MiB of memory" in many
    assert not children()


@pytest.mark.long
async def test_exec_supervisor_cannot_be_stopped(shell: Commands, children: Children) -> None:
    forks = "touch go; for i in $(seq 200); do setsid sleep 20 & sleep 0.02; done; wait"
    for stop in ("STOP", "KILL"):
        wait = "until [ -e go ]; do :; done; rm go"
        text = await shell(f"setsid bash -c '{forks}' & {wait}; kill -{stop} 0; wait")
        # Killed, its first process takes the others along.
        assert "more than 40 processes" in text or (stop == "KILL" and "code 137" in text)
        assert not children()


@pytest.mark.long
async def test_exec_socket_buffers_bounded(shell: Commands) -> None:
    code = """import os, socket, time
for _ in range(2): os.fork()
report, pairs, filled = open(f"filled-{os.getpid()}", "w", 1), [], 0
for _ in range(480):
    pairs.append(socket.socketpair())
    for end in pairs[-1]:
        for option in (socket.SO_SNDBUF, 32):
            try:
                end.setsockopt(socket.SOL_SOCKET, option, 1 << 24)
                print("grown")
            except PermissionError:
                pass
        end.setblocking(False)
        try:
            while True: filled += end.send(bytes(1 << 20))
        except BlockingIOError:
            print(filled, file=report)
time.sleep(60)
"""
    text = await shell(f"python3 - <<'E'\n{code}E")
    assert "more than 384 sockets" in text and "grown" not in text
    reports = [path.read_text().split() for path in shell.builtin.root.glob("filled-*")]
    # On a quiet machine 120 MiB; unbounded 800 MiB.
    assert sum(int(report[-1]) for report in reports if report) < 300 << 20


@pytest.mark.long
async def test_exec_open_files_bounded(shell: Commands) -> None:
    code = "import os, time; [os.open('/dev/null', 0) for _ in range(900)]; time.sleep(60)"
    text = await shell(f"for i in 1 2 3 4 5; do python3 -c {code!r} & done; wait")
    assert "more than 4,096 open files" in text


@pytest.mark.long
@pytest.mark.parametrize("folder", [".", "$HOME"])
async def test_exec_filling_disk_is_ended(shell: Commands, folder: str) -> None:
    shell.builtin.limits = replace(LIMITS, written_bytes=64 << 20)
    zeros = "dd if=/dev/zero bs=1M count=1 status=none"
    text = await shell(f"cd {folder}; for ((i = 0; ; i++)); do {zeros} of=f$i; done")
    assert "[stopped: more than 64 MiB" in text
    written = list(shell.builtin.root.glob("f*"))
    assert bool(written) == (folder == "."), "a command's files below the root stay"
    shell.builtin.limits = replace(LIMITS, written_files=5000)
    files = "for i in range(10 ** 9): open(str(i), 'x').close()"
    text = await shell(f'cd {folder}; python3 -c "{files}"')
    assert "[stopped: more than 5,000 " in text


@pytest.mark.long
async def test_exec_disk_room_is_not_allocated_at_once(shell: Commands) -> None:
    code = "import os; f = open('f', 'wb'); os.posix_fallocate(f.fileno(), 0, 4096)"
    assert await shell(f'python3 -c "{code}" && stat -c %s f') == "4096\n[exit code 0]"
    code = "import ctypes; print(ctypes.CDLL(None, use_errno=True).fallocate(1, 0, 0, 4096))"
    text = await shell(f'python3 -c "{code}; print(ctypes.get_errno())" >out; cat out')
    assert text == "-1\n95\n[exit code 0]"


def _living(argument: str) -> list[list[str]]:
    commands = []
    for process in psutil.process_iter(["cmdline"]):
        if argument in (process.info["cmdline"] or []):
            commands.append(process.info["cmdline"])
    return commands


async def test_exec_without_isolation_refused(tmp_path: Path) -> None:
    builtin = ShellServer(tmp_path, isolation=Isolation("none", "nothing works here", False))
    assert not builtin.is_safe("exec")
    with pytest.raises(ToolError, match="not available: nothing works here"):
        await builtin.call("exec", {"cmd": ["true"]})
    assert "needs a folder" in (ShellServer(Path("/")).problem() or "")


def test_exec_apply_patch_command_applies_patch(tmp_path: Path) -> None:
    builtin = ShellServer(tmp_path)
    first = "*** Begin Patch\n*** Add File: a\n+1\n*** End Patch"
    second = "*** Begin Patch\n*** Update File: a\n@@\n-1\n+2\n*** End Patch"
    calls = (["apply_patch", first], ["bash", "-lc", f"apply_patch <<'EOF'\n{second}\nEOF\n"])

    async def run() -> list[str]:
        preview = builtin.preview("exec", {"cmd": calls[0]})
        assert preview is not None and preview.startswith("--- /dev/null")
        return [await builtin.call("exec", {"cmd": call}) for call in calls]

    assert asyncio.run(run()) == ["created a", "changed a"]
    assert (tmp_path / "a").read_text() == "2\n"


CALL = (
    "<|channel|>analysis to=container.exec code<|message|>"
    '{"cmd":["bash","-lc","echo hi > made; cat made"],"timeout":100000}<|call|>'
)
DONE = "<|channel|>final<|message|>Done.<|return|>"


@pytest.mark.slow
def test_run_approved_command_runs(agent: RunAgent, script: Callable[..., str]) -> None:
    engine = ("--engine", script(CALL, DONE), "--json-events")
    ran = agent("run", "go", "--tools", "shell", "--approve", "shell", *engine)
    call = check_stream(ran.events)["output"][0]
    assert (call["server_label"], call["name"], call["status"]) == ("shell", "exec", "completed")
    assert call["output"] == "hi\n[exit code 0]"
    assert "shell.exec" in ran.events[0]["tools"]


@pytest.mark.slow
def test_run_unapproved_command_refused(agent: RunAgent, script: Callable[..., str]) -> None:
    engine = ("--engine", script(CALL, DONE), "--json-events")
    ran = agent("run", "go", "--tools", "all,shell", *engine)
    assert ran.code == 0
    assert "refused" in check_stream(ran.events)["output"][0]["error"]["message"]
    request = next(e for e in ran.events if e["type"] == "agent.approval.requested")
    assert request["preview"].endswith("$ echo hi > made; cat made")
    ran = agent("run", "go", *engine)
    error = check_stream(ran.events)["output"][0]["error"]
    assert "not among those that --tools" in error["message"]


def test_preview_shows_command(tmp_path: Path) -> None:
    builtin = ShellServer(tmp_path)
    for words, line in (
        (["bash", "-lc", "printf 'a b' > c\nrm -r *\n"], "printf 'a b' > c\nrm -r *"),
        (["rm", "-r", "*"], "rm -r '*'"),
        (["bash", "-lc", "ls", "a b"], "bash -lc ls 'a b'"),
        (["zsh", "-c", "ls *"], "zsh -c 'ls *'"),
        (["bash", "-c", " "], "bash -c ' '"),
    ):
        assert builtin.preview("exec", {"cmd": words}) == f"{tmp_path}$ {line}"


def test_check_arguments_shell_schema() -> None:
    schema = ShellServer.tools[0].parameters
    check_arguments(schema, {"cmd": ["ls"], "timeout": 5})
    with pytest.raises(ToolError, match="cmd must be a list of strings"):
        check_arguments(schema, {"cmd": "ls"})
    with pytest.raises(ToolError, match="cmd must be a list of strings"):
        check_arguments(schema, {"cmd": ["ls", 1]})
