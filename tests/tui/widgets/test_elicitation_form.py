"""What a tool's server asks the person, and what it is answered."""

import asyncio

import pytest
from textual.events import Key
from textual.widgets import Checkbox, Input, Select, SelectionList

from tests.support.fake_app import AppDriver, drive_app
from tests.tui.scenes.approvals import BOOKING, FORM, PAGE
from tools.mcp.client_requests import ElicitationRequest, ElicitationResult
from tui.widgets.elicitation_form import ElicitationForm


async def elicit(
    driver: AppDriver, question: ElicitationRequest
) -> asyncio.Task[ElicitationResult]:
    """Ask the person; return the task of the answer once the form is mounted."""
    task = asyncio.ensure_future(driver.session.answerer(question))
    await driver.wait_for(lambda: driver.app.query(ElicitationForm))
    await driver.wait_for(lambda: driver.app.query_one(ElicitationForm).has_focus_within)
    driver.app.chat.cards.early_key_delay = 0.0
    return task


async def test_elicitation_form_valid_fields_are_sent() -> None:
    async with drive_app(size=(100, 40)) as driver:
        turn = await driver.ask("hello")
        answer = await elicit(driver, ElicitationRequest("plain", "Who are you?", FORM))
        await driver.expect_text("plain asks")
        await driver.expect_text("Name *: as on the badge")
        await driver.expect_text("news")
        await driver.pilot.press(*"Ada", "tab", *"17")
        driver.app.query_one(Select).value = 1
        await driver.pilot.click("#send")
        await driver.expect_text("age: must be a whole number, at least 18.")
        list(driver.app.query_one(ElicitationForm).query(Input))[1].focus()
        await driver.pilot.pause()  # until it has the focus
        await driver.pilot.press("1", "8")  # what was there is selected
        send = driver.app.query_one("#send")
        await driver.wait_for(lambda: not send.has_class("-active"))  # it takes no click before
        await driver.pilot.click("#send")
        await driver.wait_for(answer.done)
        content = {"name": "Ada", "age": 18, "size": "m", "news": True}
        assert answer.result() == ElicitationResult("accept", content)
        await driver.wait_for(lambda: driver.app.prompt.has_focus)
        assert driver.app.prompt.text == ""
        turn.end()


async def test_elicitation_form_enter_in_last_field_sends() -> None:
    async with drive_app() as driver:
        turn = await driver.ask("hello")
        fields = {name: {"type": "string"} for name in ("first", "last")}
        form = {"type": "object", "properties": fields, "required": ["first", "last"]}
        answer = await elicit(driver, ElicitationRequest("plain", "Your name?", form))
        await driver.pilot.press(*"Ada", "enter", *"Byron", "enter")
        await driver.wait_for(answer.done)
        assert answer.result().content == {"first": "Ada", "last": "Byron"}
        turn.end()


async def test_elicitation_form_one_key_sends_defaults() -> None:
    async with drive_app() as driver:
        turn = await driver.ask("hello")
        answer = await elicit(driver, ElicitationRequest("tables", "Which table?", BOOKING))
        await driver.pilot.press("ctrl+s")
        await driver.wait_for(answer.done)
        defaults = {"day": "2026-12-01", "seats": 2, "meal": "v", "extras": ["b"], "window": True}
        assert answer.result() == ElicitationResult("accept", defaults)
        turn.end()


@pytest.mark.long
async def test_elicitation_form_values_checked_before_sent() -> None:
    async with drive_app(size=(80, 24)) as driver:
        turn = await driver.ask("hello")
        answer = await elicit(driver, ElicitationRequest("tables", "Which table?", BOOKING))
        await driver.expect_text("Seats * (a whole number, 1 to 8)")
        await driver.pilot.press(*"ada", "ctrl+s")
        await driver.expect_text("E-mail: must be an e-mail address.")
        await driver.pilot.press("end", *"@example.org")
        (extras,) = driver.app.query(SelectionList)
        extras.focus()
        await driver.pilot.pause()
        await driver.pilot.press("space", "down", "down", "space")
        await driver.wait_for(lambda: len(extras.selected) == 3)
        await driver.pilot.press("ctrl+s")
        await driver.expect_text("Extras: must be at most 2 of them.")
        assert extras.has_focus
        await driver.pilot.press("space", "ctrl+s")
        await driver.wait_for(answer.done)
        content = answer.result().content or {}
        assert (content["mail"], content["extras"]) == ("ada@example.org", ["w", "b"])
        turn.end()


