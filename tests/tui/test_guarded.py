"""No command freezes the app, and no error of a handler ends it."""

import asyncio
import gc
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from textual.events import Key, Paste
from textual.message import Message
from textual.screen import Screen

from agent.errors import UserError
from agent.store.tree import position_of
from tests.support.fake_app import ScreenDriver
from tests.support.locked_store import locked, set_busy_timeout, store_long_conversation
from tests.support.scripts import LONG
from tests.support.turns import write_script
from tests.support.waiting import HANG_SECONDS
from tui.app import AgentApp
from tui.guarded import run_latest
from tui.session import Session
from tui.widgets.prompt import PromptInput

MAX_LAYOUTS = 50
"""How often a window is laid out at most after a change of its size."""


async def test_app_works_while_command_waits_for_a_server(
    open_app: Any, models_toml: Path, silent_server: str
) -> None:
    models_toml.write_text(f'[far]\nengine = "vllm"\nurl = "{silent_server}"\n')
    async with open_app() as driver:
        app = driver.app
        await driver.pilot.press(*"/model far", "enter")
        await driver.expect_text("loading the model")
        await driver.pilot.press(*"typed")
        assert app.prompt.text == "typed"
        await driver.pilot.press("enter")
        # It is asked when the command has ended.
        await driver.wait_for(lambda: app.queue.prompts == ["typed"])
        await driver.pilot.press("escape")
        await driver.expect_text("Stopped.")
        await driver.expect_text("Fine.", gone="loading the model")
        assert app.session.runtime.model.name != "far"


async def test_app_leaves_while_command_waits_for_a_server(
    open_app: Any, models_toml: Path, silent_server: str
) -> None:
    models_toml.write_text(f'[far]\nengine = "vllm"\nurl = "{silent_server}"\n')
    async with open_app() as driver:
        await driver.pilot.press(*"/model far", "enter")
        await driver.expect_text("loading the model")
        await driver.pilot.press("ctrl+q")
        await driver.wait_for(lambda: not driver.app.is_running)
        assert driver.app.return_code == 0


@pytest.mark.parametrize("command", ["/effort", "/sessions", "/models", "/rename", "/help"])
async def test_screen_is_closed_once(open_app: Any, command: str) -> None:
    async with open_app() as driver:
        await driver.pilot.press(*"hello", "enter")
        await driver.expect_text("Fine.")
        await driver.pilot.press(*command, "enter")
        await driver.wait_for(lambda: len(driver.app.screen_stack) == 2)
        screen = driver.app.screen
        screen.dismiss(None)
        screen.dismiss(None)
        await driver.pilot.press("escape", "escape")
        assert driver.app.screen is driver.app.default_screen and driver.app.is_running


async def test_dialog_stays_when_the_screen_below_is_to_close(open_app: Any) -> None:
    async with open_app() as driver:
        await driver.pilot.press(*"hello", "enter")
        await driver.expect_text("Fine.")
        await driver.pilot.press(*"/sessions", "enter")
        await driver.wait_for(lambda: len(driver.app.screen_stack) == 2)
        below = driver.app.screen
        await driver.pilot.press("ctrl+r")
        await driver.wait_for(lambda: len(driver.app.screen_stack) == 3)
        below.dismiss(None)
        await driver.pilot.press(*"x")
        assert len(driver.app.screen_stack) == 3
        await driver.pilot.press("escape", "escape")
        assert driver.app.screen is driver.app.default_screen and driver.app.is_running


class Failing(Message):
    """Its handler raises ``error``."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


async def fail(driver: ScreenDriver, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Have a handler of the prompt raise an error, then type a letter."""

    def on_failing(self: PromptInput, message: Failing) -> None:
        raise message.error

    monkeypatch.setattr(PromptInput, "on_failing", on_failing, raising=False)
    driver.app.prompt.post_message(Failing(error))
    await driver.pilot.pause()
    await driver.pilot.press("x")


