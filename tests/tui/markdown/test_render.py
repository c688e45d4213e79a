"""Markdown as rows: nothing is lost while it grows, and wrapped lines are one line to who copies."""

import pytest
from rich.style import Style
from textual.geometry import Offset
from textual.selection import Selection

from tests.support.fake_app import AppDriver, drive_app, emit_message, screen_text
from tui.base_screen import MARKDOWN_STYLES
from tui.markdown.render import RenderedRow, render_markdown, wrap_plain
from tui.markdown.streaming import StreamingMarkdown
from tui.widgets.assistant_message import AssistantMessage

STYLES = {part: Style.null() for part in MARKDOWN_STYLES}
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


def run_job(markdown: StreamingMarkdown) -> None:
    if (job := markdown.next_job()) is not None:
        markdown.apply(job, job.run())


def row_texts(rows: list[RenderedRow]) -> list[str]:
    return [row.text.rstrip() for row in rows]


async def rendered_message(driver: AppDriver) -> AssistantMessage:
    """The only message of the model, once all of it is rendered."""
    await driver.wait_for(lambda: driver.app.query(AssistantMessage))
    message = driver.app.query_one(AssistantMessage)
    await driver.wait_for(lambda: message.is_rendered and message.row_count)
    return message


def test_render_markdown_each_kind_of_block_has_its_rows() -> None:
    assert row_texts(render_markdown(TEXT, 40, STYLES)) == [
        "A title", "",
        "A paragraph of two lines", "that goes on, with a link and", "<b>tags</b>.", "",
        " 1 one", " 2 two", "    • nested", "",
        "a    b", "──────", "1   22", "",
        "▌ quoted", "",
        " def f(x):", "", "     return \"a string\"", "",
        "-" * 40, "",
        "The end.",
    ]  # fmt: skip


def test_render_markdown_breaks_lines_of_cells() -> None:
    styles = STYLES | {"code": Style(color="red")}
    table = "| a | b |\n|---|---|\n| x<br>y <br/> z<BR />w | `a <br> b` |\n"
    assert row_texts(render_markdown(table, 40, styles)) == [
        "a   b", "────────────", "x   a <br> b", "y", "z", "w",
    ]  # fmt: skip


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_streaming_markdown_any_pieces_render_alike(step: int) -> None:
    markdown = StreamingMarkdown()
    markdown.set_layout(40, STYLES)
    for at in range(0, len(TEXT), step):
        markdown.feed(TEXT[at : at + step])
        displayed = " ".join(row_texts(markdown.rows))
        assert TEXT[at].strip("\n #*-|>`[1]()") in displayed, "all that came is on the screen"
        if (job := markdown.next_job()) is not None:
            markdown.apply(job, job.run())
    markdown.finish("")
    run_job(markdown)
    assert row_texts(markdown.rows) == row_texts(render_markdown(TEXT, 40, STYLES))
    assert markdown.next_job() is None


def test_streaming_markdown_job_of_former_width_is_dropped() -> None:
    markdown = StreamingMarkdown()
    markdown.set_layout(40, STYLES)
    markdown.feed("some words\n\nand some more")
    outdated = markdown.next_job()
    assert outdated is not None
    markdown.set_layout(8, STYLES)
    markdown.apply(outdated, outdated.run())
    run_job(markdown)
    assert row_texts(markdown.rows) == ["some", "words", "", "and some", "more"]


def test_rendered_rows_have_their_separators() -> None:
    for rows in (
        wrap_plain("aaa bbb\nccccccc", 5),
        render_markdown("aaa bbb  \nccccccc", 5, STYLES),
    ):
        assert [(row.text.strip(), row.separator) for row in rows] == [
            ("aaa", " "), ("bbb", "\n"), ("ccccc", ""), ("cc", "\n"),
        ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "---\n\n1. x",
        "> q\n\n- x\n\n---\n\n> r\n\n1. y",
        "a\n\n```\n\n\nb\n\n\n\nc\n```\n\n---\n\n- z",
    ],
)
def test_render_markdown_in_one_piece_and_streamed_has_the_same_rows(text: str) -> None:
    markdown = StreamingMarkdown()
    markdown.set_layout(20, STYLES)
    for character in text:
        markdown.feed(character)
        run_job(markdown)
    markdown.finish("")
    run_job(markdown)
    assert row_texts(markdown.rows) == row_texts(render_markdown(text, 20, STYLES))


