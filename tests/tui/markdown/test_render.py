"""Markdown as rows: nothing is lost while it grows, and wrapped lines are one line to who copies."""

from __future__ import annotations

import pytest
from rich.style import Style

from tests.support.fake_app import person, says, screen_text
from tui.base_screen import PARTS
from tui.markdown.render import Row, plain, rendered
from tui.markdown.streaming import Growing
from tui.widgets.assistant_message import Message

LOOK = {part: Style.null() for part in PARTS}
TEXT = """# A *title*

A paragraph of **two** lines
that goes on, with [a link](https://example.org) and <b>tags</b>.

1. one
2. two
   - nested

| a | b |
|---|--:|
| 1 | 22 |

> quoted

```python
def f(x):

    return "a string"
```

---

The end."""


def render(growing: Growing) -> None:
    if (job := growing.next()) is not None:
        growing.take(job, job.run())


def text(rows: list[Row]) -> list[str]:
    return [row.text.rstrip() for row in rows]


def test_each_block_is_shown_as_what_it_is() -> None:
    assert text(rendered(TEXT, 40, LOOK)) == [
        "A title", "",
        "A paragraph of two lines that goes on,", "with a link and <b>tags</b>.", "",
        " 1 one", " 2 two", "    • nested", "",
        "a    b", "──────", "1   22", "",
        "▌ quoted", "",
        " def f(x):", "", "     return \"a string\"", "",
        "-" * 40, "",
        "The end.",
    ]  # fmt: skip


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_markdown_in_pieces_comes_out_as_the_whole(step: int) -> None:
    growing = Growing()
    growing.lay(40, LOOK)
    for at in range(0, len(TEXT), step):
        growing.feed(TEXT[at : at + step])
        shown = " ".join(text(growing.rows))
        assert TEXT[at].strip("\n #*-|>`[1]()") in shown, "all that came is on the screen"
        if (job := growing.next()) is not None:
            growing.take(job, job.run())
    growing.finish("")
    render(growing)
    assert text(growing.rows) == text(rendered(TEXT, 40, LOOK))
    assert growing.next() is None


def test_what_was_rendered_for_an_older_width_is_left_out() -> None:
    growing = Growing()
    growing.lay(40, LOOK)
    growing.feed("some words\n\nand some more")
    old = growing.next()
    assert old is not None
    growing.lay(8, LOOK)
    growing.take(old, old.run())
    render(growing)
    assert text(growing.rows) == ["some", "words", "", "and some", "more"]


def test_rows_know_how_they_go_on() -> None:
    for rows in (plain("aaa bbb\nccccccc", 5), rendered("aaa bbb  \nccccccc", 5, LOOK)):
        assert [(row.text.strip(), row.end) for row in rows] == [
            ("aaa", " "), ("bbb", "\n"), ("ccccc", ""), ("cc", "\n"),
        ]  # fmt: skip


def test_an_entity_cannot_turn_the_text_around_and_a_link_is_the_apps() -> None:
    rows = rendered("a&#8238;b &#27;[2J [x](https://example.org/\"'?a=%1b)", 60, LOOK)
    line = rows[0]
    assert line.text.startswith("a\N{REPLACEMENT CHARACTER}b \N{REPLACEMENT CHARACTER}[2J x")
    assert not any(segment.style and segment.style.link for segment in line.segments)


async def test_who_copies_gets_the_lines_that_were_written() -> None:
    async with person(size=(40, 24)) as someone:
        turn = await someone.ask("hello")
        says(turn, "The words of this paragraph take more than a row.\n\n- and a point").close(True)
        turn.end()
        await someone.sees("and a point")
        message = someone.app.query_one(Message)
        await someone.see(lambda: message.settled)
        message.text_select_all()
        await someone.see(lambda: someone.app.screen.get_selected_text())
        copied = someone.app.screen.get_selected_text() or ""
        assert copied.rstrip() == (
            "The words of this paragraph take more than a row.\n\n • and a point"
        )


async def test_a_reference_that_is_defined_later_is_a_link_at_the_end() -> None:
    async with person(size=(80, 30)) as someone:
        turn = await someone.ask("hello")
        writer = says(turn, "See [the page][1].\n\nAnother paragraph")
        await someone.sees("Another paragraph")
        assert "[the page][1]" in screen_text(someone.app)
        writer.delta("\n\n[1]: https://example.org\n")
        writer.close(True)
        turn.end()
        await someone.sees("See the page.")
