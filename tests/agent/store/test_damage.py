"""Stores that were damaged by hand: what cannot be read is named, and the rest stays usable."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.conversation.conversation import Conversation, Entry
from agent.events import Response
from agent.store.conversations import Store, StoreError
from agent.store.responses import ResponseStore
from tests.support.program import RunAgent
from tests.support.scripts import final

Script = Callable[..., str]


def add_turn(store: Store, conversation: Conversation, name: str, *, served: bool = False) -> None:
    """A completed turn that adds a prompt and an answer to its conversation."""
    extra = {"history": {}, "inputs": [], "request_bytes": 0} if served else None
    response = Response(id=name, created_at=0, model="tiny", status="in_progress")
    store.begin(conversation, f"say {name}", response, served=extra)
    conversation.entries += [Entry([1, 2], role="user"), Entry([3], role="assistant")]
    done = response.model_copy(update={"status": "completed"})
    store.finish(conversation, done, served=extra)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with the conversations conv_good (one turn) and conv_bad (resp_1, resp_2)."""
    path = tmp_path / "store.sqlite"
    store = Store(path)
    bad = Conversation("conv_bad")
    add_turn(store, bad, "resp_1")
    add_turn(store, bad, "resp_2")
    add_turn(store, Conversation("conv_good"), "resp_good")
    store.close()
    return path


def damage(path: Path, *statements: str) -> Store:
    """Open the store after these statements."""
    with sqlite3.connect(path) as db:
        for statement in statements:
            db.execute(statement)
    db.close()
    return Store(path)


@pytest.mark.parametrize(
    "change",
    [
        "title = x'ff00'",
        "created = 'yesterday'",
        "updated = 9e99",
        "model = x'00'",
        "created = x'01'",
    ],
)
def test_summaries_damaged_row_is_named_rest_listed(path: Path, change: str) -> None:
    store = damage(path, f"update conversations set {change} where id = 'conv_bad'")
    assert [summary.id for summary in store.summaries()] == ["conv_good"]
    (sentence,) = store.damage.take()
    assert "conv_bad is damaged and left out: " in sentence and "\n" not in sentence
    assert store.load("conv_bad").entries, "it can be continued all the same"
    store.delete("conv_bad")
    assert store.summaries() and store.damage.take() == []


@pytest.mark.parametrize(
    "change",
    [
        "response = '{not json'",
        "response = '[1, 2]'",
        """response = '{"id": 5}'""",
        f"response = '{'[' * 100_000}'",
        "response = x'fffe'",
        "prompt = x'00'",
        "start = 1.5",
    ],
)
def test_turns_damaged_row_is_named_rest_listed(path: Path, change: str) -> None:
    store = damage(path, f"update turns set {change} where id = 'resp_1'")
    assert [turn.response.id for turn in store.turns("conv_bad")] == ["resp_2"]
    (sentence,) = store.damage.take()
    assert "Turn resp_1 is damaged and left out: " in sentence and len(sentence) < 300
    assert store.search("say resp_good") == {"conv_good"} and store.search("nothing") == set()


@pytest.mark.parametrize("events", ["x'0102'", "'text'"])
def test_turns_damaged_events_turn_is_listed(path: Path, events: str) -> None:
    store = damage(path, f"update turns set events = {events} where id = 'resp_1'")
    assert len(store.turns("conv_bad")) == 2 and store.events("resp_1") == []
    assert "The record of events of turn resp_1 is damaged" in store.damage.take()[0]


@pytest.mark.parametrize(
    "statement",
    [
        "delete from messages where number = (select message from entries where position = 2)",
        "delete from entries where conversation = 'conv_bad' and position = 2",
        "update messages set ids = x'010203'",
        "update messages set ids = x'ffffffff'",
        "update messages set ids = 'text'",
        "update entries set position = 7 where conversation = 'conv_bad' and position = 2",
    ],
)
def test_load_damaged_message_continues_before_it_as_branch(path: Path, statement: str) -> None:
    store = damage(path, "pragma foreign_keys = off", statement)
    before = store.db.execute("select * from entries order by 1, 2").fetchall()
    loaded = store.load("conv_bad")
    assert loaded.id != "conv_bad" and len(loaded.entries) in (0, 2)
    assert any("The end of conversation conv_bad" in text for text in store.damage.take())
    add_turn(store, loaded, "resp_3")
    assert len(store.load(loaded.id).entries) == len(loaded.entries)
    after = store.db.execute(
        "select * from entries where conversation in ('conv_bad', 'conv_good') order by 1, 2"
    )
    assert after.fetchall() == before, "nothing of the damaged one is written"


