"""Responses outlive the process that made them, as long as they are wanted."""

from __future__ import annotations

import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent.conversation.conversation import Entry
from agent.events import Response
from agent.server.input_items import History
from agent.store.responses import DAY, Archive
from agent.store.stored_response import Kept
from tests.agent.server.test_serve import serving
from tests.support.endpoint import Serve, events_of, plain_http
from tests.support.invariants import check
from tests.support.scripts import HELLO, LONG, WEATHER, final, thought


async def test_a_conversation_goes_on_after_a_restart(serve: Serve) -> None:
    odd = thought("Hm.") + (
        '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"place":'
        '\n"Oslo"}<|call|>'
    )
    served = await serve(odd, final("Cold."))
    first = check(
        await served.stream(
            tools=[WEATHER],
            metadata={"a": "b"},
            input=[
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": "Oslo?"},
            ],
        )
    )
    before = list(served.runtime.engine.spoken)  # type: ignore[attr-defined]
    await served.end()
    served = await serve(final("Cold."), final("Bye."))
    found = await served.get(f"/v1/responses/{first['id']}")
    assert found.json() == first
    items = await served.get(f"/v1/responses/{first['id']}/input_items?order=asc")
    assert [item["role"] for item in items.json()["data"]] == ["developer", "user"]
    result = {
        "type": "function_call_output",
        "call_id": first["output"][1]["call_id"],
        "output": "-3",
    }
    second = check(
        await served.stream(input=[result], tools=[WEATHER], previous_response_id=first["id"])
    )
    after = list(served.runtime.engine.spoken)  # type: ignore[attr-defined]
    assert second["output"][0]["content"][0]["text"] == "Cold."
    assert after[: len(before)] == before, "the very ids, instructions and reasoning too"
    resent = [{"role": "user", "content": "Oslo?"}, {"id": first["output"][1]["id"]}, result]
    assert (await served.post({"input": resent, "tools": [WEATHER]})).status_code == 200


async def test_what_is_deleted_is_in_no_file(serve: Serve) -> None:
    served = await serve(final("XYLOPHONE"))
    made = check(await served.stream(input="say ZEBRA"))
    store = served.runtime.where.store
    assert b"ZEBRA" in _bytes(store)
    async with plain_http() as http:
        gone = await http.delete(f"{served.url}/responses/{made['id']}")
    assert gone.json() == {"id": made["id"], "object": "response", "deleted": True}
    assert (await served.get(f"/v1/responses/{made['id']}")).status_code == 404
    assert b"ZEBRA" not in _bytes(store) and b"XYLOPHONE" not in _bytes(store)
    with sqlite3.connect(store) as db:
        for table in ("responses", "messages", "response_messages", "response_items"):
            assert db.execute(f"select count(*) from {table}").fetchone() == (0,)


def _bytes(store: Path) -> bytes:
    return b"".join(path.read_bytes() for path in store.parent.glob(f"{store.name}*"))


async def test_store_false_and_no_store_write_nothing(serve: Serve) -> None:
    served = await serve(final("XYLOPHONE"))
    check(await served.stream(input="say ZEBRA", store=False))
    assert b"ZEBRA" not in _bytes(served.runtime.where.store)
    served = await serve(HELLO, face={"store": False})
    made = check(await served.stream(input="x"))
    assert (await served.get(f"/v1/responses/{made['id']}")).json() == made, "while it runs"
    served = await serve(HELLO)
    assert (await served.get(f"/v1/responses/{made['id']}")).status_code == 404


def test_killed_in_the_middle(home: Path, script: Callable[..., str]) -> None:
    """What was running has failed; everything before it is as it was."""
    with serving(home, "--engine", script(HELLO, LONG)) as (url, process):
        body: dict[str, Any] = {"input": "x", "stream": True}
        done = check(events_of(httpx2.post(f"{url}/responses", json=body, timeout=60).text))
        body |= {"previous_response_id": done["id"], "background": True}
        with httpx2.stream("POST", f"{url}/responses", json=body, timeout=60) as answer:
            lines = answer.iter_lines()
            created = next(line for line in lines if line.startswith("data: "))
            next(line for line in lines if "reasoning_text.delta" in line)
            process.send_signal(signal.SIGKILL)
            process.wait()
    lost = created.split('"id":"')[1].split('"')[0]
    with serving(home, "--engine", script(HELLO)) as (url, _):
        found = httpx2.get(f"{url}/responses/{lost}", timeout=60).json()
        assert found["status"] == "failed" and found["error"]["code"] == "server_error"
        rest = httpx2.get(f"{url}/responses/{lost}?stream=true", timeout=60).text
        assert [event["type"] for event in events_of(rest)] == [
            "response.created",
            "response.in_progress",
            "response.failed",
        ]
        assert events_of(rest)[-1]["response"] == found
        assert httpx2.get(f"{url}/responses/{done['id']}", timeout=60).json() == done
        body |= {"background": False}
        followed = httpx2.post(f"{url}/responses", json=body, timeout=60)
        assert check(events_of(followed.text))["previous_response_id"] == done["id"]


def kept(name: str, *entries: list[int]) -> Kept:
    response = Response(id=name, created_at=0, model="tiny", status="completed")
    return Kept(response, tuple(Entry(ids) for ids in entries), History())


def test_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.sqlite"
    archive = Archive(path, days=30, most=2)
    now = time.time()
    for age, name in ((31, "old"), (3, "a"), (2, "b"), (1, "c")):
        monkeypatch.setattr(time, "time", lambda age=age: now - age * DAY)
        archive.keep(kept(name, [1, 2], [len(name)]))
    monkeypatch.setattr(time, "time", lambda: now)
    archive.close()
    archive = Archive(path, days=30, most=2)
    assert [name for name in ("old", "a", "b", "c") if archive.find(name)] == ["b", "c"]
    found = archive.find("c")
    assert found is not None and [entry.ids for entry in found.entries] == [[1, 2], [1]]
    with sqlite3.connect(path) as db:
        assert db.execute("select count(*) from messages").fetchone() == (2,), "kept once"
    archive.close()


def test_settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agent.config.settings import places, settings
    from agent.errors import UserError

    monkeypatch.setenv("AGENT_HOME", str(home))
    file = places().config / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("responses_days = 7\nresponses_most = 5\n")
    assert (settings(places()).responses_days, settings(places()).responses_most) == (7, 5)
    file.write_text("responses_most = 0\n")
    with pytest.raises(UserError, match="responses_most"):
        settings(places())
