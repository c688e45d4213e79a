"""Faults around the program: kill -9, a full disk, too little memory, a terminal that is closed.

Each ends in one sentence, and nothing that was finished is lost.

Clients that disconnect and ports that are in use: tests/agent/server/test_disconnect.py; two processes
on one store: tests/agent/store/test_conversations.py; SIGTERM: tests/agent/server/test_serve.py.
"""

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent.store.conversations import Store
from agent.store.responses import ResponseStore
from tests.load.server_process import start_server
from tests.support.endpoint import Serve, api_error
from tests.support.program import ROOT
from tests.support.requests import ENDLESS
from tests.support.scripts import HELLO, final, python, raw_call
from tests.support.waiting import HANG_SECONDS

Script = Callable[..., str]
AGENT_COMMAND = f"{sys.executable} -P -m agent"


@pytest.mark.slow
def test_kill_at_any_moment_finished_items_stored() -> None:
    """`make faults` kills 500 times."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.load.crash_test", "--count", "20"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    lines = [line.split(None, 1) for line in ran.stdout.splitlines()]
    counts = {label: int(number.replace(",", "")) for number, label in lines}
    assert counts["kills"] + counts["kills over HTTP"] == 20
    assert counts["finished items, all kept"] >= 20


@pytest.mark.long
async def test_kill_server_under_load_finished_items_stored(home: Path) -> None:
    """Items that clients have received as finished are stored."""
    finished: list[tuple[str, dict[str, Any]]] = []
    async with (
        start_server(home, "--no-loop-guard") as program,
        httpx2.AsyncClient(timeout=HANG_SECONDS) as http,
    ):
        endless = {"input": "x", "background": True, **ENDLESS}
        (await http.post(f"{program.url}/responses", json=endless)).raise_for_status()

        async def client() -> None:
            body = {"input": "Who are you?", "stream": True}
            url = f"{program.url}/responses"
            with suppress(httpx2.TransportError):
                while True:
                    async with http.stream("POST", url, json=body) as answer:
                        response_id = ""
                        async for line in answer.aiter_lines():
                            event = json.loads(line[6:]) if line.startswith("data: {") else {}
                            response_id = event.get("response", {}).get("id", response_id)
                            if event.get("type") == "response.output_item.done":
                                finished.append((response_id, event["item"]))
                            if len(finished) == 20:
                                program.process.kill()

        await asyncio.gather(*(client() for _ in range(6)))
    store = Store(home / "state" / "store.sqlite")
    responses = ResponseStore(store)
    for response_id, item in finished:
        stored = responses.find(response_id)
        assert stored is not None and stored.response.status in ("completed", "failed")
        assert item in stored.response.model_dump(mode="json")["output"]
    assert "in_progress" not in program.stored_statuses().values()
    assert "failed" in program.stored_statuses().values(), (
        "a response was running when it was killed"
    )
    store.close()


def run_on_small_disk(home: Path, commands: str, size: str = "512k") -> list[str]:
    """Run shell commands with an AGENT_HOME that small; the lines of their output, stderr included."""
    home.mkdir()
    ran = subprocess.run(
        ["unshare", "-rm", "sh", "-ec", f"mount -t tmpfs -o size={size} none {home}\n{commands}"],
        env={**os.environ, "AGENT_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if ran.stdout.startswith(("unshare", "mount")):
        pytest.skip(f"nothing can be mounted here: {ran.stdout}")
    assert ran.returncode == 0 and "Traceback" not in ran.stdout, ran.stdout[-3000:]
    return ran.stdout.splitlines()


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="needs mounts")
def test_run_disk_fills_up_answers_with_warning(tmp_path: Path, script: Script) -> None:
    """The disk is full in the middle of a turn, which can be neither stored nor logged any more."""
    # Each run starts the script from its beginning; --max-output-tokens shortens the first one. The
    # second one's notes alone take more than the 100 kB that are left, however many there are.
    long = script(final("More and more. " * 2500))
    warning, answer, sessions = run_on_small_disk(
        tmp_path / "home",
        f"""{AGENT_COMMAND} run first --tools none --max-output-tokens 9 --engine {long} >&2 || true
        dd if=/dev/zero of=$AGENT_HOME/fill bs=1k \\
            count=$(($(df --output=avail $AGENT_HOME | tail -1) - 100)) 2>/dev/null
        {AGENT_COMMAND} run second --tools none --no-loop-guard --engine {long} | tail -c 12
        rm $AGENT_HOME/fill
        {AGENT_COMMAND} sessions list --all --json | tr -d '\\n'""",
    )[-3:]
    assert answer.strip() == "and more."
    assert warning == "agent: this conversation is not stored: database or disk is full."
    assert {session["title"] for session in json.loads(sessions)} == {"first", "second"}


FILL_DISK = """
import os
failures, file = 0, open("fill", "ab", buffering=0)
while failures < 1000:
    try:
        file.write(bytes(1 << 20 if not failures else 512))
    except OSError:
        failures += 1
