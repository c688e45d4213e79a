"""FileReader below a root, and nowhere else."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from tools.builtin.files import reading
from tools.builtin.files.reading import FileReader, SearchCancellation
from tools.builtin.files.root_folder import RootFolder
from tools.builtin.files.server import FilesServer
from tools.builtin_server import ToolError, check_arguments


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "notes.txt").write_text("one\ntwo\nThree\n")
    (root / "sub" / "more.md").write_text("a two-fold thing\r\n")
    (root / ".git" / "config").write_text("two")
    (root / "image.png").write_bytes(b"\x89PNG\0two")
    (tmp_path / "secret").write_text("two secrets")
    (root / "way out").symlink_to(tmp_path / "secret")
    (root / "up").symlink_to(tmp_path)
    (root / "inside").symlink_to("sub/more.md")
    return root


@pytest.fixture
def files(root: Path) -> FileReader:
    return FileReader(RootFolder(root))


def test_read_lines_and_paths(files: FileReader) -> None:
    assert files.read("notes.txt") == "one\ntwo\nThree\n"
    assert files.read("notes.txt", first_line=2) == "two\nThree\n"
    assert files.read("notes.txt", last_line=1) == "one\n"
    assert files.read("notes.txt", 2, 2) == "two\n"
    assert files.read("notes.txt", 9) == ""
    assert files.read("./sub/../inside") == "a two-fold thing\n"
    assert files.read(str(files.root.path / "notes.txt"), 1, 1) == "one\n"


def test_list_folder(files: FileReader) -> None:
    assert files.list() == ".git/\nimage.png\ninside\nnotes.txt\nsub/\nup\nway out"  # up leads out
    assert files.list("sub") == "more.md"


def test_glob_patterns(files: FileReader) -> None:
    assert files.glob("*.txt") == "notes.txt"
    assert files.glob("**/*.md") == files.glob("**/*.md", "sub") == "sub/more.md"
    assert files.glob(".git/*") == ".git/config"
    assert files.glob("*") == "image.png\ninside\nnotes.txt\nsub/"
    assert files.glob("up/sec*") == "no matches"
    for wrong in ("", "../*", "/etc/*", "sub/../../*"):
        with pytest.raises(ToolError, match="must be one below a folder"):
            files.glob(wrong)


@pytest.fixture(params=["ripgrep", "own"])
def searcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ripgrep is installed, and where it is not."""
    if request.param == "own":
        monkeypatch.setattr(reading, "find_program", lambda program: None)
    elif shutil.which("rg") is None:
        pytest.skip("ripgrep is not installed")


@pytest.mark.usefixtures("searcher")
def test_search_matches(files: FileReader) -> None:
    assert files.search("two").splitlines() == [
        "notes.txt:2: two",
        "sub/more.md:1: a two-fold thing",
    ]
    assert files.search("three") == "notes.txt:3: Three"
    assert files.search("THREE") == "no matches"
    assert files.search("two", "sub") == "sub/more.md:1: a two-fold thing"
    assert files.search("two", "notes.txt") == "notes.txt:2: two"
    assert "secret" not in files.search("secrets")
    assert files.search("-fold") == "sub/more.md:1: a two-fold thing"
    assert files.search("two", ".git/config") == ".git/config:1: two"
    with open(os.fsencode(files.root.path) + b"/b\xff:1", "w") as file:  # noqa: PTH123
        file.write("two: and: more\n" + "x" * 9000 + "needle\n")
    assert ":1: two: and: more" in files.search("and: more")


