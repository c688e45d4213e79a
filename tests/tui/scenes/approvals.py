"""Scenes of approval cards, forms, completions, search and help."""

import asyncio
import json
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

from textual.widgets import Input, Select

from agent import events as ev
from tests.support.fake_app import AppDriver, emit_call, emit_message
from tests.tui.scenes import Scene
from tests.tui.scenes.turns import conversation, end_turn
from tools.mcp.client_requests import ElicitationRequest
from tui.widgets.approval_card import ApprovalCard
from tui.widgets.elicitation_form import ElicitationForm

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

BOOKING = {
    "type": "object",
    "properties": {
        "mail": {"type": "string", "format": "email", "title": "E-mail", "maxLength": 60},
        "day": {"type": "string", "format": "date", "default": "2026-12-01", "title": "Day"},
        "seats": {"type": "integer", "minimum": 1, "maximum": 8, "default": 2, "title": "Seats"},
        "meal": {
            "type": "string",
            "title": "Meal",
            "oneOf": [{"const": "m", "title": "Meat"}, {"const": "v", "title": "Vegetables"}],
            "default": "v",
        },
        "extras": {
            "type": "array",
            "title": "Extras",
            "description": "what comes with it",
            "maxItems": 2,
            "items": {
                "anyOf": [
                    {"const": "w", "title": "Wine"},
                    {"const": "b", "title": "Bread"},
                    {"const": "s", "title": "Soup"},
                ]
            },
            "default": ["b"],
        },
        "window": {"type": "boolean", "title": "At a window", "default": True},
    },
    "required": ["day", "seats"],
}
PAGE = (
    "https://accounts.example.org/authorize?client=calendar&scope=read+write&state=8f1d3c2b7a"
    "&redirect=https%3A%2F%2Fcalendar.example.org%2Fdone&language=en&theme=plain"
)


async def request_approval(
    driver: AppDriver,
    tool: str,
    arguments: str,
    preview: str | None = None,
    *,
    server: str = "files",
    reason: str = "",
    rules: list[str] | None = None,
) -> None:
    """A call of a built-in server waits for approval."""
    call = emit_call(driver.session.turns[-1], server, tool, arguments)
    call.arguments_done(arguments)
    driver.session.turns[-1].emit(
        ev.AgentApprovalRequested(
            item_id=call.id, server=server, tool=tool, arguments=arguments, reason=reason,
            preview=preview, rules=rules,
        )
    )  # fmt: skip
    called = SimpleNamespace(server=server, name=tool)
    keep_reference(driver, driver.session.approver(called, arguments))
    await driver.wait_for(lambda: driver.app.query(ApprovalCard))
    await driver.wait_for(lambda: driver.app.query_one(ApprovalCard).has_focus_within)


def keep_reference(driver: AppDriver, answer: Coroutine[Any, Any, object]) -> None:
    """Await an answer in a task that lives as long as the app: asyncio holds tasks only weakly."""
    driver.app.answer = asyncio.ensure_future(answer)  # type: ignore[attr-defined]


async def waiting(driver: AppDriver) -> None:
    await driver.ask("Write it down.")
    await request_approval(driver, "write", '{"path":"sum.txt","text":"56088"}')


async def edit(driver: AppDriver) -> None:
    """A change to a file waits for approval, with its diff."""
    turn = await driver.ask("cities() shall live without its file.")
    emit_message(turn, "I make it give an empty list then.", "commentary").close(True)
    await request_approval(
        driver, "apply_patch", json.dumps({"input": f"*** Begin Patch\n{DIFF}"}), DIFF
    )


async def command(driver: AppDriver) -> None:
    """A command waits for approval, with the rules that an answer for longer would store."""
    await driver.ask("What has changed?")
    line = '{"cmd":["bash","-lc","git status -s && wc -l *.py > /dev/null"]}'
    await request_approval(
        driver, "exec", line, "/home/ada/fox$ git status -s && wc -l *.py > /dev/null",
        server="shell", rules=["run git status …", "run wc …"],
    )  # fmt: skip


