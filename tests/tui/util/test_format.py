"""Text made safe to display, lines wrapped into rows, and numbers for people."""

import random
from pathlib import Path

import pytest
from rich.cells import cell_len

from tui.util.format import display_text, format_count, format_folder, format_seconds, wrap_line

SIGNS = (*"ab  中é🙂-ש한", "e\u0301", "❤️", "👍🏽", "👨‍👩‍👧", "🏳️‍🌈", "क्षि", "1️⃣")


@pytest.mark.parametrize("width", [1, 2, 7, 40])
def test_wrap_line_any_text_keeps_characters_and_fits(width: int) -> None:
    rng = random.Random(width)
    for _ in range(200):
        text = "".join(rng.choice(SIGNS) for _ in range(rng.randrange(0, 90)))
        rows = wrap_line(text, width)
        assert "".join(text[a:b] for a, b in rows) == text
        assert all(b > a for a, b in rows) or text == ""
        if width > 1:
            assert sum(cell_len(text[a:b]) for a, b in rows) == cell_len(text), "no sign is parted"
            assert all(cell_len(text[a:b].rstrip(" ")) <= width for a, b in rows)


def test_wrap_line_appended_text_equals_wrapping_all() -> None:
    rng = random.Random(5)
    text, rows = "", [(0, 0)]
    for _ in range(300):
        text += "".join(
            rng.choice((*"abc 中", "👨", "\u200d👩", "\u0301")) for _ in range(rng.randrange(1, 9))
        )
        start = rows.pop()[0]
        rows += wrap_line(text, 12, start)
        assert rows == wrap_line(text, 12)


def test_display_text_control_characters_are_removed() -> None:
    hostile = "\x1b[2J\x1b]0;title\x07\x1bP1$r\x1b\\ \x9b31m \x00\x08\x07 \u202egnp.exe\u202c ok"
    displayed = display_text(hostile)
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in displayed)
    assert "\u202e" not in displayed and displayed.endswith("ok")
    assert display_text("a\r\nb\rc\td") == "a\nb\nc   d"
    assert display_text("\x1b[31mred\x1b[0m") == "red"


def test_format_numbers_are_short() -> None:
    assert [format_seconds(s) for s in (0.44, 12.3, 185)] == ["0.4 s", "12 s", "3 min 05 s"]
    assert [format_count(n) for n in (950, 1234, 32768)] == ["950", "1.2k", "33k"]


def test_format_folder_home_and_long_paths_are_short(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert format_folder(Path()) == format_folder(Path("~")) == "~"
    assert format_folder(Path("a/../src")) == "~/src"
    assert format_folder(Path(f"{tmp_path}-b/src")) == "…/src"
    assert format_folder(Path("/srv/fox")) == "/srv/fox"
    assert "\x1b" not in format_folder(Path("/srv/\x1b[2J"))
    monkeypatch.setenv("HOME", "/")
    assert format_folder(Path("/srv")) == "~/srv"
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.setenv("HOME", str(tmp_path / "loop"))
    assert format_folder(Path("/srv")) == "/srv"
