"""Conversations are kept, go on, and survive what ends a process."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from agent.conversation import Conversation, Entry
from agent.events import Response
from agent.store import Store, StoreError


def response(status: str = "in_progress", name: str = "resp_1") -> Response:
    return Response(id=name, created_at=0, model="tiny", status=status)  # type: ignore[arg-type]


BEGIN = """
import os, sys
from pathlib import Path
from agent.conversation import Conversation
from agent.events import Response
from agent.store import Store
store = Store(Path(sys.argv[1]))
store.begin(Conversation("c"), "go", Response(id="resp_1", created_at=0, model="tiny"))
"""


def test_a_conversation_comes_back_as_it_was(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    talk = Conversation("conv_1", [Entry([1, 2, 200006]), Entry([3], reasoning=True)])
    store.begin(talk, "Hello\nthere", response())
    store.finish(talk, response("completed"))
    store.close()
    again = Store(tmp_path / "store.sqlite")
    assert again.load("conv_1").entries == talk.entries
    assert again.load(None).id == again.load("conv").id == "conv_1"
    (summary,) = again.summaries()
    assert (summary.title, summary.turns) == ("Hello there", 1)
    ((prompt, kept),) = again.responses("conv_1")
    assert prompt == "Hello\nthere" and kept.status == "completed"


def test_a_second_turn_replaces_what_changed(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    talk = Conversation("c", [Entry([1]), Entry([2], reasoning=True)])
    store.begin(talk, "one", response())
    store.finish(talk, response("completed"))
    talk.end_turn()
    talk.entries.append(Entry([3]))
    store.begin(talk, "two", response(name="resp_2"))
    store.finish(talk, response("completed", "resp_2"))
    assert [entry.ids for entry in store.load("c").entries] == [[1], [3]]


def test_a_turn_whose_process_is_gone_is_marked_failed(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    code = f"{BEGIN}os.kill(os.getpid(), 9)\n"
    subprocess.run([sys.executable, "-I", "-c", code, str(path)], check=False)
    ((_, lost),) = Store(path).responses("c")
    assert lost.status == "failed" and lost.error and lost.error.code == "server_error"


def test_a_turn_of_a_living_process_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with subprocess.Popen(
        [sys.executable, "-I", "-c", f"{BEGIN}print(flush=True)\ninput()\n", str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as other:  # fmt: skip
        assert other.stdout and other.stdin
        other.stdout.readline()
        assert Store(path).responses("c")[0][1].status == "in_progress"
        other.stdin.write(b"\n")


def test_what_cannot_be_found_is_said(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    with pytest.raises(StoreError, match="no conversation"):
        store.load(None)
    for name in ("ab", "ac"):
        store.begin(Conversation(name), "go", response(name=name))
    with pytest.raises(StoreError, match="more than one"):
        store.load("a")
    with pytest.raises(StoreError, match="no conversation"):
        store.load("%")


def test_a_store_that_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "store.sqlite").write_text("this is no database, but a letter " * 100)
    with pytest.raises(StoreError, match=r"store\.sqlite"):
        Store(tmp_path / "store.sqlite")


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    Store(tmp_path / "store.sqlite").close()
    assert (tmp_path / "store.sqlite").stat().st_mode & 0o077 == 0


def test_two_processes_may_use_it(tmp_path: Path) -> None:
    one, two = Store(tmp_path / "s.sqlite"), Store(tmp_path / "s.sqlite")
    one.begin(Conversation("a"), "go", response(name="r1"))
    two.begin(Conversation("b"), "go", response(name="r2"))
    assert {s.id for s in one.summaries()} == {"a", "b"}
    assert sqlite3.connect(tmp_path / "s.sqlite").execute("pragma journal_mode").fetchone() == (
        "wal",
    )
