"""Changes by built-in tools are taken back and made again, also after a kill; others stay."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.random_changes import fill, tree
from tools.builtin.files import file_tree
from tools.builtin.files.journal import (
    ChangeJournal,
    find_root,
    forget_conversation,
    last_turn,
    net_changes,
    undone_turn,
)
from tools.builtin.files.root_folder import RootFolder
from tools.builtin_server import ToolError, conversation_id, turn_id

TURNS = {str(number) for number in range(12)}


class Project:
    """A root and its journal; each call opens the journal again, as after a restart."""

    def __init__(self, root: Path, folder: Path, max_bytes: int = 10_000_000) -> None:
        root.mkdir(exist_ok=True)
        self.root, self.folder, self.max_bytes = root, folder, max_bytes

    @property
    def journal(self) -> ChangeJournal:
        return ChangeJournal(RootFolder(self.root), self.folder, self.max_bytes)

    def write(self, turn: str, **files: str | None) -> None:
        turn_id.set(turn)
        wanted = {self.root / n: t if t is None else t.encode() for n, t in files.items()}
        self.journal.make(wanted)

    def run(self, turn: str, line: str) -> None:
        turn_id.set(turn)
        journal = self.journal
        step = journal.begin("shell")
        subprocess.run(["sh", "-c", line], cwd=self.root, check=True)
        journal.end(step)

    def texts(self) -> dict[str, str]:
        return {
            n: data.decode() for n, (kind, _, data) in tree(self.root).items() if kind == "file"
        }


@pytest.fixture(autouse=True)
def caller() -> Iterator[None]:
    tokens = turn_id.set(""), conversation_id.set("conv_1")
    yield
    turn_id.reset(tokens[0])
    conversation_id.reset(tokens[1])


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "root", tmp_path / "undo")


def test_turn_is_undone_and_redone(project: Project) -> None:
    (project.root / "a").write_text("mine\n")
    project.run("1", "echo one >> a; mkdir d; echo two > d/b; ln -s a link; chmod 700 d")
    project.write("1", c="three\n", a=None)
    project.write("2", c="four\n")
    after = tree(project.root)

    steps = project.journal.steps({"1", "2"})
    assert [(step.turn, step.tool) for step in steps] == [
        ("1", "shell"),
        ("1", "files"),
        ("2", "files"),
    ]
    assert last_turn(steps) == "2" and undone_turn(steps) is None
    outcome = project.journal.undo({"2"})
    assert [(each.path, each.verb) for each in outcome.changes] == [("c", "changed")]
    assert project.texts() == {"d/b": "two\n", "c": "three\n"}
    assert last_turn(project.journal.steps({"1", "2"})) == "1"
    outcome = project.journal.undo({"1"})
    assert [(each.path, each.verb) for each in outcome.changes] == [
        ("a", "created"), ("c", "deleted"), ("d", "deleted"), ("d/b", "deleted"), ("link", "deleted"),
    ]  # fmt: skip
    assert project.texts() == {"a": "mine\n"} and outcome.conflicts == {}

    assert last_turn(project.journal.steps({"1", "2"})) is None
    assert undone_turn(project.journal.steps({"1", "2"})) == "1"
    assert not project.journal.redo({"1"}).conflicts and not project.journal.redo({"2"}).conflicts
    assert tree(project.root) == after
    assert undone_turn(project.journal.steps({"1", "2"})) is None


def test_new_change_ends_what_can_be_redone(project: Project) -> None:
    project.write("1", a="1")
    project.journal.undo({"1"})
    project.write("2", b="2")
    assert undone_turn(project.journal.steps({"1", "2"})) is None
    assert last_turn(project.journal.steps({"1", "2"})) == "2"


def test_what_the_person_changed_stays(project: Project) -> None:
    project.run("1", "echo one > a; echo two > b; mkdir d; echo three > d/c")
    (project.root / "a").write_text("mine")
    (project.root / "d" / "new").write_text("mine")
    outcome = project.journal.undo({"1"})
    assert project.texts() == {"a": "mine", "d/new": "mine"}
    assert outcome.conflicts["a"] == "was changed since then"
    assert "not empty" in outcome.conflicts["d"]
    assert last_turn(project.journal.steps({"1"})) is None, "else /undo would not get beyond it"

    project.write("2", b="tool")
    (project.root / "b").unlink()
    assert project.journal.undo({"2"}).conflicts == {} and "b" not in project.texts()
    project.write("3", x="tool")
    (project.root / "x").write_text("person")
    project.write("3", x="tool again")
    outcome = project.journal.undo({"3"})
    assert project.texts()["x"] == "tool again" and "x" in outcome.conflicts


def test_changes_between_commands_are_not_the_tools(project: Project) -> None:
    project.run("1", "echo one > a")
    (project.root / "mine").write_text("mine")
    project.run("2", "echo two > b")
    project.journal.undo({"1", "2"})
    assert project.texts() == {"mine": "mine"}


def test_file_changed_right_after_a_look_is_read_again(project: Project) -> None:
    for number in range(20):
        (project.root / "a").write_text(f"mine {number}")
        project.run(str(number), f"echo tool{number:2} > a")
        project.journal.undo({str(number)})
        assert project.texts() == {"a": f"mine {number}"}


def test_one_file_of_a_turn_is_undone(project: Project) -> None:
    project.write("1", a="1", b="1")
    project.write("1", a="2")
    assert project.journal.undo({"1"}, "a").conflicts == {}
    assert project.texts() == {"b": "1"}
    assert [change.path for change in net_changes(project.journal.steps({"1"}))] == ["b"]


def test_skipped_folders_and_private_files(tmp_path: Path) -> None:
    root, own = tmp_path / "root", tmp_path / "root" / "state"
    own.mkdir(parents=True)
    journal = ChangeJournal(RootFolder(root, own_folders=[own]), tmp_path / "undo")
    turn_id.set("1")
    step = journal.begin("shell")
    for name in (".git/config", "node_modules/x/y", "state/secret", "src/a"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("new")
    journal.end(step)
    assert [change.path for change in journal.steps({"1"})[0].changes] == ["src", "src/a"]
    data = b"".join(path.read_bytes() for path in (tmp_path / "undo").iterdir())
    assert b"secret" not in data


def test_file_that_is_too_large_is_named(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_tree, "MAX_FILE_BYTES", 1000)
    (project.root / "large").write_text("x" * 2000)
    project.run("1", "echo new > large; echo new > small")
    outcome = project.journal.undo({"1"})
    assert outcome.conflicts == {"large": "was too large to be kept"}
    assert project.texts() == {"large": "new\n"}


def test_root_with_too_many_files_is_not_recorded(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_tree, "MAX_ENTRIES", 3)
    for name in "abcd":
        (project.root / name).touch()
    assert project.journal.begin("shell") is None
    project.write("1", a="tool")
    assert not project.journal.undo({"1"}).conflicts and project.texts()["a"] == ""


def test_size_is_bounded_and_oldest_go(tmp_path: Path) -> None:
    project = Project(tmp_path / "root", tmp_path / "undo", 1_000_000)
    chance = random.Random(1)
    for turn in range(40):
        project.write(str(turn), a=chance.randbytes(50_000).hex())
    assert project.journal.size() <= 1_000_000
    steps = project.journal.steps({str(turn) for turn in range(40)})
    assert 2 <= len(steps) < 20 and last_turn(steps) == "39"
    assert not project.journal.undo({"39"}).conflicts


def test_contents_that_nothing_needs_are_forgotten_first(tmp_path: Path) -> None:
    project = Project(tmp_path / "root", tmp_path / "undo", 1_000_000)
    project.write("1", a="tool")
    chance = random.Random(1)
    for turn in range(40):
        (project.root / "mine").write_text(chance.randbytes(50_000).hex())
        project.run(str(turn + 2), "true")
    assert project.journal.size() <= 1_000_000
    assert project.journal.undo({"1"}).changes and project.texts().keys() == {"mine"}


def test_nothing_is_recorded_without_room(tmp_path: Path) -> None:
    project = Project(tmp_path / "root", tmp_path / "undo", 0)
    project.write("1", a="tool")
    assert project.texts() == {"a": "tool"} and project.journal.steps({"1"}) == []
    assert project.journal.begin("shell") is None and not (tmp_path / "undo").exists()


def test_journal_that_cannot_be_written_leaves_tools_working(tmp_path: Path) -> None:
    (tmp_path / "undo").write_text("a file")
    project = Project(tmp_path / "root", tmp_path / "undo")
    project.write("1", a="tool")
    assert project.texts() == {"a": "tool"} and project.journal.undo({"1"}).changes == []


def test_damaged_journal_begins_again(project: Project) -> None:
    project.write("1", a="tool")
    (path,) = project.folder.glob("*.sqlite")
    for leftover in project.folder.glob("*-*"):
        leftover.unlink()
    path.write_bytes(b"not a database " * 1000)
    project.run("2", "echo new > b")
    assert [step.turn for step in project.journal.steps({"1", "2"})] == ["2"]
    assert not project.journal.undo({"2"}).conflicts and project.texts() == {"a": "tool"}


def test_journal_that_breaks_meanwhile_is_an_error_of_the_system(project: Project) -> None:
    project.write("1", a="tool")
    journal = project.journal
    assert journal.steps({"1"})
    with closing(sqlite3.connect(next(project.folder.glob("*.sqlite")))) as db:
        db.execute("DROP TABLE change")
    with pytest.raises(OSError, match="changes cannot be recorded"):
        journal.undo({"1"})


def test_journals_are_private_and_forgotten_by_conversation(project: Project) -> None:
    project.write("1", a="tool")
    conversation_id.set("conv_2")
    project.write("2", b="tool")
    assert all(path.stat().st_mode & 0o077 == 0 for path in project.folder.iterdir())
    assert find_root(project.folder, {"1"}) == project.root
    forget_conversation(project.folder, "conv_1")
    assert find_root(project.folder, {"1"}) is None and find_root(project.folder, {"2"})
    assert [step.turn for step in project.journal.steps({"1", "2"})] == ["2"]


def test_failed_change_leaves_nothing(project: Project) -> None:
    (project.root / "f").write_text("a file")
    turn_id.set("1")
    with pytest.raises((OSError, ToolError)):
        project.journal.make({project.root / "n/a": b"1", project.root / "f/x": b"2"})
    assert list(tree(project.root)) == ["f"] and project.journal.steps({"1"}) == []


@pytest.mark.sampled(12)
@pytest.mark.parametrize("seed", range(200))
def test_random_changes_are_undone_after_a_kill_too(tmp_path: Path, seed: int) -> None:
    project, chance = Project(tmp_path / "root", tmp_path / "undo"), random.Random(seed)
    fill(project.root, chance)
    before = tree(project.root)
    arguments = (str(seed), str(project.root), str(project.folder), str(len(TURNS)))
    command = [sys.executable, "-m", "tests.support.random_changes", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as changing:
        assert changing.stdout is not None
        if is_killed := chance.random() < 0.7:
            for _ in range(chance.randrange(len(TURNS))):
                changing.stdout.readline()
            for _ in range(chance.randrange(200_000)):  # somewhere within a turn
                pass
            os.killpg(changing.pid, signal.SIGKILL)
        changing.stdout.read()
    after = tree(project.root)
    outcome = project.journal.undo(TURNS)
    assert (outcome.conflicts, tree(project.root)) == ({}, before)
    if not is_killed:
        outcome = project.journal.redo(TURNS)
        assert (outcome.conflicts, tree(project.root)) == ({}, after)