print("full", failures)
"""
"""A command that takes each byte of the disk that is given back while it runs, too."""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="needs mounts")
def test_run_command_fills_disk_this_turn_and_next_ones_stored(
    tmp_path: Path, script: Script
) -> None:
    """The store's reserve has the space; it is refilled when there is room again."""
    fill = json.dumps({"cmd": [sys.executable, "-I", "-c", FILL_DISK]})
    engine = script(raw_call("container.exec", fill), final("More and more. " * 2000))
    *_, free, sessions, spare = run_on_small_disk(
        tmp_path / "home",
        f"""{AGENT_COMMAND} run first --tools none --engine {engine} >/dev/null
        mkdir $AGENT_HOME/root
        {AGENT_COMMAND} run second --tools shell --approve shell --root $AGENT_HOME/root \\
            --engine {engine} >/dev/null
        for i in 1 2; do
            {AGENT_COMMAND} run --continue more --tools none --engine {engine} >/dev/null
        done
        df --output=avail $AGENT_HOME | tail -1
        {AGENT_COMMAND} sessions list --all --json | tr -d '\\n'; echo
        find $AGENT_HOME -name fill -delete
        {AGENT_COMMAND} run fourth --tools none --engine {engine} >/dev/null 2>&1
        stat -c %b $AGENT_HOME/state/store.sqlite-reserve""",
        size="80m",
    )
    assert int(free) < 8 << 10, "kilobytes: the disk was full"
    listed = [(each["title"], each["turns"]) for each in json.loads(sessions)]
    assert listed == [("second", 3), ("first", 1)]
    assert int(spare) * 512 >= 8 << 20


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="needs mounts")
def test_home_read_only_run_answers_serve_refuses(tmp_path: Path, script: Script) -> None:
    engine = script(python("6*7"), final("Done."))
    warning, call, answer, refusal, code = run_on_small_disk(
        tmp_path / "home",
        f"""mount -o remount,ro $AGENT_HOME
        {AGENT_COMMAND} run go --engine {engine} 2>&1
        {AGENT_COMMAND} serve --port 0 --engine {engine} || echo exit $?""",
    )
    assert "Read-only file system" in warning and warning.endswith(
        "This conversation is not stored."
    )
    assert "Read-only file system" in call and "Internal" not in call
    assert answer == "Done."
    assert "cannot be used" in refusal and code == "exit 2"


async def test_serve_disk_fills_up_answers_from_memory(serve: Serve) -> None:
    served = await serve(HELLO)
    first = (await served.post({"input": "x"})).json()
    responses = served.server._store
    assert responses is not None
    db = responses.store.db
    db.executescript("pragma incremental_vacuum")  # its reserve
    pages = db.execute("pragma page_count").fetchone()[0]
    db.execute(f"pragma max_page_count = {pages}")
    last = {}
    for _ in range(20):
        answer = await served.post({"input": "word " * 2000})
        assert answer.status_code == 200, answer.text
        last = answer.json()
    assert "could not be stored" in served.runtime.paths.log_file.read_text()
    for response in (first, last):  # the last one from memory
        assert (await served.get(f"/v1/responses/{response['id']}")).json() == response
    continued = await served.post({"input": "y", "previous_response_id": last["id"]})
    assert continued.json()["status"] == "completed"


@pytest.mark.long
async def test_serve_model_file_missing_recovers_when_back(
    serve: Serve, tmp_path: Path, tiny_gguf: Path
) -> None:
    file = tmp_path / "copy.gguf"
    file.symlink_to(tiny_gguf)
    served = await serve(model=str(file))
    body = {"input": "hello", "max_output_tokens": 16}
    assert (await served.post(body)).status_code == 200
    await served.runtime.unload()
    for content in (None, b"something else"):
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_bytes(content)
        error = api_error(await served.post(body), 503)
        assert error["code"] == "model_not_available" and str(file) in error["message"]
    file.unlink()
    file.symlink_to(tiny_gguf)
    assert (await served.post(body)).status_code == 200


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS")
@pytest.mark.parametrize("mebibytes", [450, 500, 550])
def test_load_too_little_memory_one_sentence(home: Path, tiny_gguf: Path, mebibytes: int) -> None:
    """Whose allocation fails is chance: Python's, llama.cpp's, its threads', the C library's.

    The last two end the process themselves, with 1 and with 127.
    """

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20, mebibytes << 20))

    ran = subprocess.run(
        [*AGENT_COMMAND.split(), "run", "hello", "--model", str(tiny_gguf), "--tools", "none"]
        + ["--context", "131072"],
        env={**os.environ, "AGENT_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit,
    )
    error = ran.stderr.strip()
    of_libc = error == "cannot allocate memory for thread-local data: ABORT"
    assert (ran.returncode, ran.stdout) == (127 if of_libc else 1, "")
    # Memory may be short a second time, while the first failure is dealt with.
    lines = error.splitlines()
    assert of_libc or (1 <= len(lines) <= 2 and lines[0].startswith(("agent: ", "libgomp: "))), (
        error
    )
    assert all(line.startswith("agent: ") for line in lines[1:])
    if "enough memory" in error or "cannot be read" in error:
        # Nothing is stored of a turn that failed before anything was generated.
        assert not Store(home / "state" / "store.sqlite").summaries()


@pytest.mark.slow
@pytest.mark.parametrize("nohup", [False, True])
async def test_serve_hangup_ends_unless_nohup(home: Path, script: Script, nohup: bool) -> None:
    """SIGHUP ends the server in order, unless it was started under nohup."""
    # The program inherits its handling; these tests may run under nohup themselves.
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
    async with start_server(home, "--engine", script(HELLO)) as program:
        signal.signal(signal.SIGHUP, before)
        if nohup:
            program.process.send_signal(signal.SIGHUP)
            async with httpx2.AsyncClient(timeout=HANG_SECONDS) as http:
                answer = await http.post(f"{program.url}/responses", json={"input": "x"})
            assert answer.json()["status"] == "completed"
        last_signal = signal.SIGTERM if nohup else signal.SIGHUP
        assert await program.stop(last_signal) == (0, "")
