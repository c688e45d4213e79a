"""Changing files: patches as gpt-oss writes them, whole files, and the way back."""

import asyncio
import os
import stat
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from tests.support.invariants import check
from tests.support.program import RunAgent
from tools.builtin.files import changes, patch
from tools.builtin.files.root_folder import RootFolder
from tools.builtin.files.server import FilesServer
from tools.builtin_server import ToolError, conversation_id

CODE = """import os

class A:
    def run(self):
        return 1

class B:
    def run(self):
        return 1
"""


def applied(body: str, content: str) -> str:
    (file,) = patch.parse_patch(f"*** Begin Patch\n*** Update File: a.py\n{body}\n*** End Patch")
    return patch.apply_patch(file, content)


@pytest.mark.parametrize(
    ("body", "content", "becomes"),
    [
        ("@@\n-one\n+1", "one\ntwo\n", "1\ntwo\n"),
        ("-one\n+1", "one\ntwo\n", "1\ntwo\n"),
        ("@@\n one\n+between\n two", "one\ntwo\n", "one\nbetween\ntwo\n"),
        ("@@ class B:\n     def run(self):\n-        return 1\n+        return 2", CODE,
         CODE[:-2] + "2\n"),
        ("@@ class B:\n@@     def run(self):\n-        return 1\n+        return 2", CODE,
         CODE[:-2] + "2\n"),
        ("@@\n-one\n+1\n@@\n-three\n+3", "one\ntwo\nthree\n", "1\ntwo\n3\n"),
        ("@@\n x\n-y\n+z\n*** End of File", "x\ny\nx\ny\n", "x\ny\nx\nz\n"),
        ("@@\n+end", "one\n", "one\nend\n"),
        ("@@\n+end\n@@\n-one\n+1", "one\ntwo\n", "1\ntwo\nend\n"),
        ("@@\n+end", "one", "one\nend"),
        ("@@\n-two\n-", "one\ntwo\n", "one\n"),
        ("@@\n-two\n-\n+2", "one\ntwo\n", "one\n2\n"),
        ("@@     def run(self):\n+        pass", "    def run(self):\ndef run(self):\n",
         "    def run(self):\n        pass\ndef run(self):\n"),
        ("@@ one\n+two", "one\nthree\n", "one\ntwo\nthree\n"),
        ("@@\n-one\n-two", "one\ntwo\n", ""),
        ("@@\n+first", "", "first\n"),
        # Without its last line's end, and with another system's ends.
        ("@@\n-two\n+2", "one\ntwo", "one\n2"),
        ("@@\n one\n-two\n+2", "one\r\ntwo\r\n", "one\r\n2\r\n"),
        # What models get wrong: spaces at lines' ends and beginnings, an empty line too many.
        ("@@\n one\n-two\n+2", "one  \ntwo\n", "one  \n2\n"),
        ("@@\n one\n-two\n+2", "\tone\n\ttwo\n", "\tone\n2\n"),
        ("@@\n x\n x\n-two\n+2", " x\n  x\ntwo\n", " x\n  x\n2\n"),
        ("@@\n one\n-two\n+2", "one\r\ntwo\nthree\r\nfour\n", "one\r\n2\nthree\r\nfour\n"),
        ("@@\n-two\n+2\n\n", "one\ntwo\n", "one\n2\n"),
        ("@@\n one\n\n-two\n+2", "one\n\ntwo\n", "one\n\n2\n"),
    ],
)  # fmt: skip
def test_apply_patch_results(body: str, content: str, becomes: str) -> None:
    assert applied(body, content) == becomes


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "a patch begins with the line"),
        ("*** Begin Patch\n*** End Patch", "names no file"),
        ("*** Begin Patch\nhello\n*** End Patch", "line 2 of the patch is before any file"),
        ("*** Begin Patch\n*** Update File: a\n@@\n*** End Patch", "changes nothing in a"),
        ("*** Begin Patch\n*** Update File: a\n@@\n*x\n", "line 4 of the patch must begin"),
        ("*** Begin Patch\n*** Add File: a\nx\n*** End Patch", "line 3 of the patch must begin"),
    ],
)
def test_parse_patch_malformed_raises(text: str, says: str) -> None:
    with pytest.raises(ToolError, match=says):
        patch.parse_patch(text)


