"""What the person is asked, what they write, and what helps them with it."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

from textual.widgets import Input, Select

from agent import events as ev
from tests.support.fake_app import Person, calls, says
from tests.tui.scenes import Scene
from tests.tui.scenes.turns import conversation, ends
from tools.mcp.client_requests import Elicitation
from tui.widgets.approval_card import Approval
from tui.widgets.elicitation_form import Question

DIFF = """--- a/cities.py
+++ b/cities.py
@@ -1,7 +1,9 @@
 import csv
+from pathlib import Path


-def cities(path):
-    with open(path) as file:
-        return [row[0] for row in csv.reader(file)]
+def cities(path: Path) -> list[str]:
+    \"\"\"The first column; nothing where there is no such file.\"\"\"
+    if not path.exists():
+        return []
+    with path.open(encoding="utf-8") as file:
+        return [row[0] for row in csv.reader(file)]
"""
FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name", "description": "as on the badge"},
        "age": {"type": "integer", "minimum": 18},
        "size": {"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]},
        "news": {"type": "boolean", "default": True},
    },
    "required": ["name", "age"],
}


async def asks(someone: Person, tool: str, arguments: str, preview: str | None = None) -> None:
    """A call of the files' hand waits."""
    call = calls(someone.session.turns[-1], "files", tool, arguments)
    call.arguments_done(arguments)
    someone.session.turns[-1].emit(
        ev.AgentApprovalRequested(
            item_id=call.id, server="files", tool=tool, arguments=arguments, reason="",
            preview=preview,
        )
    )  # fmt: skip
    named = SimpleNamespace(server="files", name=tool)
    asked = asyncio.ensure_future(someone.session.approver(named, arguments))
    someone.app.asked = asked  # type: ignore[attr-defined]
    await someone.see(lambda: someone.app.query(Approval))
    await someone.see(lambda: someone.app.query_one(Approval).has_focus)


async def waiting(someone: Person) -> None:
    await someone.ask("Write it down.")
    await asks(someone, "write", '{"path":"sum.txt","text":"56088"}')


async def edit(someone: Person) -> None:
    """A change to a file, before it is made."""
    turn = await someone.ask("cities() shall live without its file.")
    says(turn, "I make it give an empty list then.", "commentary").close(True)
    await asks(someone, "apply_patch", json.dumps({"input": f"*** Begin Patch\n{DIFF}"}), DIFF)


async def refused(someone: Person) -> None:
    """No, and why."""
    await edit(someone)
    await someone.pilot.press("r", *"log it too")
    someone.app.query_one(Approval).query_one(Input).cursor_blink = False
    await someone.sees("log it too")


async def question(someone: Person) -> None:
    await someone.ask("Sign me up.")
    asked = asyncio.ensure_future(
        someone.session.answerer(Elicitation("events", "Who is it that comes?", FORM))
    )
    someone.app.asked = asked  # type: ignore[attr-defined]
    await someone.see(lambda: someone.app.query(Question))
    someone.app.query_one(Select).value = "m"
    await someone.pilot.press(*"Ada", "tab", *"17")
    for field in someone.app.query_one(Question).query(Input):
        field.cursor_blink = False
    await someone.pilot.click("#send")
    await someone.sees("17 is less than the minimum of 18")
    await someone.see(lambda: not someone.app.query_one("#send").has_class("-active"))


async def commands(someone: Person) -> None:
    await someone.pilot.press("/")
    await someone.sees("/branch")


async def files(someone: Person) -> None:
    root = someone.session.shared.root
    for path in ("notes.md", "src/notes/old notes.txt", "src/main.py", "tests/test_notes.py"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    await someone.writes("Sum up @not")
    await someone.sees("test_notes.py")


async def search(someone: Person) -> None:
    await conversation(someone)
    turn = await someone.ask("Which number was it?")
    says(turn, "It was 56088.").close(True)
    await ends(someone, turn)
    await someone.pilot.press("ctrl+f", *"56088", "up", "up")
    someone.app.screen.query_one(Input).cursor_blink = False
    await someone.see(lambda: someone.app.screen.selections)


async def keys(someone: Person) -> None:
    await someone.sees("ready")
    await someone.pilot.press("f1")
    await someone.sees("Writing")


async def palette(someone: Person) -> None:
    await someone.pilot.press("ctrl+p")
    someone.app.screen.query_one(Input).cursor_blink = False
    await someone.sees("/effort")


SCENES: list[Scene] = [
    waiting, edit, refused, question, commands, files, search, keys, palette,
]  # fmt: skip
