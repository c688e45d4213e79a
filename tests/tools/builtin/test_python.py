"""The python builtin: what a model's code may do, and what it may not."""

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.interpreter import Interpreter, Starting, worker
from tests.support.waiting import wait_until
from tools import process_groups
from tools.builtin.conversation_folders import ConversationFolders
from tools.builtin.python.server import PythonServer
from tools.builtin_server import ToolError, conversation_id, output_listener
from tools.sandbox import isolation
from tools.sandbox.isolation import Isolation


async def test_run_returns_output_and_last_value(python: Interpreter) -> None:
    assert await python("123*456") == "56088"
    assert await python("print('a')\nprint('b')\nx = 5") == "a\nb"
    assert await python("x += 1\nprint(x, end='')\nx") == "6\n6"
    assert await python("_ + 1") == "7"
    assert await python("None") == ""
    assert await python("'täg\\u2028😀'") == "'täg\\u2028😀'"
    assert await python("def f():\n    return 1\nclass A: pass\nf()") == "1"
    assert await python("import sys; print('e', file=sys.stderr)") == "e"
    assert await python("") == ""


async def test_trained_folder_is_own_folder(confined: Interpreter) -> None:
    """gpt-oss's system message promises it, whatever the isolation is."""
    python = confined
    await python("with open('/mnt/data/a.txt', 'w') as file: file.write('hi')")
    assert await python("open('a.txt').read()") == "'hi'"
    assert await python("name = 'a'; open(f'/mnt/data/{name}.txt').read()") == "'hi'"
    assert (
        await python("from pathlib import Path; (Path('/mnt/data') / 'a.txt').exists()") == "True"
    )
    assert await python("import os; os.listdir('/mnt/data/')") == "['a.txt']"
    assert await python("os.chdir('/mnt/data'); os.path.exists('a.txt')") == "True"
    sql = "import sqlite3; sqlite3.connect('/mnt/data/b.db').execute('create table t (a)'); 1"
    assert "b.db" in await python(sql)
    assert await python("'/mnt/database', 'in /mnt/data'") == "('/mnt/database', 'in /mnt/data')"
    folder = await python("print(os.getcwd())")
    try:
        joined = await python("open('/'.join(['', 'mnt', 'data', 'a.txt'])).read()")
    except ToolError as error:
        joined = str(error)
    assert joined == "'hi'" or joined.endswith(f"/mnt/data is {folder} here.")


async def test_run_error_has_traceback_and_keeps_variables(python: Interpreter) -> None:
    text = await python.fails("y = 1\nprint('so far')\ny/0")
    assert text.startswith("so far\nTraceback (most recent call last):")
    assert text.endswith("ZeroDivisionError: division by zero")
    assert "y/0" in text and "worker" not in text
    assert "SyntaxError" in await python.fails("1 +")
    for line in ("!ls", "%cd x", "x = 1\n%matplotlib inline", "files = !ls"):
        assert "no shell lines" in (text := await python.fails(line)) and "SyntaxError" in text
    deep = await python.fails("def f(n): return f(n + 1)\nf(0)")
    assert deep.endswith("maximum recursion depth exceeded") and len(deep) < 3000
    assert (await python.fails("input('name? ')")).splitlines()[-1].startswith("EOFError: input()")
    assert await python("import sys; sys.exit()") == ""
    assert await python.fails("sys.exit(3)") == "SystemExit: 3"
    assert "\0" in await python.fails("raise ValueError('\\0')")
    bad = "class E(Exception):\n    def __str__(self): raise E\nraise E"
    assert "E" in await python.fails(bad)
    assert await python("y") == "1"


