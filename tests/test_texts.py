"""Keeps the texts that people, clients and models read on one page for each package.

The pages are in `tests/__snapshots__/test_texts/`; `docs/agent.1` has the help of the commands. After
a change of texts: ``pytest tests/test_texts.py --snapshot-update``, and read the difference aloud.
"""

import ast
import re
from collections.abc import Iterator

import pytest
from syrupy import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from tests.support.program import ROOT

PAGES = {
    "cli": "agent/cli",
    "server": "agent/server",
    "engine": "agent/engine",
    "other": "agent",
    "tools": "tools",
    "tui": "tui",
}
"""Folders by page; a file belongs to the first."""
NOT_FOR_READERS = (
    *("agent/tiny/train", "agent/formats/markup/default_templates.py"),
    "agent/server/responses/answer_schemas.py",
)
_SENTENCE = re.compile(r"[A-Za-z]{2,}[^\n]* [^\n]*[a-z]{2,}")
_CODE = re.compile(
    r"\s*(import|select|insert|update|delete|drop|create|pragma|alter|savepoint|release|rollback|\{PATH\})\b"
    r"|.*(<\[\{|%llguidance|<\|im_start|\(allow |font: )",
    re.DOTALL,
)
_CALLS_FOR_NO_READER = re.compile(r"(log|re|logging|warnings)\.\w+")


class TextFile(SingleFileSnapshotExtension):
    """Stores a page as a text file."""

    _file_extension = "txt"
    _write_mode = WriteMode.TEXT


def texts(source: str) -> Iterator[str]:
    """Yield the strings of Python code that look like sentences, with {…} for what is put in."""
    tree = ast.parse(source)
    left_out: set[ast.AST] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant() as docstring):
                left_out.add(docstring)
            case ast.Call(func=func) if _CALLS_FOR_NO_READER.fullmatch(ast.unparse(func)):
                left_out.update(ast.walk(node))
            case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
                if ast.unparse(target).endswith(("CSS", "_COLOURS")):
                    left_out.update(ast.walk(node))
            case ast.JoinedStr(values=values):
                left_out.update(value for value in values if isinstance(value, ast.Constant))
            case _:
                pass
    for node in ast.walk(tree):
        match node:
            case _ if node in left_out:
                continue
            case ast.Constant(value=str(text)):
                pass
            case ast.JoinedStr(values=values):
                text = "".join(
                    str(value.value) if isinstance(value, ast.Constant) else _hole(value)
                    for value in values
                )
            case _:
                continue
        if _SENTENCE.search(text) and not _CODE.match(text):
            yield text


def _hole(value: ast.AST) -> str:
    return f"{{{ast.unparse(value.value)}}}" if isinstance(value, ast.FormattedValue) else "{}"


def page(name: str) -> str:
    """The texts of a page's files, by file, each in a line."""
    folders = list(PAGES.values())
    earlier = folders[: folders.index(PAGES[name])]
    lines: list[str] = []
    for path in sorted((ROOT / PAGES[name]).rglob("*.py")):
        file = path.relative_to(ROOT).as_posix()
        if file.startswith(tuple([f"{folder}/" for folder in earlier] + list(NOT_FOR_READERS))):
            continue
        found = list(dict.fromkeys(texts(path.read_text())))
        if found:
            lines += ["", f"# {file}", *(repr(text)[1:-1] for text in found)]
    return "\n".join(lines).strip()


@pytest.mark.parametrize("name", PAGES)
def test_texts_are_those_that_were_read(name: str, snapshot: SnapshotAssertion) -> None:
    assert page(name) == snapshot(extension_class=TextFile), (
        "texts have changed: pytest tests/test_texts.py --snapshot-update, and read them"
    )


def test_texts_sentences_without_docstrings_logs_and_styles() -> None:
    source = '''
"""A docstring of words."""
log.warning("a line for the log")
DEFAULT_CSS = "border: round red"
raise Error(f"{name} is not a {kind}.")
print("one" "two", "two words")
'''
    assert list(texts(source)) == ["{name} is not a {kind}.", "two words"]
