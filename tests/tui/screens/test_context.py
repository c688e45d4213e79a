"""`/context` on a real session: each key changes what the model reads next, and undoes it."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from agent import events as ev
from agent.conversation.prompt_choices import toggle_dropped
from agent.store.conversations import Store
from tests.support.fake_app import ScreenDriver, screen_text
from tests.support.scripts import final, hold, python
from tests.support.turns import write_script
from tui.next_prompt import NextPrompt
from tui.screens.context import ContextScreen
from tui.widgets.text_stream import TextStream

REPLIES = (
    python("print('\\n'.join(f'{n} squared is {n*n}' for n in range(200)))"),
    final("Two hundred squares."),
    final("You are welcome."),
)


def write_replies(folder: Path) -> dict[str, Any]:
    """Launch options of an app whose model gives these replies."""
    script = folder / "replies.jsonl"
    script.write_text("".join(json.dumps({"markup": reply}) + "\n" for reply in REPLIES))
    return {"engine": f"script:{script}", "tools": "python", "approve": "all"}


async def ask(driver: ScreenDriver, text: str, answer: str) -> None:
    app: Any = driver.app
    await driver.pilot.press(*text, "enter")
    await driver.wait_for(lambda: app.turn is None and answer in screen_text(app))


def last_prompt(driver: ScreenDriver) -> list[int]:
    """The ids that the latest turn's first generation has read."""
    events = driver.app.own_turn.latest.log.events  # type: ignore[union-attr]
    return next(event.ids for event in events if isinstance(event, ev.AgentPrompt))


def row_of(driver: ScreenDriver, text: str) -> str:
    return next(row for row in screen_text(driver.app).splitlines() if text in row)


@pytest.mark.long
async def test_click_and_enter_in_context_change_nothing(open_app: Any, tmp_path: Path) -> None:
    async with open_app(size=(110, 40), launch=write_replies(tmp_path)) as driver:
        app = driver.app
        await driver.wait_for(lambda: app.session.runtime.loaded)
        await ask(driver, "squares", "Two hundred squares.")
        await driver.pilot.press(*"/context", "enter")
        await driver.expect_text("1 ❯ squares", "in memory")
        rows = screen_text(app).splitlines()
        at = next(number for number, row in enumerate(rows) if "1 ❯ squares" in row)
        before = app.session.conversation.ids()
        await driver.pilot.click(offset=(10, at))
        await driver.expect_text("Press d to drop this turn, or p to pin it", gone="dropped")
        await driver.pilot.press("down", "down", "enter")
        assert app.session.conversation.ids() == before
        assert not any(entry.dropped for entry in app.session.conversation.entries)
        await driver.pilot.press("d")
        await driver.expect_text("dropped")


