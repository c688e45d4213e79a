"""Signs that are wider than a column, or joined of several characters, on a small screen."""

from __future__ import annotations

import json

from rich.cells import cell_len

from tests.support.fake_app import Person, calls, person, says, screen_text, thinks

FAMILY = "👨‍👩‍👧"
WIDE = f"中文한국 {FAMILY} 🏳️‍🌈 e\u0301 שלום ❤️ 表 "
COLUMNS = 60


def fits(someone: Person) -> bool:
    """Every row is as wide as the screen, and no family is parted."""
    text = screen_text(someone.app)
    strips = someone.app.screen._compositor.render_strips()
    rows = {(strip.cell_length, cell_len(strip.text)) for strip in strips}
    return rows == {(COLUMNS, COLUMNS)} and text.count("👨") == text.count(FAMILY) > 2


async def test_wide_and_joined_signs_are_whole_everywhere() -> None:
    async with person(size=(COLUMNS, 15)) as someone:
        turn = await someone.ask("x")
        thinks(turn, WIDE * 4).close(True)
        given = json.dumps({"路": "文" * 40}, ensure_ascii=False)
        call = calls(turn, "中文", FAMILY, given)
        call.arguments_done(given)
        call.completed("结果 " * 30)
        table = f"| 列 | b |\n|---|---|\n| {WIDE} | 中 |"
        says(turn, f"# {WIDE}\n\n{WIDE * 4}\n\n{table}\n\n```\n{WIDE * 3}\n```").close(True)
        turn.end()
        await someone.see(lambda: someone.app.turn is None)
        await someone.see(lambda: fits(someone))
        await someone.pilot.press("f2")
        await someone.sees("列")
        await someone.see(lambda: fits(someone))
        someone.app.prompt.replace_with(WIDE * 5)
        await someone.see(lambda: someone.app.prompt.size.height >= 3 and fits(someone))
