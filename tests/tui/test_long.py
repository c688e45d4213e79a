"""A long conversation: all of it can be reached, and only what is near is there as widgets."""

from __future__ import annotations

import pytest

from agent.store import KeptTurn
from tests.tui.played import Played, PlayedTurn, person, says, screen_text
from tui.widgets.exchange import Exchange
from tui.window import wanted

TURNS = 16


def conversation() -> Played:
    session, kept = Played(), []
    for number in range(TURNS):
        turn = PlayedTurn(f"question {number}")
        lines = "\n\n".join(f"line {line} of answer {number}" for line in range(9))
        says(turn, lines).close(True)
        turn.end()
        kept.append(KeptTurn(f"question {number}", turn.log.events[-1].response, number))  # type: ignore[union-attr]
    session.earlier = lambda: kept  # type: ignore[method-assign]
    return session


@pytest.mark.parametrize(
    ("there", "top", "expected"),
    [
        (range(0), 500, range(50, 51)),  # from nothing: what is at the top
        (range(50, 51), 500, range(50, 52)),  # then what is below it
        (range(50, 54), 500, range(49, 54)),  # and above it
        (range(48, 54), 500, range(48, 54)),  # a screen each way is enough
        (range(48, 54), 540, range(48, 55)),
        (range(40, 58), 560, range(48, 59)),  # what is far goes
        (range(48, 54), 20, range(2, 3)),  # as does all after a leap
        (range(98, 100), 990, range(97, 100)),
    ],
)
def test_what_is_wanted_next(there: range, top: int, expected: range) -> None:
    assert wanted([10] * 100, there, top, 20) == expected


async def test_all_of_it_is_reached_and_little_of_it_is_there() -> None:
    async with person(conversation(), size=(80, 24)) as someone:
        await someone.sees(f"line 8 of answer {TURNS - 1}")
        assert len(someone.app.query(Exchange)) < 9
        seen, before = "", ""
        while "question 0" not in (now := screen_text(someone.app)):
            if now != before:
                await someone.pilot.press("pageup")
            before, seen = now, seen + now
            await someone.pilot.pause()
        missing = [n for n in range(TURNS) if f"line 6 of answer {n}" not in seen + now]
        assert not missing and len(someone.app.query(Exchange)) < 9
        await someone.pilot.press("ctrl+end")
        await someone.sees(f"line 8 of answer {TURNS - 1}")
        await someone.pilot.press("ctrl+home")
        await someone.sees("question 0")


async def test_what_is_read_stays_where_it_is_while_an_answer_comes() -> None:
    async with person(conversation(), size=(80, 24)) as someone:
        turn = await someone.ask("and now?")
        await someone.see(lambda: someone.app.chat.newest)
        for _ in range(8):
            await someone.pilot.press("pageup")
        await someone.see(lambda: "of answer" in screen_text(someone.app))
        await someone.see(lambda: not someone.app.chat._changing.locked())
        read = [line for line in screen_text(someone.app).splitlines() if "of answer" in line]
        writer = says(turn, "A long answer.\n\n" * 40)
        await someone.see(lambda: someone.app.talk.said and someone.app.talk.said.answer)
        now = [line for line in screen_text(someone.app).splitlines() if "of answer" in line]
        assert now == read
        writer.close(True)
        turn.end()


async def test_a_new_question_leads_back_to_the_end() -> None:
    async with person(conversation(), size=(80, 24)) as someone:
        await someone.pilot.press("ctrl+home")
        await someone.sees("question 0")
        turn = await someone.ask("and now?")
        says(turn, "the newest answer").close(True)
        turn.end()
        await someone.sees("the newest answer")
        await someone.pilot.press("pageup")
        await someone.sees(f"line 8 of answer {TURNS - 1}")
