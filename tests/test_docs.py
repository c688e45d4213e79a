"""What the documents name exists, and what is public is documented."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import messages
from tests.support.program import ROOT

TEXTUAL = re.compile(
    r"(on|action|watch|validate|compute|key)_.*|check_action|compose|render|render_lines?|arrange"
    r"|get_(content_width|content_height|default_screen|line_filters|selection|system_commands"
    r"|theme_variable_defaults)|selection_updated|notify_style_update"
)
"""Methods whose meaning is Textual's."""
FILE_LIKE = re.compile(r"writable|write|aclose")
"""Methods whose meaning is io's or httpx's."""

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


def undocumented(node: ast.Module | ast.ClassDef, path: str, prefix: str = "") -> Iterator[str]:
    """Public classes and functions without a docstring, with their place."""
    for child in node.body:
        if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        name, method = child.name, isinstance(node, ast.ClassDef)
        inherited = method and (
            (path.startswith("tui/") and TEXTUAL.fullmatch(name)) or FILE_LIKE.fullmatch(name)
        )
        setter = any(ast.unparse(one).endswith(".setter") for one in child.decorator_list)
        if name.startswith("_"):
            continue
        if not (ast.get_docstring(child) or inherited or setter):
            yield f"{path}:{child.lineno}: {prefix}{name}"
        if isinstance(child, ast.ClassDef):
            yield from undocumented(child, path, f"{prefix}{name}.")


def test_public_modules_classes_and_functions_have_docstrings() -> None:
    missing = []
    for top in ("agent", "tools", "tui"):
        for file in sorted((ROOT / top).rglob("*.py")):
            path, tree = str(file.relative_to(ROOT)), ast.parse(file.read_text())
            if tree.body and not ast.get_docstring(tree):
                missing.append(f"{path}: the module")
            missing += undocumented(tree, path)
    assert missing == []


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