def test_apply_patch_missing_lines_raises() -> None:
    with pytest.raises(ToolError, match=r"these lines are not in a\.py.*\nthree"):
        applied("@@\n-three\n+3", "one\n")
    with pytest.raises(ToolError, match=r"a\.py has no line 'class C:'"):
        applied("@@ class C:\n-one\n+1", "one\n")


class Workspace:
    """A folder, and the files server of one conversation below it."""

    def __init__(self, root: Path, undo_folder: Path) -> None:
        self.root = root
        self.builtin = FilesServer(root, undo_folder=undo_folder)

    def __call__(self, name: str, key: str = "c", **arguments: str) -> str:
        async def within() -> str:
            conversation_id.set(key)
            return await self.builtin.call(name, dict(arguments))

        return asyncio.run(within())

    def fails(self, name: str, **arguments: str) -> str:
        with pytest.raises(ToolError) as caught:
            self(name, **arguments)
        return str(caught.value)

    def patch(self, *lines: str) -> str:
        return self("apply_patch", input="\n".join(("*** Begin Patch", *lines, "*** End Patch")))


@pytest.fixture
def files(tmp_path: Path) -> Workspace:
    root = tmp_path / "root"
    (root / ".git").mkdir(parents=True)
    (root / "a.txt").write_text("one\ntwo\n")
    (root / "b.bin").write_bytes(b"\0\1")
    (tmp_path / "outside").write_text("secret\n")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "up").symlink_to(tmp_path)
    return Workspace(root, tmp_path / "work")


def test_write_then_undo(files: Workspace) -> None:
    a = files.root / "a.txt"
    a.chmod(0o640)
    assert files("write", path="a.txt", content="new\n") == "changed a.txt"
    assert a.read_text() == "new\n" and stat.S_IMODE(a.stat().st_mode) == 0o640
    assert files("write", path="deep/er/c.txt", content="täg") == "created deep/er/c.txt"
    assert files("undo") == "deleted deep/er/c.txt"
    assert files("undo") == "changed a.txt"
    assert a.read_text() == "one\ntwo\n" and stat.S_IMODE(a.stat().st_mode) == 0o640
    assert files.fails("undo") == "nothing to undo in this conversation"
    assert sorted(path.name for path in files.root.iterdir()) == [
        ".git", "a.txt", "b.bin", "out", "up",
    ]  # fmt: skip


def test_patch_changes_all_files_or_none(files: Workspace) -> None:
    summary = files.patch(
        "*** Add File: new.txt", "+hello",
        "*** Update File: a.txt", "*** Move to: sub/moved.txt", "@@", "-one", "+1",
        "*** Delete File: b.bin",
    )  # fmt: skip
    assert summary == "created new.txt\ndeleted a.txt\ncreated sub/moved.txt\ndeleted b.bin"
    assert (files.root / "sub" / "moved.txt").read_text() == "1\ntwo\n"
    assert not (files.root / "a.txt").exists()
    with pytest.raises(ToolError, match="no such file: none"):
        files.patch("*** Update File: new.txt", "@@", "-hello", "+x", "*** Delete File: none")
    assert (files.root / "new.txt").read_text() == "hello\n"
    files("undo")
    assert (files.root / "a.txt").read_text() == "one\ntwo\n"
    assert (files.root / "b.bin").read_bytes() == b"\0\1"
    assert not (files.root / "new.txt").exists()


def test_patch_disk_full_restores_files(files: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        if next(written) == 1:
            raise OSError(28, "No space left on device")

    written = count()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ToolError, match="no space left on device"):
        files.patch("*** Add File: first.txt", "+1", "*** Add File: second.txt", "+2")
    assert not (files.root / "first.txt").exists()
    assert files.fails("undo") == "nothing to undo in this conversation"


