"""The pictures of the README can be taken again at any time."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.program import ROOT

SEEN = {
    "app.svg": ["Reasoning", "This is arithmetic.", "56088"],
    "raw.svg": ["<|start|>", "<|return|>"],
    "approval.svg": ["Run files · apply_patch?", "+    if not path.exists():", "scripted"],
    "servers.svg": ["cities", "distance", "WEATHER_KEY is not set"],
}


def texts(picture: Path) -> str:
    found = re.findall(r"<text[^>]*>([^<]*)</text>", picture.read_text())
    return html.unescape("\n".join(found)).replace("\xa0", " ")


@pytest.mark.slow
def test_they_show_the_real_app(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.tui.pictures", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    for folder in (tmp_path, ROOT / "docs"):
        assert {one.name for one in folder.glob("*.svg")} == set(SEEN)
        for name, seen in SEEN.items():
            assert [one for one in seen if one not in texts(folder / name)] == [], name
