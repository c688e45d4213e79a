"""The python hand: what a model's code may do, and what it may not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from tests.support.hosts import until
from tools import process_groups
from tools.builtin.base import HandError, conversation, emit
from tools.builtin.python.server import Python
from tools.sandbox import isolation
from tools.sandbox.isolation import Isolation, Limits


class Session:
    """A conversation's python."""

    def __init__(self, hand: Python) -> None:
        self.hand = hand

    async def __call__(self, code: str) -> str:
        return await self.hand.call("python", {"code": code})

    async def fails(self, code: str) -> str:
        with pytest.raises(HandError) as caught:
            await self(code)
        return str(caught.value)


Starting = Callable[..., Session]


@pytest.fixture
async def starting(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Starting]:
    """Who is interrupted has the time to say so, however busy this machine is."""
    monkeypatch.setattr("tools.builtin.python.session.GRACE", (0.2, 0.8, 60.0))
    hands: list[Python] = []

    def make(**settings: object) -> Session:
        hands.append(Python(**settings))  # type: ignore[arg-type]
        return Session(hands[-1])

    yield make
    await asyncio.gather(*(hand.close() for hand in hands))
    assert not psutil.Process().children()


@pytest.fixture
def python(starting: Starting) -> Session:
    return starting()


async def test_output_and_the_last_value_as_in_jupyter(python: Session) -> None:
    assert await python("123*456") == "56088"
    assert await python("print('a')\nprint('b')\nx = 5") == "a\nb"
    assert await python("x += 1\nprint(x, end='')\nx") == "6\n6"
    assert await python("_ + 1") == "7"
    assert await python("None") == ""
    assert await python("'täg\\u2028😀'") == "'täg\\u2028😀'"
    assert await python("def f():\n    return 1\nclass A: pass\nf()") == "1"
    assert await python("import sys; print('e', file=sys.stderr)") == "e"
    assert await python("") == ""


async def test_errors_end_with_their_last_line_and_keep_the_state(python: Session) -> None:
    text = await python.fails("y = 1\nprint('so far')\ny/0")
    assert text.startswith("so far\nTraceback (most recent call last):")
    assert text.endswith("ZeroDivisionError: division by zero")
    assert "y/0" in text and "worker" not in text
    assert "SyntaxError" in await python.fails("1 +")
    deep = await python.fails("def f(n): return f(n + 1)\nf(0)")
    assert deep.endswith("maximum recursion depth exceeded") and len(deep) < 3000
    assert (await python.fails("input('name? ')")).splitlines()[-1].startswith("EOFError: input()")
    assert await python("import sys; sys.exit()") == ""
    assert await python.fails("sys.exit(3)") == "SystemExit: 3"
    assert "\0" in await python.fails("raise ValueError('\\0')")
    bad = "class E(Exception):\n    def __str__(self): raise E\nraise E"
    assert "E" in await python.fails(bad)
    assert await python("y") == "1"


