"""The screens of conversations and models, and the first start, in the real app."""

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.content import Content
from textual.widgets import OptionList

from agent import events as ev
from agent.conversation.conversation import Conversation, Entry
from agent.models.machine import inspect_machine
from agent.store.conversations import Store
from tests.support.fake_app import screen_text
from tests.support.hosts import server_entry
from tests.support.model_hub import ModelHub
from tests.support.waiting import HANG_SECONDS
from tui.screens.context import ContextScreen
from tui.screens.dialogs import TextDialog
from tui.screens.models import ModelsScreen
from tui.util.text_search import highlight_matches


@pytest.fixture
def store(home: Path) -> Store:
    return Store(home / "state/store.sqlite")


def store_conversation(store: Store, name: str, prompt: str, answer: str) -> None:
    """Store a conversation of a single turn."""
    conversation = Conversation(name, [Entry([1], role="user"), Entry([2], role="assistant")])
    conversation.vocabulary = "o200k_harmony"
    text = ev.OutputText(text=answer)
    item = ev.MessageItem(id="msg_1", phase="final_answer", content=[text], status="completed")
    response = ev.Response(
        id=f"resp_{name}", created_at=0, model="tiny", status="completed", output=[item]
    )
    store.begin(Conversation(name), prompt, response)
    store.finish(conversation, response)


async def test_sessions_screen_search_in_texts_opens_conversation(
    open_app: Any, store: Store
) -> None:
    store_conversation(store, "conv_a", "Where is Paris?", "In France, on the Seine.")
    store_conversation(store, "conv_b", "Write a haiku", "Old pond\nA frog leaps in")
    async with open_app(resume="") as driver:
        await driver.expect_text("Conversations", "Where is Paris?", "❯ Write a haiku")
        await driver.pilot.press(*"seine")
        await driver.expect_text("❯ Where is Paris?", "In France, on the Seine.")
        await driver.wait_for(lambda: "haiku" not in screen_text(driver.app))
        await driver.pilot.press("enter")
        await driver.wait_for(lambda: driver.app.session.conversation.id == "conv_a")
        await driver.expect_text("❯ Where is Paris?", "Ask something")
        await driver.pilot.press(*"and now?", "enter")
        await driver.expect_text("Fine.")
    assert len(store.turns("conv_a")) == 2


@pytest.mark.long
async def test_sessions_screen_damaged_rows_are_named(open_app: Any, store: Store) -> None:
    for name, prompt in (("conv_a", "Where is Paris?"), ("conv_b", "Write a haiku")):
        store_conversation(store, name, prompt, "So.")
    store.db.execute("update conversations set title = x'00' where id = 'conv_a'")
    store.db.execute("update turns set response = '{' where conversation = 'conv_b'")
    async with open_app(resume="") as driver:
        await driver.expect_text("Conversations", "Write a haiku", "conv_a is damaged")
        await driver.pilot.press(*"haiku", "enter")
        await driver.wait_for(lambda: driver.app.session.conversation.id == "conv_b")
        await driver.expect_text("Turn resp_conv_b is damaged and left out")
        await driver.pilot.press(*"and now?", "enter")
        await driver.expect_text("Fine.")


async def test_status_line_opened_conversation_shows_context_use(
    open_app: Any, store: Store
) -> None:
    store_conversation(store, "conv_a", "Where is Paris?", "In France.")
    async with open_app() as driver:
        status = driver.app.status
        await driver.pilot.press(*"hello", "enter")
        await driver.wait_for(lambda: status.context_used and status.activity == "ready")
        await driver.pilot.press(*"/new", "enter")
        await driver.wait_for(lambda: not status.context_used and not status.tokens_per_second)
        await driver.pilot.press(*"/resume conv_a", "enter")
        await driver.wait_for(lambda: status.context_used)
        assert status.context_used == driver.app.session.next_prompt.token_count()


