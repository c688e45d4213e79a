"""An answer on a terminal has all of its text."""

import pytest
from rich.console import Console

from agent.cli.markdown import AnswerMarkdown


def painted(markup: str, columns: int = 60) -> str:
    console = Console(width=columns, color_system=None, force_terminal=True)
    with console.capture() as capture:
        console.print(AnswerMarkdown(markup))
    return capture.get()


@pytest.mark.parametrize(
    "text",
    [
        "git clone <repo-url> into <dir>",
        "a List<String> or <b>bold</b>",
        "<your-key>",
        "<div>whole block</div>",
        "<!-- a comment -->",
        "Line one<br>Line two",
        "<http://example.org/>",
        "[ref]: http://example.org/below",
        "a < b > c & d",
    ],
)
def test_tags_and_placeholders_are_text(text: str) -> None:
    assert text in painted(text)
    assert text in painted(f"Before.\n\n- {text}\n")
    assert text in painted(f"| a | b |\n|---|---|\n| {text} | c |\n")


@pytest.mark.parametrize("markup", ["[text](http://a.example/b)", "![text](http://a.example/b)"])
def test_links_have_their_addresses(markup: str) -> None:
    assert painted(markup).strip().lstrip("!") == "text (http://a.example/b)"


def test_long_words_in_narrow_tables_are_broken_and_not_cut() -> None:
    word = "https://example.org/" + "".join(f"part{number}/" for number in range(12))
    table = painted(f"| a | b |\n|---|---|\n| some words here | {word} |\n", columns=40)
    assert "…" not in table
    lines = [line[-22:].strip() for line in table.splitlines()]
    assert word in "".join(lines) or word in "".join(table.split()).replace("somewordshere", "")


def test_entities_are_no_control_characters() -> None:
    shown = painted("see &#x202e;gpj.exe&rlm; and `&#x202e;` &amp; &#x1b;[31m")
    assert "gpj.exe" in shown and "& " in shown
    assert not {"\u202e", "\u200f", "\x1b"} & set(shown)
