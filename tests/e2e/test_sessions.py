"""`agent sessions`: list, show, export, fork and delete stored conversations."""

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.folders import nest_folders
from tests.support.program import RunAgent
from tests.support.scripts import call, final, python, thought
from tests.support.terminal import start_program

pytestmark = pytest.mark.slow

ANSWER = thought("Easy.") + final("It is <b>2</b>.")
PROMPT = "First line\nand more"


@pytest.fixture
def session(agent: RunAgent, script: Callable[..., str]) -> dict[str, Any]:
    """A conversation of two turns, as ``agent sessions list --json`` has it."""
    engine = ("--engine", script(python("print(1+1)"), ANSWER, ANSWER))
    assert agent("run", PROMPT, *engine).code == 0
    assert agent("run", "--continue", "again", *engine).code == 0
    (row,) = json.loads(agent("sessions", "list", "--json").out)
    return dict(row)


@pytest.mark.long
def test_sessions_list_and_show(agent: RunAgent, session: dict[str, Any]) -> None:
    assert (session["title"], session["turns"], session["model"]) == ("First line", 2, "tiny")
    short = session["id"].removeprefix("conv_")[:8]
    listed = agent("sessions", "list")
    assert short in listed.out and "First line" in listed.out
    shown = agent("sessions", "show", short)
    assert all(
        text in shown.out for text in (session["id"], PROMPT, "print(1+1)", "It is <b>2</b>.")
    )
    assert agent("sessions", "show", session["id"]).out == shown.out
    missing = agent("sessions", "show", "nothing!")
    assert missing.code == 2 and "no conversation with the id nothing!" in missing.err


def test_sessions_show_context(agent: RunAgent, session: dict[str, Any]) -> None:
    shown = agent("sessions", "show", session["id"], "--context")
    assert shown.code == 0 and " of 131,072 tokens; /compact frees up to" in shown.out
    rows = [line.split("  ")[0] for line in shown.out.splitlines()[4:]]
    assert rows[0] == "system message" and rows[-1] == "opening of the answer"
    assert any(row.startswith("1 ❯ First line") for row in rows)
    assert any(row.startswith("2 ❯ again") for row in rows)
    assert "    call · python" in shown.out and "    result · python" in shown.out
    tokens = [
        int(line[40:50].replace(",", "")) for line in shown.out.splitlines()[4:] if line[:1] != " "
    ]
    assert sum(tokens) == int(shown.out.split(" ")[0].replace(",", ""))


@pytest.mark.long
def test_sessions_export_formats(agent: RunAgent, session: dict[str, Any], tmp_path: Path) -> None:
    name = session["id"]
    exported = json.loads(agent("sessions", "export", name, "--format", "json").out)
    assert [turn["entry"] for turn in exported["conversation"]] == [0, 4]
    assert exported["conversation"][0]["response"]["status"] == "completed"
    lines = agent("sessions", "export", name, "--format", "tokens").out.splitlines()
    roles = [json.loads(line)["role"] for line in lines]
    assert roles == ["user", "assistant", "result", "assistant"] * 2
    page = tmp_path / "page.html"
    assert agent("sessions", "export", name, "--format", "html", "-o", str(page)).code == 0
    assert "It is &lt;b&gt;2&lt;/b&gt;." in page.read_text() and "<b>" not in page.read_text()
    refused = agent("sessions", "export", name, "-o", str(tmp_path / "no" / "file"))
    assert refused.code == 2 and "Cannot write" in refused.err


def test_sessions_show_failed_call_as_text(agent: RunAgent, script: Callable[..., str]) -> None:
    engine = script(python("raise KeyError('\\x1b[31mgone')"), ANSWER)
    assert agent("run", PROMPT, "-q", "--engine", engine).code == 0
    (row,) = json.loads(agent("sessions", "list", "--json").out)
    shown = agent("sessions", "show", row["id"]).out
    assert "KeyError" in shown and "mcp_tool_execution_error" not in shown and "\x1b" not in shown


