"""Code that turns on the process that runs it: its pipe, its threads, its folder."""

import asyncio
import os
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.folders import nest_folders
from tests.support.interpreter import Interpreter, Starting, worker
from tests.support.waiting import HANG_SECONDS, wait_until
from tools.builtin_server import ToolError, output_listener
from tools.sandbox import isolation

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="uses /proc")

ENDED = "; its variables are lost, a fresh one starts"
SENDER = "import sys\nsender = sys.stdout._sender\nsend = sender.send\n"
FLOOD = SENDER + "for _ in range(12_000): send(b'o', 'x' * 16_000)"


async def test_worker_flood_ends_it_and_takes_no_memory(confined: Interpreter) -> None:
    await confined("1")
    pieces: list[int] = []
    output_listener.set(lambda stream, text: pieces.append(len(text)))
    before = psutil.Process().memory_info().rss
    text = await confined.fails(FLOOD)  # 192 MB
    assert text.endswith(f"ended because it sent more than 2,000,000 characters of output{ENDED}")
    assert len(text) < 2_000_500 and sum(pieces) <= 2_000_000
    del text
    assert psutil.Process().memory_info().rss - before < 32 << 20
    assert await confined("1") == "1"
    text = await confined.fails(SENDER + "while True: send(b'o', '')")
    assert "sent more than 10,000 pieces of output" in text


@pytest.mark.long
async def test_worker_flood_leaves_loop_to_others(python: Interpreter) -> None:
    """What was parsed as JSON on the event loop, in lines of 16 MiB, is not looked at."""
    await python("1")
    lines = SENDER + "line = b'{\"x\":[' + b'[],' * 4_000_000 + b'[]]}\\n'\n"
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    call = asyncio.create_task(python.fails(lines + "while True: sender._file.write(line)"))
    await wait_until(call.done)
    counting.cancel()
    assert "ended because it sent a malformed message" in call.result()
    assert turns > 10


@pytest.mark.parametrize(
    "message", ["b'[' * 100_000 + b'\\n'", "b'{\"id\":[]}\\nnull\\n\\xff\\n'", "b'o' + bytes(6)"]
)
async def test_worker_malformed_message_ends_it(starting: Starting, message: str) -> None:
    python = starting(seconds=HANG_SECONDS)
    text = await python.fails(f"import os\nfor fd in range(3, 20):\n  try: os.write(fd, {message})\n"
                              "  except OSError: pass\nwhile True: pass")  # fmt: skip
    assert text == f"the Python process was ended because it sent a malformed message{ENDED}"
    assert await python("1") == "1"


async def test_worker_output_between_calls_ends_it(python: Interpreter) -> None:
    late = (
        SENDER + "from struct import pack\n"
        "end, more = (pack('!cIH', kind, sender._id, 0) for kind in (b'+', b'o'))\n"
        "sender._file.write(end + more); sender._file.flush()"
    )
    try:
        text = await python(late)
    except ToolError as error:  # it was seen before the call had ended
        text = str(error)
    await wait_until(lambda: not python.builtin.sessions[""].alive)
    text += await python("1")
    assert f"ended because it sent output while no call was running{ENDED}" in text
    assert await python("2") == "2"


async def test_worker_stderr_flood_ends_it(python: Interpreter) -> None:
    text = await python.fails("import os\nwhile True: os.write(2, b'x' * 60_000)")
    assert "wrote more than 64 MiB to stderr" in text


async def test_run_many_pieces_of_output_arrive(python: Interpreter) -> None:
    code = "import sys\nfor i in range(20_000): print('o'); print('e', file=sys.stderr)"
    assert await python(code) == ("o\ne\n" * 20_000).strip()
    assert len(await python("print('\U0001f600' * 3_000_000)")) < 2_000_000


@linux_only
async def test_run_too_many_threads_ends_worker(python: Interpreter) -> None:
    await python("import threading, time\nthreading.stack_size(1 << 16)")
    sleep = "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()"
    assert await python(f"for _ in range(100): {sleep}") == ""
    text = await python.fails(f"for _ in range(300): {sleep}\nwhile True: time.sleep(1)")
    assert text == f"the Python process was ended because it had more than 256 threads{ENDED}"


