"""What a call was given, as its card shows it."""

from __future__ import annotations

import json

from tests.tui.played import calls, person, screen_text
from tui.widgets.call import Call
from tui.widgets.stream import Stream

LINES = 'def say():\n    return "one line of it that is longer than the card, path: no"'
GIVEN = json.dumps({"path": "a.py", "content": LINES, "mode": "w"})


async def test_a_text_of_several_lines_is_quoted_and_copied_without_its_bar() -> None:
    async with person(size=(50, 24)) as someone:
        turn = await someone.ask("Write it.")
        await someone.pilot.press("f2")
        call = calls(turn, "files", "write", GIVEN)
        call.arguments_done(GIVEN)
        await someone.sees('"mode": "w"')
        rows = [row.strip(" ▌█▐▊") for row in screen_text(someone.app).splitlines()]
        at = rows.index('"content":')
        assert rows[at - 1 : at + 6] == [
            '"path": "a.py",',
            '"content":',
            "│ def say():",
            '│     return "one line of it that is',
            '│ longer than the card, path: no"',
            '"mode": "w"',
            "}",
        ]
        shown = someone.app.query_one(Call).query_one(".arguments", Stream)
        await someone.pilot.mouse_down(shown, offset=(2, 3))  # in the bar
        await someone.pilot.hover(shown, offset=(39, 5))
        await someone.pilot.mouse_up(shown, offset=(39, 5))
        assert someone.app.screen.get_selected_text() == LINES
        turn.end()