def test_sessions_export_file_private_and_clean(
    agent: RunAgent, script: Callable[..., str], tmp_path: Path
) -> None:
    engine = script(final("It\x1b]52;c;aGk=\x07 is \x1b[2J\u202eso."))
    answer, ids, talk = (tmp_path / name for name in ("answer.md", "ids.jsonl", "talk.md"))
    files = ("-o", str(answer), "--dump-tokens", str(ids))
    assert agent("run", PROMPT, "--engine", engine, *files).code == 0
    (row,) = json.loads(agent("sessions", "list", "--json").out)
    assert agent("sessions", "export", row["id"], "-o", str(talk)).code == 0
    assert answer.read_text() == "It is \N{REPLACEMENT CHARACTER}so."
    assert "It is \N{REPLACEMENT CHARACTER}so." in talk.read_text()
    assert {stat.S_IMODE(path.stat().st_mode) for path in (answer, ids, talk)} == {0o600}
    talk.chmod(0o644)
    assert agent("sessions", "export", row["id"], "-o", str(talk)).code == 0
    assert stat.S_IMODE(talk.stat().st_mode) == 0o644, "an existing file keeps its mode"


@pytest.mark.long
def test_sessions_fork_continues_apart(
    agent: RunAgent, session: dict[str, Any], script: Callable[..., str]
) -> None:
    forked = agent("sessions", "fork", session["id"], "--before", "2").out.strip()
    assert agent("run", "--resume", forked, "otherwise", "--engine", script(ANSWER)).code == 0
    branch, first = json.loads(agent("sessions", "list", "--json").out)
    assert (branch["id"], branch["branch_of"], branch["turns"]) == (forked, session["id"], 2)
    assert first["turns"] == 2
    shown = agent("sessions", "show", forked).out
    assert PROMPT in shown and "otherwise" in shown and "again" not in shown
    assert agent("sessions", "fork", session["id"], "--before", "3").code == 2


def test_sessions_delete_keeps_branches(
    agent: RunAgent, home: Path, session: dict[str, Any]
) -> None:
    forked = agent("sessions", "fork", session["id"]).out.strip()
    refused = agent("sessions", "delete", session["id"], stdin="")
    assert refused.code == 2 and "--yes" in refused.err
    pages = home / "cache" / "pages" / session["id"]
    nest_folders(pages, 1100)  # as python's code can leave them
    assert agent("sessions", "delete", session["id"], "--yes").code == 0
    assert not pages.exists(), "the files of builtin servers are deleted too"
    (branch,) = json.loads(agent("sessions", "list", "--json").out)
    assert branch["id"] == forked and branch["branch_of"] is None and branch["turns"] == 2
    assert agent("sessions", "delete", forked, "-y").code == 0
    empty = agent("sessions", "list")
    assert empty.code == 0 and "No conversations in this folder." in empty.err


@pytest.mark.sampled(3)
@pytest.mark.parametrize("wrong", ["", "c", "conv", "conv_", "{7}", "conv_{7}", " ", "%", "_"])
def test_sessions_id_shorter_than_listed_is_refused(
    agent: RunAgent, session: dict[str, Any], wrong: str
) -> None:
    wrong = wrong.format(*range(7), session["id"].removeprefix("conv_")[:7])
    for command in (
        ("sessions", "delete", "--yes", wrong), ("sessions", "show", wrong),
        ("sessions", "export", wrong), ("sessions", "fork", wrong),
        ("sessions", "rename", wrong, "New"), ("sessions", "replay", wrong, "--plain"),
        ("run", "--resume", wrong, "hello"),
    ):  # fmt: skip
        ran = agent(*command)
        assert (ran.code, ran.out) == (2, ""), command
        assert f"{wrong!r} is not an id: give at least 8 characters of one." in ran.err, ran.err
    (left,) = json.loads(agent("sessions", "list", "--json").out)
    assert left == session


@pytest.mark.parametrize("title", ["", " \n "])
def test_sessions_rename_to_nothing_is_refused(
    agent: RunAgent, session: dict[str, Any], title: str
) -> None:
    ran = agent("sessions", "rename", session["id"], title)
    assert (ran.code, ran.err) == (2, "agent: The title is empty.\n")