async def test_sessions_screen_rename_fork_and_delete(open_app: Any, store: Store) -> None:
    store_conversation(store, "conv_a", "Where is Paris?", "In France.")
    async with open_app() as driver:
        await driver.pilot.press("f5")
        await driver.expect_text("Conversations", "Where is Paris?")
        await driver.pilot.press("ctrl+r", "ctrl+u", *"Capitals", "enter")
        await driver.wait_for(lambda: store.summaries()[0].title == "Capitals")
        await driver.expect_text("Conversations", "Capitals")
        await driver.pilot.press("ctrl+f")
        await driver.wait_for(lambda: len(store.summaries()) == 2)
        branch = next(summary for summary in store.summaries() if summary.parent == "conv_a")
        await driver.wait_for(lambda: driver.app.session.conversation.id == branch.id)
        await driver.pilot.press("f5")
        await driver.expect_text("open · ")
        await driver.pilot.press("ctrl+d")
        await driver.expect_text("Delete “Capitals” (1 turn) for good?")
        await driver.pilot.press("enter")
        await driver.expect_text("Conversations")
        assert len(store.summaries()) == 2, "Enter alone deletes nothing"
        await driver.pilot.press("ctrl+d")
        await driver.expect_text("Delete “Capitals”")
        await driver.pilot.press("y")
        await driver.wait_for(lambda: [summary.id for summary in store.summaries()] == ["conv_a"])
        await driver.pilot.press("escape")
        await driver.wait_for(lambda: driver.app.session.conversation.id != branch.id)


async def test_sessions_screen_enter_waits_for_the_search(open_app: Any, store: Store) -> None:
    store_conversation(store, "conv_a", "Where is Paris?", "In France.")
    store_conversation(store, "conv_b", "Where is Rome?", "In Italy.")
    async with open_app() as driver:
        await driver.pilot.press("f5")
        await driver.expect_text("Paris", "Rome", "In Italy.")
        go = threading.Event()
        driver.app.session.storage.store.submit(go.wait)  # it has much to do
        await driver.pilot.press(*"france", "enter")
        assert "conversations" in screen_text(driver.app).lower(), "nothing is chosen yet"
        go.set()
        await driver.wait_for(lambda: driver.app.session.conversation.id == "conv_a")


async def test_replay_stored_conversation_then_continues(open_app: Any, store: Store) -> None:
    store_conversation(store, "conv_a", "Where is Paris?", "In France.")
    async with open_app(resume="conv_a", replay=0.01) as driver:
        await driver.expect_text("❯ Where is Paris?")
        await driver.pilot.press(*"and now?", "enter")
        await driver.expect_text("queued: and now?")
        await driver.pilot.press("escape")
        await driver.expect_text("In France.")
        await driver.wait_for(lambda: driver.app.prompt.text == "and now?")
        assert len(store.turns("conv_a")) == 1
        await driver.pilot.press("enter")
        await driver.expect_text("Fine.", "○ ready")


def test_sessions_screen_matches_behind_letters_that_are_longer_folded() -> None:
    content = highlight_matches(Content("İİİ the Needle, Straße"), "needle")
    assert [content.plain[span.start : span.end] for span in content.spans] == ["Needle"]
    content = highlight_matches(Content("İİİ the Needle, Straße"), "STRASSE")
    assert [content.plain[span.start : span.end] for span in content.spans] == ["Straße"]


def test_sessions_screen_search_text_is_no_markup(store: Store) -> None:
    store_conversation(store, "conv_a", "100 % of _it_", 'He said "yes"')
    store_conversation(store, "conv_b", "completed output", "nothing")
    branch = store.fork(store.load("conv_a"))
    assert store.search("100 %") == {"conv_a", branch.id}
    assert store.search("_IT_") == {"conv_a", branch.id} and not store.search("xit_")
    assert store.search("He said") == {"conv_a", branch.id}
    assert store.search("completed") == {"conv_b"} and not store.search("final_answer")


# --- models ---


@pytest.mark.slow
async def test_models_screen_says_what_is_in_file(open_app: Any) -> None:
    async with open_app(size=(120, 40)) as driver:
        await driver.pilot.press("f6")
        await driver.expect_text("Architecture", "gpt-oss", "layers", "Chat format", "harmony")