async def test_expected_error_of_handler_is_a_notice(
    open_app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_app() as driver:
        await fail(driver, monkeypatch, OSError(40, "Too many levels of symbolic links", "/x"))
        await driver.expect_text("/x: Too many levels of symbolic")
        assert driver.app.prompt.text == "x"


async def test_error_of_the_app_itself_is_logged_and_the_app_goes_on(
    open_app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[object] = []
    monkeypatch.setattr(AgentApp, "max_errors", 1)
    monkeypatch.setattr("tui.app.log.error", lambda _, exc_info: logged.append(exc_info))
    async with open_app() as driver:
        await fail(driver, monkeypatch, KeyError("nothing"))
        await driver.expect_text("Something went wrong inside the app")
        assert driver.app.prompt.text == "x"
        assert [repr(error) for error in logged] == ["KeyError('nothing')"]


async def test_app_that_breaks_saves_the_draft(
    open_app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyError):
        async with open_app() as driver:
            await driver.pilot.press(*"my draft")
            history = driver.app.prompt.prompt_history
            await fail(driver, monkeypatch, KeyError("nothing"))
    assert history.go(-1, "") == "my draft"


@pytest.mark.long
async def test_files_are_completed_beside_links_that_lead_nowhere(
    open_app: Any, tmp_path: Path
) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (root / "loop").symlink_to("loop")
    (root / "notes.txt").write_text("x")
    async with open_app(size=(200, 30), launch={"root": root}) as driver:
        await driver.pilot.press(*"see @")
        await driver.expect_text("notes.txt")
        await driver.pilot.press("escape")
        driver.app.prompt.replace_with("")
        await driver.pilot.press(*f"@{root}/")
        await driver.expect_text("notes.txt")


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("/export md ~nouser/x.md", "cannot be used"),
        (f"/export md {'a' * 300}.md", "cannot be used"),
        ("/model ~nouser/x.gguf", "nouser"),
        ("/system @~nouser/x", "nouser"),
    ],
)
async def test_paths_that_cannot_be_are_a_sentence(open_app: Any, line: str, sentence: str) -> None:
    async with open_app(size=(120, 30)) as driver:
        await driver.pilot.press(*"hello", "enter")
        await driver.expect_text("Fine.")
        driver.app.prompt.replace_with(line)
        await driver.pilot.press("enter")
        await driver.expect_text(sentence)
        await driver.pilot.press("x")
        assert driver.app.prompt.text == "x"


