"""Kills a program that stores turns: ``python -m tests.load.crash_test [--count N] [--seed N]``.

A child process runs turns of scripted replies at full speed on one store, and reports each output item
that it has shown as finished through a pipe. After a random delay it is killed with SIGKILL; then
everything that it reported must be in the store, and the next child continues on it.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from agent import bootstrap
from agent.config.launch import LaunchOptions
from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.events import OutputItemDone, Response
from agent.runtime.runtime import Runtime
from agent.server.http.options import ServerOptions
from agent.server.input.parsing import parse_request
from agent.server.responses.models import ServedModels
from agent.server.responses.service import ResponseService
from agent.store.conversations import Store
from agent.store.recorder import TurnRecorder
from agent.store.responses import ResponseStore
from agent.turn.loop import Turn
from agent.util.ids import new_id
from tests.support.scripts import call, final, thought

REPLIES = [
    thought("Let me look at what is there. " * 5) + call("files__list", path="."),
    thought("And once more.") + call("files__list", path="nowhere"),
    thought("Now I know. " * 20) + final("It is all there, as far as one can see. " * 40),
    thought("Short.") + final("Yes."),
]
BRANCH_SHARE = 0.2
"""Share of the turns that start a conversation; of the others, the share that branch one."""
MAX_KILL_DELAY_SECONDS = 0.3
"""Seconds from the first finished item, or the second one, to the kill, at most."""


class CrashTestError(Exception):
    """The store lacks what was reported, or is damaged; the message says what."""


# --- in the child ---


async def _run_turns(
    runtime: Runtime, http: bool, rng: random.Random, pipe: int, turns: int = sys.maxsize
) -> None:
    """Run turns until the process is killed.

    ``pipe``: file descriptor for reports. ``turns``: their number, for a process that is not killed.
    """
    await runtime.start()
    if http:
        await _run_http_turns(runtime, pipe)
    store = Store(runtime.paths.store)
    recorder = TurnRecorder(store, _on_store_error)
    options = bootstrap.turn_options(LaunchOptions(loop_guard=False), runtime.model)
    for _ in range(turns):
        conversation = _choose_conversation(store, rng)
        turn = Turn(runtime, conversation, [User("Go on.")], options)
        recorder.record(turn, "Go on.")
        await _report_items(turn.start(), pipe)
        response = await turn.done()
        _report(pipe, {"finished": response.id})


async def _run_http_turns(runtime: Runtime, pipe: int) -> None:
    """Run turns as the server does, each response continuing the previous one."""
    await runtime.ready()
    options = bootstrap.turn_options(LaunchOptions(loop_guard=False), runtime.model)
    store = ResponseStore(Store(runtime.paths.store))
    models = ServedModels(runtime, options)
    service = ResponseService(models, ServerOptions(expose_tools=True), store)
    tools = [{"type": "mcp", "server_label": "files", "require_approval": "never"}]
    previous = None
    while True:
        body = {"input": "Go on.", "tools": tools, "previous_response_id": previous}
        turn = await service.begin(parse_request(json.dumps(body).encode()))
        await _report_items(turn, pipe)
        response = await turn.done()
        service.finish(turn)
        previous = response.id
        _report(pipe, {"finished": response.id})


def _on_store_error(error: sqlite3.Error) -> None:
    raise AssertionError("the store broke") from error


def _choose_conversation(store: Store, rng: random.Random) -> Conversation:
    """A new conversation, a branch of a recent one, or a recent one."""
    recent = [summary.id for summary in store.summaries()[:3]]
    if not recent or rng.random() < BRANCH_SHARE:
        return Conversation(new_id("conv"))
    conversation = store.load(rng.choice(recent))
    if rng.random() < BRANCH_SHARE:
        return conversation.branch(new_id("conv"), rng.randrange(len(conversation.entries) + 1))
    return conversation


async def _report_items(turn: Turn, pipe: int) -> None:
    """Report each item that is done, at the moment at which an interface shows it."""
    async for batch in turn.log.follow():
        for event in batch:
            if isinstance(event, OutputItemDone):
                item = event.item.model_dump(mode="json")
                _report(pipe, {"response": turn.response.id, "item": item})


def _report(pipe: int, value: object) -> None:
    os.write(pipe, json.dumps(value).encode() + b"\n")


# --- in the parent ---


def run_and_kill(runtime: Runtime, rng: random.Random, counts: Counter[str]) -> None:
    """Run a child, kill it and check the store. Raises CrashTestError."""
    http = rng.random() < 0.3
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reading)
            asyncio.run(_run_turns(runtime, http, random.Random(rng.random()), writing))
        except BaseException as error:
            _report(writing, {"broke": repr(error)})
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        first_lines = b"".join(pipe.readline() for _ in range(rng.randint(1, 2)))
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0001, MAX_KILL_DELAY_SECONDS))
        signal.sigwait({signal.SIGALRM})
        os.kill(child, signal.SIGKILL)
        lines = (first_lines + pipe.read()).splitlines()
    _, status = os.waitpid(child, 0)
    reports = [json.loads(line) for line in lines if line.endswith(b"}")]
    if errors := [report for report in reports if "broke" in report]:
        raise CrashTestError(f"the program broke: {errors}")
    if os.WTERMSIG(status) != signal.SIGKILL:
        raise CrashTestError(f"it ended by itself: {status}")
    counts["kills over HTTP" if http else "kills"] += 1
    _check_store(runtime.paths.store, reports, counts)


def _check_store(path: Path, reports: list[dict[str, Any]], counts: Counter[str]) -> None:
    """Check that the store is sound and has what was reported. Raises CrashTestError."""
    Store(path).close()
    db = sqlite3.connect(path)
    try:
        if (damage := db.execute("pragma quick_check").fetchone()[0]) != "ok":
            raise CrashTestError(f"the file is damaged: {damage}")
        rows = db.execute("select id, status, response from turns").fetchall()
        stored = {name: (status, Response.model_validate_json(text)) for name, status, text in rows}
        if any(status == "in_progress" for status, _ in stored.values()):
            raise CrashTestError("a turn of the dead is not marked")
    finally:
        db.close()
    finished = {report["finished"] for report in reports if "finished" in report}
    for name in finished:
        if stored[name][0] != "completed":
            raise CrashTestError(f"{name} was finished, and is {stored[name][0]}")
    for report in reports:
        if "item" in report:
            items = {item.id: item for item in stored[report["response"]][1].output}
            item = items.get(report["item"]["id"])
            if item is None or item.model_dump(mode="json") != report["item"]:
                raise CrashTestError(f"{report['item']} was finished, and is {item}")
            counts["finished items, all kept"] += 1
    killed = {report["response"] for report in reports if "response" in report} - finished
    for name in killed:
        status = stored[name][0]
        if status not in ("failed", "completed"):
            raise CrashTestError(f"{name} was cut off, and is {status}")
        counts[f"turns under way, now {status}"] += 1
    counts["turns finished before"] += len(finished)


def main() -> int:
    """Kill so many children and print what was counted; raises CrashTestError."""
    parser = argparse.ArgumentParser(prog="python -m tests.load.crash_test", description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="kills (default: 500)")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    with tempfile.TemporaryDirectory() as home:
        os.environ["AGENT_HOME"] = home
        script = Path(home) / "script.jsonl"
        script.write_text("".join(json.dumps({"markup": line}) + "\n" for line in REPLIES))
        options = LaunchOptions(engine=f"script:{script}", root=Path(home), tools="files")
        # A first turn imports what every child needs, before they are forked.
        with Path(os.devnull).open("wb") as sink:
            first_turn = _run_turns(
                bootstrap.create_runtime(options), False, random.Random(), sink.fileno(), turns=1
            )
            asyncio.run(first_turn)
        runtime = bootstrap.create_runtime(options)
        rng, counts = random.Random(arguments.seed), Counter[str]()
        for _ in range(arguments.count):
            run_and_kill(runtime, rng, counts)
        store = Store(runtime.paths.store)
        for summary in store.summaries():
            store.turns(summary.id)
            store.load(summary.id)
            counts["conversations that load"] += 1
        size = sum(file.stat().st_size for file in runtime.paths.store.parent.glob("store*"))
        counts["store, KiB"] = size // 1024
    for label, number in counts.items():
        print(f"{number:8,} {label}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
