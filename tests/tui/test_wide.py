"""Characters two columns wide, and clusters joined of several, on a small screen."""

import json

from rich.cells import cell_len

from tests.support.fake_app import (
    AppDriver,
    drive_app,
    emit_call,
    emit_message,
    emit_reasoning,
    screen_strips,
    screen_text,
)

FAMILY = "👨‍👩‍👧"
WIDE = f"中文한국 {FAMILY} 🏳️‍🌈 e\u0301 שלום ❤️ 表 "
COLUMNS = 60


def fits(driver: AppDriver) -> bool:
    """Whether every row is as wide as the screen and no emoji cluster is split."""
    text = screen_text(driver.app)
    strips = screen_strips(driver.app)
    rows = {(strip.cell_length, cell_len(strip.text)) for strip in strips}
    return rows == {(COLUMNS, COLUMNS)} and text.count("👨") == text.count(FAMILY) > 2


async def test_wide_and_joined_characters_fit_rows() -> None:
    async with drive_app(size=(COLUMNS, 15)) as driver:
        turn = await driver.ask("x")
        emit_reasoning(turn, WIDE * 4).close(True)
        arguments = json.dumps({"路": "文" * 40}, ensure_ascii=False)
        call = emit_call(turn, "中文", FAMILY, arguments)
        call.arguments_done(arguments)
        call.completed("结果 " * 30)
        table = f"| 列 | b |\n|---|---|\n| {WIDE} | 中 |"
        emit_message(turn, f"# {WIDE}\n\n{WIDE * 4}\n\n{table}\n\n```\n{WIDE * 3}\n```").close(True)
        turn.end()
        await driver.wait_for(lambda: driver.app.turn is None)
        await driver.wait_for(lambda: fits(driver))
        await driver.pilot.press("f2")
        await driver.expect_text("列")
        await driver.wait_for(lambda: fits(driver))
        driver.app.prompt.replace_with(WIDE * 5)
        await driver.wait_for(lambda: driver.app.prompt.size.height >= 3 and fits(driver))
