"""What breaks around the program ends in one sentence, and nothing that was finished is lost.

Clients that go and ports that are taken:
tests/agent/server/test_disconnect.py; two processes on one store:
tests/agent/store/test_conversations.py; SIGTERM: tests/agent/server/test_serve.py.
"""

from __future__ import annotations

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
from agent.store.responses import Archive
from tests.agent.server.test_errors import error_of
from tests.load.program import serving
from tests.support.endpoint import Serve
from tests.support.program import ROOT
from tests.support.scripts import HELLO, final, python

Script = Callable[..., str]
AGENT = f"{sys.executable} -P -m agent"


@pytest.mark.slow
def test_kill_9_at_any_moment() -> None:
    """`make faults` has 500 of them."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.load.crash_test", "--count", "20"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    lines = [line.split(None, 1) for line in ran.stdout.splitlines()]
    told = {what: int(number.replace(",", "")) for number, what in lines}
    assert told["kills"] + told["kills over HTTP"] == 20
    assert told["finished items, all kept"] > 20


@pytest.mark.slow
async def test_kill_9_of_a_server_under_load(home: Path) -> None:
    """What clients have seen as finished is there when the store is opened again."""
    seen: list[tuple[str, dict[str, Any]]] = []
    async with serving(home) as program, httpx2.AsyncClient(timeout=60) as http:

        async def client() -> None:
            body = {"input": "Who are you?", "stream": True}
            url = f"{program.url}/responses"
            with suppress(httpx2.TransportError):
                while True:
                    async with http.stream("POST", url, json=body) as answer:
                        name = ""
                        async for line in answer.aiter_lines():
                            event = json.loads(line[6:]) if line.startswith("data: {") else {}
                            name = event.get("response", {}).get("id", name)
                            if event.get("type") == "response.output_item.done":
                                seen.append((name, event["item"]))
                            if len(seen) == 20:
                                program.process.kill()

        await asyncio.gather(*(client() for _ in range(6)))
    archive = Archive(home / "state" / "store.sqlite")
    for name, item in seen:
        kept = archive.find(name)
        assert kept is not None and kept.response.status in ("completed", "failed")
        assert item in kept.response.model_dump(mode="json")["output"]
    assert "in_progress" not in program.stored().values()
    assert "failed" in program.stored().values(), "nobody was in the middle of it"
    archive.close()


def on_a_small_disk(home: Path, commands: str) -> list[str]:
    """What the commands write, stderr included; AGENT_HOME has 512 KiB, and is gone afterwards."""
    home.mkdir()
    ran = subprocess.run(
        ["unshare", "-rm", "sh", "-ec", f"mount -t tmpfs -o size=512k none {home}\n{commands}"],
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


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs mounts")
def test_a_full_disk(tmp_path: Path, script: Script) -> None:
    """It fills up in the middle of a turn, whose journal and log cannot be written any more."""
    # Each run begins the script anew, and --max-output-tokens makes the first one short.
    long = script({"markup": final("More and more. " * 600), "delay_ms": 0.1})
    told, answer, kept = on_a_small_disk(
        tmp_path / "home",
        f"""{AGENT} run first --tools none --max-output-tokens 9 --engine {long} >&2 || true
        dd if=/dev/zero of=$AGENT_HOME/fill bs=1k \\
            count=$(($(df --output=avail $AGENT_HOME | tail -1) - 60)) 2>/dev/null
        {AGENT} run second --tools none --engine {long} | tail -c 12
        rm $AGENT_HOME/fill
        {AGENT} sessions list --json | tr -d '\\n'""",
    )[-3:]
    assert answer.strip() == "and more."
    assert told == "agent: this conversation is not kept: database or disk is full."
    assert {talk["title"] for talk in json.loads(kept)} == {"first", "second"}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs mounts")
def test_a_home_that_cannot_be_written(tmp_path: Path, script: Script) -> None:
    said = on_a_small_disk(
        tmp_path / "home",
        f"""mount -o remount,ro $AGENT_HOME
        {AGENT} run go --engine {script(python("6*7"), final("Done."))} 2>&1
        {AGENT} serve --port 0 --engine {script(python("6*7"), final("Done."))} || echo exit $?""",
    )
    unkept, call, answer, refused, code = said
    assert "Read-only file system" in unkept and unkept.endswith("This conversation is not kept.")
    assert "Read-only file system" in call and "Internal" not in call
    assert answer == "Done."
    assert "cannot be used" in refused and code == "exit 2"


async def test_a_disk_that_fills_up_under_a_server(serve: Serve) -> None:
    served = await serve(HELLO)
    first = (await served.post({"input": "x"})).json()
    archive = served.server._archive
    assert archive is not None
    pages = archive._db.execute("pragma page_count").fetchone()[0]
    archive._db.execute(f"pragma max_page_count = {pages}")
    last = {}
    for _ in range(20):
        answer = await served.post({"input": "word " * 2000})
        assert answer.status_code == 200, answer.text
        last = answer.json()
    assert "could not be stored" in served.runtime.where.log.read_text()
    for one in (first, last):  # the last one from memory
        assert (await served.get(f"/v1/responses/{one['id']}")).json() == one
    going_on = await served.post({"input": "y", "previous_response_id": last["id"]})
    assert going_on.json()["status"] == "completed"


@pytest.mark.slow
async def test_a_model_file_that_goes_and_comes_back(
    serve: Serve, tmp_path: Path, tiny_gguf: Path
) -> None:
    file = tmp_path / "copy.gguf"
    file.symlink_to(tiny_gguf)
    served = await serve(model=str(file))
    body = {"input": "hello", "max_output_tokens": 5}
    assert (await served.post(body)).status_code == 200
    await served.runtime.unload()
    for content in (None, b"something else"):
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_bytes(content)
        error = error_of(await served.post(body), 503)
        assert error["code"] == "model_not_available" and str(file) in error["message"]
    file.unlink()
    file.symlink_to(tiny_gguf)
    assert (await served.post(body)).status_code == 200


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS")
@pytest.mark.parametrize("mebibytes", [450, 500, 550])
def test_too_little_memory_to_load(home: Path, tiny_gguf: Path, mebibytes: int) -> None:
    """Who is refused it is chance: Python, llama.cpp, which says so or aborts, or its threads."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20, mebibytes << 20))

    ran = subprocess.run(
        [*AGENT.split(), "run", "hello", "--model", str(tiny_gguf), "--tools", "none"]
        + ["--context", "131072"],
        env={**os.environ, "AGENT_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit,
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    said = ran.stderr.strip()
    assert "\n" not in said and said.startswith(("agent: ", "libgomp: ")), said
    store = Store(home / "state" / "store.sqlite")
    (turn,) = store.turns(store.find(None))
    response = turn.response
    assert response.status == "failed" and response.error


@pytest.mark.slow
@pytest.mark.parametrize("nohup", [False, True])
async def test_a_terminal_that_goes(home: Path, script: Script, nohup: bool) -> None:
    """It ends what runs in order, unless it was started to outlive its terminal."""
    # The program inherits it; these tests may run under nohup themselves.
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
    async with serving(home, "--engine", script(HELLO)) as program:
        signal.signal(signal.SIGHUP, before)
        if nohup:
            program.process.send_signal(signal.SIGHUP)
            async with httpx2.AsyncClient() as http:
                answer = await http.post(f"{program.url}/responses", json={"input": "x"})
            assert answer.json()["status"] == "completed"
        ended = signal.SIGTERM if nohup else signal.SIGHUP
        assert await program.end(ended) == (0, "")