async def test_output_streams_while_it_runs(python: Session, tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []
    emit.set(lambda stream, text: seen.append((stream, text)))
    code = "import time\nprint('working')\ntime.sleep(60)"
    call = asyncio.create_task(python(code))
    await until(lambda: seen)
    assert "".join(text for _, text in seen).startswith("working")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_cancelling_interrupts_and_keeps_the_state(python: Session) -> None:
    await python("z = 41")
    for loop in ("while True: pass", "import time; time.sleep(600)"):
        call = asyncio.create_task(python(f"print('on')\n{loop}"))
        seen: list[str] = []
        emit.set(lambda stream, text, seen=seen: seen.append(text))  # type: ignore[misc]
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await python("z + 1") == "42"


async def test_an_endless_loop_is_stopped_and_the_state_kept(starting: Starting) -> None:
    python = starting(timeout=2.5)
    await python("z = 41")
    text = await python.fails("print('on')\nwhile True: pass")
    assert text.startswith("on\n")
    assert text.endswith("KeyboardInterrupt\nError: stopped after 2.5 s; variables are kept")
    assert await python("z + 1") == "42"


async def test_a_loop_that_will_not_stop_is_killed(
    starting: Starting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.builtin.python.session.GRACE", (0.2, 0.2, 0.2))
    python = starting(timeout=2.5)
    await python("z = 41")
    stubborn = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    text = await python.fails(stubborn)
    assert "stopped after 2.5 s" in text and "its variables are lost" in text
    assert "NameError" in await python.fails("z")


async def test_a_worker_that_dies_is_told_and_replaced(python: Session) -> None:
    await python("z = 1")
    text = await python.fails("import os\nprint('last')\nos._exit(3)")
    assert text == (
        "last\nError: the Python process ended (exit code 3); "
        "its variables are lost, a fresh one starts"
    )
    assert "NameError" in await python.fails("z")
    crash = await python.fails("import ctypes; ctypes.string_at(0)")
    assert "was killed by signal 11" in crash
    later = "import threading, os\nthreading.Timer(0.05, os._exit, [4]).start()"
    await python(later)
    await until(lambda: not python.hand._sessions[""].alive)
    assert await python("1") == "1"
    assert (await python.fails("z")).startswith(
        "[the Python process ended (exit code 4); its variables are lost, a fresh one starts]\n"
    )


async def test_a_flood_of_output_is_cut(python: Session) -> None:
    parts = 0

    def count(stream: str, text: str) -> None:
        nonlocal parts
        parts += 1

    emit.set(count)
    text = await python("for i in range(400_000): print(i)\n'end'")
    assert len(text) < 2_000_000
    assert text.startswith("0\n1\n2\n") and text.endswith("399998\n399999\n'end'")
    assert "characters dropped" in text
    assert parts < 1000
    assert len(await python("print('x' * 50_000_000)")) < 2_000_000
    assert await python("1") == "1"


async def test_the_protocol_cannot_be_talked_into(python: Session) -> None:
    forged = r'''b"{\"id\":[]}\nnull\n\xff\n{\"id\":0,\"ok\":true}\n"'''
    await python(
        f"import os\nfor fd in range(3, 20):\n  try: os.write(fd, {forged})\n  except OSError: pass"
    )
    assert await python("1") == "1"


async def test_threads_that_outlive_their_call_are_quiet(python: Session) -> None:
    code = "import threading, time\nstop = threading.Event()\n"
    code += "def talk():\n  while not stop.is_set(): print('late'); time.sleep(0.001)\n"
    await python(code + "threading.Thread(target=talk, daemon=True).start()")
    seen = await python("time.sleep(0.02)\nstop.set()\n5")
    assert seen.endswith("5")


async def test_each_conversation_has_its_own_variables_and_folder(
    starting: Starting, tmp_path: Path
) -> None:
    python = starting(work=tmp_path / "python")

    async def within(key: str, code: str) -> str:
        conversation.set(key)  # of the task that runs this
        return await python(code)

    async def both(code: str) -> list[str]:
        return await asyncio.gather(
            *(asyncio.create_task(within(key, code.format(key=key))) for key in ("a", "b"))
        )

    await both("x = '{key}'")
    assert await both("x") == ["'a'", "'b'"]
    await both("open('mine', 'w').write(x)")
    assert (tmp_path / "python" / "a" / "mine").read_text() == "a"
    with pytest.raises(HandError, match="Error"):
        await asyncio.create_task(within("a", f"open('{tmp_path}/python/b/mine').read()"))


async def test_a_session_that_ended_is_told(starting: Starting, tmp_path: Path) -> None:
    async def within(python: Session, key: str, code: str) -> str:
        conversation.set(key)
        return await python(code)

    async def run(python: Session, key: str, code: str) -> str:
        return await asyncio.create_task(within(python, key, code))

    async def fails(python: Session, key: str, code: str) -> str:
        conversation.set(key)
        return await asyncio.create_task(python.fails(code))

    crowded = starting(sessions=1, work=tmp_path / "python")
    await run(crowded, "a", "x = 1")
    await run(crowded, "b", "x = 2")
    assert (await fails(crowded, "a", "x")).startswith(
        "[the Python process was ended to make room for other conversations;"
        " its variables are lost, a fresh one starts]\n"
    )
    idle = starting(idle=0.01)
    await run(idle, "a", "x = 1")
    await until(lambda: not idle.hand._sessions["a"].alive)
    assert "was idle for 0.01 s and was ended" in await fails(idle, "a", "x")
    later = starting(work=tmp_path / "python")
    assert await run(later, "a", "1") == "1"
    assert (await fails(later, "a", "x")).startswith(
        "[a fresh Python process: earlier variables are lost, files are kept]\n"
    )


async def test_when_all_sessions_work_another_has_to_wait(starting: Starting) -> None:
    async def within(key: str, code: str) -> str:
        conversation.set(key)
        return await python(code)

    python = starting(sessions=1)
    seen: list[str] = []
    emit.set(lambda stream, text: seen.append(text))
    first = asyncio.create_task(within("a", "print('on')\nwhile True: pass"))
    await until(lambda: seen)
    with pytest.raises(HandError, match="too many other conversations"):
        await asyncio.create_task(within("b", "1"))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_closing_ends_a_call_that_runs(starting: Starting) -> None:
    python = starting()
    seen: list[str] = []
    emit.set(lambda stream, text: seen.append(text))
    call = asyncio.create_task(python("print('on')\nwhile True: pass"))
    await until(lambda: seen)
    await python.hand.close()
    with pytest.raises(HandError, match="was killed"):
        await call
    with pytest.raises(HandError, match="python is closed"):
        await python("1")


def test_only_the_newest_folders_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.builtin.python.server.FOLDERS", 2)
    for age, name in enumerate(("new", "old", "older")):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    assert Python(work=tmp_path)._folder("c") == tmp_path / "c"
    assert [one.name for one in tmp_path.iterdir()] == ["new"]


def test_it_works_beside_folders_of_the_same_names(tmp_path: Path) -> None:
    for name in ("tools", "agent", "json", "ctypes"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong one')")
    root = Path(isolation.__file__).parents[2]
    code = (
        f"import sys; sys.path.insert(0, {str(root)!r})\n"
        "import asyncio\n"
        "from tools.builtin.python.server import Python\n"
        f"import os; os.chdir({str(tmp_path)!r})\n"
        "async def main():\n"
        "    hand = Python()\n"
        "    print(await hand.call('python', {'code': '6*7'}))\n"
        "    await hand.close()\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("42\n", "")


async def test_it_is_killed_with_all_other_children(starting: Starting) -> None:
    python = starting()
    assert await python("1") == "1"
    assert len(process_groups.groups) == 1
    process_groups.kill_all()
    await until(lambda: not process_groups.groups)
    assert (await python("2")).endswith("2")


async def test_nothing_runs_on_when_the_host_is_killed(tmp_path: Path) -> None:
    root = Path(isolation.__file__).parents[2]
    code = (
        f"import sys; sys.path.insert(0, {str(root)!r})\n"
        "import asyncio\n"
        "from tools.builtin.base import emit\n"
        "from tools.builtin.python.server import Python\n"
        "async def main():\n"
        "    emit.set(lambda stream, text: print(text, flush=True))\n"
        "    await Python().call('python', {'code': 'print(1)\\nwhile True: pass'})\n"
        "asyncio.run(main())\n"
    )
    host = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-c", code),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert host.stdout is not None
    assert await host.stdout.readline() == b"1\n"
    left = psutil.Process(host.pid).children(True)
    assert left
    host.kill()
    await host.wait()
    await until(lambda: not any(one.is_running() for one in left))


WAYS = isolation.candidates()


@pytest.fixture(params=WAYS)
def confined(request: pytest.FixtureRequest, starting: Starting) -> Session:
    """Under each isolation that this machine has."""
    reason = isolation.probe(request.param)
    if reason is not None:
        pytest.skip(f"{request.param}: {reason}")
    limits = Limits(memory=1 << 29, file_size=1 << 20)
    return starting(isolation=Isolation(request.param, "", True), limits=limits, timeout=60)


async def test_files_outside_are_out_of_reach(confined: Session, tmp_path: Path) -> None:
    secret = Path.home() / ".ssh" / f"test-{os.getpid()}"
    made = not secret.parent.exists()
    secret.parent.mkdir(mode=0o700, exist_ok=True)
    near = tmp_path / "near"
    for path in (secret, near):
        path.write_text("secret")
        path.chmod(0o600)
    try:
        for path in (secret, near):
            for attempt in (
                f"open({str(path)!r}).read()",
                f"open({str(path)!r}, 'a')",
                f"import os; os.unlink({str(path)!r})",
                f"os.rename({str(path)!r}, 'mine')",
                f"os.link({str(path)!r}, 'mine')",
                f"os.listdir({str(path.parent)!r})",
                f"os.truncate({str(path)!r}, 0)",
                f"os.symlink({str(path)!r}, 'link{path.name}'); open('link{path.name}').read()",
                f"open({str(path)!r} + '.new', 'w')",
            ):
                text = await confined.fails(attempt)
                assert "Error: [Errno" in text, text
            # May seem to succeed, must do nothing.
            for attempt in (f"os.chmod({str(path)!r}, 0o777)", f"os.utime({str(path)!r}, (1, 1))"):
                try:
                    await confined(attempt)
                except HandError:
                    pass
            assert path.read_text() == "secret"
            assert path.stat().st_mode & 0o777 == 0o600
            assert path.stat().st_mtime > 1
        assert "secret" not in await confined("import os; dict(os.environ)")
    finally:
        secret.unlink()
        if made:
            with contextlib.suppress(OSError):  # another process is at the same
                secret.parent.rmdir()


async def test_its_own_folder_works(confined: Session) -> None:
    code = "import shutil\nopen('a', 'w').write('x')\nshutil.copy('a', 'b')\nsorted(os.listdir())"
    here = await confined("import os; print(os.getcwd())")
    assert await confined(code) == f"['a', 'b']\n[saved: {here}/a, {here}/b]"
    assert await confined("import tempfile\ntempfile.TemporaryFile().write(b'abc')") == "3"
    assert f"[saved: {here}/mine.py]" in await confined("open('mine.py', 'w').write('x = 3')")
    assert await confined("import mine; mine.x") == "3"
    assert "File too large" in await confined.fails("open('a', 'wb').write(b'x' * (2 << 20))")


async def test_no_network(confined: Session) -> None:
    for family, kind in (("AF_INET", "STREAM"), ("AF_INET", "DGRAM"), ("AF_UNIX", "STREAM")):
        code = f"import socket; s = socket.socket(socket.{family}, socket.SOCK_{kind})"
        text = await confined.fails(code)
        assert "PermissionError" in text
    assert "Error" in await confined.fails(
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9')"
    )
    assert await confined("import socket; a, b = socket.socketpair(); a.send(b'x'); b.recv(1)")


async def test_no_other_processes(confined: Session) -> None:
    await confined("import os, signal, subprocess, threading, ctypes")
    before = len(psutil.Process().children(True))
    assert "PermissionError" in await confined.fails("while True: os.fork()")
    assert "PermissionError" in await confined.fails("subprocess.run(['true'])")
    assert "PermissionError" in await confined.fails("os.execv('/bin/true', ['true'])")
    assert len(psutil.Process().children(True)) == before
    parent = os.getpid()
    for pid in (parent, os.getppid(), -1, -parent):
        text = await confined.fails(f"os.kill({pid}, signal.SIGTERM)")
        assert "PermissionError" in text or "ProcessLookupError" in text
    assert "Error" in await confined.fails(f"open('/proc/{parent}/environ').read()")
    assert "Error" in await confined.fails(f"open('/proc/{parent}/mem', 'rb')")
    trace = f"ctypes.CDLL(None).ptrace(16, {parent}, 0, 0)"
    assert await confined(trace) == "-1"
    limits = f"import resource; resource.prlimit({parent}, resource.RLIMIT_NOFILE, (10, 10))"
    assert "Error" in await confined.fails(limits)
    # Threads are not processes.
    assert await confined("t = threading.Thread(target=print, args=('hi',)); t.start(); t.join()")


async def test_memory_is_bounded(confined: Session) -> None:
    assert "MemoryError" in await confined.fails("x = bytearray(4 << 30)")
    assert "MemoryError" in await confined.fails("x = []\nwhile True: x.append(' ' * (1 << 20))")
    assert "PermissionError" in await confined.fails("import os; os.memfd_create('x')")
    assert "Error" in await confined.fails("open('/dev/shm/x', 'wb').write(b'x')")
    raised = "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))"
    assert "Error" in await confined.fails(raised)
    assert await confined("del x; 1") == "1"


async def test_the_libraries_of_this_python_work(confined: Session) -> None:
    pytest.importorskip("numpy")
    assert await confined("import numpy; int((numpy.ones((50, 50)) @ numpy.ones(50))[0])") == "50"


@pytest.mark.slow
async def test_figures_are_saved(confined: Session) -> None:
    pytest.importorskip("matplotlib")
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
    saved = (await confined(code)).splitlines()[-1]
    picture = Path(saved.removeprefix("[saved: ").removesuffix("]"))
    assert picture.name == "figure-1.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "figure-2.png" in await confined("plt.figure(); plt.plot([1, 2]); None")
    assert await confined("1") == "1"


async def test_no_namespace_of_its_own(confined: Session) -> None:
    await confined("import ctypes; libc = ctypes.CDLL(None, use_errno=True)")
    for call in (
        "unshare(0x10000000)",
        "mount(b'x', b'/', b'tmpfs', 0, None)",
        "syscall(425, 1, 0)",
    ):
        assert await confined(f"libc.{call}") == "-1"


def test_without_isolation_only_when_told_so() -> None:
    bare = Isolation("none", "nothing works here", False)
    assert not Python(isolation=bare).contained("python")

    async def refused() -> None:
        hand = Python(isolation=bare)
        with pytest.raises(HandError, match="not available: nothing works here"):
            await hand.call("python", {"code": "1"})
        await hand.close()
        hand = Python(isolation=bare, allow_unsandboxed=True)
        assert not hand.contained("python")
        assert await hand.call("python", {"code": "6*7"}) == "42"
        await hand.close()

    asyncio.run(refused())


def test_an_isolation_is_only_believed_when_tried() -> None:
    assert "read a file outside" in (isolation.probe("none") or "")
    assert isolation.isolation().ok or isolation.isolation().name == "none"
