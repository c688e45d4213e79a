"""What a tool's server asks the person, and what it is answered."""

from __future__ import annotations

import asyncio

from textual.widgets import Select

from tests.support.fake_app import Person, person
from tests.tui.scenes.approvals import FORM
from tools.mcp.client_requests import Elicitation, Elicited
from tui.widgets.elicitation_form import Question


async def asked(someone: Person, question: Elicitation) -> asyncio.Task[Elicited]:
    task = asyncio.ensure_future(someone.session.answerer(question))
    await someone.see(lambda: someone.app.query(Question))
    return task


async def test_a_form_is_filled_in_and_sent_when_it_fits() -> None:
    async with person(size=(100, 40)) as someone:
        turn = await someone.ask("hello")
        answer = await asked(someone, Elicitation("plain", "Who are you?", FORM))
        await someone.sees("plain asks")
        await someone.sees("Name *: as on the badge")
        await someone.sees("news")
        await someone.pilot.press(*"Ada", "tab", *"17")
        someone.app.query_one(Select).value = "m"
        await someone.pilot.click("#send")
        await someone.sees("17 is less than the minimum of 18")
        someone.app.query_one(Question)._fields["age"].focus()
        await someone.pilot.press("1", "8")  # what was there is selected
        await someone.pilot.click("#send")
        await someone.see(answer.done)
        content = {"name": "Ada", "age": 18, "size": "m", "news": True}
        assert answer.result() == Elicited("accept", content)
        await someone.see(lambda: someone.app.prompt.has_focus)
        assert someone.app.prompt.text == ""
        turn.end()


async def test_enter_goes_on_and_sends_from_the_last_field() -> None:
    async with person() as someone:
        turn = await someone.ask("hello")
        fields = {name: {"type": "string"} for name in ("first", "last")}
        form = {"type": "object", "properties": fields, "required": ["first", "last"]}
        answer = await asked(someone, Elicitation("plain", "Your name?", form))
        await someone.pilot.press(*"Ada", "enter", *"Byron", "enter")
        await someone.see(answer.done)
        assert answer.result().content == {"first": "Ada", "last": "Byron"}
        turn.end()


async def test_a_question_is_declined_or_goes_with_its_turn() -> None:
    async with person() as someone:
        turn = await someone.ask("hello")
        answer = await asked(someone, Elicitation("plain", "Who?", FORM))
        await someone.pilot.press("ctrl+d")
        await someone.see(answer.done)
        assert answer.result() == Elicited("decline")
        again = await asked(someone, Elicitation("plain", "Really?", url="https://example.org/x"))
        await someone.sees("https://example.org/x")
        again.cancel()
        await someone.see(lambda: not someone.app.query(Question))
        await someone.see(lambda: someone.app.prompt.has_focus)
        turn.end()
