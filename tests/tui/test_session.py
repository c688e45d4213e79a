"""The app's conversation: compacted when a person asks, and taken up again as it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.cli.shared import Shared
from agent.events import AgentNotice, Response
from agent.turn.loop import Turn
from tui.session import Session

OK = {"markup": "<|channel|>final<|message|>ok<|return|>"}
SUMMARY = {"markup": "<|channel|>final<|message|>Three numbers were named.<|return|>"}

Open = Callable[..., Session]


@pytest.fixture
def open_session(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own_logging: None,
) -> Open:
    monkeypatch.setenv("AGENT_HOME", str(tmp_path / "home"))
    script = tmp_path / "script.jsonl"
    lines = [OK, OK, OK, OK, SUMMARY, OK]
    script.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return lambda **how: Session(Shared(engine=f"script:{script}", tools="none"), **how)


async def ask(session: Session, text: str) -> tuple[Response, list[str]]:
    """The response and the notices."""

    async def approver(*_: object) -> bool:
        return False

    return await ended(session, session.turn(text, approver))


async def ended(session: Session, turn: Turn) -> tuple[Response, list[str]]:
    await session.finish(turn)
    assert session.unkept is None
    notices = [event.message for event in turn.log.events if isinstance(event, AgentNotice)]
    return turn.response, notices


async def test_a_person_asks_for_room(open_session: Open) -> None:
    session = open_session()
    await session.begin()
    for number in range(4):
        await ask(session, f"The number is {number}." + " So it is." * 20)
    before = session.context_used()
    response, notices = await ended(session, session.compact())
    after = session.context_used()
    assert response.status == "completed" and "3 earlier turns summarised" in notices[-1]
    assert (
        before and after and after < before and f"{after:,} tokens now, {before:,}" in notices[-1]
    )
    ids = session.conversation.ids()
    await session.close()
    again = open_session(resume=session.conversation.id)
    await again.begin()
    assert [turn.prompt[:15] for turn in again.earlier()] == [
        f"The number is {n}" for n in range(4)
    ]
    await ask(again, "And now?")
    assert again.conversation.ids()[: len(ids)] == ids
    assert len(again.conversation.entries) == 10, "everything that was said is still there"
    await again.close()


async def test_what_is_laid_ahead_is_what_the_turn_then_asks(
    open_session: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session()
    await session.begin()
    await session.load(lambda fraction: None)
    laid: list[list[int]] = []
    monkeypatch.setattr(session.runtime, "prepare", laid.append)
    for text in ("first", "second"):
        session.lay_ahead(text)
        await ask(session, text)
        assert session.conversation.ids()[: len(laid[-1])] == laid[-1]
    session.lay_ahead("another", before=0)
    assert len(laid[-1]) == len(laid[0]), "as if nothing had been said"
    await session.close()


async def test_how_full_it_is_counts_what_the_model_is_told_first(open_session: Open) -> None:
    session = open_session()
    await session.begin()
    await session.load(lambda fraction: None)
    await ask(session, "first")
    used = session.context_used()
    await session.close()
    again = open_session(go_on=True)
    await again.begin()
    assert again.context_used() is None, "nothing is loaded yet"
    await again.load(lambda fraction: None)
    assert again.context_used() == used
    await again.close()


async def test_a_key_puts_off_what_waits_for_quiet(open_session: Open) -> None:
    session = open_session()
    await session.begin()
    session.runtime.keep_alive = 3600.0
    await session.load(lambda fraction: None)
    before = list(session.runtime._timers)
    session.written()
    assert before and all(timer.cancelled() for timer in before)
    assert len(session.runtime._timers) == len(before)
    await session.close()


async def test_there_may_be_nothing_to_compact(open_session: Open) -> None:
    session = open_session()
    await session.begin()
    response, _ = await ended(session, session.compact())
    assert response.error and "nothing to compact" in response.error.message
    await session.close()


async def test_the_app_compacts_by_itself_unless_told_otherwise(
    open_session: Open, tmp_path: Path
) -> None:
    session = open_session()
    await session.begin()
    assert session.options.compact
    await session.close()
    config = tmp_path / "home" / "config"
    config.mkdir(parents=True)
    (config / "config.toml").write_text('compact = "off"\n')
    session = open_session()
    await session.begin()
    assert not session.options.compact
    await session.close()
