"""What the documents name exists, and what is public is documented."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import messages
from tests.support.program import ROOT

PAGES = sorted(
    str(page.relative_to(ROOT)) for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))
)


def test_security_page_named_tests_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "security.md").read_text())
    assert len(named) > 30
    missing = [
        f"{file}::{name}"
        for file, name in named
        if f"def {name}(" not in (Path(ROOT, file).read_text() if Path(ROOT, file).exists() else "")
    ]
    assert not missing


def test_pages_links_lead_to_files() -> None:
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("agent/**/*.md")):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES)
def test_page_named_files_exist(page: str) -> None:
    named = re.findall(r"`((?:agent|tools|tui|tests)/[\w/.]*)`", (ROOT / page).read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_architecture_page_named_symbols_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    code = "".join(
        path.read_text() for top in ("agent", "tools", "tui") for path in (ROOT / top).rglob("*.py")
    )
    symbols = set(re.findall(r"`([A-Z]\w+[a-z]\w*)(?:\.(\w+))?`", text))
    assert len(symbols) > 30
    for name, member in symbols:
        assert re.search(rf"^(class |){name}\b", code, re.MULTILINE), name
        assert not member or re.search(rf"(def |self\.|^    ){member}\b", code, re.MULTILINE), (
            member
        )


def undocumented(file: Path) -> Iterator[str]:
    """The module and its public classes, as far as they have no docstring. So too the functions that
    a package exports; others need one only for what their signature does not say."""
    tree = ast.parse(file.read_text())
    if tree.body and not ast.get_docstring(tree):
        yield "the module"
    package = file.with_name("__init__.py").read_text()
    exported = {
        alias.name
        for statement in ast.walk(ast.parse(package))
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    for child in tree.body:
        match child:
            case ast.ClassDef(name=name) if not name.startswith("_"):
                public = True
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                public = name in exported
            case _:
                continue
        if public and not ast.get_docstring(child):
            yield name


def test_public_modules_classes_and_exported_functions_have_docstrings() -> None:
    files = [file for top in ("agent", "tools", "tui") for file in (ROOT / top).rglob("*.py")]
    assert [
        f"{file.relative_to(ROOT)}: {name}" for file in sorted(files) for name in undocumented(file)
    ] == []


def test_troubleshooting_page_has_every_message() -> None:
    listed = messages.listed(messages.PAGE.read_text())
    missing = messages.messages().keys() - set(listed)
    gone = set(listed) - messages.messages().keys()
    assert (missing, gone) == (set(), set()), "python -m tests.messages; then move what is new"
    assert len(listed) == len(set(listed))


def test_troubleshooting_page_every_group_of_messages_has_a_remedy() -> None:
    groups = messages.PAGE.read_text().partition("## All messages")[2].split("\n## ")[1:]
    assert len(groups) > 20
    for group in groups:
        _, remedy, *_ = group.split("\n\n")
        assert not remedy.startswith("- `") and remedy.endswith("."), group


def test_messages_of_exceptions_by_way_of_variables_and_functions() -> None:
    source = """
LATE = "It is too late now."
class EngineError(AgentError): ...
def reason(): return f"There is no {name!r} here."
raise EngineError(LATE)
raise EngineError(reason())
raise EngineError(f"One is {'odd' if x else 'even'}" + ", so try again.")
raise UserError("Yes, that is " + text if x else "It is over now.")
raise ToolError("This is for the model.")
"""
    assert [messages.normal(text) for text in messages.raised(ast.parse(source))] == [
        "It is too late now.",
        "There is no … here.",
        "One is …, so try again.",
        "Yes, that is …",
        "It is over now.",
    ]