async def test_editor_that_is_no_command_is_a_sentence(
    open_app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISUAL", "vim '")
    async with open_app() as driver:
        await driver.pilot.press(*"draft")
        await driver.app.run_action("screen.edit_outside")  # Ctrl-G, but not within a burst of keys
        await driver.expect_text("EDITOR is not a command")
        assert driver.app.prompt.text == "draft"


async def test_completion_that_fails_lets_the_person_type(open_app: Any, models_toml: Path) -> None:
    async with open_app() as driver:
        models_toml.write_text("[")
        await driver.pilot.press(*"/model tiny")
        assert driver.app.prompt.text == "/model tiny"


async def test_app_leaves_while_the_model_loads(
    open_app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads, leaving = asyncio.Event(), asyncio.Event()

    async def load(self: Session, progress: Any) -> None:
        loads.set()
        await leaving.wait()

    monkeypatch.setattr(Session, "load", load)
    async with open_app() as driver:
        await loads.wait()
        await driver.expect_text("loading the model")
        await driver.pilot.press("ctrl+q")
        await driver.wait_for(lambda: not driver.app.is_running)
        leaving.set()
    assert driver.app.return_code == 0


async def test_app_works_while_another_program_writes_to_the_store(
    open_app: Any, home: Path
) -> None:
    async with open_app() as driver:
        app, store = driver.app, driver.app.session.storage.store
        await set_busy_timeout(store, HANG_SECONDS)
        with locked(home / "state/store.sqlite") as other:
            await driver.pilot.press(*"hello", "enter")
            await driver.expect_text("Fine.")
            await driver.pilot.press(*"typed")
            assert app.prompt.text == "typed"
            assert app.turn is not None, "it ends once it is stored"
            other.execute("rollback")
            await driver.wait_for(lambda: app.turn is None)
            (stored,) = await app.session.storage.turns(app.session.conversation.id)
            assert stored.response.status == "completed" and stored.record.tokens
            other.execute("begin immediate")
            app.prompt.replace_with("/rename other")
            await driver.pilot.press("enter", *"more")
            assert app.prompt.text == "more"
            other.execute("rollback")
            await driver.expect_text("Title: other")
        (summary,) = store.summaries()
        assert summary.title == "other" and app.session.storage.error is None


@pytest.mark.parametrize("command", ["f5", "/sessions"])
async def test_keys_while_a_screen_opens_are_for_it(open_app: Any, command: str) -> None:
    async with open_app() as driver:
        app, press = driver.app, driver.pilot.press
        app.prompt.insert("" if command == "f5" else command)
        busy = threading.Event()
        reading = asyncio.create_task(app.session.storage.store.run(busy.wait))
        await press("f5" if command == "f5" else "enter", *"abc")
        app.post_message(Paste("def"))
        await press("g")
        assert app.prompt.text == ""
        busy.set()
        await reading
        await driver.wait_for(lambda: app.screen is not app.default_screen)
        await driver.wait_for(lambda: app.screen.search_text == "abcdefg")


async def test_escape_while_a_screen_opens_cancels_that_only(open_app: Any, tmp_path: Path) -> None:
    engine = f"script:{write_script(tmp_path / 'long.jsonl', LONG)}"
    async with open_app(launch={"engine": engine}) as driver:
        app, press = driver.app, driver.pilot.press
        await press(*"go", "enter")
        await driver.expect_text("word word")
        busy = threading.Event()
        reading = asyncio.create_task(app.session.storage.store.run(busy.wait))
        await press("f5", "a", "escape")
        await driver.wait_for(lambda: app.prompt.text == "a")
        await press("b")
        busy.set()
        await reading
        assert app.screen is app.default_screen and app.turn is not None
        assert app.prompt.text == "ab"


@pytest.mark.slow
async def test_app_works_while_a_long_conversation_is_deleted(open_app: Any, home: Path) -> None:
    path = home / "state/store.sqlite"
    path.parent.mkdir(exist_ok=True)
    name = store_long_conversation(path)
    async with open_app() as driver:
        with closing(sqlite3.connect(path)) as other:

            def is_stored() -> bool:
                query = "select 1 from conversations where id = ?"
                return bool(other.execute(query, (name,)).fetchall())

            await driver.pilot.press("f5")
            await driver.expect_text("Conversations", "Long")
            await driver.pilot.press("ctrl+d")
            await driver.expect_text("Delete “Long” (1 turn) for good?")
            driver.app.post_message(Key("y", "y"))
            turns = 0
            while is_stored():
                await asyncio.sleep(0)
                turns += 1
            assert turns > 1000, "the event loop went on"
            await driver.expect_text("No conversations yet.")
        assert driver.app.session.storage.error is None


async def test_turn_ends_if_another_program_writes_to_the_store_for_too_long(
    open_app: Any, home: Path
) -> None:
    async with open_app() as driver:
        app, store = driver.app, driver.app.session.storage.store
        await set_busy_timeout(store, 0)
        with locked(home / "state/store.sqlite"):
            await driver.pilot.press(*"hello", "enter")
            await driver.expect_text("Fine.", "could not be stored: database is locked.")
        await driver.pilot.press(*"again", "enter")
        await driver.wait_for(lambda: app.turn is None and store.summaries())
        roles = [entry.role for entry in store.load(store.summaries()[0].id).entries]
        assert roles == ["user", "assistant", "user", "assistant"], "the next turn writes all"


async def test_turn_says_that_the_store_is_gone(open_app: Any, home: Path) -> None:
    async with open_app() as driver:
        (home / "state/store.sqlite").unlink()
        await driver.pilot.press(*"hello", "enter")
        await driver.expect_text("Fine.", "could not be stored:", "Start the app again")


async def test_app_whose_folder_is_gone_still_works(open_app: Any, tmp_path: Path) -> None:
    (root := tmp_path / "gone").mkdir()
    async with open_app(launch={"root": root}) as driver:
        await driver.pilot.press(*"hello", "enter")
        await driver.expect_text("Fine.")
        root.rmdir()
        driver.app.prompt.replace_with("/status")
        await driver.pilot.press("enter")
        await driver.expect_text("Folder")
        driver.app.prompt.replace_with(f"/export {tmp_path}/x.md")
        await driver.pilot.press("enter")
        await driver.wait_for((tmp_path / "x.md").exists)


async def test_prompt_too_long_for_the_context_goes_back(open_app: Any) -> None:
    async with open_app(launch={"context": 512}) as driver:
        prompt, text = driver.app.prompt, "many words " * 500
        await driver.pilot.press(*"hello", "enter")
        await driver.expect_text("Fine.")
        await driver.wait_for(lambda: driver.app.turn is None)
        prompt.replace_with(text)
        await driver.pilot.press("enter")
        await driver.wait_for(lambda: prompt.full_text == text)
        assert driver.app.turn is None


async def test_conversation_that_another_program_continued_is_a_branch(
    open_app: Any, home: Path
) -> None:
    async with open_app() as driver:
        await driver.pilot.press(*"hello", "enter")
        await driver.wait_for(lambda: driver.app.turn is None and driver.app.own_turn.latest)
        before = driver.app.session.conversation.id
        with closing(sqlite3.connect(home / "state/store.sqlite")) as other, other:
            other.execute("update conversations set revision = revision + 1")
        await driver.pilot.press(*"again", "enter")
        await driver.expect_text("Another program has continued this conversation")
        assert position_of(driver.app.session.conversation).parent == before


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "size"), [("/context", (3, 2)), ("/sessions", (3, 30)), ("/times", (3, 30))]
)
async def test_window_of_few_columns_comes_to_rest(
    open_app: Any, command: str, size: tuple[int, int]
) -> None:
    async with open_app() as driver:
        await driver.type_text("hello", "enter")
        await driver.wait_for(lambda: driver.app.turn is None)
        await driver.type_text(command, "enter")
        lay_out = Screen._refresh_layout
        with patch.object(Screen, "_refresh_layout", autospec=True, side_effect=lay_out) as layouts:
            await driver.pilot.resize_terminal(*size)
        assert layouts.call_count < MAX_LAYOUTS, "its scroll bars come and go"


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("written", "source"),
    [
        ("/model ", "agent.models.listing.list_models"),
        ("/pull ", "agent.models.listing.list_models"),
        ("/resume ", "agent.store.lookup.recent_titles"),
        ("see @", "tui.util.file_index._walk"),
        ("see @~/", "tui.util.file_index._list_folder"),
    ],
)
async def test_app_works_while_a_completion_is_read(
    open_app: Any, models_toml: Path, tmp_path: Path, written: str, source: str
) -> None:
    released, calls = threading.Event(), []

    def block(*arguments: object) -> list[Any]:
        calls.append(arguments)
        released.wait(HANG_SECONDS)
        return []

    try:
        with patch(source, block):
            async with open_app(launch={"root": tmp_path}) as driver:
                await driver.pilot.press(*written, *"abc")
                await driver.wait_for(lambda: calls)
                assert driver.app.prompt.text == f"{written}abc"
                await driver.pilot.press("escape", "ctrl+q")
                await driver.wait_for(lambda: not driver.app.is_running)
                assert not released.is_set() and len(calls) == len(set(calls)), "each once"
    finally:
        released.set()