def test_undo_refuses_files_changed_since(files: Workspace) -> None:
    files("write", path="a.txt", content="new\n")
    with pytest.raises(ToolError, match="nothing to undo"):
        files("undo", key="other")
    (files.root / "a.txt").write_text("somebody's\n")
    assert "was changed since then" in files.fails("undo")
    assert (files.root / "a.txt").read_text() == "somebody's\n"


@pytest.mark.parametrize(
    "path",
    ["../x", "/etc/x", "out", "up/x", ".git/hooks/pre-commit", "sub/.git/config", ".", "a\0b"],
)
def test_write_outside_root_or_git_refused(files: Workspace, tmp_path: Path, path: str) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert files.fails("write", path=path, content="x")
    text = f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch"
    assert files.fails("apply_patch", input=text)
    moved = f"*** Begin Patch\n*** Update File: a.txt\n*** Move to: {path}\n*** End Patch"
    assert files.fails("apply_patch", input=moved)
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "outside").read_text() == "secret\n"


def test_write_binary_pipe_large_refused(files: Workspace, tmp_path: Path) -> None:
    update = "*** Begin Patch\n*** Update File: {}\n@@\n-x\n+y\n*** End Patch"
    assert files.fails("apply_patch", input=update.format("b.bin")) == "not a text file: b.bin"
    os.mkfifo(files.root / "pipe")
    assert files.fails("write", path="pipe", content="x") == "not a file: pipe"
    with pytest.raises(ToolError, match="more than"):
        changes.plan_write(RootFolder(files.root, max_file_bytes=10), "a.txt", "x" * 11)


def test_preview_of_several_files_lists_them_first(files: Workspace) -> None:
    added = "*** Add File: new\n" + "+line\n" * 9000
    patch = f"*** Begin Patch\n{added}*** Delete File: a.txt\n*** End Patch\n"
    preview = files.builtin.preview("apply_patch", {"input": patch})
    assert preview is not None and preview.startswith("D a.txt · A new\n--- /dev/null\n+++ b/new\n")


def test_preview_shows_diff(files: Workspace) -> None:
    preview = files.builtin.preview("write", {"path": "a.txt", "content": "one\n2\n"})
    assert preview == "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2"
    created = files.builtin.preview("write", {"path": "c", "content": "x\n"})
    assert created is not None and created.startswith("--- /dev/null\n+++ b/c\n")
    long = files.builtin.preview("write", {"path": "c", "content": "x\n" * 9000})
    assert long is not None and long.endswith(" more lines ...]")
    assert files.builtin.preview("read", {"path": "a.txt"}) is None
    assert not files.builtin.is_safe("write") and files.builtin.is_safe("glob")


CALL = (
    "<|channel|>commentary to=functions.files__apply_patch <|constrain|>json<|message|>"
    r'{"input":"*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+1\n*** End Patch"}<|call|>'
)
DONE = "<|channel|>final<|message|>Done.<|return|>"


@pytest.mark.slow
def test_run_patches_file_only_if_approved(
    agent: RunAgent, script: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "work" / "a.txt").write_text("one\n")
    engine = ("--engine", script(CALL, DONE), "--json-events", "--tools", "files")
    ran = agent("run", "go", *engine)
    assert check(ran.events)["output"][0]["status"] == "failed", "nobody was asked"
    request = next(e for e in ran.events if e["type"] == "agent.approval.requested")
    assert request["preview"].endswith("@@ -1 +1 @@\n-one\n+1")
    assert (tmp_path / "work" / "a.txt").read_text() == "one\n"
    ran = agent("run", "go", *engine, "--approve", "files")
    assert check(ran.events)["output"][0]["output"] == "changed a.txt"
    assert (tmp_path / "work" / "a.txt").read_text() == "1\n"