@pytest.mark.long
@pytest.mark.parametrize("size", [(40, 9), (60, 12), (80, 15)])
async def test_elicitation_form_without_room_shows_keys_and_field_with_its_error(
    size: tuple[int, int],
) -> None:
    async with drive_app(size=size) as driver:
        turn = await driver.ask("hello")
        answer = await elicit(driver, ElicitationRequest("tables", "Which table?", BOOKING))
        await driver.expect_text("Which table?", "Send (Ctrl-S)", "Decline (Ctrl-D)")
        await driver.pilot.press(*"ada")
        driver.app.query_one(Checkbox).focus()
        await driver.expect_text("At a window", "Send (Ctrl-S)", gone="ada")
        await driver.pilot.press("ctrl+s")
        await driver.expect_text("E-mail: must be an e-mail address.", "ada", "Send (Ctrl-S)")
        assert driver.app.query(Input).first().has_focus
        answer.cancel()
        turn.end()


async def test_elicitation_form_without_fields_scrolls_its_message() -> None:
    async with drive_app(size=(60, 12)) as driver:
        turn = await driver.ask("hello")
        message = "\n".join(f"line {number}" for number in range(20))
        answer = await elicit(driver, ElicitationRequest("plain", message, {"properties": {}}))
        await driver.expect_text("line 0", "Send (Ctrl-S)", gone="line 19")
        for _ in range(5):
            await driver.pilot.press("pagedown")
        await driver.expect_text("line 19", "Send (Ctrl-S)", gone="line 0 ")
        answer.cancel()
        turn.end()


async def test_elicitation_page_opened_in_browser_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    async with drive_app() as driver:
        monkeypatch.setattr(driver.app, "open_url", opened.append)
        turn = await driver.ask("hello")
        for press, pages in (("ctrl+s", [PAGE]), ("#accept", [PAGE])):
            answer = await elicit(driver, ElicitationRequest("tables", "Log in.", url=PAGE))
            await driver.expect_text("A page of accounts.example.org")
            if press.startswith("#"):
                await driver.pilot.click(press)
            else:
                await driver.pilot.press(press)
            await driver.wait_for(answer.done)
            assert (answer.result(), opened) == (ElicitationResult("accept"), pages)
            await driver.wait_for(lambda: not driver.app.query(ElicitationForm))
        turn.end()


async def test_elicitation_form_declined_or_cancelled_closes() -> None:
    async with drive_app() as driver:
        turn = await driver.ask("hello")
        answer = await elicit(driver, ElicitationRequest("plain", "Who?", FORM))
        await driver.pilot.press("ctrl+d")
        await driver.wait_for(answer.done)
        assert answer.result() == ElicitationResult("decline")
        second = await elicit(
            driver, ElicitationRequest("plain", "Really?", url="https://example.org/x")
        )
        await driver.expect_text("https://example.org/x")
        second.cancel()
        await driver.wait_for(lambda: not driver.app.query(ElicitationForm))
        await driver.wait_for(lambda: driver.app.prompt.has_focus)
        turn.end()


async def test_elicitation_form_multi_line_default_sent_unchanged() -> None:
    default = "Dear all,\n\x1b[2Jyours"
    async with drive_app() as driver:
        turn = await driver.ask("hello")
        form = {"type": "object", "properties": {"text": {"type": "string", "default": default}}}
        answer = await elicit(driver, ElicitationRequest("plain", "Send it?", form))
        text = driver.app.query_one(ElicitationForm).query_one(Input).value
        assert text.isprintable() and text.startswith("Dear all, ")
        await driver.pilot.press("ctrl+s")
        await driver.wait_for(answer.done)
        assert answer.result().content == {"text": default}
        turn.end()


