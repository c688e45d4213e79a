"""What a call was given, as its card shows it."""

import json

import pytest

from agent import events as ev
from tests.support.fake_app import drive_app, emit_call, screen_text
from tests.tui.scenes import approvals
from tui.widgets.approval_card import ApprovalCard
from tui.widgets.text_stream import TextStream
from tui.widgets.tool_call_card import ToolCallCard

LINES = 'def say():\n    return "one line of it that is longer than the card, path: no"'
ARGUMENTS = json.dumps({"path": "a.py", "content": LINES, "mode": "w"})


async def test_tool_call_card_multiline_argument_copies_without_bar() -> None:
    async with drive_app(size=(50, 24)) as driver:
        turn = await driver.ask("Write it.")
        await driver.pilot.press("f2")
        call = emit_call(turn, "files", "write", ARGUMENTS)
        call.arguments_done(ARGUMENTS)
        await driver.expect_text('"mode": "w"')
        rows = [row.strip(" ▌█▐▊") for row in screen_text(driver.app).splitlines()]
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
        stream = driver.app.query_one(ToolCallCard).query_one(".arguments", TextStream)
        await driver.pilot.mouse_down(stream, offset=(2, 3))  # in the bar
        await driver.pilot.hover(stream, offset=(39, 5))
        await driver.pilot.mouse_up(stream, offset=(39, 5))
        assert driver.app.screen.get_selected_text() == LINES
        turn.end()


@pytest.mark.parametrize("keys", [(), ("f2",)], ids=["panes", "conversation"])
async def test_tool_call_changed_files_below_result(keys: tuple[str, ...]) -> None:
    async with drive_app(size=(120, 30)) as driver:
        turn = await driver.ask("Run it.")
        await driver.pilot.press(*keys)
        call = emit_call(turn, "shell", "exec", "{}")
        call.arguments_done("{}")
        turn.emit(ev.AgentFileChanges(item_id=call.id, created=["a.txt"], total=9))
        call.failed(ev.McpProtocolError(code=1, message="Error: stopped after 1 s"))
        await driver.expect_text("changed: a.txt (new) (+8 more)")
        text = screen_text(driver.app)
        assert text.index("stopped after 1 s") < text.index("changed: a.txt")
        turn.end()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("keys", [(), ("f2",)], ids=["panes", "conversation"])
@pytest.mark.parametrize("cut", [False, True])
async def test_approval_card_arguments_appear_once(keys: tuple[str, ...], cut: bool) -> None:
    """Beside a diff that is cut, the arguments are needed too."""
    line = "+    if not path.exists():"
    diff = approvals.DIFF.rstrip("\n") + ("\n[... 9 more lines ...]" if cut else "")
    arguments = json.dumps({"input": f"*** Begin Patch\n{approvals.DIFF}"})
    async with drive_app(size=(120, 60)) as driver:
        turn = await driver.ask("Live without the file.")
        await driver.pilot.press(*keys)
        await approvals.request_approval(driver, "apply_patch", arguments, diff)
        await driver.wait_for(lambda: screen_text(driver.app).count(line) == 1 + cut)
        await driver.pilot.press("n")
        await driver.wait_for(lambda: not driver.app.query(ApprovalCard))
        item = next(e.item_id for e in turn.log.events if isinstance(e, ev.AgentApprovalRequested))
        turn.emit(ev.AgentApprovalResolved(item_id=item, decision="refused", by="person"))
        await driver.wait_for(lambda: screen_text(driver.app).count(line) == 1)
        turn.end()
