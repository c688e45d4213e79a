"""A long conversation: all of it can be reached, and only what is near is there as widgets."""

from __future__ import annotations

import json

import pytest

from agent.store.conversations import KeptTurn
from tests.support.fake_app import (
    Person,
    Played,
    PlayedTurn,
    calls,
    person,
    says,
    screen_text,
    thinks,
)
from tui.util.virtual_list import wanted
from tui.widgets.tool_call_card import Call
from tui.widgets.user_message import Asked

TURNS = 16
CALLS = 60


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


def call(turn: PlayedTurn, number: int) -> None:
    """Reasoning, and a call with a result that is longer than what is shown of it."""
    thinks(turn, f"thought {number}").close(True)
    arguments = json.dumps({"code": f"print('code {number}')"})
    made = calls(turn, "code_interpreter", "python", arguments)
    made.arguments_done(arguments)
    made.completed("\n".join(f"line {line} of call {number}" for line in range(14)))


def rows(someone: Person) -> str:
    """What is read of the conversation, without its scroll bar."""
    lines = screen_text(someone.app).splitlines()[: someone.app.chat.size.height]
    return "".join(f"{line[:70].rstrip()}\n" for line in lines)


def one_turn() -> Played:
    """A conversation of a single turn that called many times."""
    session, turn = Played(), PlayedTurn("the question")
    for number in range(CALLS):
        call(turn, number)
    says(turn, "the answer").close(True)
    turn.end()
    kept = KeptTurn("the question", turn.log.events[-1].response, 0)  # type: ignore[union-attr]
    session.earlier = lambda: [kept]  # type: ignore[method-assign]
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
        assert len(someone.app.query(Asked)) < 9
        seen, before = "", ""
        while "question 0" not in (now := screen_text(someone.app)):
            if now != before:
                await someone.pilot.press("pageup")
            before, seen = now, seen + now
            await someone.pilot.pause()
        missing = [n for n in range(TURNS) if f"line 6 of answer {n}" not in seen + now]
        assert not missing and len(someone.app.query(Asked)) < 9
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


# --- one turn of many calls ---


async def test_all_calls_of_a_turn_are_reached_and_few_are_there() -> None:
    async with person(one_turn(), size=(80, 24)) as someone:
        await someone.sees("the answer")
        seen, before = "", ""
        while "❯ the question" not in (now := rows(someone)):
            if now != before:
                await someone.pilot.press("pageup")
            before, seen = now, seen + now
            assert len(someone.app.query(Call)) < CALLS / 2
            await someone.pilot.pause()
        assert not [n for n in range(CALLS) if f"line 3 of call {n}\n" not in seen + now]
        await someone.pilot.press("ctrl+end")
        await someone.sees("the answer")


async def test_a_turn_that_goes_on_calling_is_followed_and_read() -> None:
    async with person(size=(80, 24)) as someone:
        await someone.pilot.press("f2")
        turn = await someone.ask("the question")
        for number in range(CALLS):
            call(turn, number)
            await someone.sees(f"line 11 of call {number}")
        assert len(someone.app.query(Call)) < CALLS / 2
        for _ in range(9):
            await someone.pilot.press("pageup")
        await someone.see(lambda: not someone.app.chat._changing.locked())
        read = rows(someone)
        assert "of call" in read
        for number in range(CALLS, CALLS + 20):
            call(turn, number)
        await someone.see(lambda: len(someone.app.talk.said.parts) == 2 * (CALLS + 20))  # type: ignore[union-attr]
        assert rows(someone) == read
        await someone.pilot.press("ctrl+end")
        await someone.sees(f"line 11 of call {CALLS + 19}")
        turn.end()


async def test_what_is_far_away_in_a_turn_is_found_and_opened() -> None:
    async with person(one_turn(), size=(80, 24)) as someone:
        await someone.sees("the answer")
        await someone.pilot.press("ctrl+f", *"13 of call 7")
        await someone.sees("1/1")
        await someone.sees("line 13 of call 7")
        await someone.pilot.press("escape", "ctrl+home")
        await someone.sees("❯ the question")
        assert "line 13 of call 0" not in screen_text(someone.app)
        await someone.pilot.press("ctrl+o")
        await someone.sees("thought 0")
        await someone.pilot.press("pagedown")
        await someone.sees("line 13 of call 0")
        await someone.pilot.press("ctrl+end")
        await someone.sees(f"line 13 of call {CALLS - 1}")


async def test_what_was_opened_is_open_when_it_is_seen_again() -> None:
    async with person(one_turn(), size=(80, 40)) as someone:
        await someone.sees("the answer")
        await someone.pilot.press("ctrl+f", *"13 of call 7")
        await someone.sees("line 13 of call 7")
        await someone.pilot.press("escape", "ctrl+end")
        await someone.sees("the answer")
        far = [one.part for one in someone.app.query(Call)]
        assert "of call 7" not in "".join(part.result or "" for part in far)
        await someone.pilot.press("ctrl+f", *"code 7")
        await someone.sees("1/1")
        await someone.sees("line 13 of call 7")


async def test_panes_of_many_calls_become_the_record_and_panes_again() -> None:
    async with person(size=(80, 24)) as someone:
        turn = await someone.ask("the question")
        for number in range(CALLS):
            call(turn, number)
        await someone.sees(f"line 13 of call {CALLS - 1}")
        await someone.pilot.press("f2")
        await someone.sees(f"line 11 of call {CALLS - 1}")
        assert 0 < len(someone.app.query(Call)) < CALLS / 2
        await someone.pilot.press("f2")
        await someone.see(lambda: not someone.app.query(Call))
        await someone.sees(f"line 13 of call {CALLS - 1}")
        says(turn, "the answer").close(True)
        turn.end()
        await someone.ask("and now?")
        await someone.pilot.press("ctrl+home")
        await someone.sees("❯ the question")


async def test_panes_leave_room_for_what_the_app_says_below_them() -> None:
    async with person(size=(80, 24)) as someone:
        turn = await someone.ask("the question")
        says(turn, "the answer").close(True)
        turn.end()
        await someone.sees("the answer")
        for number in range(3):
            someone.app.chat.say(f"line {number} of the app")
            await someone.sees(f"line {number} of the app")
            await someone.sees("❯ the question")
