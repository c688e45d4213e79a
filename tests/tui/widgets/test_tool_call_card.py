"""What a call was given, as its card shows it."""

from __future__ import annotations

import json

import pytest

from agent import events as ev
from tests.support.fake_app import calls, person, screen_text
from tests.tui.scenes import approvals
from tui.widgets.approval_card import Approval
from tui.widgets.text_stream import Stream
from tui.widgets.tool_call_card import Call

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


@pytest.mark.parametrize("keys", [(), ("f2",)], ids=["panes", "conversation"])
@pytest.mark.parametrize("cut", [False, True])
async def test_what_a_question_shows_is_shown_once(keys: tuple[str, ...], cut: bool) -> None:
    """Beside a diff that is cut, the arguments are needed too."""
    line = "+    if not path.exists():"
    diff = approvals.DIFF.rstrip("\n") + ("\n[... 9 more lines ...]" if cut else "")
    given = json.dumps({"input": f"*** Begin Patch\n{approvals.DIFF}"})
    async with person(size=(120, 60)) as someone:
        turn = await someone.ask("Live without the file.")
        await someone.pilot.press(*keys)
        await approvals.asks(someone, "apply_patch", given, diff)
        await someone.see(lambda: screen_text(someone.app).count(line) == 1 + cut)
        await someone.pilot.press("n")
        await someone.see(lambda: not someone.app.query(Approval))
        item = next(e.item_id for e in turn.log.events if isinstance(e, ev.AgentApprovalRequested))
        turn.emit(ev.AgentApprovalResolved(item_id=item, decision="refused", by="person"))
        await someone.see(lambda: screen_text(someone.app).count(line) == 1)
        turn.end()
