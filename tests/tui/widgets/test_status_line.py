"""The status line: how long a turn runs, and what it leaves out where room is short."""

from pathlib import Path

import pytest

from tests.support.fake_app import FakeSession, drive_app, screen_text


async def test_status_line_running_turn_shows_seconds() -> None:
    async with drive_app() as driver:
        turn = await driver.ask("hello")
        driver.clock.now += 12
        await driver.expect_text("thinking · 12 s")
        turn.end()
        await driver.expect_text("ready", gone="12 s")


@pytest.mark.parametrize(("width", "has_room"), [(80, True), (30, False)])
async def test_status_line_folder_needs_room(
    width: int, has_room: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    async with drive_app(FakeSession(root=tmp_path / "fox"), size=(width, 24)) as driver:
        await driver.expect_text("ready", "0/33k")
        assert ("~/fox · tiny" in screen_text(driver.app).splitlines()[-1]) is has_room


async def test_status_line_speed_waits_for_some_tokens() -> None:
    async with drive_app() as driver:
        turn = await driver.ask("hello")
        view = driver.app.own_turn.view
        for count, total in ((1, 1), (8, 9), (1, 10)):
            assert "tok/s" not in screen_text(driver.app)
            driver.clock.now += 1
            turn.emit_tokens(count)
            await driver.wait_for(lambda total=total: view and view.tokens == total)
        await driver.expect_text("10 tokens · 4 tok/s")
        turn.end()
        await driver.expect_text("ready", "42 tok/s")
