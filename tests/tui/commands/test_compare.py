"""/compare: two answers to one prompt beside each other, one of which the conversation keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config.launch import LaunchOptions
from tests.support.fake_app import screen_text, wait_until
from tests.tui.commands.test_branches import script_lines
from tui.app import AgentApp
from tui.screens.compare import CompareScreen, mark_differences
from tui.session import Session


@pytest.mark.parametrize(("key", "taken", "other"), [("1", "red", "green"), ("2", "green", "red")])
async def test_compare_keeps_the_answer_that_is_taken(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    restored_logging: None,
    key: str,
    taken: str,
    other: str,
) -> None:
    monkeypatch.setenv("AGENT_HOME", str(tmp_path / "home"))
    script = tmp_path / "script.jsonl"
    script.write_text(script_lines("one", "a red house", "a green house", "three"))
    session = Session(LaunchOptions(engine=f"script:{script}", tools="none", root=tmp_path))
    app = AgentApp(session)
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await wait_until(pilot, lambda: app.session_ready)
        for text in ("first", "second"):
            await pilot.press(*text, "enter")
            await wait_until(pilot, lambda: app.turn is None and app.chat.turn_view)
        await pilot.press(*"/compare effort=high temperature=0", "enter")
        await wait_until(pilot, lambda: isinstance(app.screen, CompareScreen))
        await wait_until(pilot, lambda: app.turn is None and "green" in screen_text(app))
        text = screen_text(app)
        assert "1 · as it was" in text and "2 · effort=high temperature=0" in text
        assert "a red house" in text and "a green house" in text
        assert session.options.effort == "medium", "the setting counts for one answer"
        await pilot.press(key)
        await wait_until(pilot, lambda: taken in screen_text(app) and other not in screen_text(app))
        assert "‹1/2›" in screen_text(app) if key == "1" else "‹2/2›" in screen_text(app)
        await pilot.press(*"third", "enter")
        await wait_until(pilot, lambda: app.turn is None and "three" in screen_text(app))
        assert len(session.store.summaries()) == 2
    await session.close()


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ("effort=huge", "effort= takes low, medium, high"),
        ("temperature=hot", "temperature must be a number"),
        ("warmth=3", "cannot use warmth=3"),
        ("no-such-model", "no-such-model"),
    ],
)
async def test_compare_with_wrong_values_changes_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    restored_logging: None,
    values: str,
    error: str,
) -> None:
    monkeypatch.setenv("AGENT_HOME", str(tmp_path / "home"))
    script = tmp_path / "script.jsonl"
    script.write_text(script_lines("one"))
    session = Session(LaunchOptions(engine=f"script:{script}", tools="none", root=tmp_path))
    app = AgentApp(session)
    async with app.run_test(size=(120, 30), notifications=True) as pilot:
        await wait_until(pilot, lambda: app.session_ready)
        await pilot.press(*f"/compare {values}", "enter")
        await wait_until(pilot, lambda: "There are no messages yet." in screen_text(app))
        await pilot.press(*"first", "enter")
        await wait_until(pilot, lambda: app.turn is None and "one" in screen_text(app))
        await pilot.press(*f"/compare {values}", "enter")
        await wait_until(pilot, lambda: error in screen_text(app))
        assert "❯ first" in screen_text(app) and "‹" not in screen_text(app)
    await session.close()


def test_mark_differences_marks_words() -> None:
    left, right = mark_differences("a red house.\n\n  on a hill", "a green house.\n\n  on the hill")
    assert left.plain == "a red house.\n\n  on a hill"
    assert right.plain == "a green house.\n\n  on the hill"
    assert [left.plain[s.start : s.end] for s in left.spans] == ["red", "a"]
    assert [right.plain[s.start : s.end] for s in right.spans] == ["green", "the"]


def test_mark_differences_of_long_texts_marks_nothing() -> None:
    long = "word " * 4000
    assert [len(side.spans) for side in mark_differences(long, long + "more")] == [0, 0]