def test_render_markdown_line_breaks_are_those_of_text() -> None:
    rows = render_markdown("1 Main Street\nSpringfield\n\n- a point\n  goes on", 40, STYLES)
    assert row_texts(rows) == ["1 Main Street", "Springfield", "", " • a point", "   goes on"]


def test_render_markdown_entities_and_links_are_safe() -> None:
    rows = render_markdown("a&#8238;b &#27;[2J [x](https://example.org/\"'?a=%1b)", 60, STYLES)
    line = rows[0]
    assert line.text.startswith("a\N{REPLACEMENT CHARACTER}b \N{REPLACEMENT CHARACTER}[2J x")
    assert not any(segment.style and segment.style.link for segment in line.segments)


async def test_assistant_message_copied_rows_are_unwrapped() -> None:
    async with drive_app(size=(40, 24)) as driver:
        turn = await driver.ask("hello")
        emit_message(
            turn, "The words of this paragraph take more than a row.\n\n- and a point"
        ).close(True)
        turn.end()
        await driver.expect_text("and a point")
        message = await rendered_message(driver)
        message.text_select_all()
        await driver.wait_for(lambda: driver.app.screen.get_selected_text())
        copied = driver.app.screen.get_selected_text() or ""
        assert copied.rstrip() == (
            "The words of this paragraph take more than a row.\n\n • and a point"
        )


@pytest.mark.sampled(8)
@pytest.mark.parametrize("columns", [16, 40])
@pytest.mark.parametrize("before", ["", "- ", "> ", "> 1. "])
async def test_assistant_message_copied_code_is_as_written(before: str, columns: int) -> None:
    code = "def f():\n    return  'two  blanks'\n\nf()"
    indent = before.replace("-", " ").replace("1.", "  ")
    fence = f"\n{indent}".join(["```", *code.split("\n"), "```"])
    async with drive_app(size=(columns, 30)) as driver:
        turn = await driver.ask("hello")
        emit_message(turn, before + fence).close(True)
        turn.end()
        message = await rendered_message(driver)
        message.text_select_all()
        await driver.wait_for(lambda: driver.app.screen.get_selected_text())
        assert driver.app.screen.get_selected_text() == code
        y, row = next((y, row) for y, row in enumerate(message._markdown.rows) if "def" in row.text)
        start = Offset(row.text.index("def"), y)
        driver.app.screen.selections = {message: Selection(start, None)}
        assert driver.app.screen.get_selected_text() == code


async def test_selection_that_begins_behind_a_row_is_painted() -> None:
    async with drive_app(size=(60, 30)) as driver:
        turn = await driver.ask("hello")
        emit_message(turn, "First.\n\nSecond.").close(True)
        turn.end()
        message = await rendered_message(driver)
        driver.app.screen.selections = {message: Selection(Offset(60, 0), Offset(3, 2))}
        first, second = (message.render_line(y) for y in (0, 2))
        assert first.text.rstrip() == "First." and second.text.rstrip() == "Second."


async def test_assistant_message_late_reference_becomes_link() -> None:
    async with drive_app(size=(80, 30)) as driver:
        turn = await driver.ask("hello")
        writer = emit_message(turn, "See [the page][1].\n\nAnother paragraph")
        await driver.expect_text("Another paragraph")
        assert "[the page][1]" in screen_text(driver.app)
        writer.delta("\n\n[1]: https://example.org\n")
        writer.close(True)
        turn.end()
        await driver.expect_text("See the page.")
