"""Responses outlive the process that made them, as long as they are wanted."""

import json
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent import events as ev
from agent.conversation.conversation import Conversation, Entry
from agent.events import Response
from agent.store.conversations import Store, StoreError
from agent.store.responses import SECONDS_PER_DAY, ResponseStore
from agent.store.tree import position_of
from tests.support.endpoint import Serve, events_of, http_client
from tests.support.invariants import check
from tests.support.program import RunAgent
from tests.support.scripts import HELLO, LONG, WEATHER, call, final, thought
from tests.support.serve_program import serve_program
from tests.support.waiting import HANG_SECONDS


async def test_response_continued_after_restart_reads_same_ids(serve: Serve) -> None:
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
    before = list(served.runtime.loaded.engine.answered_ids)  # type: ignore[attr-defined]
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
    after = list(served.runtime.loaded.engine.answered_ids)  # type: ignore[attr-defined]
    assert second["output"][0]["content"][0]["text"] == "Cold."
    assert after[: len(before)] == before, "the very ids, instructions and reasoning too"
    resent = [{"role": "user", "content": "Oslo?"}, {"id": first["output"][1]["id"]}, result]
    assert (await served.post({"input": resent, "tools": [WEATHER]})).status_code == 200


async def test_deleted_response_leaves_no_text_in_file(serve: Serve) -> None:
    served = await serve(final("XYLOPHONE"))
    made = check(await served.stream(input="say ZEBRA"))
    store = served.runtime.paths.store
    assert b"ZEBRA" in _bytes(store)
    async with http_client() as http:
        gone = await http.delete(f"{served.url}/responses/{made['id']}")
    assert gone.json() == {"id": made["id"], "object": "response", "deleted": True}
    assert (await served.get(f"/v1/responses/{made['id']}")).status_code == 404
    assert b"ZEBRA" not in _bytes(store) and b"XYLOPHONE" not in _bytes(store)
    with sqlite3.connect(store) as db:
        for table in ("conversations", "turns", "entries", "messages", "turn_items"):
            assert db.execute(f"select count(*) from {table}").fetchone() == (0,)


def _bytes(store: Path) -> bytes:
    return b"".join(path.read_bytes() for path in store.parent.glob(f"{store.name}*"))


async def test_store_false_and_no_store_write_nothing(serve: Serve) -> None:
    served = await serve(final("XYLOPHONE"))
    check(await served.stream(input="say ZEBRA", store=False))
    assert b"ZEBRA" not in _bytes(served.runtime.paths.store)
    served = await serve(HELLO, server={"store": False})
    made = check(await served.stream(input="x"))
    assert (await served.get(f"/v1/responses/{made['id']}")).json() == made, "while it runs"
    served = await serve(HELLO)
    assert (await served.get(f"/v1/responses/{made['id']}")).status_code == 404


def test_killed_server_marks_response_failed(home: Path, script: Callable[..., str]) -> None:
    """What was running has failed; everything before it is as it was."""
    with serve_program(home, "--engine", script(HELLO, LONG)) as (url, process):
        body: dict[str, Any] = {"input": "x", "stream": True}
        done = check(
            events_of(httpx2.post(f"{url}/responses", json=body, timeout=HANG_SECONDS).text)
        )
        body |= {"previous_response_id": done["id"], "background": True}
        with httpx2.stream("POST", f"{url}/responses", json=body, timeout=HANG_SECONDS) as answer:
            lines = answer.iter_lines()
            created = next(line for line in lines if line.startswith("data: "))
            next(line for line in lines if "reasoning_text.delta" in line)
            process.send_signal(signal.SIGKILL)
            process.wait()
    lost = created.split('"id":"')[1].split('"')[0]
    with serve_program(home, "--engine", script(HELLO)) as (url, _):
        found = httpx2.get(f"{url}/responses/{lost}", timeout=HANG_SECONDS).json()
        assert found["status"] == "failed" and found["error"]["code"] == "server_error"
        rest = httpx2.get(f"{url}/responses/{lost}?stream=true", timeout=HANG_SECONDS).text
        assert [event["type"] for event in events_of(rest)] == [
            "response.created",
            "response.queued",
            "response.in_progress",
            "response.failed",
        ]
        assert events_of(rest)[-1]["response"] == found
        assert httpx2.get(f"{url}/responses/{done['id']}", timeout=HANG_SECONDS).json() == done
        body |= {"background": False}
        followed = httpx2.post(f"{url}/responses", json=body, timeout=HANG_SECONDS)
        assert check(events_of(followed.text))["previous_response_id"] == done["id"]


def response(name: str, status: ev.Status = "in_progress", **fields: Any) -> Response:
    return Response(id=name, created_at=0, model="tiny", status=status, **fields)


def add(store: Store, conversation: Conversation, name: str, *entries: Entry) -> None:
    """A response of the endpoint that has ended, with what it added to its conversation."""
    store.begin(conversation, f"say {name}", response(name), served={})
    conversation.entries += entries
    store.finish(conversation, response(name, "completed"), served={})


