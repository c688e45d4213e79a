"""What the documents name is there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.program import ROOT


def test_the_tests_that_are_named_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "security.md").read_text())
    assert len(named) > 30
    missing = [
        f"{file}::{name}"
        for file, name in named
        if f"def {name}(" not in (Path(ROOT, file).read_text() if Path(ROOT, file).exists() else "")
    ]
    assert not missing


def test_links_lead_somewhere() -> None:
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("agent/**/*.md")):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