@pytest.mark.long
async def test_context_is_measured_beside_the_event_loop(
    open_app: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long conversation takes longer than a key may wait."""
    threads: list[threading.Thread] = []
    measure = NextPrompt.measure

    def record(prompt: NextPrompt) -> Any:
        threads.append(threading.current_thread())
        return measure(prompt)

    monkeypatch.setattr(NextPrompt, "measure", record)
    async with open_app(size=(110, 40), launch=write_replies(tmp_path)) as driver:
        await driver.wait_for(lambda: driver.app.session.runtime.loaded)
        await ask(driver, "squares", "Two hundred squares.")
        await driver.pilot.press(*"/context", "enter")
        await driver.expect_text("1 ❯ squares", "in memory")
        await driver.pilot.press("down", "down", "d")
        await driver.expect_text("dropped")
    assert len(threads) >= 2 and threading.main_thread() not in threads


@pytest.mark.long
async def test_context_changed_while_it_is_measured_is_measured_again(
    open_app: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a turn that runs."""
    measure, counts = NextPrompt.measure, []

    def change_after(prompt: NextPrompt) -> Any:
        measured = measure(prompt)
        counts.append(len(measured.parts))
        if len(counts) == 1:
            toggle_dropped(prompt.require_format(), prompt.conversation, 1)
        return measured

    async with open_app(size=(110, 40), launch=write_replies(tmp_path)) as driver:
        await driver.wait_for(lambda: driver.app.session.runtime.loaded)
        await ask(driver, "squares", "Two hundred squares.")
        monkeypatch.setattr(NextPrompt, "measure", change_after)
        await driver.pilot.press(*"/context", "enter")
        await driver.expect_text("1 ❯ squares", "dropped")


@pytest.mark.long
async def test_changes_of_context_are_what_the_model_reads(open_app: Any, tmp_path: Path) -> None:
    async with open_app(size=(110, 40), launch=write_replies(tmp_path)) as driver:
        app = driver.app
        await driver.wait_for(lambda: app.session.runtime.loaded)
        await ask(driver, "squares", "Two hundred squares.")
        await driver.pilot.press(*"/context", "enter")
        await driver.expect_text("1 ❯ squares", "in memory", "result · python")
        await driver.wait_for(lambda: isinstance(app.screen, ContextScreen))
        await driver.expect_text("left out, of")
        await driver.pilot.press(*["down"] * 5, "p")
        await driver.expect_text("pinned", gone="left out, of")
        rows = {name: row_of(driver, name) for name in ("1 ❯ squares", "result · python")}

        await driver.pilot.press("f")
        await driver.expect_text("folded, of")
        folded = app.session.conversation.ids()
        assert len(folded) < 800
        await driver.pilot.press("f")
        await driver.expect_text(rows["result · python"].strip(), gone="folded, of")
        await driver.pilot.press("f", "d")
        await driver.expect_text("dropped  pinned")
        await driver.pilot.press("d", "o")
        await driver.expect_text("pinned", "folded, of", gone="dropped")
        await driver.expect_text("This row does not show a server's tools")
        await driver.pilot.press(*["up"] * 4, "enter")
        await driver.expect_text("Press o to switch this server's tools off", gone="switched off")
        await driver.pilot.press("o")
        await driver.expect_text("switched off")
        await driver.pilot.press("escape", "f8")
        await driver.wait_for(lambda: app.live.token_view)
        stream = app.live.token_view.query_one(TextStream)
        await driver.wait_for(lambda: "tokens were cut here" in stream.text)
        shown = stream.text
        assert "code_interpreter" not in shown.partition("<|start|>user")[0]

        expected = app.session.conversation.ids()
        await ask(driver, "thanks", "You are welcome.")
        read = last_prompt(driver)
        assert read[: len(expected)] == expected, "what F8 has shown is what the model reads"
        stored = Store(app.session.runtime.paths.store).load(app.session.conversation.id)
        assert (
            stored.ids()
            == app.session.conversation.ids()[len(app.session.conversation.header_ids) :]
        )
        assert stored.entries[2].pinned and stored.entries[2].shortened_ids

        await driver.pilot.press(*"/context", "enter")
        await driver.expect_text("switched off")
        await driver.pilot.press("down", "o")
        await driver.expect_text("tools · code_interpreter", gone="switched off")


async def test_context_is_not_changed_while_a_turn_runs(open_app: Any, tmp_path: Path) -> None:
    reply = hold(final(" ".join(map(str, range(2000)))), after=100)
    script = write_script(tmp_path / "held.jsonl", reply)
    async with open_app(size=(80, 24), launch={"engine": f"script:{script}"}) as driver:
        await driver.wait_for(lambda: driver.app.session.runtime.loaded)
        await driver.pilot.press(*"go", "enter")
        await driver.expect_text("3 4 5")
        await driver.pilot.press(*"/context", "enter")
        await driver.expect_text("1 ❯ go")
        await driver.pilot.press("down", "d")
        await driver.expect_text("A turn is running")
        assert not any(entry.dropped for entry in driver.app.session.conversation.entries)
        await driver.pilot.press("escape", "escape")
        await driver.wait_for(lambda: driver.app.turn is None)


async def test_context_without_a_model_is_a_sentence(open_app: Any) -> None:
    async with open_app() as driver:
        await driver.app.workers.wait_for_complete()  # the model is loaded, and needed no more
        driver.app.session.runtime.provider.format = None
        await driver.pilot.press(*"/context", "enter")
        await driver.expect_text("can be counted once the model is loaded")