@pytest.mark.long
async def test_models_screen_pull_runs_in_background(
    open_app: Any,
    model_hub: ModelHub,
    models_toml: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    models_toml.write_text('[m]\nrepo = "org/repo"\nfile = "m-00001-of-00002.gguf"\n')
    shutil.rmtree(home / "cache")  # the downloads would be in it
    monkeypatch.setenv("HF_ENDPOINT", model_hub.address)
    monkeypatch.setenv("HF_HUB_DOWNLOAD_TIMEOUT", "300")  # seconds; it would ask again after 10
    model_hub.hold = 15_000_000  # bytes, more than the client reads at once
    async with open_app() as driver:
        downloads = driver.app.navigator.downloads
        await driver.pilot.press("f6")
        await driver.expect_text("tiny", "runs now · default · embedded", "not downloaded")
        while driver.app.screen.highlighted_id != "m":
            await driver.pilot.press("down")
        await driver.pilot.press("enter")
        await driver.expect_text("Download m from org/repo?", "Size     48 MB", "of disk free")
        await driver.pilot.press("enter")
        await driver.expect_text("Models", gone="Download m")
        assert not model_hub.ranges, "Enter alone downloads nothing"
        await driver.pilot.press("enter")
        await driver.expect_text("Download m from org/repo?")
        await driver.pilot.press("y")
        await driver.expect_text("21 % · 10.5 of 48.0 MB")
        await driver.pilot.press("escape")
        await driver.expect_text("m 21 %", "Ask something")
        await driver.pilot.press("f6")
        while driver.app.screen.highlighted_id != "m":
            await driver.pilot.press("down")
        await driver.pilot.press("ctrl+x")
        await driver.expect_text("The download was stopped;")
        await driver.pilot.press("enter")
        await driver.expect_text("Size     48 MB, 38 MB to go")
        await driver.pilot.press("y", "escape")
        await driver.expect_text("Downloaded m; /model m switches to it.")
        assert downloads["m"].done == 48_000_000
    resumed = [r for r in model_hub.ranges if r and not r.startswith("bytes=0-")]
    assert resumed, "it went on"


async def test_models_screen_other_model_continues_conversation(
    open_app: Any, store: Store, models_toml: Path
) -> None:
    models_toml.write_text('[other]\npath = "/nowhere/other.gguf"\nformat = "qwen3"\n')
    async with open_app() as driver:
        await driver.pilot.press(*"hello", "enter")
        await driver.expect_text("Fine.")
        await driver.pilot.press(*"/model nothing", "enter")
        await driver.expect_text("There is no model nothing")
        await driver.pilot.press(*"/model other", "enter")
        await driver.expect_text("other answers now.", "reads other tokens")
        await driver.pilot.press(*"and you?", "enter")
        await driver.wait_for(lambda: sum(summary.turns for summary in store.summaries()) == 3)
        await driver.wait_for(lambda: driver.app.turn is None)
    after, before = store.summaries()
    assert (after.title, before.title) == ("hello", "hello")
    assert (after.turns, before.turns) == (2, 1)
    stored = store.load(after.id)
    assert stored.vocabulary == "other" and [e.role for e in stored.entries][:2] == [
        "user",
        "assistant",
    ]


# --- the first start ---


@pytest.mark.long
async def test_welcome_screen_imports_servers_and_shows_once(
    open_app: Any, models_toml: Path, tmp_path: Path
) -> None:
    cursor_json = tmp_path / "nothing/.cursor/mcp.json"
    cursor_json.parent.mkdir(parents=True)
    cursor_json.write_text(json.dumps({"mcpServers": {"plain": server_entry("plain")}}))
    embedded = {"engine": None}
    async with open_app(launch=embedded, size=(100, 30)) as driver:
        await driver.expect_text(
            "tiny answers here", "Continue with tiny", "Try: What is 123 * 456?"
        )
        await driver.expect_text("Download ", "of disk free", "Import MCP servers from Cursor (1)")
        await driver.pilot.press("up")
        while "Add these" not in screen_text(driver.app):
            await driver.pilot.press("enter")  # the first half second it does not count
        await driver.expect_text("plain.py", "y add them")
        await driver.pilot.press("y")
        await driver.expect_text("Added to")
        await driver.pilot.press("f7")
        await driver.expect_text("● plain", "19 tools")
    async with open_app(launch=embedded) as driver:
        await driver.wait_for(lambda: driver.app.session.runtime.loaded)
        assert "Welcome" not in screen_text(driver.app)


async def test_welcome_screen_typed_text_goes_into_prompt(open_app: Any, models_toml: Path) -> None:
    async with open_app(launch={"engine": None}) as driver:
        await driver.expect_text("Welcome")
        await driver.pilot.press("f1")
        await driver.expect_text("Keys and commands")
        await driver.pilot.press("escape")
        await driver.expect_text("Welcome")
        await driver.pilot.press(*"hello there")
        await driver.expect_text("│ hello there")
        assert driver.app.turn is None


async def test_welcome_screen_pasted_text_goes_into_prompt(
    open_app: Any, models_toml: Path
) -> None:
    async with open_app(launch={"engine": None}) as driver:
        await driver.expect_text("Welcome")
        driver.app.post_message(events.Paste("hello\nthere"))
        await driver.expect_text("│ hello", "│ there")
        assert driver.app.screen is driver.app.default_screen


async def test_welcome_screen_not_over_another_screen(
    open_app: Any, models_toml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking, opened = threading.Event(), threading.Event()

    def inspect_slowly() -> Any:
        looking.set()
        opened.wait(timeout=HANG_SECONDS)
        return inspect_machine()

    monkeypatch.setattr("agent.models.machine.inspect_machine", inspect_slowly)
    async with open_app(launch={"engine": None}) as driver:
        await driver.wait_for(looking.is_set)
        await driver.pilot.press("f1")
        await driver.expect_text("Keys and commands")
        opened.set()
        await driver.wait_for(lambda: not driver.app.chat.work.busy)
        await driver.pilot.press("escape")
        assert driver.app.screen is driver.app.default_screen


async def test_welcome_screen_not_over_what_is_typed(
    open_app: Any, models_toml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking, typed = threading.Event(), threading.Event()

    def inspect_slowly() -> Any:
        looking.set()
        typed.wait(timeout=HANG_SECONDS)
        return inspect_machine()

    monkeypatch.setattr("agent.models.machine.inspect_machine", inspect_slowly)
    async with open_app(launch={"engine": None}) as driver:
        await driver.wait_for(looking.is_set)
        await driver.pilot.press(*"2+2")
        driver.app.prompt.take_text()  # sent, but no turn yet
        assert driver.app.chat.work.busy
        typed.set()
        await driver.wait_for(lambda: not driver.app.chat.work.busy)
        assert "Welcome" not in screen_text(driver.app)
        await driver.pilot.press(*"2+2", "enter")
        await driver.wait_for(lambda: driver.app.own_turn.latest)
        assert "Welcome" not in screen_text(driver.app)


async def test_welcome_screen_first_enter_costs_nothing(open_app: Any, models_toml: Path) -> None:
    async with open_app(launch={"engine": None}) as driver:
        await driver.expect_text("Welcome")
        while "Welcome" in screen_text(driver.app):
            await driver.pilot.press("enter")  # the first half second it does not count
        assert not driver.app.navigator.downloads and driver.app.turn is None
        assert driver.app.session.runtime.model.name == "tiny"
        # The model is loaded and nothing mounts any more that could take the focus.
        await driver.app.workers.wait_for_complete()
        await driver.pilot.press("tab")
        await driver.expect_text("Try one of these", "List the files here")
        await driver.wait_for(lambda: driver.app.focused is not driver.app.prompt)
        await driver.pilot.press("down", "enter")
        await driver.expect_text("│ List the files here")
        assert driver.app.focused is driver.app.prompt and driver.app.turn is None


async def test_welcome_screen_example_goes_into_prompt(open_app: Any, models_toml: Path) -> None:
    async with open_app(launch={"engine": None}) as driver:
        await driver.expect_text("Try: What is 123 * 456?")
        await driver.pilot.press("down")
        while "Welcome" in screen_text(driver.app):
            await driver.pilot.press("enter")
        await driver.expect_text("│ What is 123 * 456?")


@pytest.mark.long
@pytest.mark.parametrize("size", [(30, 8), (40, 10)])
async def test_welcome_screen_selection_stays_in_sight(
    open_app: Any, models_toml: Path, size: tuple[int, int]
) -> None:
    async with open_app(launch={"engine": None}, size=(80, 24)) as driver:
        await driver.expect_text("Continue with tiny")
        await driver.resize(*size)
        for shown in ("What is", "Download", "See all models"):
            while shown not in screen_text(driver.app):
                await driver.pilot.press("down")
            offers = driver.app.screen.query_one(OptionList)
            row = offers._index_to_line[offers.highlighted] - offers.scroll_offset.y
            assert 0 <= row < offers.size.height


async def test_examples_go_once_a_turn_begins_and_return(open_app: Any) -> None:
    async with open_app() as driver:
        await driver.expect_text("Try one of these")
        await driver.pilot.press(*"hello", "enter")
        await driver.expect_text("Fine.", gone="Try one of these")
        await driver.pilot.press(*"/new", "enter")
        await driver.expect_text("Try one of these")


@pytest.mark.long
async def test_pull_repository_asks_and_registers(
    open_app: Any, model_hub: ModelHub, models_toml: Path, home: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", model_hub.address)
    shutil.rmtree(home / "cache")  # the downloads would be in it
    model_hub.files = {"some-Q4_K_M.gguf": b"4" * 1000, "some-Q8_0.gguf": b"8" * 2000}
    async with open_app() as driver:
        await driver.pilot.press(*"/pull org/repo", "enter")
        await driver.expect_text("Download some-Q4_K_M from org/repo?", "Speed    fast")
        await driver.pilot.press("n")
        await driver.expect_text("ready", gone="Download some")
        assert not models_toml.exists() and not model_hub.ranges
        await driver.pilot.press(*"/pull org/repo:q8_0", "enter")
        await driver.expect_text("Download some-Q8_0 from org/repo?")
        await driver.pilot.press("y")
        await driver.expect_text("Downloaded some-Q8_0; /model some-Q8_0")
    assert "[some-Q8_0]" in models_toml.read_text()


@pytest.mark.long
async def test_pull_offline_is_one_sentence(
    open_app: Any, models_toml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models_toml.write_text('[x]\nrepo = "org/repo"\nfile = "m.gguf"\n')
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    async with open_app() as driver:
        await driver.pilot.press(*"/pull x", "enter")
        await driver.expect_text("Cannot reach 127.0.0.1:9: are you online?")


async def test_pull_without_name_lists_models(open_app: Any) -> None:
    async with open_app() as driver:
        await driver.pilot.press(*"/pull", "enter")
        await driver.wait_for(lambda: isinstance(driver.app.screen, ModelsScreen))


async def test_screens_that_are_closed_show_nothing_more(open_app: Any) -> None:
    async with open_app() as driver:
        await driver.pilot.press(*"/models", "enter")
        await driver.wait_for(lambda: isinstance(driver.app.screen, ModelsScreen))
        models = driver.app.screen
        row = models._rows["tiny"]
        for widgets in (OptionList, "*"):
            await models.query(widgets).remove()
            await models._read_facts(row)
        await driver.wait_for(lambda: driver.app.session.runtime.loaded)
        await driver.pilot.press("escape", *"/context", "enter")
        await driver.wait_for(lambda: isinstance(driver.app.screen, ContextScreen))
        context = driver.app.screen
        for widgets in (".details", "*"):
            await context.query(widgets).remove()
            context.refresh_rows()
        await context._read_cached()
        await context._measure()


@pytest.mark.long
async def test_rename_and_status_show_conversation(open_app: Any, store: Store) -> None:
    async with open_app() as driver:
        await driver.pilot.press(*"/rename x", "enter")
        await driver.expect_text("There are no messages yet")
        await driver.pilot.press(*"hello", "enter")
        await driver.wait_for(
            lambda: driver.app.turn is None and driver.app.session.storage.store.summaries()
        )
        await driver.pilot.press(*"/rename Greetings", "enter")
        await driver.wait_for(lambda: [s.title for s in store.summaries()][:1] == ["Greetings"])
        await driver.pilot.press(*"/rename", "enter")
        await driver.wait_for(lambda: isinstance(driver.app.screen, TextDialog))
        await driver.pilot.press(*" again", "enter")
        await driver.wait_for(
            lambda: [s.title for s in store.summaries()][:1] == ["Greetings again"]
        )
        await driver.pilot.press(*"/status", "enter")
        await driver.expect_text("Model  ", "Context  ", "Sampling  ", "Folder  ")


async def test_status_texts_wrap_in_their_column(open_app: Any) -> None:
    system = "You answer in short sentences. " * 20
    async with open_app(size=(60, 40), launch={"system": system}) as driver:
        await driver.wait_for(lambda: driver.app.session.runtime.loaded)
        await driver.pilot.press(*"/status", "enter")
        await driver.expect_text("Status", "(/system", "MCP servers   none configured")
        rows = screen_text(driver.app).splitlines()
        start = next(n for n, row in enumerate(rows) if "Instructions" in row)
        assert rows[start].index("You") == len(rows[start + 1]) - len(rows[start + 1].lstrip())
        assert "MCP" not in rows[-1]