@pytest.mark.usefixtures("searcher")
def test_search_utf16_and_large_files(root: Path) -> None:
    files = FileReader(RootFolder(root, max_file_bytes=2_000_000))
    (root / "wide.txt").write_bytes("täg\nneedle\n".encode("utf-16"))
    (root / "large.log").write_text("hay\n" * 600_000 + "needle\n")
    assert files.search("needle") == "wide.txt:2: needle"
    assert files.search("needle", "large.log") == "large.log:600001: needle"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (("read", "none.txt"), "no such file: none.txt"),
        (("read", "sub"), "a folder, not a file: sub"),
        (("read", "image.png"), "not a text file: image.png"),
        (("read", "../secret"), "outside the root folder: ../secret"),
        (("read", "/etc/passwd"), "outside the root folder: /etc/passwd"),
        (("read", "way out"), "outside the root folder: way out"),
        (("read", "up/secret"), "outside the root folder: up/secret"),
        (("read", "a\0b"), "not a path: 'a\\x00b'"),
        (("read", "x" * 5000), ""),
        (("read", "notes.txt", 0), "lines are counted from 1"),
        (("read", "pipe"), "not a text file: pipe"),
        (("read", "loop"), ""),
        (("list", "up"), "outside the root folder: up"),
        (("list", "notes.txt"), "not a folder: notes.txt"),
        (("search", " "), "the query is empty"),
        (("search", "x", ".."), "outside the root folder: .."),
    ],
)
def test_files_bad_paths_fail_with_reason(root: Path, call: tuple[str, str], says: str) -> None:
    os.mkfifo(root / "pipe")
    (root / "loop").symlink_to("loop")
    files = FilesServer(root)
    name, *arguments = call
    keys = {"read": ("path", "first_line"), "list": ("path",), "search": ("query", "path")}[name]
    with pytest.raises(ToolError) as caught:
        asyncio.run(files.call(name, dict(zip(keys, arguments, strict=False))))
    assert str(caught.value).startswith(says)


@pytest.mark.usefixtures("searcher")
def test_large_file_read_in_ranges(root: Path) -> None:
    files = FileReader(RootFolder(root), max_read_bytes=1000)
    (root / "big").write_text("line of text\n" * 1000)
    with pytest.raises(ToolError, match="read a part with first_line and last_line"):
        files.read("big")
    with pytest.raises(ToolError, match="read a part"):
        files.read("big", 5)
    assert files.read("big", 999, 1000) == "line of text\n" * 2
    lines = files.search("line").splitlines()
    assert len(lines) == reading.MAX_MATCHES + 1
    assert lines[-1].startswith("[more matches")


@pytest.mark.usefixtures("searcher")
def test_search_cancelled_stops(files: FileReader) -> None:
    cancellation = SearchCancellation()
    cancellation.set()
    assert files.search("two", cancel=cancellation) == "no matches"


def test_check_arguments_files_schema() -> None:
    schema = FilesServer.tools[0].parameters
    check_arguments(schema, {"path": "a", "first_line": 1})
    for wrong, says in (
        ({}, "missing argument: path"),
        ({"path": 1}, "path must be a string"),
        ({"path": "a", "first_line": "1"}, "first_line must be an integer"),
        ({"path": "a", "first_line": True}, "first_line must be an integer"),
        ({"path": "a", "lines": 1}, "unknown argument: lines; known: path, first_line, last_line"),
    ):
        with pytest.raises(ToolError, match=says):
            check_arguments(schema, wrong)


def test_default_tools_definitions() -> None:
    offered = [tool for tool in FilesServer.tools if tool.name in FilesServer.default_tools]
    assert [(tool.name, tool.description, tool.read_only) for tool in offered] == [
        ("read", "Read a text file.", True),
        ("list", "List a folder.", True),
        ("search", "Search files for a text.", True),
    ]


@pytest.mark.usefixtures("searcher")
def test_paths_stray_space_forgiven(tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_text("dear diary")
    (tmp_path / " odd.txt").write_text("odd")
    files = FileReader(RootFolder(tmp_path))
    assert files.read(" diary.txt") == "dear diary"
    assert files.read(" odd.txt") == "odd"
    assert files.search(" dear") == "diary.txt:1: dear diary"


def test_path_may_have_the_mark_of_a_mention(root: Path, files: FileReader) -> None:
    (root / "@both").write_text("marked")
    (root / "both").write_text("plain")
    (root / "one").write_text("one")
    assert files.read("@one") == files.read(" @one") == "one"
    assert files.read("@both") == "marked"


def test_read_takes_any_line_numbers(root: Path, files: FileReader) -> None:
    (root / "three").write_text("a\nb\nc\n")
    assert files.read("three", 10**30) == files.read("three", 10**30, 10**40) == ""
    assert files.read("three", 2, 10**30) == "b\nc\n"


def test_home_and_keys_that_are_loops_of_links_are_no_error(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("loop", ".ssh"):
        (root / name).symlink_to(name)
    for home in (root / "loop", root):
        monkeypatch.setenv("HOME", str(home))
        assert (
            FileReader(RootFolder(root, own_folders=[root / "loop"])).read("notes.txt", 1, 1)
            == "one\n"
        )
        assert RootFolder(root, own_folders=[root / "loop"]).writable("new").name == "new"
