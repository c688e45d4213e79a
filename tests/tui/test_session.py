"""The app's session on a scripted engine: compaction, prefetch, resuming."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.config.launch import LaunchOptions
from agent.events import AgentNotice, AgentTokens, Response
from agent.turn.loop import Turn
from tests.support.scripts import hold
from tui.session import Session

OK = {"markup": "<|channel|>final<|message|>ok<|return|>"}
SUMMARY = {"markup": "<|channel|>final<|message|>Three numbers were named.<|return|>"}

Open = Callable[..., Session]


@pytest.fixture
def open_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restored_logging: None) -> Open:
    monkeypatch.setenv("AGENT_HOME", str(tmp_path / "home"))
    script = tmp_path / "script.jsonl"
    lines = [OK, OK, OK, OK, SUMMARY, OK]
    script.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return lambda **options: Session(
        LaunchOptions(engine=f"script:{script}", tools="none"), **options
    )


async def never(*_: object) -> bool:
    return False


async def ask(session: Session, text: str) -> tuple[Response, list[str]]:
    """The response and the notices."""
    return await ended(session, session.start_turn(text, never))


async def ended(session: Session, turn: Turn) -> tuple[Response, list[str]]:
    await turn.done()
    assert session.storage.error is None
    notices = [event.message for event in turn.log.events if isinstance(event, AgentNotice)]
    return turn.response, notices


async def test_compact_summarises_and_conversation_resumes_exactly(open_session: Open) -> None:
    session = open_session()
    await session.begin()
    for number in range(4):
        await ask(session, f"The number is {number}." + " So it is." * 20)
    before = session.next_prompt.token_count()
    response, notices = await ended(session, session.compact())
    after = session.next_prompt.token_count()
    assert response.status == "completed" and "3 earlier turns summarised" in notices[-1]
    assert (
        before and after and after < before and f"{after:,} tokens now, {before:,}" in notices[-1]
    )
    ids = session.conversation.ids()
    await session.close()
    again = open_session(resume=session.conversation.id)
    await again.begin()
    assert [turn.prompt[:15] for turn in await again.storage.turns(again.conversation.id)] == [
        f"The number is {n}" for n in range(4)
    ]
    await ask(again, "And now?")
    assert again.conversation.ids()[: len(ids)] == ids
    assert len(again.conversation.entries) == 10, "no entry is lost"
    await again.close()


async def test_prefetch_ids_are_prefix_of_next_prompt(
    open_session: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session()
    await session.begin()
    await session.load(lambda fraction: None)
    prefetched: list[list[int]] = []
    monkeypatch.setattr(
        session.runtime,
        "prefetch",
        lambda conversation, **options: prefetched.append(conversation.ids()),
    )
    for text in ("first", "second"):
        session.next_prompt.prefetch(text)
        await ask(session, text)
        assert session.conversation.ids()[: len(prefetched[-1])] == prefetched[-1]
    session.next_prompt.prefetch("another", before=0)
    assert len(prefetched[-1]) == len(prefetched[0]), "as in an empty conversation"
    await session.close()


async def test_context_used_counts_system_message(open_session: Open) -> None:
    session = open_session()
    await session.begin()
    await session.load(lambda fraction: None)
    await ask(session, "first")
    used = session.next_prompt.token_count()
    await session.close()
    again = open_session(continue_latest=True)
    await again.begin()
    assert again.next_prompt.token_count() is None, "no model is loaded yet"
    await again.load(lambda fraction: None)
    assert again.next_prompt.token_count() == used
    await again.close()


async def test_keystroke_restarts_idle_timers(open_session: Open) -> None:
    session = open_session()
    await session.begin()
    session.runtime.keep_alive = 3600.0
    await session.load(lambda fraction: None)
    before = session.runtime.idle_timers.due_times
    session.on_keystroke()
    after = session.runtime.idle_timers.due_times
    assert before and all(late > early for early, late in zip(before, after, strict=True))
    await session.close()


async def test_compact_empty_conversation_fails(open_session: Open) -> None:
    session = open_session()
    await session.begin()
    response, _ = await ended(session, session.compact())
    assert response.error and "no earlier turn to compact" in response.error.message
    await session.close()


async def test_config_can_disable_automatic_compaction(open_session: Open, tmp_path: Path) -> None:
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


async def test_unwritable_store_for_one_turn_next_turn_stores_both(open_session: Open) -> None:
    session = open_session()
    await session.begin()
    await ask(session, "one")
    session.storage.store.db.execute("pragma query_only = on")
    with pytest.raises(AssertionError, match="could not be stored: attempt to write a readonly"):
        await ask(session, "two")
    session.storage.store.db.execute("pragma query_only = off")
    session.storage.error = None
    await ask(session, "three")
    stored = session.storage.store.load(session.conversation.id)
    entries = session.conversation.entries
    assert len(entries) == 6
    assert [e.ids for e in stored.entries] == [e.ids for e in entries]
    await session.close()


async def test_project_instructions_stay_within_conversation(
    open_session: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stay a prefix of the next prompt; a conversation that is opened has those of now."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "AGENTS.md"
    file.write_text("first version")
    session = open_session()
    await session.begin()
    await ask(session, "hello")
    conversation, ids = session.conversation.id, session.conversation.ids()
    file.write_text("second version")
    await ask(session, "again")
    assert session.conversation.ids()[: len(ids)] == ids

    def prompt() -> str:
        form = session.runtime.format
        assert form is not None
        return b"".join(map(form.token_bytes, session.conversation.ids())).decode()

    for reopen in (session.start_new, lambda: session.open(conversation)):
        await reopen()
        await ask(session, "and now?")
        assert prompt().count("second version") == 1 and "first version" not in prompt()
    await session.close()


async def test_added_instruction_counts_from_next_turn(
    open_session: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    session = open_session()
    await session.begin()
    await ask(session, "hello")
    notices = await asyncio.gather(*map(session.add_instruction, ("use tabs", "no emoji")))
    file = tmp_path / "AGENTS.md"
    assert notices[0] == (
        f'Added "- use tabs" to {file}. The model reads it from the next turn on.'
    )
    assert file.read_text() == "- use tabs\n- no emoji\n", "neither is lost"
    await ask(session, "again")
    form = session.runtime.format
    assert form is not None
    prompt = b"".join(map(form.token_bytes, session.conversation.ids())).decode()
    assert prompt.count("- use tabs\n- no emoji\n") == 1 and "hello" in prompt
    await session.close()
    config = tmp_path / "home" / "config"
    config.mkdir(parents=True, exist_ok=True)
    (config / "config.toml").write_text("project_instructions = false\n")
    session = open_session()
    await session.begin()
    assert (await session.add_instruction("x")).endswith(
        "The model does not read it: project instructions are turned off."
    )
    await session.close()


@pytest.mark.parametrize("wanted", [True, False])
async def test_token_probabilities_are_recorded_where_the_setting_says_so(
    open_session: Open, tmp_path: Path, wanted: bool
) -> None:
    config = tmp_path / "home" / "config" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f"token_probabilities = {str(wanted).lower()}\n")
    session = open_session()
    await session.begin()
    response, _ = await ask(session, "Go")
    stored = [event for _, event in session.storage.store.events(response.id)]
    tokens = [event for event in stored if isinstance(event, AgentTokens)]
    assert bool(tokens) is wanted
    assert all(event.logprobs and len(event.logprobs) == len(event.ids) for event in tokens)
    settings = session.turn_settings[response.id]
    assert settings.options.token_probabilities is wanted and not settings.constrained
    assert session.runtime.format is not None
    assert await settings.new_constraint(session.runtime.format, first=True) is None
    await session.close()


async def test_turn_that_was_read_while_it_ran_is_read_again(
    open_session: Open, tmp_path: Path
) -> None:
    waiting = hold(OK["markup"], 1, tmp_path / "go")
    (tmp_path / "script.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in (OK, waiting))
    )
    session = open_session()
    await session.begin()
    first, _ = await ask(session, "one")
    running = session.start_turn("two", never)
    assert await session.storage.turn(session.conversation.id, first.id) is not None
    early = await session.storage.turn(session.conversation.id, running.response.id)
    assert early is not None and early.response.status == "in_progress"
    (tmp_path / "go").touch()
    await ended(session, running)
    turn = await session.storage.turn(session.conversation.id, running.response.id)
    assert turn is not None and turn.response.output == running.response.output != []
    await session.close()
