"""`w` on a picked message shows where its turn's time went, below it."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent.config.launch import LaunchOptions
from tests.support.fake_app import ScreenDriver, drive_app, screen_text
from tests.support.scripts import final, python, thought
from tui.app import AgentApp
from tui.session import Session
from tui.widgets.turn_times import TurnTimes

KINDS = ("prefill", "reasoning", "arguments python", "tool python", "answer", "tokens per second")


@pytest.mark.long
async def test_times_of_a_turn_come_and_go(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, restored_logging: None
) -> None:
    monkeypatch.setenv("AGENT_HOME", str(home))
    script = tmp_path / "script.jsonl"
    replies = (thought("Compute it.") + python("print(6*7)"), final("It is 42."))
    # The delay bounds the speed, whose digits have to fit into the row.
    lines = [{"markup": reply, "delay_ms": 2} for reply in replies]
    script.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options: dict[str, Any] = {"engine": f"script:{script}", "tools": "python", "approve": "all"}
    await check_times(AgentApp(Session(LaunchOptions(**options))), "6*7?")
    # Once more from the store, which has no counts of tokens.
    await check_times(AgentApp(Session(LaunchOptions(**options), continue_latest=True)), "")


async def check_times(app: AgentApp, prompt: str) -> None:
    """Ask, unless the prompt is empty, and look at the latest turn's times."""
    async with app.run_test(size=(100, 50), notifications=True) as pilot:
        driver = ScreenDriver(app, pilot)
        await driver.wait_for(lambda: app.session_ready and app.session.runtime.loaded)
        if prompt:
            await driver.type_text(prompt, "enter")
        await driver.expect_text("It is 42.")
        await driver.wait_for(lambda: app.turn is None)
        await pilot.press("ctrl+up", "w")
        await driver.expect_text("Where the", "went", *KINDS)
        rows = screen_text(app).splitlines()
        bars = [row for row in rows if row.strip().startswith(KINDS[:-1]) and "█" in row]
        starts = [row.index("█") for row in bars]
        assert len(bars) >= 5 and starts == sorted(starts), "each begins after those before it"
        (sparks,) = (row for row in rows if "tokens per second" in row)
        assert "tok/s" in sparks and set(sparks) & set("▁▂▃▄▅▆▇█")
        await pilot.press("ctrl+up", "w")
        await driver.wait_for(lambda: not app.query(TurnTimes))
    await app.shut_down()


async def test_times_of_a_turn_that_is_not_stored_are_a_sentence() -> None:
    async with drive_app() as driver:
        await driver.type_text("/times ", "enter")
        await driver.expect_text("There are no messages yet")