async def test_elicitation_form_marks_are_seen_without_colours() -> None:
    async with drive_app(size=(100, 40)) as driver:
        turn = await driver.ask("hello")
        answer = await elicit(driver, ElicitationRequest("tables", "Which table?", BOOKING))
        extras, window = driver.app.query_one(SelectionList), driver.app.query_one(Checkbox)
        await driver.wait_for(lambda: extras.size.height == 3)
        assert [extras.render_line(y).text[1] for y in range(3)] == [" ", "X", " "]
        assert window.render().plain.startswith("▐X▌")
        extras.focus()
        await driver.pilot.pause()
        await driver.pilot.press("space", "tab", "space")
        await driver.wait_for(lambda: not window.value)
        assert [extras.render_line(y).text[1] for y in range(3)] == ["X", "X", " "]
        assert window.render().plain.startswith("▐ ▌")
        answer.cancel()
        turn.end()


async def test_elicitation_form_null_is_a_choice() -> None:
    form = {
        "type": "object",
        "properties": {"seat": {"enum": ["aisle", None]}, "until": {"type": ["integer", "null"]}},
        "required": ["seat", "until"],
    }
    async with drive_app(size=(100, 40)) as driver:
        turn = await driver.ask("hello")
        answer = await elicit(driver, ElicitationRequest("tables", "Where?", form))
        await driver.pilot.press("ctrl+s")
        await driver.expect_text("seat: is required.")
        await driver.pilot.press("enter", "down", "down", "enter")
        await driver.expect_text("null")
        await driver.pilot.press("ctrl+s")
        await driver.wait_for(answer.done)
        assert answer.result() == ElicitationResult("accept", {"seat": None, "until": None})
        turn.end()


async def test_elicitation_form_sent_with_what_was_typed_just_before() -> None:
    form = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    async with drive_app() as driver:
        turn = await driver.ask("hello")
        answer = await elicit(driver, ElicitationRequest("plain", "How many?", form))
        for key, character in (("3", "3"), ("ctrl+s", None)):
            driver.app.post_message(Key(key, character))
        await driver.wait_for(answer.done)
        assert answer.result().content == {"x": 3}
        turn.end()


async def test_elicitation_form_choice_with_markup_is_text() -> None:
    form = {"type": "object", "properties": {"x": {"enum": ["a", "[/foo]", "[b]c[/b]"]}}}
    async with drive_app(size=(80, 30)) as driver:
        turn = await driver.ask("hello")
        answer = await elicit(driver, ElicitationRequest("plain", "Which?", form))
        await driver.pilot.press("enter")
        await driver.expect_text("[/foo]", "[b]c[/b]")
        await driver.pilot.press("[", "b", "enter")
        await driver.expect_text("[b]c[/b]", gone="[/foo]")
        await driver.pilot.press("ctrl+s")
        await driver.wait_for(answer.done)
        assert answer.result().content == {"x": "[b]c[/b]"}
        turn.end()


@pytest.mark.parametrize(
    ("keys", "action", "pages"),
    [(("ctrl+s", "ctrl+s"), "accept", [PAGE]), (("ctrl+d", "ctrl+s"), "decline", [])],
)
async def test_elicitation_page_second_key_opens_nothing(
    monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...], action: str, pages: list[str]
) -> None:
    opened: list[str] = []
    async with drive_app() as driver:
        monkeypatch.setattr(driver.app, "open_url", opened.append)
        turn = await driver.ask("hello")
        answer = await elicit(driver, ElicitationRequest("tables", "Log in.", url=PAGE))
        for key in keys:
            driver.app.post_message(Key(key, None))
        await driver.wait_for(answer.done)
        await driver.wait_for(lambda: not driver.app.query(ElicitationForm))
        assert (answer.result().action, opened) == (action, pages)
        turn.end()