@pytest.mark.parametrize(
    "parents",
    [
        {"conv_bad": "conv_bad"},
        {"conv_bad": "conv_good", "conv_good": "conv_bad"},
        {"conv_bad": "conv_gone"},
    ],
)
def test_open_parents_in_a_loop_are_cut(path: Path, parents: dict[str, str]) -> None:
    store = damage(
        path,
        *(
            f"update conversations set parent = '{parent}', shared = 1 where id = '{name}'"
            for name, parent in parents.items()
        ),
    )
    assert len(store.summaries()) == 2
    assert "The parent of conversation" in " ".join(store.damage.take())
    for name in ("conv_bad", "conv_good"):
        store.load(name)
        store.tree.alternatives(name, 0)
        store.tree.lineage(name)
        store.turns(name)
        store.delete(name)
    assert "conv_bad" not in {summary.id for summary in store.summaries()}


@pytest.mark.parametrize(
    "statement",
    [
        "update turns set status = 'in_progress', response = 'no json', pid = 0",
        "update turns set status = 'in_progress', response = '[]', pid = 0",
        "insert into journal values (null, 'resp_1', 'no json')",
        "insert into journal values (null, 'resp_1', '{}')",
        """insert into journal values (null, 'resp_1', '{"events": ["x"], "base": 0}')""",
        "update turns set created = 9e99",
    ],
)
def test_open_damaged_turn_or_journal_store_stays_usable(path: Path, statement: str) -> None:
    store = damage(path, statement)
    add_turn(store, store.load("conv_good"), "resp_new")
    assert "resp_new" in {turn.response.id for turn in store.turns("conv_good")}
    store.close()
    assert len(Store(path).summaries()) == 2, "the journal is empty now"


@pytest.mark.parametrize("served", ["no json", "[]", '{"inputs": 3}'])
def test_served_turn_damaged_is_absent(path: Path, served: str) -> None:
    store = Store(path)
    add_turn(store, Conversation("conv_http"), "resp_http", served=True)
    store.db.execute("update turns set served = ? where served is not null", (served,))
    assert ResponseStore(store).find("resp_http") is None
    assert "Response resp_http is damaged" in store.damage.take()[0]


@pytest.mark.parametrize(("version", "advice"), [(99, "Update agent"), (-1, "mv "), (2, "mv ")])
def test_open_wrong_schema_version_explains(path: Path, version: int, advice: str) -> None:
    with pytest.raises(StoreError, match="cannot be used") as caught:
        damage(path, f"pragma user_version = {version}")
    assert advice in str(caught.value) and str(path) in str(caught.value)


def test_open_missing_tables_explains(path: Path) -> None:
    with pytest.raises(StoreError, match="no such table") as caught:
        damage(path, "pragma foreign_keys = off", "drop table turns")
    assert ".recover" in str(caught.value)


def test_truncated_file_at_any_length_raises_sentences_only(path: Path) -> None:
    store = Store(path)
    for number in range(40):
        add_turn(store, Conversation(f"conv_{number}"), f"resp_x{number}")
    store.close()
    content = path.read_bytes()
    for pages in range(1, 40):
        path.write_bytes(content[: pages * 4096])
        try:
            store = Store(path)
        except StoreError as error:
            assert "cannot be used" in str(error)
            continue
        for summary in store.summaries():
            store.turns(summary.id)
        store.search("resp")
        store.close()
        path.with_name(f"{path.name}-wal").unlink(missing_ok=True)


def test_commands_with_damaged_rows_name_them_and_do_the_rest(
    agent: RunAgent, home: Path, script: Script, tmp_path: Path
) -> None:
    engine = ("--engine", script(final("It is so.")), "--tools", "none")
    for prompt in ("first", "second"):
        assert agent("run", prompt, *engine).code == 0
    assert agent("run", "--continue", "more", *engine).code == 0
    rows = json.loads(agent("sessions", "list", "--all", "--json").out)
    second, first = rows[0]["id"], rows[1]["id"]
    with sqlite3.connect(home / "state" / "store.sqlite") as db:
        db.execute("update conversations set title = x'1b5d00' where id = ?", (first,))
        db.execute("update turns set response = '{' where prompt = 'second'")
        db.execute("update messages set ids = x'01' where number = (select message from entries"
                   " where conversation = ? and position = 2)", (second,))  # fmt: skip
    db.close()
    listed = agent("sessions", "list")
    assert listed.code == 0 and "second" in listed.out and first in listed.err
    assert "\x1b" not in listed.err
    for command in (("show",), ("replay", "--plain", "--speed", "99"), ("export",)):
        ran = agent("sessions", command[0], second, *command[1:])
        assert ran.code == 0 and "more" in ran.out and "It is so." in ran.out
        assert "is damaged and left out" in ran.err and "wrong inside" not in ran.err
    continued = agent("run", "--continue", "on", *engine)
    assert continued.out.strip() == "It is so." and second in continued.err
    (branch, *_) = json.loads(agent("sessions", "list", "--all", "--json").out)
    assert branch["branch_of"] == second
    assert agent("sessions", "show", first).code == 2
    assert agent("sessions", "delete", "--yes", first, second).code == 0
    assert [row["id"] for row in json.loads(agent("sessions", "list", "--all", "--json").out)] == [
        branch["id"]
    ]
