"""A block that grows, rendered piece by piece: at every line what rendering all of it gives."""

import random
from collections.abc import Callable

import pytest
from rich.style import Style

from tests.support.fake_app import drive_app, emit_message
from tui.base_screen import MARKDOWN_STYLES
from tui.markdown.render import RenderedRow
from tui.markdown.streaming import StreamingMarkdown
from tui.widgets.assistant_message import AssistantMessage

STYLES = {part: Style(color=f"color({20 + number})") for number, part in enumerate(MARKDOWN_STYLES)}
WORDS = (
    "word", "**bold**", "`a|b`", "中文字", "🙂", "x" * 30, "[a](https://b.org)", "a\\|b", "", "*odd",
    "~~gone~~", "&amp;", "1. x", "- y", "`open", "some longer words",
)  # fmt: skip
CODE = (
    "def f(x):", "    return x + 1  # so", "", '    """Says', '    """', "class A:", "| a | b |",
    '    s = "text"', "x = {1: 'a', 2: f'{x}'}", "@made", "中文 = 1", "- a", "a" * 90, "``",
)  # fmt: skip


def words(rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(4)))


def table(rng: random.Random) -> str:
    columns = rng.randrange(1, 5)
    aligned = "|".join(rng.choice((":--", "--:", ":-:", "---")) for _ in range(columns))
    text = f"| {' | '.join(['head'] * columns)} |\n|{aligned}|\n"
    for _ in range(rng.randrange(20, 45)):
        ragged = columns if rng.random() < 0.9 else rng.randrange(1, 7)
        text += f"| {' | '.join(words(rng) for _ in range(ragged))} |\n"
    return text


def list_items(rng: random.Random) -> str:
    mark, first, text = rng.choice("-*+1"), rng.randrange(1, 100), ""
    for number in range(first, first + rng.randrange(20, 45)):
        text += f"{number}. " if mark == "1" else f"{mark} "
        text += f"{words(rng)}\n"
        if rng.random() < 0.2:
            text += rng.choice(
                ("     - inner\n", "lazy\n", "\n", "     ```\n     code\n     ```\n")
            )
    return text


def fence(rng: random.Random) -> str:
    lines = "\n".join(rng.choice(CODE) for _ in range(rng.randrange(25, 60)))
    mark, language = rng.choice(("```", "~~~~")), rng.choice(("python", "", "c", "nosuch"))
    return f"{mark}{language}\n{lines}\n" + rng.choice((f"{mark}\n", ""))


def run_jobs(markdown: StreamingMarkdown) -> int:
    """Render all that can be rendered; return how many characters of the open block were frozen."""
    frozen = 0
    while (job := markdown.next_job()) is not None:
        markdown.apply(job, job.run())
        frozen = job.prefix.end
    return frozen


def render_complete(text: str, width: int) -> list[RenderedRow]:
    """Render a text that came in one piece."""
    markdown = StreamingMarkdown()
    markdown.set_layout(width, STYLES)
    markdown.feed(text)
    run_jobs(markdown)
    return markdown.rows


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("make_block", [table, list_items, fence])
def test_open_block_each_line_renders_as_complete_block(
    make_block: Callable[[random.Random], str], seed: int
) -> None:
    rng = random.Random(seed)
    text, width = make_block(rng), rng.choice((20, 40, 80, 118))
    markdown, fed = StreamingMarkdown(), ""
    markdown.set_layout(width, STYLES)
    for line in text.splitlines(keepends=True):
        fed += line
        markdown.feed(line)
        run_jobs(markdown)
        assert markdown.rows == render_complete(fed, width), fed
    markdown.finish("")
    run_jobs(markdown)
    complete = StreamingMarkdown()
    complete.set_layout(width, STYLES)
    complete.finish(text)
    run_jobs(complete)
    assert markdown.rows == complete.rows


@pytest.mark.long
@pytest.mark.parametrize(
    ("head", "line"),
    [
        ("| n | what |\n|---|---|\n", "| {} | some words |\n"),
        ("", "- item {} of **many**\n"),
        ("", "{}. item of **many**\n"),
        ("```python\n", "    total_{0} = add({0}, 'text')  # and on\n"),
    ],
)
def test_open_block_long_block_rerenders_little(head: str, line: str) -> None:
    markdown, rerendered = StreamingMarkdown(), []
    markdown.set_layout(80, STYLES)
    markdown.feed(head)
    for number in range(100, 500):
        markdown.feed(line.format(number))
        while (job := markdown.next_job()) is not None:
            markdown.apply(job, job.run())
            rerendered.append(len(job.open) - job.prefix.end)
    assert max(rerendered) < 1000


async def test_assistant_message_theme_change_repaints() -> None:
    async with drive_app(size=(80, 30)) as driver:
        turn = await driver.ask("hello")
        writer = emit_message(turn, "# A heading\n\n")
        for number in range(60):
            writer.delta(f"- item {number}\n")
        await driver.expect_text("item 59")
        message = driver.app.query_one(AssistantMessage)
        heading = message.render_lines(message.size.region)[0]
        driver.app.appearance.choose_theme("textual-light")
        await driver.wait_for(lambda: message.render_lines(message.size.region)[0] != heading)
        assert message.render_lines(message.size.region)[0].text == heading.text
        writer.close(True)
        turn.end()


@pytest.mark.long
async def test_assistant_message_growing_table_shows_its_end() -> None:
    async with drive_app(size=(80, 30)) as driver:
        turn = await driver.ask("hello")
        writer = emit_message(turn, "| n | what |\n|---|---|\n")
        for number in range(100, 200):
            writer.delta(f"| {number} | some words |\n")
        for number in range(200, 220):
            writer.delta(f"| {number} | half")
            await driver.expect_text(f"{number} | half")
            writer.delta(" and half |\n")
            await driver.expect_text(f"{number}   half and half")
        writer.close(True)
        turn.end()