def ids(conversation: Conversation) -> list[list[int]]:
    return [entry.ids for entry in conversation.entries]


def test_prune_old_and_surplus_responses_deletes_oldest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.sqlite"
    store = Store(path)
    now = time.time()
    for age, name in ((31, "old"), (3, "a"), (2, "b"), (1, "c")):
        monkeypatch.setattr(time, "time", lambda age=age: now - age * SECONDS_PER_DAY)
        add(store, Conversation(f"conv_{name}"), name, Entry([1, 2]), Entry([len(name)]))
    monkeypatch.setattr(time, "time", lambda: now)
    store.close()
    responses = ResponseStore(Store(path), days=30, max_responses=2)
    assert [name for name in ("old", "a", "b", "c") if responses.find(name)] == ["b", "c"]
    turn = responses.find("c")
    assert turn is not None and ids(turn.conversation) == [[1, 2], [1]]
    with sqlite3.connect(path) as db:
        assert db.execute("select count(*) from messages").fetchone() == (2,), "stored once"
    assert {summary.id for summary in responses.store.summaries()} == {"conv_b", "conv_c"}


@pytest.mark.parametrize("days", [40, -3650, -40, 3650])
def test_prune_clock_jumped_at_one_start_deletes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    path, now = tmp_path / "store.sqlite", time.time()
    names = [f"resp_{number}" for number in range(12)]

    def start(clock: float, name: str) -> None:
        """A server that starts at this time, answers once, and prunes once more."""
        monkeypatch.setattr(time, "time", lambda: clock)
        responses = ResponseStore(Store(path), days=30)
        add(responses.store, Conversation(f"conv_{name}"), name, Entry([1]))
        responses.prune()
        responses.store.close()

    for number, name in enumerate(names):
        start(now + number, name)
    start(now + days * SECONDS_PER_DAY, "resp_jump")
    start(now + 60, "resp_after")
    start(now + 70, "resp_last")
    responses = ResponseStore(Store(path), days=30)
    found = [name for name in (*names, "resp_jump", "resp_after", "resp_last")
             if responses.find(name)]  # fmt: skip
    assert len(found) == 15
    assert responses.store.summaries()[0].id == "conv_resp_last"


def test_prune_clock_stays_wrong_deletes_a_quarter_and_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, now = tmp_path / "store.sqlite", time.time()
    store = Store(path)
    for number in range(39):
        add(store, Conversation(f"conv_{number}"), f"resp_{number}", Entry([number]))
    monkeypatch.setattr(time, "time", lambda: now + 40 * SECONDS_PER_DAY)
    add(store, Conversation("conv_jump"), "resp_jump", Entry([1]))
    store.close()
    for left in (29, 21):
        responses = ResponseStore(Store(path), days=30)
        assert len(responses.store.summaries()) == left
        responses.store.close()
    assert "11 stored responses are deleted: they were too old to store" in caplog.text


def test_prune_too_many_bytes_deletes_oldest_and_file_shrinks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store.sqlite"
    responses = ResponseStore(Store(path), max_bytes=4 << 20)
    ours = Conversation("conv_ours")
    responses.store.begin(ours, "x" * (1 << 19), response("resp_ours"))
    responses.store.finish(ours, response("resp_ours", "completed"))
    for number in range(60):
        conversation, name = Conversation(f"conv_{number}"), f"resp_{number}"
        served = {"history": {}, "inputs": ["x" * (1 << 18)], "request_bytes": 1}
        responses.store.begin(conversation, "x", response(name), served=served)
        conversation.entries.append(Entry([number]))
        responses.store.finish(conversation, response(name, "completed"), served=served)
        responses.prune_bytes()
        assert path.stat().st_size < 12 << 20
    stored = [number for number in range(60) if responses.find(f"resp_{number}")]
    assert stored == list(range(60 - len(stored), 60)) and 10 <= len(stored) <= 16
    assert len(responses.store.turns("conv_ours")) == 1, "what a person said stays"
    assert "too large to store" in caplog.text
    for number in stored:
        responses.delete(f"resp_{number}")
    assert path.stat().st_size < 4 << 20, "pages are given back"


async def test_unknown_fields_of_request_are_not_stored(serve: Serve) -> None:
    served = await serve(HELLO, server={"lenient": True})
    part = {"type": "input_text", "text": "Hello?", "x_part": "ZEBRA" * 1000}
    message = {"role": "user", "content": [part], "x_item": ["ZEBRA" * 1000], "status": "completed"}
    body = {"input": [message], "x_body": "ZEBRA" * 1000}
    made = (await served.post(body)).json()
    listed = (await served.get(f"/v1/responses/{made['id']}/input_items")).json()["data"]
    assert listed[0].keys() == {"id", "type", "role", "content", "status"}
    assert listed[0]["content"] == [{"type": "input_text", "text": "Hello?"}]
    assert b"ZEBRA" not in _bytes(served.runtime.paths.store)


