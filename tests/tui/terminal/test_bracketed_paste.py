"""What is pasted is text: no mark, sequence or control in it is taken for a key."""

import json
import os
from pathlib import Path

import pytest
from textual import events

from tests.support.terminal import start_program
from tui.terminal.bracketed_paste import (
    END,
    MAX_TYPED_CHARS,
    REPEATED_END_SECONDS,
    START,
    PasteScanner,
    PasteXTermParser,
)

EVIL = f"one{END}\x11\r\x1b[13~y{START}two\x1b and \x1bq\x1b[A three\r\x03"
CLEAN = "one\x11\rytwo and q three\r\x03"


def parsed(pieces: list[str]) -> tuple[str, list[str]]:
    """What was pasted, and which keys were pressed."""
    parser = PasteXTermParser(clock=lambda: 0.0)
    parsed_events = [event for piece in pieces for event in parser.feed(piece)]
    pasted = "".join(event.text for event in parsed_events if isinstance(event, events.Paste))
    return pasted, [event.key for event in parsed_events if isinstance(event, events.Key)]


@pytest.mark.parametrize(
    ("character", "name"), [(".", "full_stop"), ("1", "1"), ("=", "equals_sign")]
)
def test_alt_with_digit_or_punctuation_is_no_character(character: str, name: str) -> None:
    parser = PasteXTermParser()
    keys = [*parser._sequence_to_key_events(character, alt=True)]
    keys += parser._sequence_to_key_events(f"\x1b{character}")
    keys += [event for event in parser.feed(character) if isinstance(event, events.Key)]
    assert {key.key for key in keys[:-1]} == {f"alt+{name}"}
    assert keys[-1].character == character


def test_alt_with_letters_at_once_writes_nothing() -> None:
    parser = PasteXTermParser()
    keys = [e for e in parser.feed("\x1bx\x1bZ\x1bOP\x1bda") if isinstance(e, events.Key)]
    assert [key.key for key in keys] == ["alt+x", "alt+shift+z", "f1", "alt+d", "a"]


@pytest.mark.parametrize("step", [1, 2, 5, 7, 1000])
def test_paste_scanner_any_pieces_hold_no_keys(step: int) -> None:
    data = f"a{START}{CLEAN}\x1b[A\x1b{END}b"
    pieces = [data[at : at + step] for at in range(0, len(data), step)]
    assert parsed(pieces) == (CLEAN, ["a", "b"])


def test_paste_scanner_end_mark_in_paste_presses_no_key() -> None:
    assert parsed([f"a{START}{EVIL}{END}", "b", "\r"]) == (CLEAN, ["a", "b", "enter"])
    pasted, keys = parsed([f"{START}one{END}", f"\x11\r{END}", "b"])
    assert (pasted, keys) == ("one\x11\r", ["b"])
    pasted, keys = parsed([f"{START}one{END}", "\x11" * (MAX_TYPED_CHARS + 1), f"\r{END}", "b"])
    assert (pasted, keys) == ("one" + "\x11" * (MAX_TYPED_CHARS + 1) + "\r", ["b"])


@pytest.mark.parametrize("size", [MAX_TYPED_CHARS + 1, 1024, 4095, 4096])
def test_paste_scanner_long_page_with_end_marks_presses_no_key(size: int) -> None:
    for before in range(len(END) + 2):
        data = START + "x" * before + f"{END}\ry" * 1000 + END
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        assert parsed([*pieces, "b"]) == ("x" * before + "\ry" * 1000, ["b"])


def test_paste_scanner_typing_between_pastes_passes() -> None:
    assert parsed([f"{START}a{END}\r{START}b{END}", "\r"])[1] == ["enter"]
    assert parsed([f"{START}a{END}", "\x1b[A", f"{START}b{END}"]) == ("ab", ["up"])
    now = 0.0
    marked = PasteScanner(lambda: now)
    assert marked.scan(f"{START}a{END}") == f"{START}a{END}"
    now = REPEATED_END_SECONDS
    assert marked.scan(f"x{END}") == f"x{END}"


@pytest.mark.long
def test_app_hostile_paste_neither_sends_nor_leaves(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text(json.dumps({"markup": "<|channel|>final<|message|>Heard.<|return|>"}))
    with start_program("--engine", f"script:{script}", home=home, cwd=tmp_path) as terminal:
        terminal.wait_for("○ ready")
        terminal.press(os.fsdecode(b"\xff\xfe"))  # no UTF-8
        terminal.press(f"{START}{EVIL}{END}behind")
        # A paint may come while the prompt is still one line high, its last.
        text = terminal.wait_for(lambda text: "two and q three" in text and "behind" in text)
        assert "Heard" not in text
        terminal.press("\r")
        terminal.wait_for("Heard.")
        terminal.press("\x11")
        assert terminal.wait_exit() == 0
