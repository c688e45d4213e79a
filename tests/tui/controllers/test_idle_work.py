"""Titles in the app, on a model that is a script: when one is written, and when it is not."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.config.launch import LaunchOptions
from tests.support.fake_app import FakeTurn, ScreenDriver
from tests.support.scripts import hold
from tests.support.turns import write_script
from tui.app import AgentApp
from tui.session import Session

ANSWER = {"markup": "<|channel|>final<|message|>Fine.<|return|>"}
TITLE = {"markup": "Counting words<|return|>"}
UNWRITTEN_TITLE = hold(TITLE["markup"], after=0)
"""A title of which nothing comes."""
OpenApp = Callable[..., AbstractAsyncContextManager[ScreenDriver]]


@pytest.fixture
def open_app(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, restored_logging: None
) -> OpenApp:
    """``async with open_app(*lines, config=…)``: the app on this script, whose first turn has ended."""
    monkeypatch.setenv("AGENT_HOME", str(home))

    @asynccontextmanager
    async def open_app(
        *lines: dict[str, Any], config: str = "titles = true"
    ) -> AsyncIterator[ScreenDriver]:
        (home / "config").mkdir()
        (home / "config" / "config.toml").write_text(config)
        script = write_script(tmp_path / "script.jsonl", *lines)
        app = AgentApp(Session(LaunchOptions(engine=f"script:{script}", tools="none")))
        async with app.run_test(notifications=True) as pilot:
            driver = ScreenDriver(app, pilot)
            await driver.wait_for(lambda: app.session_ready)
            await driver.type_text("How many words?\nOne.", "enter")
            await driver.expect_text("Fine.")
            await driver.wait_for(lambda: app.turn is None)
            yield driver
        await app.shut_down()

    return open_app


def title_in(driver: ScreenDriver) -> str:
    (summary,) = driver.app.session.storage.store.summaries()
    return summary.title


async def test_title_replaces_first_line_while_app_idles(open_app: OpenApp, tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with open_app(ANSWER, hold(TITLE["markup"], 0, go), ANSWER) as driver:
        assert title_in(driver) == "How many words?"
        go.touch()
        await driver.wait_for(lambda: title_in(driver) == "Counting words")
        await driver.type_text("And now?", "enter")
        await driver.wait_for(lambda: driver.app.session.storage.store.summaries()[0].turns == 2)
        await driver.wait_for(lambda: driver.app.turn is None)
        assert title_in(driver) == "Counting words"


@pytest.mark.parametrize("config", ["", "titles = false"])
async def test_title_of_script_is_written_only_where_config_says_so(
    open_app: OpenApp, config: str
) -> None:
    async with open_app(ANSWER, config=config) as driver:
        assert await driver.app.titles.untitled() is None


async def test_title_is_never_written_by_the_embedded_model(open_app: OpenApp) -> None:
    async with open_app(ANSWER, UNWRITTEN_TITLE) as driver:
        assert await driver.app.titles.untitled() == "How many words?"
        driver.app.session.runtime.script = None
        assert await driver.app.titles.untitled() is None


async def test_title_of_a_person_stays(open_app: OpenApp) -> None:
    async with open_app(ANSWER, UNWRITTEN_TITLE) as driver:
        await driver.type_text("/rename Mine", "enter")
        await driver.expect_text("Title: Mine")
        assert await driver.app.titles.untitled() is None


@pytest.mark.long
@pytest.mark.parametrize("event", ["key", "served turn", "leaving"])
async def test_title_stops_at_once_when_something_happens(open_app: OpenApp, event: str) -> None:
    # Twice: what has stopped starts again once the app is idle again.
    async with open_app(ANSWER, UNWRITTEN_TITLE, UNWRITTEN_TITLE) as driver:
        app = driver.app
        await driver.wait_for(lambda: app.titles.task is not None)
        task = app.titles.task
        assert task is not None and not task.done()
        match event:
            case "key":
                await driver.pilot.press("a")
            case "served turn":
                turn = FakeTurn("from elsewhere", "http").start()
                app.session.runtime.hub.publish(turn)
                turn.end()
            case "leaving":
                await app.shut_down()
        await driver.wait_for(task.cancelled)
        if event != "leaving":
            assert title_in(driver) == "How many words?"