async def test_completion_shows_what_was_read_later(open_app: Any, models_toml: Path) -> None:
    models_toml.write_text('[far]\nengine = "vllm"\nurl = "http://127.0.0.1:9"\n')
    async with open_app() as driver:
        await driver.pilot.press(*"/model fa")
        await driver.wait_for(lambda: driver.app.prompt.completion_menu.is_open)
        await driver.pilot.press("tab")
        assert driver.app.prompt.text == "/model far"


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "source"),
    [
        ("/new", "agent.bootstrap.project_instructions"),
        ("/export md", "agent.util.private_files.write_text"),
        ("/system @notes", "agent.bootstrap.read_text_option"),
    ],
)
async def test_app_works_while_a_folder_does_not_answer(
    open_app: Any, command: str, source: str
) -> None:
    released, called = threading.Event(), threading.Event()

    def block(*_: object) -> None:
        called.set()
        released.wait(HANG_SECONDS)
        raise UserError("It answers too late.")

    try:
        async with open_app() as driver:
            await driver.type_text("hello", "enter")
            await driver.wait_for(lambda: driver.app.turn is None)
            with patch(source, block):
                await driver.type_text(command, "enter")
                await driver.wait_for(called.is_set)
                await driver.pilot.press("a")
                assert driver.app.prompt.text == "a"
                await driver.pilot.press("escape")
                await driver.expect_text("Stopped.")
                await driver.pilot.press("ctrl+q")
                await driver.wait_for(lambda: not driver.app.is_running)
    finally:
        released.set()


async def test_run_latest_awaits_what_it_starts(
    open_app: Any, recwarn: pytest.WarningsRecorder
) -> None:
    done: list[int] = []

    async def work(number: int) -> None:
        done.append(number)

    async with open_app() as driver:
        for number in range(5):
            run_latest(driver.app, "numbers", work, number)
        await driver.wait_for(lambda: done)
        gc.collect()
    assert done == [4] and not [
        str(w.message) for w in recwarn if "never awaited" in str(w.message)
    ]