async def leak(driver: AppDriver) -> None:
    """A page would get what was read before."""
    await driver.ask("Tidy up my notes.")
    reason = (
        "it could send off what this conversation has read (files.read): neither you nor a link"
        " named this address of example.org"
    )
    await request_approval(
        driver, "open", '{"id":"https://example.org/?q=notes"}',
        server="browser", reason=reason, rules=["open example.org"],
    )  # fmt: skip


async def refused(driver: AppDriver) -> None:
    """The reason of a refusal is being typed."""
    await edit(driver)
    await driver.pilot.press("r")
    await driver.wait_for(lambda: driver.app.query_one(ApprovalCard).query(Input))
    await driver.pilot.press(*"log it too")
    driver.app.query_one(ApprovalCard).query_one(Input).cursor_blink = False
    await driver.expect_text("log it too")


async def question(driver: AppDriver) -> None:
    await driver.ask("Sign me up.")
    request = ElicitationRequest("events", "Who is it that comes?", FORM)
    keep_reference(driver, driver.session.answerer(request))
    await driver.wait_for(lambda: driver.app.query(ElicitationForm))
    await driver.wait_for(lambda: driver.app.query_one(ElicitationForm).has_focus_within)
    driver.app.query_one(Select).value = 1
    await driver.pilot.press(*"Ada", "tab", *"17")
    for field in driver.app.query_one(ElicitationForm).query(Input):
        field.cursor_blink = False
    await driver.pilot.click("#send")
    await driver.expect_text("age: must be a whole number, at least 18.")
    await driver.wait_for(lambda: not driver.app.query_one("#send").has_class("-active"))


async def ask(driver: AppDriver, request: ElicitationRequest) -> None:
    """A server asks the person something."""
    await driver.ask("Book a table.")
    keep_reference(driver, driver.session.answerer(request))
    await driver.wait_for(lambda: driver.app.query(ElicitationForm))
    await driver.wait_for(lambda: driver.app.query_one(ElicitationForm).has_focus_within)
    for field in driver.app.query_one(ElicitationForm).query(Input):
        field.cursor_blink = False


async def booking(driver: AppDriver) -> None:
    """A form with every kind of field, which its defaults fill in."""
    await ask(driver, ElicitationRequest("tables", "Which table shall it be?", BOOKING))


async def page(driver: AppDriver) -> None:
    """A server wants a page to be visited."""
    message = "Log in to your calendar, so that the table is written into it."
    await ask(driver, ElicitationRequest("tables", message, url=PAGE))


async def commands(driver: AppDriver) -> None:
    await driver.pilot.press("/")
    await driver.expect_text("/branch")


async def files(driver: AppDriver) -> None:
    root = driver.session.launch.root
    for path in ("notes.md", "src/notes/old notes.txt", "src/main.py", "tests/test_notes.py"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    await driver.type_text("Sum up @not")
    await driver.expect_text("test_notes.py")


async def search(driver: AppDriver) -> None:
    await conversation(driver)
    turn = await driver.ask("Which number was it?")
    emit_message(turn, "It was 56088.").close(True)
    await end_turn(driver, turn)
    await driver.pilot.press("ctrl+f", *"56088", "up", "up")
    driver.app.screen.query_one(Input).cursor_blink = False
    await driver.wait_for(lambda: driver.app.screen.selections)


async def keys(driver: AppDriver) -> None:
    await driver.expect_text("ready")
    await driver.pilot.press("f1")
    await driver.expect_text("Prompt", "Conversation")


async def palette(driver: AppDriver) -> None:
    await driver.pilot.press("ctrl+p")
    driver.app.screen.query_one(Input).cursor_blink = False
    await driver.expect_text("/effort")


SCENES: list[Scene] = [
    waiting, edit, command, leak, refused, question, booking, page, commands, files, search, keys,
    palette,
]  # fmt: skip
