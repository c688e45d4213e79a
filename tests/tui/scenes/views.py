"""Scenes of the empty app and of its other themes."""

from tests.support.fake_app import AppDriver
from tests.tui.scenes import Scene
from tests.tui.scenes.approvals import edit
from tests.tui.scenes.screens import servers
from tests.tui.scenes.turns import answered, conversation


async def empty(driver: AppDriver) -> None:
    await driver.expect_text("ready")


async def loading(driver: AppDriver) -> None:
    session = driver.session
    session.loaded.clear()
    driver.app.run_worker(driver.app.startup.with_progress(session.load))
    await driver.pilot.pause()
    session.progress(0.45)
    await driver.expect_text("loading the model 45%")


async def light(driver: AppDriver) -> None:
    await conversation(driver)
    await driver.pilot.press("f4")


async def contrast(driver: AppDriver) -> None:
    await answered(driver)
    await driver.pilot.press("f4", "f4")
    await driver.wait_for(lambda: driver.app.theme == "high-contrast")


async def ansi(driver: AppDriver) -> None:
    await conversation(driver)
    await driver.pilot.press("f4", "f4", "f4")
    await driver.wait_for(lambda: driver.app.theme == "ansi")


async def plain(driver: AppDriver) -> None:
    await edit(driver)


async def plain_room(driver: AppDriver) -> None:
    await servers(driver)


PLAIN: list[Scene] = [plain, plain_room]
"""Scenes that are run with NO_COLOR set."""
SCENES: list[Scene] = [empty, loading, light, contrast, ansi, *PLAIN]
