"""What is painted of a text that is written, after the terminal is resized."""

import pytest

from tests.support.fake_app import AppDriver, drive_app, screen_strips
from tui.screens.dialogs import EditorArea, TextEditor
from tui.widgets.folding_area import WrappedArea

SCROLLBAR = " ▁▂▃▄▅▆▇█"
TEXT = "\n".join(
    f"line {n} has a few words, so that it is wrapped at some blank" for n in range(60)
)


def painted_rows(driver: AppDriver, area: WrappedArea) -> list[str]:
    """The rows of the area as the terminal has them."""
    region = area.content_region
    strips = screen_strips(driver.app)
    rows = (strips[y].crop(region.x, region.right).text for y in range(region.y, region.bottom))
    return [row.rstrip(SCROLLBAR) for row in rows]


def wrapped_rows(area: WrappedArea) -> list[str]:
    """The rows that are in sight, as the text is wrapped."""
    lines = range(area.document.line_count)
    rows = [row for n in lines for row in area.wrapped_document.get_sections(n)]
    top = area.scroll_offset.y
    return [row.rstrip() for row in rows[top : top + area.content_size.height]]


@pytest.mark.long
@pytest.mark.parametrize("is_prompt", [True, False], ids=["prompt", "editor"])
async def test_text_is_painted_as_it_is_wrapped_and_cursor_is_in_sight(is_prompt: bool) -> None:
    async with drive_app(size=(80, 24)) as driver:
        area: WrappedArea = driver.app.prompt
        if is_prompt:
            area.load_text(TEXT)
        else:
            screen = TextEditor[None]("reasoning", TEXT, "continues it", lambda text: None)
            await driver.app.push_screen(screen)
            area = screen.query_one(EditorArea)
            assert not screen.query_one(".problem").display
        area.cursor_blink = False
        for line in (59, 30):
            area.move_cursor((line, 6))
            for size in [*((columns, 24) for columns in range(79, 50, -1)), (40, 12), (100, 30)]:
                await driver.resize(*size)
                await driver.wait_for(lambda: painted_rows(driver, area) == wrapped_rows(area))
                row = area.wrapped_document.location_to_offset((line, 6)).y - area.scroll_offset.y
                assert 0 <= row < area.content_size.height


async def test_undo_that_takes_lines_and_the_scroll_bar_away() -> None:
    async with drive_app() as driver:
        await driver.type_text("\n" * 30)
        await driver.pilot.press("ctrl+end")
        driver.app.prompt.action_undo()
        await driver.pilot.press("x")
        assert driver.app.prompt.text == "x"
