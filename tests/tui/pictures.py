"""`make pictures`: takes the pictures of the README, of the real app on the embedded model.

A change to a file, and two answers that differ, which that model cannot be made to write, are scripted;
the tools are real there too.
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from textual.pilot import Pilot
from textual.widgets import Input

from agent.config.launch import LaunchOptions
from agent.config.paths import user_paths
from tests.support.fake_app import ScreenDriver
from tests.tui.film import film
from tests.tui.scenes.screens import COMPARED
from tui.app import AgentApp
from tui.screens.dialogs import EditorArea
from tui.session import Session
from tui.widgets.approval_card import ApprovalCard

DOCS = Path(__file__).parents[2] / "docs"
FILE = """from pathlib import Path


def cities(path: Path) -> list[str]:
    return path.read_text().splitlines()
"""
PATCH = """*** Begin Patch
*** Update File: cities.py
@@
 def cities(path: Path) -> list[str]:
+    if not path.exists():
+        return []
     return path.read_text().splitlines()
*** End Patch"""
REPLY = (
    "<|channel|>analysis<|message|>read_text() raises where the file is missing.<|end|>"
    "<|start|>assistant<|channel|>commentary<|message|>`cities()` reads its file whether it is there"
    " or not; let it give an **empty list** instead.<|end|>"
    "<|start|>assistant<|channel|>commentary to=functions.files__apply_patch <|constrain|>json"
    f"<|message|>{json.dumps({'input': PATCH})}<|call|>"
)
CITIES = '''from mcp.server import MCPServer

server = MCPServer("cities")


@server.tool()
def find(name: str, country: str = "") -> str:
    """Cities whose names begin so, with their inhabitants."""
    return name + country


@server.tool()
def distance(start: str, end: str) -> float:
    """Between two cities, in kilometres."""
    return len(start) - len(end)


server.run()
'''
WEATHER = (
    'import sys\n\nprint("weather 0.3.1", file=sys.stderr)\nsys.exit("WEATHER_KEY is not set")\n'
)


PICTURE_FOLDER = "/home/you/projects/cities"
"""In place of the folder that the app works in; about as long."""
START_SECONDS, WORD_SECONDS, FRAME_SECONDS, END_SECONDS = 1.5, 0.25, 0.4, 5.0
"""How long a film shows its pictures: the first, those after a word, the others, the last."""


class Photographer(ScreenDriver):
    """Drives the app and saves screenshots of it in a folder."""

    def __init__(self, app: AgentApp, pilot: Pilot[int], folder: Path, work: Path) -> None:
        super().__init__(app, pilot)
        self._folder, self._work = folder, work

    async def take(self, name: str) -> None:
        """Save the screen as ``name``.svg."""
        self.app.clear_notifications()
        await self.pilot.pause()
        (self._folder / f"{name}.svg").write_text(self.picture())

    def picture(self) -> str:
        """The screen as SVG."""
        picture = self.app.export_screenshot().replace(str(self._work), PICTURE_FOLDER)
        assert tempfile.gettempdir() not in picture, "it shows a folder of this machine"
        return picture

    async def shoot_turn(self, name: str, prompt: str) -> None:
        """Type a prompt, and save ``name``.svg, a film until the turn is over."""
        pictures, seconds = [self.picture()], [START_SECONDS]
        for word in prompt.split(" "):
            await self.type_text(f"{word} ")
            pictures.append(self.picture())
            seconds.append(WORD_SECONDS)
        # Pressing a key waits until nothing moves any more.
        pressing = asyncio.create_task(self.pilot.press("enter"))
        while (
            not pressing.done()
            or self.app.turn is not None
            or not self.app.session.next_prompt.first_entry
        ):
            await asyncio.sleep(0.02)
            if (picture := self.picture()) != pictures[-1]:
                pictures.append(picture)
                seconds.append(FRAME_SECONDS)
        await self.pilot.pause()  # the panes fold
        pictures.append(self.picture())
        seconds.append(END_SECONDS)
        (self._folder / f"{name}.svg").write_text(film(pictures, seconds))


@asynccontextmanager
async def photographing(
    folder: Path, work: Path, size: tuple[int, int], **options: Any
) -> AsyncIterator[Photographer]:
    """Run the app with its model loaded. ``work``: the folder that it is started in."""
    app = AgentApp(Session(LaunchOptions(root=work, **options)))
    async with app.run_test(size=size, notifications=True) as pilot:
        photographer = Photographer(app, pilot, folder, work)
        await photographer.wait_for(lambda: app.session_ready and app.session.runtime.loaded)
        app.prompt.cursor_blink = False
        yield photographer
    await app.shut_down()


async def panes(folder: Path, work: Path) -> None:
    async with photographing(folder, work, (110, 26)) as photographer:
        await photographer.shoot_turn(
            "app", "Multiply 123*456 using the mcp.code_interpreter tool."
        )


async def tokens(folder: Path, work: Path) -> None:
    async with photographing(folder, work, (110, 34), temperature=0.7, seed=7) as photographer:
        app = photographer.app
        await photographer.type_text("Write a short poem about rain", "enter")
        await photographer.expect_text("tok/s")
        await photographer.wait_for(lambda: app.turn is None)
        await photographer.pilot.press("f8")
        await photographer.expect_text("<|return|>")
        await photographer.pilot.press("tab", "ctrl+f", *"No tool", "escape")
        await photographer.expect_text("instead")
        await photographer.pilot.press("enter")
        await photographer.take("raw")


async def thought_and_times(folder: Path, work: Path) -> None:
    async with photographing(folder, work, (110, 30)) as photographer:
        app = photographer.app
        await photographer.type_text(
            "Multiply 123*456 using the mcp.code_interpreter tool.", "enter"
        )
        await photographer.expect_text("56088", "tok/s")
        await photographer.wait_for(lambda: app.turn is None)
        await photographer.pilot.press("ctrl+up", "t")
        await photographer.expect_text("Edit and continue")
        await photographer.pilot.press("up", "up", "enter")
        await photographer.expect_text("continues it")
        app.screen.query_one(EditorArea).cursor_blink = False
        await photographer.take("thought")
        await photographer.pilot.press("enter")
        await photographer.expect_text("‹2/2›", "tok/s")
        await photographer.wait_for(lambda: app.turn is None)
        await photographer.pilot.press("ctrl+up", "w")
        await photographer.expect_text("tokens per second")
        await photographer.take("times")


async def approval(folder: Path, work: Path) -> None:
    (work / "cities.py").write_text(FILE)
    script = work / "script.jsonl"
    script.write_text(json.dumps({"markup": REPLY, "delay_ms": 5}))
    user_paths().config.mkdir(exist_ok=True)
    (user_paths().config / "models.toml").write_text(
        '[scripted]\npath = "none"\nformat = "harmony"\n'
    )
    options = {"engine": f"script:{script}", "model": "scripted", "tools": "all,files"}
    async with photographing(folder, work, (110, 33), **options) as photographer:
        await photographer.pilot.press("f2")
        await photographer.type_text(
            "cities() fails where its file is missing. Please mend it.", "enter"
        )
        await photographer.wait_for(lambda: photographer.app.query(ApprovalCard))
        await photographer.wait_for(
            lambda: photographer.app.query_one(ApprovalCard).has_focus_within
        )
        await photographer.take("approval")
        await photographer.pilot.press("n")


async def servers(folder: Path, work: Path) -> None:
    (work / "cities.py").write_text(CITIES)
    (work / "weather.py").write_text(WEATHER)
    configured = {
        name: {"command": "python3", "args": [f"{name}.py"], "cwd": str(work)}
        for name in ("cities", "weather")
    }
    (work / "mcp.json").write_text(json.dumps({"mcpServers": configured}))
    async with photographing(
        folder, work, (110, 20), mcp_config=(work / "mcp.json",)
    ) as photographer:
        await photographer.pilot.press("f7", *"weather")
        await photographer.expect_text("last on its stderr")
        photographer.app.screen.query_one(Input).value = ""
        photographer.app.screen.query_one(Input).cursor_blink = False
        await photographer.expect_text("distance", "✗ weather")
        await photographer.take("servers")


async def context(folder: Path, work: Path) -> None:
    async with photographing(folder, work, (110, 27), context=4096) as photographer:
        app = photographer.app
        for prompt in (
            "What is 12*34?",
            "List the numbers from 1 to 200 with their squares",
            "hello",
        ):
            before = app.session.next_prompt.first_entry
            await photographer.type_text(prompt, "enter")
            await photographer.wait_for(
                lambda before=before: (
                    app.turn is None and app.session.next_prompt.first_entry > before
                )
            )
        await photographer.type_text("/context ", "enter")
        await photographer.expect_text("in memory", "3 ❯ hello")
        await photographer.pilot.press(*["down"] * 12, "f", *["up"] * 8, "p")
        await photographer.expect_text("folded, of", "pinned")
        await photographer.take("context")


async def compared(folder: Path, work: Path) -> None:
    replies = (
        f"<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant<|channel|>final<|message|>"
        f"{answer}<|return|>"
        for thought, answer in COMPARED
    )
    script = work / "script.jsonl"
    script.write_text("\n".join(json.dumps({"markup": r, "delay_ms": 20}) for r in replies))
    options = {"engine": f"script:{script}", "tools": "none"}
    async with photographing(folder, work, (110, 16), **options) as photographer:
        app = photographer.app
        await photographer.type_text("Why is the sky blue?", "enter")
        await photographer.expect_text("in all directions.")
        await photographer.wait_for(lambda: app.turn is None)
        await photographer.type_text("/compare effort=high", "enter")
        await photographer.expect_text("2 · effort=high", "what is left.")
        await photographer.wait_for(lambda: app.turn is None)
        await photographer.expect_text("tok/s ─╯╰")
        await photographer.take("compare")


async def take(folder: Path) -> None:
    """Take all pictures into this folder."""
    with tempfile.TemporaryDirectory() as home:
        # The servers of the scene are started with the Python that runs this.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        os.environ.update(AGENT_HOME=home, PATH=path)
        folder = folder.resolve()
        os.chdir(home)  # programs of the working folder, such as this Python, count for nothing
        welcomed = Path(home, "state/welcomed")
        welcomed.parent.mkdir()
        welcomed.touch()
        for scene in (panes, tokens, thought_and_times, approval, servers, context, compared):
            work = Path(home, scene.__name__)
            work.mkdir()
            await scene(folder, work)


if __name__ == "__main__":
    asyncio.run(take(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS))