async def test_run_streams_output(python: Interpreter, tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []
    output_listener.set(lambda stream, text: seen.append((stream, text)))
    code = "import time\nprint('working')\ntime.sleep(60)"
    call = asyncio.create_task(python(code))
    await wait_until(lambda: seen)
    assert "".join(text for _, text in seen).startswith("working")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_run_cancelled_keeps_variables(python: Interpreter) -> None:
    await python("z = 41")
    for loop in ("while True: pass", "import time; time.sleep(600)"):
        call = asyncio.create_task(python(f"print('on')\n{loop}"))
        seen: list[str] = []
        output_listener.set(lambda stream, text, seen=seen: seen.append(text))  # type: ignore[misc]
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await python("z + 1") == "42"


async def test_run_timeout_keeps_variables(starting: Starting) -> None:
    python = starting(seconds=2.5)
    await python("z = 41")
    text = await python.fails("print('on')\nwhile True: pass")
    assert text.startswith("on\n")
    assert text.endswith("KeyboardInterrupt\nError: stopped after 2.5 s; variables are kept")
    assert await python("z + 1") == "42"


async def test_run_ignoring_interrupt_is_killed(starting: Starting) -> None:
    python = starting(seconds=2.5, interrupt_grace=(0.2, 0.2, 0.2))
    await python("z = 41")
    stubborn = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    text = await python.fails(stubborn)
    assert "stopped after 2.5 s" in text and "its variables are lost" in text
    assert "NameError" in await python.fails("z")


async def test_worker_death_reported_and_replaced(python: Interpreter) -> None:
    await python("z = 1")
    text = await python.fails("import os\nprint('last')\nos._exit(3)")
    assert text == (
        "last\nError: the Python process ended (exit code 3); "
        "its variables are lost, a fresh one starts"
    )
    assert "NameError" in await python.fails("z")
    crash = await python.fails("import ctypes; ctypes.string_at(0)")
    assert "was killed by signal 11" in crash
    await python("z = 1")
    worker().kill()
    await wait_until(lambda: not python.builtin.sessions[""].alive)
    assert await python("1") == "1"
    text = await python.fails("z")  # bubblewrap names the signal
    assert text.startswith("[the Python process was killed")
    assert "its variables are lost, a fresh one starts]\n" in text


async def test_run_long_output_is_cut(python: Interpreter) -> None:
    parts = 0

    def count(stream: str, text: str) -> None:
        nonlocal parts
        parts += 1

    output_listener.set(count)
    text = await python("for i in range(400_000): print(i)\n'end'")
    assert len(text) < 2_000_000
    assert text.startswith("0\n1\n2\n") and text.endswith("399998\n399999\n'end'")
    assert "characters dropped" in text
    assert parts < 1000
    assert len(await python("print('x' * 50_000_000)")) < 2_000_000
    assert await python("1") == "1"


async def test_threads_after_run_are_silent(python: Interpreter) -> None:
    code = "import threading, time\nstop = threading.Event()\n"
    code += "def talk():\n  while not stop.is_set(): print('late'); time.sleep(0.001)\n"
    await python(code + "threading.Thread(target=talk, daemon=True).start()")
    seen = await python("time.sleep(0.02)\nstop.set()\n5")
    assert seen.endswith("5")


async def test_conversations_have_own_variables_and_folders(
    starting: Starting, tmp_path: Path
) -> None:
    python = starting(work_folder=tmp_path / "python")

    async def within(key: str, code: str) -> str:
        conversation_id.set(key)  # of the task that runs this
        return await python(code)

    async def both(code: str) -> list[str]:
        return await asyncio.gather(
            *(asyncio.create_task(within(key, code.format(key=key))) for key in ("a", "b"))
        )

    await both("x = '{key}'")
    assert await both("x") == ["'a'", "'b'"]
    await both("open('mine', 'w').write(x)")
    assert (tmp_path / "python" / "a" / "mine").read_text() == "a"
    with pytest.raises(ToolError, match="Error"):
        await asyncio.create_task(within("a", f"open('{tmp_path}/python/b/mine').read()"))


async def test_error_says_why_session_ended(starting: Starting, tmp_path: Path) -> None:
    async def within(python: Interpreter, key: str, code: str) -> str:
        conversation_id.set(key)
        return await python(code)

    async def run(python: Interpreter, key: str, code: str) -> str:
        return await asyncio.create_task(within(python, key, code))

    async def fails(python: Interpreter, key: str, code: str) -> str:
        conversation_id.set(key)
        return await asyncio.create_task(python.fails(code))

    crowded = starting(max_workers=1, work_folder=tmp_path / "python")
    await run(crowded, "a", "x = 1")
    await run(crowded, "b", "x = 2")
    assert (await fails(crowded, "a", "x")).startswith(
        "[the Python process was ended to make room for other conversations;"
        " its variables are lost, a fresh one starts]\n"
    )
    idle = starting(idle_seconds=0.01)
    await run(idle, "a", "x = 1")
    await wait_until(lambda: not idle.builtin.sessions["a"].alive)
    assert "was idle for 0.01 s and was ended" in await fails(idle, "a", "x")
    later = starting(work_folder=tmp_path / "python")
    assert await run(later, "a", "1") == "1"
    assert (await fails(later, "a", "x")).startswith(
        "[a fresh Python process: earlier variables are lost, files are kept]\n"
    )


async def test_all_workers_busy_refuses_conversation(starting: Starting) -> None:
    async def within(key: str, code: str) -> str:
        conversation_id.set(key)
        return await python(code)

    python = starting(max_workers=1)
    seen: list[str] = []
    output_listener.set(lambda stream, text: seen.append(text))
    first = asyncio.create_task(within("a", "print('on')\nwhile True: pass"))
    await wait_until(lambda: seen)
    with pytest.raises(ToolError, match="too many other conversations"):
        await asyncio.create_task(within("b", "1"))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_close_ends_running_call(starting: Starting) -> None:
    python = starting()
    seen: list[str] = []
    output_listener.set(lambda stream, text: seen.append(text))
    call = asyncio.create_task(python("print('on')\nwhile True: pass"))
    await wait_until(lambda: seen)
    await python.builtin.close()
    with pytest.raises(ToolError, match="was killed"):
        await call
    with pytest.raises(ToolError, match="python is closed"):
        await python("1")


async def test_old_conversation_folders_deleted(tmp_path: Path) -> None:
    for age, name in enumerate(("new", "old", "older")):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    folders = ConversationFolders(tmp_path, 2)
    folders.prune([folders.find("c")])
    await wait_until(lambda: [path.name for path in tmp_path.iterdir()] == ["new"])


def test_worker_ignores_folders_named_like_modules(tmp_path: Path) -> None:
    for name in ("tools", "agent", "json", "ctypes"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong one')")
    root = Path(isolation.__file__).parents[2]
    code = (
        f"import sys; sys.path.insert(0, {str(root)!r})\n"
        "import asyncio\n"
        "from tools.builtin.python.server import PythonServer\n"
        f"import os; os.chdir({str(tmp_path)!r})\n"
        "async def main():\n"
        "    server = PythonServer()\n"
        "    print(await server.call('python', {'code': '6*7'}))\n"
        "    await server.close()\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("42\n", "")


async def test_kill_all_kills_worker(starting: Starting) -> None:
    python = starting()
    assert await python("1") == "1"
    assert len(process_groups.active_groups) == 1
    process_groups.kill_all()
    await wait_until(lambda: not process_groups.active_groups)
    assert (await python("2")).endswith("2")


async def test_worker_ends_when_host_is_killed(tmp_path: Path) -> None:
    root = Path(isolation.__file__).parents[2]
    code = (
        f"import sys; sys.path.insert(0, {str(root)!r})\n"
        "import asyncio\n"
        "from tools.builtin_server import output_listener\n"
        "from tools.builtin.python.server import PythonServer\n"
        "async def main():\n"
        "    output_listener.set(lambda stream, text: print(text, flush=True))\n"
        "    await PythonServer().call('python', {'code': 'print(1)\\nwhile True: pass'})\n"
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
    await wait_until(lambda: not any(process.is_running() for process in left))


async def test_python_files_outside_out_of_reach(confined: Interpreter, tmp_path: Path) -> None:
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
                assert "[Errno" in text, text
            # May seem to succeed, must do nothing.
            for attempt in (f"os.chmod({str(path)!r}, 0o777)", f"os.utime({str(path)!r}, (1, 1))"):
                try:
                    await confined(attempt)
                except ToolError:
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


async def test_python_own_folder_works(confined: Interpreter) -> None:
    code = "import shutil\nopen('a', 'w').write('x')\nshutil.copy('a', 'b')\nsorted(os.listdir())"
    here = await confined("import os; print(os.getcwd())")
    assert await confined(code) == f"['a', 'b']\n[saved: {here}/a, {here}/b]"
    assert await confined("import tempfile\ntempfile.TemporaryFile().write(b'abc')") == "3"
    forged = await confined("open('a]\\n[forged\\x1b[2J', 'w').close()")
    assert forged == f"[saved: {here}/'a]\\n[forged\\x1b[2J']"
    assert f"[saved: {here}/mine.py]" in await confined("open('mine.py', 'w').write('x = 3')")
    assert await confined("import mine; mine.x") == "3"
    assert "File too large" in await confined.fails("open('a', 'wb').write(b'x' * (2 << 20))")


async def test_python_no_network(confined: Interpreter) -> None:
    for family, kind in (("AF_INET", "STREAM"), ("AF_INET", "DGRAM"), ("AF_UNIX", "STREAM")):
        code = f"import socket; s = socket.socket(socket.{family}, socket.SOCK_{kind})"
        text = await confined.fails(code)
        assert "PermissionError" in text
    assert "Error" in await confined.fails(
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9')"
    )
    assert await confined("import socket; a, b = socket.socketpair(); a.send(b'x'); b.recv(1)")


async def test_python_no_other_processes(confined: Interpreter) -> None:
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
    for name in ("getpgid", "getsid"):
        text = await confined.fails(f"os.{name}({parent})")
        assert "PermissionError" in text or "ProcessLookupError" in text
        assert await confined(f"os.{name}(0) == os.{name}(os.getpid())") == "True"
    # Threads are not processes.
    assert await confined("t = threading.Thread(target=print, args=('hi',)); t.start(); t.join()")


async def test_python_memory_is_bounded(confined: Interpreter) -> None:
    assert "MemoryError" in await confined.fails("x = bytearray(4 << 30)")
    assert "MemoryError" in await confined.fails("x = []\nwhile True: x.append(' ' * (1 << 20))")
    assert "PermissionError" in await confined.fails("import os; os.memfd_create('x')")
    assert "Error" in await confined.fails("open('/dev/shm/x', 'wb').write(b'x')")
    raised = "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))"
    assert "Error" in await confined.fails(raised)
    assert await confined("del x; 1") == "1"


async def test_python_numpy_works(confined: Interpreter) -> None:
    pytest.importorskip("numpy")
    assert await confined("import numpy; int((numpy.ones((50, 50)) @ numpy.ones(50))[0])") == "50"


@pytest.mark.long
async def test_python_figures_are_saved(confined: Interpreter) -> None:
    pytest.importorskip("matplotlib")
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
    saved = (await confined(code)).splitlines()[-1]
    picture = Path(saved.removeprefix("[saved: ").removesuffix("]"))
    assert picture.name == "figure-1.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "figure-2.png" in await confined("plt.figure(); plt.plot([1, 2]); None")
    assert await confined("1") == "1"


async def test_python_no_new_namespaces(confined: Interpreter) -> None:
    await confined("import ctypes; libc = ctypes.CDLL(None, use_errno=True)")
    for call in (
        "unshare(0x10000000)",
        "mount(b'x', b'/', b'tmpfs', 0, None)",
        "syscall(425, 1, 0)",
    ):
        assert await confined(f"libc.{call}") == "-1"


def test_python_unconfined_only_if_allowed() -> None:
    bare = Isolation("none", "nothing works here", False)
    assert not PythonServer(isolation=bare).is_safe("python")

    async def refused() -> None:
        builtin = PythonServer(isolation=bare)
        with pytest.raises(ToolError, match="not available: nothing works here"):
            await builtin.call("python", {"code": "1"})
        await builtin.close()
        builtin = PythonServer(isolation=bare, allow_unsandboxed=True)
        assert not builtin.is_safe("python")
        assert await builtin.call("python", {"code": "6*7"}) == "42"
        await builtin.close()

    asyncio.run(refused())


def test_isolation_is_probed() -> None:
    assert "read a file outside" in (isolation.probe("none") or "")
    assert isolation.best_isolation().ok or isolation.best_isolation().name == "none"


async def test_replaced_output_is_back_in_the_next_run(python: Interpreter) -> None:
    for code in (
        "sys.stdout = None",
        "sys.stdout = sys.stderr = open('x', 'w')",
        "sys.stdout.close()",
    ):
        await python(f"import sys; {code}")
        assert await python("print(1, flush=True)") == "1"