def test_sessions_damaged_store_one_sentence(agent: RunAgent, home: Path) -> None:
    (home / "state").mkdir()
    (home / "state" / "store.sqlite").write_text("no database at all, but a letter" * 50)
    broken = agent("sessions", "list")
    assert broken.code == 2 and "cannot be used" in broken.err


def test_sessions_replay_plain_writes_no_escape_codes(
    agent: RunAgent, session: dict[str, Any], home: Path, tmp_path: Path
) -> None:
    replay = ("sessions", "replay", session["id"], "--plain", "--speed", "1000")
    piped = agent(*replay)
    assert piped.code == 0 and "\x1b" not in piped.out and "\r" not in piped.out
    assert "❯ again" in piped.out and "print(1+1)" in piped.out and "It is <b>2</b>." in piped.out
    with start_program(*replay, home=home, cwd=tmp_path) as terminal:
        assert terminal.wait_exit() == 0
    assert b"\x1b" not in terminal.painted and b"It is <b>2</b>." in terminal.painted


def test_sessions_replay_dumb_terminal_names_plain(
    agent: RunAgent, session: dict[str, Any]
) -> None:
    ran = agent("sessions", "replay", session["id"], env={"TERM": "dumb"})
    assert ran.code == 2 and "TERM is dumb; add --plain." in ran.err


def test_sessions_search_finds_text_in_titles_prompts_and_answers(
    agent: RunAgent, script: Callable[..., str], tmp_path: Path
) -> None:
    engine = ("--engine", script(final("The port is closed.")), "--tools", "none", "-q")
    (other := tmp_path / "other").mkdir()
    assert agent("run", "first question", *engine).code == 0
    assert agent("run", "second question", *engine, cwd=other).code == 0
    for text, here, everywhere in (
        ("first", 1, 1),
        ("port is", 1, 2),
        ("second", 0, 1),
        ("zz", 0, 0),
    ):
        found = [
            agent("sessions", "search", text, *more) for more in (["--json"], ["-a", "--json"])
        ]
        assert [len(json.loads(done.out)) for done in found] == [here, everywhere], text
    assert "first question" in agent("sessions", "search", "QUESTION").out
    assert "2 of all folders" in agent("sessions", "search", "zz").err
    assert agent("sessions", "search", " ").code == 2


def test_undo_and_diff_of_a_conversation(
    agent: RunAgent, script: Callable[..., str], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    (work / "a.txt").write_text("one\ntwo\n")
    writes = [call("files__write", path="a.txt", content=text) for text in ("1\ntwo\n", "1\n2\n")]
    options = ("--tools", "files", "--approve", "files")
    engine = ("--engine", script(writes[0], final("Done."), writes[1], final("Done.")))
    assert agent("run", "first", *engine, *options).code == 0
    (row,) = json.loads(agent("sessions", "list", "--json").out)
    name = row["id"]
    shown = agent("sessions", "diff", name).out
    assert shown == "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n-one\n+1\n two\n"
    undone = agent("sessions", "undo", name[5:13])
    assert (undone.code, undone.out) == (0, "changed a.txt\n")
    assert (work / "a.txt").read_text() == "one\ntwo\n"
    again = agent("sessions", "undo", name)
    assert again.code == 2 and "There is nothing to undo." in again.err
    (work / "a.txt").write_text("mine")
    redone = agent("sessions", "undo", name, "--redo")
    assert redone.code == 1 and "a.txt stays as it is: it was changed since" in redone.out
    assert (work / "a.txt").read_text() == "mine"


def test_undo_of_a_conversation_without_changes_says_so(
    agent: RunAgent, script: Callable[..., str]
) -> None:
    assert agent("run", "hi", "--engine", script(final("Hello."))).code == 0
    (row,) = json.loads(agent("sessions", "list", "--json").out)
    for command in ("undo", "diff"):
        done = agent("sessions", command, row["id"])
        assert done.code == 2 and "No tool has changed a file" in done.err
