"""The page of what the model can do, in the real app."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_app import screen_text
from tui.app import AgentApp
from tui.widgets.approval_card import ApprovalCard

pytestmark = pytest.mark.slow
CALL = (
    "<|channel|>analysis to=python code<|message|>6*7<|call|>",
    "<|channel|>final<|message|>It is 42.<|return|>",
)


def unwrapped_text(app: AgentApp) -> str:
    """Return the screen's text without blanks and frames: a long path goes over several lines."""
    return "".join(screen_text(app).replace("│", "").split())


@pytest.mark.long
async def test_safety_page_access_and_calls_listed(open_app: Any, tmp_path: Path) -> None:
    script = tmp_path / "calls.jsonl"
    script.write_text("".join(json.dumps({"markup": markup}) + "\n" for markup in CALL))
    launch = {"tools": "python,files", "engine": f"script:{script}", "root": tmp_path}
    async with open_app(launch=launch, size=(100, 40)) as driver:
        await driver.pilot.press(*"/safety", "enter")
        await driver.expect_text(
            "Capabilities of the model", "called no tool", "files.write", "Asks first"
        )
        await driver.pilot.press("escape", *"go", "enter")
        await driver.expect_text("It is 42.")
        await driver.wait_for(lambda: driver.app.turn is None)
        await driver.pilot.press(*"/safety", "enter")
        await driver.expect_text("1 call", "6*7", "Python code in a sandbox")


@pytest.mark.long
async def test_safety_page_running_turn_calls_and_rules_listed(
    open_app: Any, tmp_path: Path
) -> None:
    """What was called is listed while the turn waits, and so are the rules that are granted."""
    write = '{"path": "a/new.txt", "content": "x"}'
    call = f"<|channel|>commentary to=files.write <|constrain|>json<|message|>{write}<|call|>"
    script = tmp_path / "calls.jsonl"
    markups = (CALL[0], call, CALL[1])
    script.write_text("".join(json.dumps({"markup": markup}) + "\n" for markup in markups))
    launch = {"tools": "python,files", "engine": f"script:{script}", "root": tmp_path}
    async with open_app(launch=launch, size=(100, 60)) as driver:
        await driver.pilot.press(*"go", "enter")
        await driver.expect_text("a/new.txt", "once")
        await driver.app.navigator.safety()
        await driver.expect_text("1 call", "6*7")
        await driver.pilot.press("escape")
        await driver.expect_text("a/new.txt", "once")
        await driver.wait_for(lambda: not driver.app.screen_stack[1:])
        await driver.wait_for(lambda: driver.app.query_one(ApprovalCard).has_focus_within)
        await driver.pilot.press("a")
        await driver.expect_text("It is 42.")
        await driver.wait_for(lambda: driver.app.turn is None)
        await driver.app.navigator.safety()
        await driver.expect_text("Allowed by your rules")
        await driver.wait_for(lambda: f"{tmp_path}/a/…" in unwrapped_text(driver.app))


@pytest.mark.long
async def test_ps_and_safety_list_what_runs_and_what_is_reached(
    open_app: Any, tmp_path: Path
) -> None:
    (root := tmp_path / "root").mkdir()
    arguments = json.dumps({"cmd": ["sleep", "600"], "background": True})
    call = (
        f"<|channel|>commentary to=container.exec <|constrain|>json<|message|>{arguments}<|call|>"
    )
    script = tmp_path / "calls.jsonl"
    script.write_text("".join(json.dumps({"markup": m}) + "\n" for m in (call, CALL[1])))
    launch = {"tools": "shell", "engine": f"script:{script}", "root": root, "approve": "shell"}
    async with open_app(launch=launch, size=(100, 60)) as driver:
        await driver.pilot.press(*"/ps", "enter")
        await driver.expect_text("Nothing runs in the background")
        await driver.pilot.press(*"go", "enter")
        await driver.expect_text("It is 42.")
        await driver.wait_for(lambda: driver.app.turn is None)
        policy = driver.app.session.runtime.policy
        await driver.app.chat.submit("/safety reach Wheels.example")
        await driver.expect_text("Commands in this folder may reach wheels.example")
        assert policy.granted_rules() == {"reach wheels.example"}
        await driver.app.chat.submit("/safety reach *")
        await driver.expect_text("is not a host such as")
        await driver.app.navigator.safety()
        await driver.expect_text(
            "Runs in the background", "bg1: sleep 600", "wheels.example, by your rule"
        )
        await driver.pilot.press("escape")
        await driver.app.chat.submit("/ps stop bg2")
        await driver.expect_text("ids: bg1")
        await driver.app.chat.submit("/ps stop bg1")
        await driver.expect_text("bg1: sleep 600: stopped")
        builtins = driver.app.session.runtime.host.builtins
        shell = next(builtin for builtin in builtins if builtin.name == "shell")
        assert shell.running() == {}
        await driver.app.chat.submit("go")
        await driver.wait_for(lambda: [*shell.running()] == ["bg2"])
        await driver.wait_for(lambda: driver.app.turn is None)
        await driver.app.chat.submit("/new")
        await driver.wait_for(lambda: shell.running() == {})
