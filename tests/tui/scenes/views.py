"""The app before anything is said, and in other colours."""

from __future__ import annotations

from tests.support.fake_app import Person
from tests.tui.scenes import Scene
from tests.tui.scenes.approvals import edit
from tests.tui.scenes.screens import servers
from tests.tui.scenes.turns import answered, conversation


async def empty(someone: Person) -> None:
    await someone.sees("ready")


async def loading(someone: Person) -> None:
    session = someone.session
    session.loaded.clear()
    someone.app.run_worker(someone.app.starting.load(session.load))
    await someone.pilot.pause()
    session.progress(0.45)
    await someone.sees("loading the model 45%")


async def light(someone: Person) -> None:
    await conversation(someone)
    await someone.pilot.press("f4")


async def contrast(someone: Person) -> None:
    await answered(someone)
    await someone.pilot.press("f4", "f4")
    await someone.see(lambda: someone.app.theme == "high-contrast")


async def ansi(someone: Person) -> None:
    await conversation(someone)
    await someone.pilot.press("f4", "f4", "f4")
    await someone.see(lambda: someone.app.theme == "ansi")


async def plain(someone: Person) -> None:
    await edit(someone)


async def plain_room(someone: Person) -> None:
    await servers(someone)


PLAIN: list[Scene] = [plain, plain_room]
"""With NO_COLOR set."""
SCENES: list[Scene] = [empty, loading, light, contrast, ansi, *PLAIN]
