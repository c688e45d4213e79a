"""Files of every earlier version of the schema open, and lose nothing."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from agent.store.api_conversations import ApiConversationStore
from agent.store.conversations import Store
from agent.store.responses import ResponseStore
from agent.store.tree import position_of

HERE = Path(__file__).parent
FILES = {
    1: "first_store.sql", 2: "second_store.sql", 3: "third_store.sql", 4: "fourth_store.sql",
}  # fmt: skip


def write(path: Path, version: int) -> sqlite3.Connection:
    """A store as that version wrote it; the connection is to a copy in memory."""
    script = (HERE / FILES[version]).read_text()
    db = sqlite3.connect(path)
    db.executescript(script)
    db.close()
    before = sqlite3.connect(":memory:")
    before.executescript(script)
    return before


def rows(db: sqlite3.Connection, query: str) -> list[Any]:
    return db.execute(query).fetchall()


@pytest.mark.parametrize("version", FILES)
def test_store_of_each_version_keeps_conversations_and_turns(tmp_path: Path, version: int) -> None:
    before = write(tmp_path / "store.sqlite", version)
    store = Store(tmp_path / "store.sqlite")
    summaries = {summary.id: summary for summary in store.summaries()}
    for name, title in rows(before, "select id, title from conversations"):
        assert summaries[name].title == title
        ids = rows(before, f"select ids from entries where conversation = '{name}'")
        text = b"".join(blob for (blob,) in ids)
        stored = store.load(name)
        own = stored.entries[position_of(stored).shared :]
        written = b"".join(array_bytes(entry.ids) for entry in own)
        assert text in written, "what a journal had comes after it"
    for name, prompt, response in rows(before, "select conversation, prompt, response from turns"):
        turns = {turn.response.id: turn for turn in store.turns(name)}
        old = json.loads(response)
        turn = turns[old["id"]]
        assert turn.prompt == prompt
        if old["status"] != "in_progress":
            assert turn.response.model_dump(mode="json")["output"] == old["output"]
    store.close()


def array_bytes(ids: list[int]) -> bytes:
    return b"".join(number.to_bytes(4, "little") for number in ids)


def test_second_version_branch_keeps_compaction_and_shortened(tmp_path: Path) -> None:
    write(tmp_path / "store.sqlite", 2)
    branch = Store(tmp_path / "store.sqlite").load("conv_branch")
    assert branch.compacted is not None and branch.compacted.text == "They multiplied."
    assert branch.compacted.end == 2 and len(branch.entries) == 6
    assert position_of(branch).shared == 4
    assert [entry.shortened_ids for entry in branch.entries[2:4]] == [[200006, 10], None]
    assert branch.entries[4].role == "user" and branch.entries[5].ids[-1] == 8


def test_sixth_version_gets_marks_of_entries(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "store.sqlite")
    db.executescript((HERE / "sixth_store.sql").read_text())
    db.close()
    store = Store(tmp_path / "store.sqlite")
    talk = store.load("conv_first")
    assert [turn.prompt for turn in store.turns("conv_first")] == ["Multiply"]
    assert [entry.role for entry in talk.entries] == ["user", "result", "assistant"]
    assert talk.entries[1].shortened_ids == [200006, 2]
    assert not any(entry.dropped or entry.pinned for entry in talk.entries)
    talk.entries[0].dropped = talk.entries[2].pinned = True
    talk.entries[1].shortened_ids = None
    store.write_prompt_choices(talk)
    again = Store(tmp_path / "store.sqlite").load("conv_first")
    assert again.entries == talk.entries and position_of(again) == position_of(talk)


def test_seventh_version_conversations_belong_to_no_client(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "store.sqlite")
    db.executescript((HERE / "seventh_store.sql").read_text())
    db.close()
    store = Store(tmp_path / "store.sqlite")
    found = ApiConversationStore(store).find("conv_first")
    assert found is not None and (found.owner, found.metadata) == ("", {})
    talk = store.load("conv_first")
    assert len(talk.entries) == 3 and talk.entries[0].pinned


@pytest.mark.parametrize("version", [3, 4])
def test_responses_become_turns_with_their_conversations(tmp_path: Path, version: int) -> None:
    path = tmp_path / "store.sqlite"
    before = write(path, version)
    responses = ResponseStore(Store(path), days=1e6)
    for name, status, response, known, inputs, request_bytes, events in rows(
        before,
        "select id, status, response, known, inputs, request_bytes, events from responses",
    ):
        turn = responses.find(name)
        assert turn is not None
        messages = [
            (list(memoryview(ids).cast("i")), bool(reasoning), role, recipient)
            for ids, reasoning, role, recipient in rows(
                before,
                "select ids, reasoning, role, recipient from response_messages"
                f" join messages on number = message where response = '{name}' order by position",
            )
        ]
        entries = turn.conversation.entries
        assert [(e.ids, e.reasoning, e.role, e.recipient) for e in entries] == messages
        old = json.loads(response)
        if status == "in_progress":
            assert turn.response.status == "failed", "its process is gone"
        else:
            assert turn.response.model_dump(mode="json") == old
        assert turn.served == {
            "history": json.loads(known),
            "inputs": json.loads(inputs),
            "request_bytes": request_bytes,
        }
        assert turn.events == events
        for item in old["output"]:
            assert responses.response_with(item["id"]) == name
    tables = {name for (name,) in rows(sqlite3.connect(path), "select name from sqlite_master")}
    assert not tables & {"responses", "response_messages", "response_items"}


def test_migrated_chain_is_one_conversation_forks_are_branches(tmp_path: Path) -> None:
    write(tmp_path / "store.sqlite", 4)
    store = Store(tmp_path / "store.sqlite")
    summaries = {summary.title: summary for summary in store.summaries()}
    weather = summaries["Weather in Oslo?"]
    assert weather.turns == 2 and weather.parent is None
    fork = next(s for s in store.summaries() if s.parent == weather.id)
    assert fork.turns == 2, "the response that both continue, and its own"
    chain = store.turns(weather.id)
    assert chain[0].response.output[-1].type == "function_call"
    assert chain[1].response.output_text == "Cold: -3."
    assert store.turns(fork.id)[-1].response.output_text == "Another ending."


def test_migrated_journal_is_recovered(tmp_path: Path) -> None:
    write(tmp_path / "store.sqlite", 4)
    store = Store(tmp_path / "store.sqlite")
    (turn,) = store.turns(store.find(next(
        s.id for s in store.summaries() if s.title == "tell me much"
    )))  # fmt: skip
    assert turn.response.status == "failed"
    assert [item.type for item in turn.response.output] == ["reasoning", "message"]
    assert "word word" in turn.response.output[1].model_dump_json()
    assert store.load(None).entries[-1].role == "assistant"