@linux_only
async def test_threads_rest_between_calls(confined: Interpreter) -> None:
    code = "import threading\ncount = 0\ndef work():\n  global count\n  while True: count += 1\n"
    await confined(code + "threading.Thread(target=work, daemon=True).start()")
    await wait_until(lambda: worker().status() == psutil.STATUS_STOPPED)
    spent = worker().cpu_times()
    first = int(await confined("count"))
    assert int(await confined("while count == count: pass" if not first else "count")) >= first > 0
    await wait_until(lambda: worker().status() == psutil.STATUS_STOPPED)
    assert worker().cpu_times().user >= spent.user


@linux_only
async def test_worker_in_own_session_rests_between_calls(confined: Interpreter) -> None:
    await confined("import os\ntry: os.setsid()\nexcept OSError: pass\nx = 1")
    await wait_until(lambda: worker().status() == psutil.STATUS_STOPPED)
    assert await confined("x") == "1"


@linux_only
@pytest.mark.parametrize("name", isolation.candidates())
async def test_resting_worker_ends_when_host_is_killed(name: str, tmp_path: Path) -> None:
    if reason := isolation.probe(name):
        pytest.skip(f"{name}: {reason}")
    root = Path(isolation.__file__).parents[2]
    code = (
        f"import sys; sys.path.insert(0, {str(root)!r})\n"
        "import asyncio\n"
        "from tools.builtin.python.server import PythonServer\n"
        "from tools.sandbox.isolation import Isolation\n"
        f"server = PythonServer(isolation=Isolation({name!r}, '', True))\n"
        "async def main():\n"
        "    print(await server.call('python', {'code': '1'}), flush=True)\n"
        "    await asyncio.sleep(600)\n"
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
    await wait_until(lambda: left[-1].status() == psutil.STATUS_STOPPED)
    host.kill()
    await host.wait()
    await wait_until(lambda: not any(process.is_running() for process in left))


WRITES = {
    "files": "for i in range(64): open(f'big{i}', 'wb').write(b'x' * (1 << 20))",
    "removed files": "files = []\nimport tempfile\nfor i in range(64):\n"
    "  files.append(tempfile.TemporaryFile()); files[-1].write(b'x' * (1 << 20)); files[-1].flush()",
    "empty files": "for i in range(2000): open(f'new{i}', 'w').close()",
    "deep folders": "import os\nfor i in range(1100): os.mkdir('n'); os.chdir('n')",
    "locked folder": "import os\nos.mkdir('n', 0o300)\n"
    "for i in range(64): open(f'n/{i}', 'wb').write(b'x' * (1 << 20))",
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("wait", [False, True], ids=["at-end", "while-running"])
@pytest.mark.parametrize("attack", WRITES)
async def test_run_filling_folder_is_ended_and_undone(
    starting: Starting, tmp_path: Path, attack: str, wait: bool
) -> None:
    if attack == "removed files" and sys.platform != "linux":
        pytest.skip("uses /proc")
    limits = {"folder_bytes": 20 << 20, "folder_entries": 500}
    python = starting(work_folder=tmp_path, **limits, seconds=HANG_SECONDS)
    await python("open('mine', 'w').write('x')")
    code = WRITES[attack] + ("\nimport time\nwhile True: time.sleep(1)" if wait else "")
    text = await python.fails(code)
    why = "had more than 20 MiB in its folder"
    if attack in ("empty files", "deep folders") or (attack == "locked folder" and os.getuid()):
        why = "had more than 500 files in its folder, or too deep ones"
    assert text.endswith(f"{why}; the files that this call wrote are removed{ENDED}")
    assert [path.name for path in (tmp_path / "none").iterdir()] == ["mine"]
    assert await python("open('mine').read()") == "'x'"
    assert await python("open('more', 'w').write('x'); 1") == f"1\n[saved: {tmp_path}/none/more]"


async def test_folder_filled_by_person_stays(starting: Starting, tmp_path: Path) -> None:
    python = starting(work_folder=tmp_path, folder_entries=20)
    assert await python("1") == "1"
    for number in range(50):
        (tmp_path / "none" / str(number)).touch()
    assert await python("import os; len(os.listdir())") == "50"
    assert "had more than 50 files in its folder" in await python.fails("open('more', 'w').close()")
    assert len([*(tmp_path / "none").iterdir()]) == 50


async def test_deep_folder_of_other_conversation_is_pruned(
    starting: Starting, tmp_path: Path
) -> None:
    nest_folders(tmp_path / "old", 1100)
    python = starting(work_folder=tmp_path, max_folders=1)
    assert await python("1") == "1"
    await wait_until(lambda: [path.name for path in tmp_path.iterdir()] == ["none"])
