"""A block that grows, rendered piece by piece: at every line what rendering all of it gives."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from rich.style import Style

from tests.support.fake_app import person, says
from tui.base_screen import PARTS
from tui.markdown.render import Row
from tui.markdown.streaming import Growing
from tui.widgets.assistant_message import Message

LOOK = {part: Style(color=f"color({20 + number})") for number, part in enumerate(PARTS)}
WORDS = (
    "word", "**bold**", "`a|b`", "中文字", "🙂", "x" * 30, "[a](https://b.org)", "a\\|b", "", "*odd",
    "~~gone~~", "&amp;", "1. x", "- y", "`open", "some longer words",
)  # fmt: skip
CODE = (
    "def f(x):", "    return x + 1  # so", "", '    """Says', '    """', "class A:", "| a | b |",
    '    s = "text"', "x = {1: 'a', 2: f'{x}'}", "@made", "中文 = 1", "- a", "a" * 90, "``",
)  # fmt: skip


def words(made: random.Random) -> str:
    return " ".join(made.choice(WORDS) for _ in range(made.randrange(4)))


def table(made: random.Random) -> str:
    columns = made.randrange(1, 5)
    aligned = "|".join(made.choice((":--", "--:", ":-:", "---")) for _ in range(columns))
    text = f"| {' | '.join(['head'] * columns)} |\n|{aligned}|\n"
    for _ in range(made.randrange(40, 90)):
        ragged = columns if made.random() < 0.9 else made.randrange(1, 7)
        text += f"| {' | '.join(words(made) for _ in range(ragged))} |\n"
    return text


def points(made: random.Random) -> str:
    mark, first, text = made.choice("-*+1"), made.randrange(1, 100), ""
    for number in range(first, first + made.randrange(40, 90)):
        text += f"{number}. " if mark == "1" else f"{mark} "
        text += f"{words(made)}\n"
        if made.random() < 0.2:
            text += made.choice(
                ("     - inner\n", "lazy\n", "\n", "     ```\n     code\n     ```\n")
            )
    return text


def fence(made: random.Random) -> str:
    lines = "\n".join(made.choice(CODE) for _ in range(made.randrange(40, 120)))
    mark, language = made.choice(("```", "~~~~")), made.choice(("python", "", "c", "nosuch"))
    return f"{mark}{language}\n{lines}\n" + made.choice((f"{mark}\n", ""))


def settle(growing: Growing) -> int:
    """Render what can be; how much of what grew was rendered before."""
    begun = 0
    while (job := growing.next()) is not None:
        growing.take(job, job.run())
        begun = job.begun.end
    return begun


def whole(text: str, width: int) -> list[Row]:
    growing = Growing()
    growing.lay(width, LOOK)
    growing.feed(text)
    settle(growing)
    return growing.rows


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("made", [table, points, fence])
def test_every_line_comes_out_as_in_the_whole(
    made: Callable[[random.Random], str], seed: int
) -> None:
    dice = random.Random(seed)
    text, width = made(dice), dice.choice((20, 40, 80, 118))
    growing, came = Growing(), ""
    growing.lay(width, LOOK)
    for line in text.splitlines(keepends=True):
        came += line
        growing.feed(line)
        settle(growing)
        assert growing.rows == whole(came, width), came
    growing.finish("")
    settle(growing)
    again = Growing()
    again.lay(width, LOOK)
    again.finish(text)
    settle(again)
    assert growing.rows == again.rows


@pytest.mark.parametrize(
    ("head", "line"),
    [
        ("| n | what |\n|---|---|\n", "| {} | some words |\n"),
        ("", "- item {} of **many**\n"),
        ("", "{}. item of **many**\n"),
        ("```python\n", "    total_{0} = add({0}, 'text')  # and on\n"),
    ],
)
def test_of_a_long_block_little_is_rendered_again(head: str, line: str) -> None:
    growing, again = Growing(), []
    growing.lay(80, LOOK)
    growing.feed(head)
    for number in range(100, 500):
        growing.feed(line.format(number))
        while (job := growing.next()) is not None:
            growing.take(job, job.run())
            again.append(len(job.grows) - job.begun.end)
    assert max(again) < 1000


async def test_what_was_painted_takes_on_another_theme() -> None:
    async with person(size=(80, 30)) as someone:
        turn = await someone.ask("hello")
        writer = says(turn, "# A heading\n\n")
        for number in range(60):
            writer.delta(f"- item {number}\n")
        await someone.sees("item 59")
        message = someone.app.query_one(Message)
        heading = message.render_lines(message.size.region)[0]
        someone.app.choose_theme("textual-light")
        await someone.see(lambda: message.render_lines(message.size.region)[0] != heading)
        assert message.render_lines(message.size.region)[0].text == heading.text
        writer.close(True)
        turn.end()


async def test_the_end_of_a_growing_table_is_seen() -> None:
    async with person(size=(80, 30)) as someone:
        turn = await someone.ask("hello")
        writer = says(turn, "| n | what |\n|---|---|\n")
        for number in range(100, 200):
            writer.delta(f"| {number} | some words |\n")
        for number in range(200, 220):
            writer.delta(f"| {number} | half")
            await someone.sees(f"{number} | half")
            writer.delta(" and half |\n")
            await someone.sees(f"{number}   half and half")
        writer.close(True)
        turn.end()
