"""The pictures of the README can be taken again and show what they are to show."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.program import ROOT

EXPECTED_TEXTS = {
    "app.svg": ["Reasoning", "This is arithmetic: a * b.", "56088"],
    "raw.svg": ["<|start|>", "<|return|>", "instead", "sampled", "rank"],
    "approval.svg": ["Allow files.apply_patch?", "+    if not path.exists():", "scripted"],
    "context.svg": ["1 ❯ What is 12*34?", "in memory", "pinned", "folded, of"],
    "thought.svg": ["reasoning", "continues it"],
    "times.svg": ["‹2/2›", "prefill", "tool python", "tokens per second"],
    "compare.svg": ["1 · as it was", "2 · effort=high", "take left", "left."],
    "servers.svg": ["cities", "distance", "WEATHER_KEY is not set"],
}


def svg_text(picture: Path) -> str:
    """All text elements of an SVG, line by line."""
    elements = ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text")
    return "\n".join("".join(element.itertext()) for element in elements).replace("\xa0", " ")


@pytest.mark.long
def test_pictures_show_real_app(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.tui.pictures", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    for folder in (tmp_path, ROOT / "docs"):
        assert {picture.name for picture in folder.glob("*.svg")} == set(EXPECTED_TEXTS)
        for name, texts in EXPECTED_TEXTS.items():
            picture = svg_text(folder / name)
            assert [text for text in texts if text not in picture] == [], name
