"""The rooms beside the conversation: what a person finds and does there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent import events as ev
from agent.conversation import Conversation, Entry
from agent.shared import Shared
from agent.store import Store
from tests.responses.conftest import own_logging  # noqa: F401
from tests.tui.played import screen_text, wait_until
from tui.app import AgentApp
from tui.session import Session

OK = {"markup": "<|channel|>final<|message|>Fine.<|return|>"}


class Visitor:
    """A person in front of the real app, whose model is a script."""

    def __init__(self, app: AgentApp, pilot: Any) -> None:
        self.app, self.pilot = app, pilot

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def sees(self, *texts: str) -> None:
        await self.until(lambda: all(text in screen_text(self.app) for text in texts))

    async def until(self, seen: Callable[[], object]) -> None:
        await wait_until(self.pilot, seen)


@pytest.fixture
def visit(
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    own_logging: None,  # noqa: F811
) -> Callable[..., Any]:
    monkeypatch.setenv("AGENT_HOME", str(home))
    script = tmp_path / "script.jsonl"
    script.write_text(json.dumps(OK) + "\n")

    @asynccontextmanager
    async def visit(size: tuple[int, int] = (80, 24), **how: Any) -> AsyncIterator[Visitor]:
        given = {"engine": f"script:{script}", "tools": "none", **how.pop("shared", {})}
        app = AgentApp(Session(Shared(**given), **how))
        async with app.run_test(size=size, notifications=True) as pilot:
            visitor = Visitor(app, pilot)
            await visitor.until(lambda: app.begun)
            yield visitor
        await app.shut_down()

    return visit


@pytest.fixture
def store(home: Path) -> Store:
    return Store(home / "state/store.sqlite")


def keep(store: Store, name: str, prompt: str, answer: str) -> None:
    talk = Conversation(name, [Entry([1], role="user"), Entry([2], role="assistant")])
    talk.vocabulary = "o200k_harmony"
    text = ev.OutputText(text=answer)
    item = ev.MessageItem(id="msg_1", phase="final_answer", content=[text], status="completed")
    response = ev.Response(
        id=f"resp_{name}", created_at=0, model="tiny", status="completed", output=[item]
    )
    store.begin(Conversation(name), prompt, response)
    store.finish(talk, response)


async def test_a_conversation_is_found_by_what_was_said_and_opened(
    visit: Any, store: Store
) -> None:
    keep(store, "conv_a", "Where is Paris?", "In France, on the Seine.")
    keep(store, "conv_b", "Write a haiku", "Old pond\nA frog leaps in")
    async with visit(resume="") as someone:
        await someone.sees("Conversations", "Where is Paris?", "❯ Write a haiku")
        await someone.press(*"seine")
        await someone.sees("❯ Where is Paris?", "In France, on the Seine.")
        assert "haiku" not in screen_text(someone.app)
        await someone.press("enter")
        await someone.until(lambda: someone.app.session.conversation.id == "conv_a")
        await someone.sees("❯ Where is Paris?", "Ask something")
        await someone.press(*"and now?", "enter")
        await someone.sees("Fine.")
    assert len(store.turns("conv_a")) == 2


async def test_a_conversation_is_renamed_forked_and_deleted(visit: Any, store: Store) -> None:
    keep(store, "conv_a", "Where is Paris?", "In France.")
    async with visit() as someone:
        await someone.press("f5", "ctrl+r", "ctrl+u", *"Capitals", "enter")
        await someone.until(lambda: store.summaries()[0].title == "Capitals")
        await someone.sees("Conversations", "Capitals")
        await someone.press("ctrl+f")
        await someone.until(lambda: len(store.summaries()) == 2)
        branch = next(one for one in store.summaries() if one.parent == "conv_a")
        await someone.until(lambda: someone.app.session.conversation.id == branch.id)
        await someone.press("f5")
        await someone.sees("open here")
        await someone.press("ctrl+d")
        await someone.sees("Delete “Capitals” (1 turn) for good?")
        await someone.press("enter")
        await someone.sees("Conversations")
        assert len(store.summaries()) == 2, "Enter alone deletes nothing"
        await someone.press("ctrl+d")
        await someone.sees("Delete “Capitals”")
        await someone.press("y")
        await someone.until(lambda: [one.id for one in store.summaries()] == ["conv_a"])
        await someone.press("escape")
        await someone.until(lambda: someone.app.session.conversation.id != branch.id)


def test_what_is_searched_is_text_and_no_markup(store: Store) -> None:
    keep(store, "conv_a", "100 % of _it_", 'He said "yes"')
    keep(store, "conv_b", "completed output", "nothing")
    branch = store.fork(store.load("conv_a"))
    assert store.search("100 %") == {"conv_a", branch.id}
    assert store.search("_IT_") == {"conv_a", branch.id} and not store.search("xit_")
    assert store.search("He said") == {"conv_a", branch.id}
    assert store.search("completed") == {"conv_b"} and not store.search("final_answer")
