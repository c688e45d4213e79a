"""`t` on a picked message: edit what the model wrote, and let it go on."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent import events as ev
from tests.support.fake_app import ScreenDriver, screen_text
from tests.support.scripts import call, final, hold, python, thought
from tests.support.turns import write_script
from tui.screens.dialogs import EditorArea


def launch(folder: Path, *replies: str, **more: Any) -> dict[str, Any]:
    """Launch options of an app whose model gives these replies."""
    script = folder / "replies.jsonl"
    script.write_text("".join(json.dumps({"markup": reply}) + "\n" for reply in replies))
    return {"engine": f"script:{script}", "approve": "all", **more}


async def ask(driver: ScreenDriver, text: str, answer: str) -> None:
    app: Any = driver.app
    await driver.type_text(text, "enter")
    await driver.wait_for(lambda: app.turn is None and answer in screen_text(app))


async def open_editor(driver: ScreenDriver, *keys: str) -> EditorArea:
    """Press ``t`` on the latest message; ``keys``: to choose what is edited."""
    await driver.pilot.press("ctrl+up")
    await driver.expect_text("message 1 of 1")
    await driver.pilot.press("t")
    if keys:
        await driver.expect_text("Edit and continue")
        await driver.pilot.press(*keys, "enter")
    await driver.wait_for(lambda: driver.app.screen.query(EditorArea))
    return driver.app.screen.query_one(EditorArea)


async def test_edited_thought_goes_on_in_a_branch(open_app: Any, tmp_path: Path) -> None:
    replies = (
        thought("Compute it.") + python("print(6*7)"), thought("So it is 42.") + final("It is 42."),
        " or 43?<|end|><|start|>assistant" + final("Nearly 43."),
    )  # fmt: skip
    options = launch(tmp_path, *replies, tools="python")
    async with open_app(size=(100, 40), launch=options) as driver:
        app = driver.app
        await driver.wait_for(lambda: app.session.runtime.loaded)
        await ask(driver, "6*7?", "It is 42.")
        area = await open_editor(driver, "up")
        assert area.text == "So it is 42." and area.cursor_location == (0, 12)
        await driver.expect_text("Enter continues it")
        await driver.pilot.press("backspace", "enter")
        await driver.expect_text("Nearly 43.", "‹2/2›", "6*7?")
        await driver.wait_for(lambda: app.turn is None)
        view = app.transcript.own_turns[-1]
        assert [item.kind for item in view.items] == ["reasoning", "call", "reasoning", "answer"]
        assert view.items[2].final_text == "So it is 42 or 43?"
        events = app.own_turn.latest.log.events
        assert sum(isinstance(event, ev.McpCallInProgress) for event in events) == 1
        assert sum(isinstance(event, ev.AgentPrompt) for event in events) == 1, "it did not run"
        await driver.pilot.press("ctrl+up", "left")
        await driver.expect_text("‹1/2›", "It is 42.", gone="Nearly")


async def test_interrupted_answer_goes_on_where_it_was_stopped(
    open_app: Any, tmp_path: Path
) -> None:
    counting = hold(final(" ".join(map(str, range(2000)))), after=100)
    script = write_script(tmp_path / "held.jsonl", counting, {"markup": " and the end.<|return|>"})
    async with open_app(size=(80, 30), launch={"engine": f"script:{script}"}) as driver:
        app = driver.app
        await driver.wait_for(lambda: app.session.runtime.loaded)
        await driver.type_text("count", "enter")
        await driver.expect_text("3 4 5")
        await driver.pilot.press("escape")
        await driver.expect_text("Interrupted")
        await driver.wait_for(lambda: app.turn is None)
        area = await open_editor(driver)
        begun = area.text
        await driver.pilot.press("enter")
        await driver.expect_text("and the end.", "‹2/2›")
        await driver.wait_for(lambda: app.turn is None)
        assert app.transcript.own_turns[-1].items[0].final_text == f"{begun} and the end."


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("typed", "notice"),
    [
        ('{"path": 5}', "do not fit files__read: path: 5 is not of type 'string'"),
        ("{path", "do not fit files__read: they are not JSON"),
        ('{"path": 5', "do not fit files__read: path: 5 is not of type 'string'"),
        ('{"path": "a"}{}', "do not fit files__read: there is text after their end"),
        ('{"path": "a", "foo": 1}', "do not fit files__read: unknown argument: foo"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_before_anything_runs(
    open_app: Any, tmp_path: Path, typed: str, notice: str
) -> None:
    options = launch(
        tmp_path, call("files__read", path="no.txt"), final("It is not there."), root=tmp_path,
        tools="files",
    )  # fmt: skip
    async with open_app(size=(100, 40), launch=options) as driver:
        app = driver.app
        await driver.wait_for(lambda: app.session.runtime.loaded)
        await ask(driver, "read it", "It is not there.")
        conversation = app.session.conversation.id
        area = await open_editor(driver, "up")
        assert area.text == '{"path": "no.txt"}'
        area.load_text(typed)
        await driver.pilot.press("enter")
        await driver.expect_text(notice)
        await driver.wait_for(lambda: app.screen.query(EditorArea))
        assert app.screen.query_one(EditorArea).text == typed, "it can be mended"
        await driver.pilot.press("escape")
        assert app.session.conversation.id == conversation and app.turn is None


@pytest.mark.long
async def test_text_that_fills_the_context_is_a_sentence(open_app: Any, tmp_path: Path) -> None:
    options = launch(tmp_path, final("Fine."), context=2048)
    async with open_app(size=(80, 30), launch=options) as driver:
        await driver.wait_for(lambda: driver.app.session.runtime.loaded)
        await ask(driver, "go", "Fine.")
        area = await open_editor(driver)
        area.load_text("word " * 40_000)
        await driver.pilot.press("enter")
        await driver.expect_text("tokens with this text")


async def test_thought_without_a_message_is_a_sentence(open_app: Any, tmp_path: Path) -> None:
    async with open_app(launch=launch(tmp_path, final("Fine."))) as driver:
        await driver.wait_for(lambda: driver.app.session.runtime.loaded)
        await driver.pilot.press(*"/thought", "enter")
        await driver.expect_text("There are no messages yet")


async def test_thought_of_another_format_is_a_sentence(
    open_app: Any, home: Path, tmp_path: Path
) -> None:
    models = home / "config/models.toml"
    models.parent.mkdir()
    models.write_text('[other]\npath = "/nowhere/other.gguf"\nformat = "qwen3"\n')
    options = launch(tmp_path, "It is 4.<|im_end|>", model="other")
    async with open_app(size=(100, 30), launch=options) as driver:
        app = driver.app
        await driver.wait_for(lambda: app.session.runtime.loaded)
        await ask(driver, "2+2?", "It is 4.")
        await driver.pilot.press("ctrl+up")
        await driver.expect_text("message 1 of 1")
        await driver.pilot.press("t")
        await driver.expect_text("only gpt-oss's")


async def test_editor_keys_move_to_both_ends(open_app: Any, tmp_path: Path) -> None:
    async with open_app(launch=launch(tmp_path, final("Fine."))) as driver:
        await driver.wait_for(lambda: driver.app.session.runtime.loaded)
        await ask(driver, "go", "Fine.")
        area = await open_editor(driver)
        area.load_text("one two\n" * 50)
        await driver.pilot.press("ctrl+end")
        assert area.cursor_location == area.document.end
        await driver.pilot.press("ctrl+home")
        assert area.cursor_location == (0, 0)
