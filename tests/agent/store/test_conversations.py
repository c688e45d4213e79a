"""Conversations are kept, go on, and survive what ends a process."""

import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agent.conversation.conversation import Conversation, Entry
from agent.conversation.convert import convert_vocabulary
from agent.events import Response
from agent.store.api_conversations import ApiConversationStore
from agent.store.conversations import Store, StoreError
from agent.store.damage import explain
from agent.store.tree import position_of
from tests.support.full_disk import full_disk
from tests.support.scripts import final
from tests.support.waiting import HANG_SECONDS


def response(status: str = "in_progress", name: str = "resp_1") -> Response:
    return Response(id=name, created_at=0, model="tiny", status=status)  # type: ignore[arg-type]


BEGIN = """
import os, sys
from pathlib import Path
from agent.conversation.conversation import Conversation
from agent.events import Response
from agent.store.conversations import Store
store = Store(Path(sys.argv[1]))
store.begin(Conversation("c"), "go", Response(id="resp_1", created_at=0, model="tiny"))
"""


def test_load_returns_what_was_finished(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    talk = Conversation("conv_1", [Entry([1, 2, 200006]), Entry([3], reasoning=True)])
    store.begin(talk, "Hello\nthere", response())
    store.finish(talk, response("completed"))
    store.close()
    again = Store(tmp_path / "store.sqlite")
    assert again.load("conv_1").entries == talk.entries
    assert again.load(None).id == "conv_1"
    (summary,) = again.summaries()
    assert (summary.title, summary.turns) == ("Hello", 1)
    (turn,) = again.turns("conv_1")
    assert turn.prompt == "Hello\nthere" and turn.response.status == "completed"


def test_second_turn_replaces_changed_entries(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    talk = Conversation("c", [Entry([1]), Entry([2], reasoning=True)])
    store.begin(talk, "one", response())
    store.finish(talk, response("completed"))
    talk.end_turn()
    talk.entries.append(Entry([3]))
    store.begin(talk, "two", response(name="resp_2"))
    store.finish(talk, response("completed", "resp_2"))
    assert [entry.ids for entry in store.load("c").entries] == [[1], [3]]


def test_turn_of_gone_process_is_marked_failed(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    code = f"{BEGIN}os.kill(os.getpid(), 9)\n"
    subprocess.run([sys.executable, "-I", "-c", code, str(path)], check=False)
    lost = Store(path).turns("c")[0].response
    assert lost.status == "failed" and lost.error and lost.error.code == "server_error"


def test_turn_of_running_process_stays_in_progress(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with subprocess.Popen(
        [sys.executable, "-I", "-c", f"{BEGIN}print(flush=True)\ninput()\n", str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as other:  # fmt: skip
        assert other.stdout and other.stdin
        other.stdout.readline()
        assert Store(path).turns("c")[0].response.status == "in_progress"
        other.stdin.write(b"\n")


def test_find_unknown_id_raises_sentence(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    with pytest.raises(StoreError, match="no conversation"):
        store.load(None)
    for name in ("conv_1234567ab", "conv_1234567ac"):
        store.begin(Conversation(name), "go", response(name=name))
    with pytest.raises(StoreError, match="more than one"):
        store.find("1234567a")
    assert store.find("1234567ab") == store.find("conv_1234567ab") == "conv_1234567ab"
    for name in ("", "conv_", "1234567", "conv_1234567", "%"):
        with pytest.raises(StoreError, match=r"is not an id: give at least 8 characters of one\."):
            store.find(name)
    with pytest.raises(StoreError, match="no conversation"):
        store.find("%" * 8)


def test_open_folder_that_cannot_be_names_its_path_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot be used: (Not a directory|File exists)\.$"):
        Store(tmp_path / "file" / "store.sqlite")


def test_open_file_that_is_no_store_raises(tmp_path: Path) -> None:
    (tmp_path / "store.sqlite").write_text("this is no database, but a letter " * 100)
    with pytest.raises(StoreError, match=r"store\.sqlite"):
        Store(tmp_path / "store.sqlite")


@pytest.mark.parametrize("has_reserve", [False, True])
def test_store_on_full_disk_can_be_read(tmp_path: Path, has_reserve: bool) -> None:
    path = tmp_path / "store.sqlite"
    store = Store(path)
    talk = Conversation("conv_1", [Entry([1, 2, 200006])])
    store.begin(talk, "Hello", response())
    store.finish(talk, response("completed"))
    store.close()
    reserve = path.with_name("store.sqlite-reserve")
    reserve.unlink()
    if has_reserve:
        reserve.touch()  # it frees nothing, or another program has taken the space
    with full_disk():
        store = Store(path)
        assert store.load("conv_1").entries == talk.entries
        with pytest.raises(sqlite3.OperationalError):
            store.rename("conv_1", "Other")
        store.close()
    assert [summary.title for summary in Store(path).summaries()] == ["Hello"]


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (sqlite3.SQLITE_IOERR, "cannot be used: the disk is full. Free some disk space."),
        (sqlite3.SQLITE_FULL, "Free some disk space."),
        (sqlite3.SQLITE_CORRUPT, "Move it away"),
    ],
)
def test_explain_full_disk_is_no_damage(tmp_path: Path, code: int, advice: str) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    with full_disk():
        assert advice in explain(tmp_path / "store.sqlite", error)
    if code == sqlite3.SQLITE_IOERR:
        assert "check the disk that it is on" in explain(tmp_path / "store.sqlite", error)


def test_file_is_private_to_its_owner(tmp_path: Path) -> None:
    Store(tmp_path / "store.sqlite").close()
    assert (tmp_path / "store.sqlite").stat().st_mode & 0o077 == 0


def test_two_connections_write_one_file(tmp_path: Path) -> None:
    one, two = Store(tmp_path / "s.sqlite"), Store(tmp_path / "s.sqlite")
    one.begin(Conversation("a"), "go", response(name="r1"))
    two.begin(Conversation("b"), "go", response(name="r2"))
    assert {s.id for s in one.summaries()} == {"a", "b"}
    assert sqlite3.connect(tmp_path / "s.sqlite").execute("pragma journal_mode").fetchone() == (
        "wal",
    )


# --- files of earlier and later versions ---


@pytest.mark.parametrize("version", [1, 6])
def test_version_before_the_first_release_is_refused(tmp_path: Path, version: int) -> None:
    path = tmp_path / "store.sqlite"
    Store(path).close()
    db = sqlite3.connect(path)
    db.execute(f"pragma user_version = {version}")
    db.close()
    with pytest.raises(StoreError, match=r"a version from before 0\.1\.0 wrote it"):
        Store(path)


def test_seventh_version_conversations_belong_to_no_client(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "store.sqlite")
    db.executescript(Path(__file__).with_name("seventh_store.sql").read_text())
    db.close()
    store = Store(tmp_path / "store.sqlite")
    found = ApiConversationStore(store).find("conv_first")
    assert found is not None and (found.owner, found.metadata) == ("", {})
    talk = store.load("conv_first")
    assert len(talk.entries) == 3 and talk.entries[0].pinned


def test_later_version_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    Store(path).close()
    db = sqlite3.connect(path)
    db.execute("pragma user_version = 99")
    db.close()
    with pytest.raises(StoreError, match="a newer version"):
        Store(path)


# --- two processes ---

TALK = """
import sys
from pathlib import Path
from agent.conversation.conversation import Conversation, Entry
from agent.events import Response
from agent.store.conversations import Store
path, name = Path(sys.argv[1]), sys.argv[2]
store = Store(path)
for number in range(20):
    talk = store.load("shared") if sys.argv[3:] else Conversation(f"{name}{number}")
    made = Response(id=f"{name}_{number}", created_at=0, model="tiny", status="completed")
    store.begin(talk, "go", made)
    talk.entries += [Entry([number, ord(name)], role="user"), Entry([number], role="assistant")]
    store.finish(talk, made)
"""


def together(path: Path, *arguments: str) -> None:
    """Three processes at once."""
    command = [sys.executable, "-P", "-c", TALK, str(path)]
    running = [subprocess.Popen([*command, name, *arguments]) for name in "abc"]
    assert [process.wait(HANG_SECONDS) for process in running] == [0, 0, 0]


@pytest.mark.slow
def test_processes_open_new_file_at_once_all_write(tmp_path: Path) -> None:
    """Each makes the tables, or finds them made; no turn is lost."""
    together(tmp_path / "s.sqlite")
    store = Store(tmp_path / "s.sqlite")
    names = {f"{name}{number}" for name in "abc" for number in range(20)}
    assert names <= {summary.id for summary in store.summaries()}
    assert store.load("b7").entries == [Entry([7, 98], role="user"), Entry([7], role="assistant")]


@pytest.mark.slow
def test_processes_continue_one_conversation_nothing_lost(tmp_path: Path) -> None:
    """Who comes second goes on in a branch: what was said is kept, once, and in order."""
    path = tmp_path / "s.sqlite"
    store = Store(path)
    tell(store, Conversation("shared"), "first", 99)
    together(path, "the same")
    said = set()
    for summary in store.summaries():
        talk = store.load(summary.id)
        asked = [tuple(entry.ids) for entry in talk.entries if entry.role == "user"]
        assert len(talk.entries) == 2 * len(asked) == 2 * summary.turns
        said |= set(asked)
    told = {(number, ord(name)) for name in "abc" for number in range(20)}
    assert said == told | {(99, 0)}


def test_overtaken_turn_becomes_branch(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    talk = Conversation("c")
    store.begin(talk, "one", response())
    talk.entries += [Entry([1]), Entry([2])]
    store.finish(talk, response("completed"))
    ours, theirs = store.load("c"), store.load("c")
    store.begin(ours, "ours", response(name="resp_2"))
    store.begin(theirs, "theirs", response(name="resp_3"))
    ours.entries.append(Entry([3]))
    theirs.entries.append(Entry([4]))
    store.finish(ours, response("completed", "resp_2"))
    store.finish(theirs, response("completed", "resp_3"))
    theirs_at = position_of(theirs)
    assert ours.id == "c" and (theirs_at.parent, theirs_at.shared) == ("c", 2)
    assert [entry.ids for entry in store.load("c").entries] == [[1], [2], [3]]
    assert [entry.ids for entry in store.load(theirs.id).entries] == [[1], [2], [4]]
    assert [turn.prompt for turn in store.turns(theirs.id)] == ["one", "theirs"]
    assert [turn.prompt for turn in store.turns("c")] == ["one", "ours"]


# --- the tree ---


def open_call(store: Store) -> Conversation:
    """A turn that waits for the client's result, what it thought included."""
    talk = Conversation("c")
    store.begin(talk, "one", response())
    talk.entries += [Entry([1]), Entry([2], reasoning=True), Entry([3])]
    store.finish(talk, response("completed"))
    return talk


def answer(store: Store, talk: Conversation, number: int) -> None:
    """The result and the answer; what was thought goes."""
    store.begin(talk, "result", response(name=f"resp_{number}"))
    talk.entries += [Entry([number]), Entry([number + 1])]
    talk.end_turn()
    store.finish(talk, response("completed", f"resp_{number}"))


def ids(store: Store, name: str) -> list[int]:
    return [number for entry in store.load(name).entries for number in entry.ids]


@pytest.mark.parametrize("first", ["c", "b"])
def test_branch_amid_turn_keeps_its_reasoning(tmp_path: Path, first: str) -> None:
    """Thoughts before its edge go when the turn ends, in the branch and in what it branched from."""
    store = Store(tmp_path / "s.sqlite")
    talk = open_call(store)
    branch, waiting = store.fork(talk), store.fork(talk)
    for each in (talk, branch) if first == "c" else (branch, talk):
        answer(store, each, 10 if each is talk else 20)
    assert ids(store, "c") == [1, 3, 10, 11]
    assert ids(store, branch.id) == [1, 3, 20, 21]
    assert ids(store, waiting.id) == [1, 2, 3]
    answer(store, waiting, 30)
    answer(store, store.load(branch.id), 40)
    assert ids(store, waiting.id) == [1, 3, 30, 31]
    assert ids(store, branch.id) == [1, 3, 20, 21, 40, 41]
    assert [turn.prompt for turn in store.turns(waiting.id)] == ["one", "result"]


@pytest.mark.parametrize("ended", [True, False])
def test_turn_after_open_call_begins_behind_it(tmp_path: Path, ended: bool) -> None:
    """Where it begins is told without the reasoning before it, which goes when the turn ends."""
    store = Store(tmp_path / "s.sqlite")
    talk = open_call(store)
    store.begin(talk, "result", response(name="resp_2"))
    talk.entries += [Entry([4], role="result"), Entry([5], reasoning=True), Entry([6])]
    if ended:
        talk.end_turn()
    store.finish(talk, response("completed", "resp_2"))
    _, second = store.turns("c")
    again = store.load("c")
    assert second.start == 2
    assert [e.ids for e in store.turn_entries(again, "resp_2") if not e.reasoning] == [[4], [6]]
    branch = again.branch("b", second.start)
    assert [e.ids for e in branch.entries if not e.reasoning] == [[1], [3]]
    assert [e.ids for e in again.branch("d", 3).entries if not e.reasoning] == [[1], [3], [4]]


def test_fork_of_changed_conversation_keeps_loaded_entries(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    open_call(store)
    ours, theirs, forked = store.load("c"), store.load("c"), store.load("c")
    answer(store, ours, 10)
    store.begin(theirs, "result", response(name="resp_20"))
    theirs.entries += [Entry([20]), Entry([21], reasoning=True), Entry([22])]
    store.finish(theirs, response("completed", "resp_20"))
    assert ids(store, "c") == [1, 3, 10, 11]
    assert ids(store, theirs.id) == [1, 2, 3, 20, 21, 22]
    assert ids(store, store.fork(forked).id) == [1, 2, 3]


def tell(store: Store, talk: Conversation, name: str, number: int) -> None:
    store.begin(talk, name, response(name=f"resp_{name}"))
    talk.entries += [Entry([number, 0], role="user"), Entry([number, 1], role="assistant")]
    store.finish(talk, response("completed", f"resp_{name}"))


def test_branch_of_an_unstored_branch_shares_with_the_stored_one(tmp_path: Path) -> None:
    store, talk, _, _ = grown(tmp_path)
    second = talk.branch("unstored", 4).branch("second", 2)
    assert store.branches_at(second, 2) == (4, ["c", "edited", "retried", "second"])
    tell(store, second, "two, again", 23)
    assert (position_of(second).parent, position_of(second).shared) == ("c", 2)
    assert store.load("second").entries == second.entries


def test_turn_from_an_earlier_entry_of_a_branch_leaves_it_readable(tmp_path: Path) -> None:
    store, talk, _, _ = grown(tmp_path)
    branch = talk.branch("branch", 4)
    tell(store, branch, "three, edited", 30)
    rewound = store.load("branch")
    rewound.truncate(2)
    store.begin(rewound, "two, again", response(name="resp_again"))
    assert store.load("branch").entries == branch.entries, "as long as nothing else is written"


def prompts(store: Store, name: str) -> list[str]:
    return [turn.prompt for turn in store.turns(name)]


def grown(tmp_path: Path) -> tuple[Store, Conversation, Conversation, Conversation]:
    """A conversation of three turns, its second asked differently, and that one retried."""
    store = Store(tmp_path / "s.sqlite")
    talk = Conversation("c")
    for number, name in enumerate(("one", "two", "three"), 1):
        tell(store, talk, name, number)
    edited = talk.branch("edited", 2)
    tell(store, edited, "two, edited", 20)
    tell(store, edited, "and on", 21)
    retried = edited.branch("retried", 2)
    tell(store, retried, "two, retried", 22)
    return store, talk, edited, retried


def test_branches_share_earlier_entries(tmp_path: Path) -> None:
    store, talk, edited, retried = grown(tmp_path)
    assert store.load("c").entries == talk.entries
    again = store.load("edited")
    assert again.entries == talk.entries[:2] + edited.entries[2:]
    assert prompts(store, "edited") == ["one", "two, edited", "and on"]
    assert prompts(store, "retried") == ["one", "two, retried"]
    assert prompts(store, "c") == ["one", "two", "three"]
    assert position_of(retried).parent == "c", (
        "it shares nothing of the branch that it was made from"
    )
    tell(store, again, "further", 30)
    assert store.load("edited").entries == again.entries
    rows = sqlite3.connect(tmp_path / "s.sqlite").execute("select count(*) from entries")
    assert rows.fetchone() == (6 + 6 + 2,), "what is shared is kept once"
    assert {s.id: s.turns for s in store.summaries()} == {"c": 3, "edited": 4, "retried": 2}
    assert {s.title for s in store.summaries()} == {"one"}


def test_alternatives_lists_versions_of_message(tmp_path: Path) -> None:
    store, *_ = grown(tmp_path)
    for name in ("c", "edited", "retried"):
        assert store.tree.alternatives(name, 2) == ["c", "edited", "retried"]
        assert store.tree.alternatives(name, 0) == ["c"]
    assert store.tree.alternatives("edited", 4) == ["edited"]
    deeper = store.fork(store.load("edited"), 4)
    tell(store, deeper, "and off", 40)
    assert store.tree.alternatives(deeper.id, 4) == ["edited", deeper.id]
    assert store.tree.alternatives(deeper.id, 2) == ["c", "edited", "retried"]
    assert store.tree.alternatives("not stored", 2) == store.tree.lineage("not stored") == []


def test_delete_parent_keeps_entries_of_branch(tmp_path: Path) -> None:
    store, talk, edited, _ = grown(tmp_path)
    store.delete("c")
    with pytest.raises(StoreError):
        store.load("c")
    assert [s.id for s in store.summaries()] == ["retried", "edited"]
    assert store.load("edited").entries == talk.entries[:2] + edited.entries[2:]
    assert prompts(store, "retried") == ["one", "two, retried"]
    db = sqlite3.connect(tmp_path / "s.sqlite")
    assert db.execute("select count(*) from turns where prompt = 'three'").fetchone() == (0,)
    store.delete("edited")
    store.delete("retried")
    for table in ("conversations", "entries", "turns", "compactions", "shortened"):
        assert db.execute(f"select count(*) from {table}").fetchone() == (0,)


def test_branch_of_unsaved_conversation_owns_all_entries(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    branch = Conversation("c", [Entry([1]), Entry([2])]).branch("b", 1)
    tell(store, branch, "go on", 3)
    assert [entry.ids for entry in store.load("b").entries] == [[1], [3, 0], [3, 1]]


def test_finish_after_delete_writes_conversation_again(tmp_path: Path) -> None:
    store, talk, *_ = grown(tmp_path)
    store.delete("c")
    tell(store, talk, "four", 4)
    assert store.load("c").entries == talk.entries and talk.id == "c"
    assert prompts(store, "retried") == ["one", "two, retried"]
    assert prompts(store, "edited") == ["one", "two, edited", "and on"]


def test_begin_in_a_store_that_is_gone_raises(tmp_path: Path) -> None:
    store, talk, *_ = grown(tmp_path)
    (tmp_path / "s.sqlite").unlink()
    with pytest.raises(sqlite3.Error, match=r"s\.sqlite is gone"):
        tell(store, talk, "four", 4)


def test_finish_conversation_deleted_meanwhile_raises(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    talk = Conversation("c")
    store.begin(talk, "go", response())
    store.delete("c")
    talk.entries.append(Entry([1]))
    with pytest.raises(sqlite3.Error, match="deleted"):
        store.finish(talk, response("completed"))


@pytest.mark.parametrize("meanwhile", ["continued", "deleted"])
async def test_save_converted_of_changed_conversation_has_turns_of_before(
    recorded: Any, tmp_path: Path, meanwhile: str
) -> None:
    """Another program may change the conversation once its turns were read."""
    other = await recorded(final("one"), final("two"))
    talk, store = Conversation("c"), Store(tmp_path / "store.sqlite")
    await other.run(talk)
    turns = store.turns("c")
    past = [(turn.prompt, turn.response) for turn in turns]
    converted = convert_vocabulary(other.runtime.format, past, "theirs", {})
    if meanwhile == "continued":
        await other.run(talk)
    else:
        other.store.delete("c")
    store.save_converted(converted, "c", turns, "m")
    (turn,) = store.turns(converted.id)
    assert turn.response.output == turns[0].response.output
    assert store.load(converted.id).entries == converted.entries
    (summary,) = [each for each in store.summaries() if each.id == converted.id]
    assert summary.title == "go"


def test_conversation_shows_the_systems_time_where_an_earlier_start_was_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, now = tmp_path / "store.sqlite", int(time.time())
    ahead = now + 400 * 86400
    for name, clock in (("a", now), ("b", ahead), ("c", now + 60), ("d", now + 120)):
        monkeypatch.setattr(time, "time", lambda clock=clock: float(clock))
        store = Store(path)
        turn = response(name=f"resp_{name}").model_copy(update={"created_at": clock})
        store.begin(Conversation(f"conv_{name}"), "hello", turn)
        store.close()
    summaries = Store(path).summaries()
    assert [(each.id, each.updated) for each in summaries] == [
        ("conv_d", now + 120), ("conv_c", now + 60), ("conv_b", ahead), ("conv_a", now),
    ]  # fmt: skip
    assert [each.created for each in summaries] == [each.updated for each in summaries]


def test_conversations_belong_to_the_folder_they_began_in(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    for folder, name in (("/a", "conv_a"), ("", "conv_served"), ("/b", "conv_b")):
        store = Store(path, folder=folder)
        talk = Conversation(name, [Entry([1])])
        served = {} if not folder else None
        store.begin(talk, name, response(name=f"resp_{name}"), served=served)
        store.finish(talk, response("completed", f"resp_{name}"), served=served)
        store.close()
    store = Store(path, folder="/a")
    assert store.load(None).id == "conv_a"
    assert [(s.id, s.folder) for s in store.summaries(everywhere=False)] == [("conv_a", "/a")]
    folders = {summary.id: summary.folder for summary in store.summaries()}
    assert folders == {"conv_a": "/a", "conv_b": "/b", "conv_served": ""}
    for name, folder in (("conv_served", "/a"), ("conv_b", "/b")):  # a person continues them here
        talk = store.load(name)
        store.begin(talk, "go", response(name=f"resp_{name}_2"))
        store.finish(talk, response("completed", f"resp_{name}_2"))
        summary = store.summary(name)
        assert summary is not None and summary.folder == folder
    branch = store.fork(store.load("conv_b"))
    summary = store.summary(branch.id)
    assert summary is not None and summary.folder == "/a"
    with pytest.raises(StoreError, match="in this folder"):
        Store(path, folder="/c").load(None)
