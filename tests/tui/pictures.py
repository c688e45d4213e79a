"""`make pictures`: the pictures of the README, taken of the real app on the embedded model.

What that model cannot be made to say, a change to a file, is scripted; the tools are real there too.
"""

from __future__ import annotations

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

from agent.cli.shared import Shared
from agent.config.settings import places
from tests.support.fake_app import screen_text, wait_until
from tui.app import AgentApp
from tui.session import Session
from tui.widgets.approval_card import Approval

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
SAID = (
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


class Photographer:
    """Uses the app, and takes pictures of it."""

    def __init__(self, app: AgentApp, pilot: Pilot[int], folder: Path) -> None:
        self.app, self._pilot, self._folder = app, pilot, folder

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)

    async def asks(self, text: str) -> None:
        self.app.prompt.insert(text)
        await self.press("enter")

    async def sees(self, *texts: str) -> None:
        await self.until(lambda: all(text in screen_text(self.app) for text in texts))

    async def until(self, seen: Any) -> None:
        await wait_until(self._pilot, seen, 60)

    def takes(self, name: str) -> None:
        self.app.clear_notifications()
        picture = self.app.export_screenshot()
        assert tempfile.gettempdir() not in picture, f"{name} shows a folder of this machine"
        (self._folder / f"{name}.svg").write_text(picture)


@asynccontextmanager
async def visiting(
    folder: Path, work: Path, size: tuple[int, int], **given: Any
) -> AsyncIterator[Photographer]:
    """The app, with its model loaded. ``work``: the folder it was started in."""
    app = AgentApp(Session(Shared(root=work, **given)))
    async with app.run_test(size=size, notifications=True) as pilot:
        someone = Photographer(app, pilot, folder)
        await someone.until(lambda: app.begun and app.session.runtime.loaded)
        app.prompt.cursor_blink = False
        yield someone
    await app.shut_down()


async def panes_and_tokens(folder: Path, work: Path) -> None:
    async with visiting(folder, work, (110, 26)) as someone:
        await someone.asks("Multiply 123*456 using the mcp.code_interpreter tool.")
        await someone.until(lambda: someone.app.session.position and someone.app.turn is None)
        someone.takes("app")
        await someone.press("f8")
        await someone.sees("<|return|>")
        someone.takes("raw")


async def approval(folder: Path, work: Path) -> None:
    (work / "cities.py").write_text(FILE)
    script = work / "said.jsonl"
    script.write_text(json.dumps({"markup": SAID, "delay_ms": 5}))
    places().config.mkdir(exist_ok=True)
    (places().config / "models.toml").write_text('[scripted]\npath = "none"\nformat = "harmony"\n')
    given = {"engine": f"script:{script}", "model": "scripted", "tools": "all,files"}
    async with visiting(folder, work, (110, 33), **given) as someone:
        await someone.press("f2")
        await someone.asks("cities() fails where its file is missing. Please mend it.")
        await someone.until(lambda: someone.app.query(Approval))
        await someone.until(lambda: someone.app.query_one(Approval).has_focus)
        someone.takes("approval")
        await someone.press("n")


async def servers(folder: Path, work: Path) -> None:
    (work / "cities.py").write_text(CITIES)
    (work / "weather.py").write_text(WEATHER)
    configured = {
        name: {"command": "python3", "args": [f"{name}.py"], "cwd": str(work)}
        for name in ("cities", "weather")
    }
    (work / "mcp.json").write_text(json.dumps({"mcpServers": configured}))
    async with visiting(folder, work, (110, 20), mcp_config=(work / "mcp.json",)) as someone:
        await someone.press("f7", *"weather")
        await someone.sees("its last words")
        someone.app.screen.query_one(Input).value = ""
        someone.app.screen.query_one(Input).cursor_blink = False
        await someone.sees("distance", "✗ weather")
        someone.takes("servers")


async def take(folder: Path) -> None:
    """All of them into this folder."""
    with tempfile.TemporaryDirectory() as home:
        # The servers are started with the Python that this is.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        os.environ.update(AGENT_HOME=home, PATH=path)
        welcomed = Path(home, "state/welcomed")
        welcomed.parent.mkdir()
        welcomed.touch()
        for scene in (panes_and_tokens, approval, servers):
            work = Path(home, scene.__name__)
            work.mkdir()
            await scene(folder, work)


if __name__ == "__main__":
    asyncio.run(take(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS))
