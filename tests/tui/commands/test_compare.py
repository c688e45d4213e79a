"""/compare: two answers to one prompt beside each other, one of which the conversation keeps."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.config.launch import LaunchOptions
from agent.formats.harmony import encoding
from agent.formats.harmony.format import HarmonyFormat
from agent.tiny import vocabulary as tiny
from tests.support import random_qwen_gguf
from tests.support.fake_app import screen_text, wait_until
from tests.support.fake_vllm import FakeVllm
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
            line = f"❯ {text}"
            await wait_until(pilot, lambda line=line: app.turn is None and line in screen_text(app))
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
        assert len(session.storage.store.summaries()) == 2
    await session.close()


@pytest.fixture
async def other_models(
    home: Path, tmp_path: Path, tiny_gguf: Path, model_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[None]:
    """In models.toml: ``twin`` of the same tokens, ``other`` of others, ``far`` on a server."""
    monkeypatch.setenv("AGENT_HOME", str(home))
    form = HarmonyFormat(encoding.load_encoding(tiny.ranks, model_cache / "vocabulary"))
    server = FakeVllm(form)
    await server.start()
    reply = "<|channel|>final<|message|>Far away.<|return|>"
    server.replies = [[form.encoding.encode(reply, allowed_special="all")]] * 3
    (tmp_path / "twin.gguf").symlink_to(tiny_gguf)
    random_qwen_gguf.write_model(
        tmp_path / "qwen.gguf", random_qwen_gguf.SPECIALS, random_qwen_gguf.THINKING_TEMPLATE
    )
    (home / "config").mkdir()
    (home / "config/models.toml").write_text(
        f'[twin]\npath = "{tmp_path}/twin.gguf"\n'
        f'[other]\npath = "{tmp_path}/qwen.gguf"\n'
        f'[far]\nengine = "vllm"\nurl = "{server.url}"\n'
    )
    yield
    await server.stop()


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "key", "model"),
    [("twin", "1", "tiny"), ("other", "1", "tiny"), ("far", "1", "tiny"), ("far", "2", "far"),
     ("other", "2", "other")],
)  # fmt: skip
async def test_compare_with_another_model(
    other_models: None, tmp_path: Path, restored_logging: None, name: str, key: str, model: str
) -> None:
    launch = LaunchOptions(model="tiny", tools="none", root=tmp_path, max_output_tokens=40)
    session = Session(launch)
    app = AgentApp(session)
    async with app.run_test(size=(110, 30), notifications=True) as pilot:
        await wait_until(pilot, lambda: app.session_ready and session.runtime.loaded)
        for text in ("Hello", "What is 12*34?"):
            await pilot.press(*text, "enter")
            await wait_until(pilot, lambda: app.turn is None and app.own_turn.view)
        before = session.conversation.id
        await pilot.press(*f"/compare {name}", "enter")
        await wait_until(pilot, lambda: isinstance(app.screen, CompareScreen))
        await wait_until(pilot, lambda: app.turn is None and f"2 · {name}" in screen_text(app))
        if name == "far":
            await wait_until(pilot, lambda: "Far away." in screen_text(app))
        await pilot.press(key)
        await wait_until(
            pilot, lambda: session.runtime.model.name == model and session.runtime.loaded
        )
        await wait_until(pilot, lambda: "❯ What is 12*34?" in screen_text(app))
        await wait_until(pilot, lambda: (session.conversation.id == before) is (key == "1"))
        await wait_until(pilot, lambda: len(app.transcript.own_turns) == 2)
        assert [turn.prompt for turn in app.transcript.own_turns] == ["Hello", "What is 12*34?"]
        await pilot.press(*"Bye", "enter")
        await wait_until(pilot, lambda: app.turn is None and len(app.transcript.own_turns) == 3)
        assert not [view for view in app.transcript.turns if view.status == "failed"]
    await session.close()


@pytest.mark.sampled(4)
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restored_logging: None, values: str, error: str
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
        await wait_until(pilot, lambda: app.turn is None and "❯ first" in screen_text(app))
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
