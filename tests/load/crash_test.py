"""kill -9 at any moment: ``python -m tests.load.crash_test [--count N] [--seed N]`` (``make faults``).

A child runs turns of scripted replies at full speed on one store, and tells of each item that it shows
as finished. It is killed; then what it told of must be in the store, and the next child goes on.
"""

from __future__ import annotations

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
from agent.cli.shared import Shared
from agent.conversation.conversation import Conversation, User
from agent.events import OutputItemDone, Response
from agent.runtime.runtime import Runtime
from agent.server.app import Endpoint
from agent.server.parsing import parse
from agent.server.sse import Wire
from agent.store.conversations import Store
from agent.store.recorder import Journal
from agent.store.responses import Archive
from agent.turn.loop import Turn
from agent.turn.output import new_id
from tests.support.scripts import call, final, thought

LINES = [
    thought("Let me look at what is there. " * 5) + call("files__list", path="."),
    thought("And once more.") + call("files__list", path="nowhere"),
    thought("Now I know. " * 20) + final("It is all there, as far as one can see. " * 40),
    thought("Short.") + final("Yes."),
]
BRANCHES = 0.2
"""Of the turns begin a branch; others go on, or begin anew."""
LONGEST = 0.3
"""Seconds until the kill, at most, after the first item."""


class Lost(Exception):
    """The store is not what it must be."""


# --- the child ---


async def _live(
    runtime: Runtime, http: bool, rng: random.Random, told: int, turns: int = sys.maxsize
) -> None:
    """Turns, until it is killed."""
    await runtime.start()
    if http:
        await _serve(runtime, told)
    store = Store(runtime.where.store)
    options = bootstrap.options(Shared(), runtime.model)
    for _ in range(turns):
        talk = _talk(store, rng)
        turn = Turn(runtime, talk, [User("Go on.")], options)
        store.begin(talk, "Go on.", turn.response)
        turn.start()
        journal = Journal(store, turn)
        await _tell(turn, told)
        response = await turn.done()
        journal.finish(response)
        _say(told, {"finished": response.id})


async def _serve(runtime: Runtime, told: int) -> None:
    """The same through the endpoint, each response going on from the one before."""
    await runtime.ready()
    options = bootstrap.options(Shared(), runtime.model)
    archive = Archive(runtime.where.store)
    endpoint = Endpoint(runtime, options, expose_tools=True, archive=archive, wire=Wire())
    tools = [{"type": "mcp", "server_label": "files", "require_approval": "never"}]
    previous = None
    while True:
        body = {"input": "Go on.", "tools": tools, "previous_response_id": previous}
        turn = await endpoint.begin(parse(json.dumps(body).encode()))
        await _tell(turn, told)
        response = await turn.done()
        endpoint.ended(turn)
        previous = response.id
        _say(told, {"finished": response.id})


def _talk(store: Store, rng: random.Random) -> Conversation:
    known = [summary.id for summary in store.summaries()[:3]]
    if not known or rng.random() < BRANCHES:
        return Conversation(new_id("conv"))
    talk = store.load(rng.choice(known))
    if rng.random() < BRANCHES:
        return talk.branch(new_id("conv"), rng.randrange(len(talk.entries) + 1))
    return talk


async def _tell(turn: Turn, told: int) -> None:
    """As a face does that shows the events: of each item that is done."""
    async for batch in turn.log.follow():
        for event in batch:
            if isinstance(event, OutputItemDone):
                item = event.item.model_dump(mode="json")
                _say(told, {"response": turn.response.id, "item": item})


def _say(told: int, value: object) -> None:
    os.write(told, json.dumps(value).encode() + b"\n")


# --- the parent ---


def kill_one(runtime: Runtime, rng: random.Random, counts: Counter[str]) -> None:
    """One child's life, and what it left. Raises Lost."""
    http = rng.random() < 0.3
    reading, told = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reading)
            asyncio.run(_live(runtime, http, random.Random(rng.random()), told))
        except BaseException as error:
            _say(told, {"broke": repr(error)})
        finally:
            os._exit(1)
    os.close(told)
    with os.fdopen(reading, "rb") as pipe:
        heard = pipe.readline()
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0001, LONGEST))
        signal.sigwait({signal.SIGALRM})
        os.kill(child, signal.SIGKILL)
        lines = (heard + pipe.read()).splitlines()
    _, status = os.waitpid(child, 0)
    said = [json.loads(line) for line in lines if line.endswith(b"}")]
    if broke := [one for one in said if "broke" in one]:
        raise Lost(f"the program broke: {broke}")
    if os.WTERMSIG(status) != signal.SIGKILL:
        raise Lost(f"it ended by itself: {status}")
    counts["kills over HTTP" if http else "kills"] += 1
    _check(runtime.where.store, http, said, counts)


def _check(path: Path, http: bool, said: list[dict[str, Any]], counts: Counter[str]) -> None:
    if http:
        Archive(path).close()
    else:
        Store(path).close()
    db = sqlite3.connect(path)
    try:
        if (sound := db.execute("pragma quick_check").fetchone()[0]) != "ok":
            raise Lost(f"the file is damaged: {sound}")
        table = "responses" if http else "turns"
        rows = db.execute(f"select id, status, response from {table}").fetchall()
        stored = {name: (status, Response.model_validate_json(text)) for name, status, text in rows}
        if any(status == "in_progress" for status, _ in stored.values()):
            raise Lost("a turn of the dead is not marked")
    finally:
        db.close()
    finished = {one["finished"] for one in said if "finished" in one}
    for name in finished:
        if stored[name][0] != "completed":
            raise Lost(f"{name} was finished, and is {stored[name][0]}")
    for one in said:
        if "item" in one:
            kept = {item.id: item for item in stored[one["response"]][1].output}
            item = kept.get(one["item"]["id"])
            if item is None or item.model_dump(mode="json") != one["item"]:
                raise Lost(f"{one['item']} was finished, and is {item}")
            counts["finished items, all kept"] += 1
    lost = {one["response"] for one in said if "response" in one} - finished
    for name in lost:
        status = stored[name][0]
        if status not in ("failed", "completed"):
            raise Lost(f"{name} was cut off, and is {status}")
        counts[f"turns under way, now {status}"] += 1
    counts["turns finished before"] += len(finished)


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.load.crash_test", description=__doc__)
    options.add_argument("--count", type=int, default=500, help="kills (default: 500)")
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    with tempfile.TemporaryDirectory() as home:
        os.environ["AGENT_HOME"] = home
        script = Path(home) / "script.jsonl"
        script.write_text("".join(json.dumps({"markup": line}) + "\n" for line in LINES))
        shared = Shared(engine=f"script:{script}", root=Path(home), tools="files")
        # What every child needs is imported once, before they are forked.
        with Path(os.devnull).open("wb") as nobody:
            first = _live(
                bootstrap.runtime(shared), False, random.Random(), nobody.fileno(), turns=1
            )
            asyncio.run(first)
        runtime = bootstrap.runtime(shared)
        rng, counts = random.Random(chosen.seed), Counter[str]()
        for _ in range(chosen.count):
            kill_one(runtime, rng, counts)
        store = Store(runtime.where.store)
        for summary in store.summaries():
            store.turns(summary.id)
            store.load(summary.id)
            counts["conversations that load"] += 1
        size = sum(file.stat().st_size for file in runtime.where.store.parent.glob("store*"))
        counts["store, KiB"] = size // 1024
    for what, number in counts.items():
        print(f"{number:8,} {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
