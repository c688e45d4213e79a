"""The rooms beside the conversation: what a person finds and does there."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent import events as ev
from agent.cli.shared import Shared
from agent.conversation.conversation import Conversation, Entry
from agent.store.conversations import Store
from tests.agent.models.test_download import Hub, hub  # noqa: F401
from tests.support.fake_app import screen_text, wait_until
from tests.support.hosts import SERVERS
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
    own_logging: None,
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
        await someone.until(lambda: "haiku" not in screen_text(someone.app))
        await someone.press("enter")
        await someone.until(lambda: someone.app.session.conversation.id == "conv_a")
        await someone.sees("❯ Where is Paris?", "Ask something")
        await someone.press(*"and now?", "enter")
        await someone.sees("Fine.")
    assert len(store.turns("conv_a")) == 2


async def test_the_last_line_tells_how_full_this_conversation_is(visit: Any, store: Store) -> None:
    keep(store, "conv_a", "Where is Paris?", "In France.")
    async with visit() as someone:
        status = someone.app.status
        await someone.press(*"hello", "enter")
        await someone.until(lambda: status.context_used and status.doing == "ready")
        await someone.press(*"/new", "enter")
        await someone.until(lambda: not status.context_used and not status.speed)
        await someone.press(*"/resume conv_a", "enter")
        await someone.until(lambda: status.context_used)
        assert status.context_used == someone.app.session.context_used()


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
        await someone.sees("open · ")
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


async def test_a_conversation_is_played_again_and_goes_on(visit: Any, store: Store) -> None:
    keep(store, "conv_a", "Where is Paris?", "In France.")
    async with visit(resume="conv_a", replay=0.01) as someone:
        await someone.sees("❯ Where is Paris?")
        await someone.press(*"and now?", "enter")
        await someone.sees("next: and now?")
        await someone.press("escape")
        await someone.sees("In France.")
        await someone.until(lambda: someone.app.prompt.text == "and now?")
        assert len(store.turns("conv_a")) == 1
        await someone.press("enter")
        await someone.sees("Fine.", "○ ready")


def test_what_is_searched_is_text_and_no_markup(store: Store) -> None:
    keep(store, "conv_a", "100 % of _it_", 'He said "yes"')
    keep(store, "conv_b", "completed output", "nothing")
    branch = store.fork(store.load("conv_a"))
    assert store.search("100 %") == {"conv_a", branch.id}
    assert store.search("_IT_") == {"conv_a", branch.id} and not store.search("xit_")
    assert store.search("He said") == {"conv_a", branch.id}
    assert store.search("completed") == {"conv_b"} and not store.search("final_answer")


# --- models ---


@pytest.fixture
def models_toml(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The person's; nobody's own models are found beside them."""
    for name in ("HOME", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "LLAMA_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / "nothing"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "nothing"))
    path = home / "config/models.toml"
    path.parent.mkdir()
    return path


@pytest.mark.slow
async def test_a_model_is_pulled_while_one_goes_on(
    visit: Any,
    hub: Hub,  # noqa: F811
    models_toml: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    models_toml.write_text('[m]\nrepo = "org/repo"\nfile = "m-00001-of-00002.gguf"\n')
    (home / "cache").unlink()  # what is pulled lies there
    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    hub.hold = 15_000_000  # more than the client takes in one piece
    async with visit() as someone:
        downloads = someone.app.rooms.downloads
        await someone.press("f6")
        await someone.sees("tiny", "runs now · default · embedded", "can be pulled")
        while someone.app.screen.chosen != "m":
            await someone.press("down")
        await someone.press("enter")
        await someone.sees("21 % · 10.5 of 48.0 MB")
        await someone.press("escape")
        await someone.sees("m 21 %", "Ask something")
        await someone.press("f6")
        while someone.app.screen.chosen != "m":
            await someone.press("down")
        await someone.press("ctrl+x")
        await someone.sees("The download was stopped.")
        await someone.press("enter", "escape")
        await someone.sees("m is here: /model m lets it answer.")
        assert downloads["m"].done == 48_000_000
    assert any(asked and not asked.startswith("bytes=0-") for asked in hub.ranges), "it went on"


async def test_another_model_goes_on_with_what_was_said(
    visit: Any, store: Store, models_toml: Path
) -> None:
    models_toml.write_text('[other]\npath = "/nowhere/other.gguf"\nformat = "qwen3"\n')
    async with visit() as someone:
        await someone.press(*"hello", "enter")
        await someone.sees("Fine.")
        await someone.press(*"/model nothing", "enter")
        await someone.sees("There is no model nothing")
        await someone.press(*"/model other", "enter")
        await someone.sees("other answers from now on.", "in the tokens of")
        await someone.press(*"and you?", "enter")
        await someone.until(lambda: sum(one.turns for one in store.summaries()) == 3)
        await someone.until(lambda: someone.app.turn is None)
    after, before = store.summaries()
    assert (after.title, before.title) == ("hello", "hello")
    assert (after.turns, before.turns) == (2, 1)
    kept = store.load(after.id)
    assert kept.vocabulary == "other" and [e.role for e in kept.entries][:2] == [
        "user",
        "assistant",
    ]


# --- the first start ---


@pytest.mark.slow
async def test_a_new_person_takes_over_servers_and_is_greeted_once(
    visit: Any, models_toml: Path, tmp_path: Path
) -> None:
    theirs = tmp_path / "nothing/.cursor/mcp.json"
    theirs.parent.mkdir(parents=True)
    plain = {"command": sys.executable, "args": ["-I", str(SERVERS / "plain.py")]}
    theirs.write_text(json.dumps({"mcpServers": {"plain": plain}}))
    real = {"engine": None}
    async with visit(shared=real, size=(100, 30)) as someone:
        await someone.sees("tiny answers here", "Download gpt-oss-20b in the background")
        await someone.sees("Take over MCP servers: Cursor (1)", "Go on with tiny")
        await someone.press("up", "up")
        while "Add these" not in screen_text(someone.app):
            await someone.press("enter")  # the first half second it does not count
        await someone.sees("plain.py", "y add them")
        await someone.press("y")
        await someone.sees("Added to")
        await someone.press("f7")
        await someone.sees("● plain", "17 tools")
    async with visit(shared=real) as someone:
        await someone.until(lambda: someone.app.session.runtime.loaded)
        assert "Welcome" not in screen_text(someone.app)


async def test_who_writes_at_once_writes_into_the_prompt(visit: Any, models_toml: Path) -> None:
    async with visit(shared={"engine": None}) as someone:
        await someone.sees("Welcome")
        await someone.press("f1")
        await someone.sees("Keys and commands")
        await someone.press("escape")
        await someone.sees("Welcome")
        await someone.press(*"hello there")
        await someone.sees("│ hello there")
        assert someone.app.turn is None