def test_prune_conversation_that_a_person_continued_stays(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    add(store, Conversation("conv_a"), "resp_a", Entry([1]))
    ours = store.load("resp_a")
    store.begin(ours, "and here", response("resp_local"))
    ours.entries.append(Entry([2]))
    store.finish(ours, response("resp_local", "completed"))
    responses = ResponseStore(store, days=0.0)
    assert responses.find("resp_a") is not None
    assert [turn.prompt for turn in store.turns("conv_a")] == ["say resp_a", "and here"]
    assert store.load(None).id == "conv_a", "a person continued it"
    assert responses.find("resp_local") is None, "a person's turn is not served"


def test_latest_conversation_is_not_one_of_http_clients(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    add(store, Conversation("conv_a"), "resp_a", Entry([1]))
    with pytest.raises(StoreError, match="no conversation to continue"):
        store.load(None)
    assert store.load("conv_a").id == "conv_a" == store.load("resp_a").id


def test_response_continued_twice_branches_with_its_reasoning(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    waiting = [Entry([1]), Entry([2], reasoning=True), Entry([3])]
    add(store, Conversation("conv_a"), "resp_call", *waiting)
    for name, number in (("resp_x", 10), ("resp_y", 20)):
        turn = store.served_turn("resp_call")
        assert turn is not None and turn.conversation.entries == waiting
        conversation = turn.conversation
        store.begin(conversation, name, response(name), served={})
        conversation.entries.append(Entry([number]))
        conversation.end_turn()
        store.finish(conversation, response(name, "completed"), served={})
    first, second = store.served_turn("resp_x"), store.served_turn("resp_y")
    assert first is not None and ids(first.conversation) == [[1], [3], [10]]
    assert second is not None and ids(second.conversation) == [[1], [3], [20]]
    assert first.conversation.id == "conv_a" == position_of(second.conversation).parent
    again = store.served_turn("resp_call")
    assert again is not None and again.conversation.entries == waiting
    assert [turn.response.id for turn in store.turns(second.conversation.id)] == [
        "resp_call",
        "resp_y",
    ]


def test_delete_response_keeps_what_later_ones_need(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    responses = ResponseStore(store)
    conversation = Conversation("conv_a")
    for number, name in enumerate(("resp_1", "resp_2", "resp_3"), 1):
        add(store, conversation, name, Entry([number]))
    assert responses.delete("resp_1") and not responses.delete("resp_1")
    turn = responses.find("resp_2")
    assert turn is not None and ids(turn.conversation) == [[1], [2]]
    assert store.summaries()[0].title == "say resp_2"
    assert responses.delete("resp_3")
    assert ids(store.load("conv_a")) == [[1], [2]]
    assert responses.delete("resp_2") and store.summaries() == []


def test_response_deleted_while_it_runs_is_not_written(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    conversation = Conversation("conv_a")
    store.begin(conversation, "x", response("resp_a"), served={})
    assert ResponseStore(store).delete("resp_a")
    conversation.entries.append(Entry([1]))
    store.finish(conversation, response("resp_a", "completed"), served={})
    assert store.served_turn("resp_a") is None and store.summaries() == []


async def test_conversation_begun_over_http_goes_on_in_a_command(
    serve: Serve, tmp_path: Path, script: Callable[..., str], agent: RunAgent
) -> None:
    served = await serve(call("get_weather", place="Oslo"))
    first = check(await served.stream(tools=[WEATHER], input="Oslo?"))
    await served.end()
    options = ("--json-events", "--engine", script(final("I do not know.")))
    home = {"AGENT_HOME": str(tmp_path / "home")}
    ran = agent("run", "--resume", first["id"], *options, "And now?", env=home)
    assert ran.code == 0, ran.err
    listed = json.loads(agent("sessions", "list", "--all", "--json", env=home).out)
    assert [(one["title"], one["turns"]) for one in listed] == [("Oslo?", 2)]
    served = await serve(final("Over HTTP again."))
    second = check(await served.stream(input="Bye.", previous_response_id=first["id"]))
    assert second["output"][0]["content"][0]["text"] == "Over HTTP again."
    store = Store(served.runtime.paths.store)
    turns = store.turns(store.find(ran.events[-1]["response"]["id"]))
    assert [turn.prompt for turn in turns] == ["Oslo?", "And now?"], "the other one is a branch"
    roles = [entry.role for entry in store.load(ran.events[-1]["response"]["id"]).entries]
    assert roles == ["user", "assistant", "result", "user", "assistant"], "the call is answered"


def test_config_limits_are_read_and_checked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agent.config.paths import user_paths
    from agent.config.settings import load_settings
    from agent.errors import UserError

    monkeypatch.setenv("AGENT_HOME", str(home))
    file = user_paths().config / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("responses_days = 7\nresponses_max = 5\n")
    assert (
        load_settings(user_paths()).responses_days,
        load_settings(user_paths()).responses_max,
    ) == (7, 5)
    file.write_text("responses_max = 0\n")
    with pytest.raises(UserError, match="responses_max"):
        load_settings(user_paths())
