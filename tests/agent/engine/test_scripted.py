"""The scripted engine generates what its file has, and otherwise behaves like an engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.engine.protocol import (
    ContextOverflowError,
    EngineError,
    Finished,
    Prefill,
    Request,
    Tokens,
)
from agent.engine.scripted import HOLD_POLL_SECONDS, ScriptEngine
from agent.formats.harmony.format import HarmonyFormat
from tests.support.engines import read_generation

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "script.jsonl"


async def load_script(
    path: Path, encoding: HarmonyEncoding, *lines: Any, context: int | None = None
) -> ScriptEngine:
    path.write_text("\n\n".join(json.dumps(line) for line in lines))
    engine = ScriptEngine(path, HarmonyFormat(encoding).encode_markup, context=context)
    await engine.load()
    return engine


async def test_generate_uses_lines_in_turn_and_repeats(
    path: Path, encoding: HarmonyEncoding
) -> None:
    engine = await load_script(path, encoding, {"tokens": [1, 2]}, {"tokens": [3]})
    results = [await read_generation(engine.generate(Request([9]))) for _ in range(3)]
    assert [result.ids for result in results] == [[1, 2], [3], [1, 2]]
    assert {result.finished.reason for result in results} == {"stop"}


async def test_generate_max_tokens_0_uses_up_no_line(path: Path, encoding: HarmonyEncoding) -> None:
    engine = await load_script(path, encoding, {"tokens": [1, 2]})
    prefilled = await read_generation(engine.generate(Request([7, 8], max_tokens=0)))
    answered = await read_generation(engine.generate(Request([7, 8, 9])))
    assert prefilled.ids == [] and answered.ids == [1, 2] and answered.finished.cached_tokens == 2


async def test_generate_markup_has_special_tokens(path: Path, encoding: HarmonyEncoding) -> None:
    engine = await load_script(
        path, encoding, {"markup": "<|channel|>final<|message|>hi<|return|>"}
    )
    result = await read_generation(engine.generate(Request([9], stop_ids=frozenset({200002}))))
    assert result.ids == [200005, 17196, 200008, 3686, 200002]


async def test_generate_reports_the_shared_prefix_as_cached(
    path: Path, encoding: HarmonyEncoding
) -> None:
    engine = await load_script(path, encoding, {"tokens": [4, 5]})
    await read_generation(engine.generate(Request([1, 2, 3])))
    result = await read_generation(engine.generate(Request([1, 2, 3, 4, 5, 6, 7])))
    assert result.prefills == [Prefill(5, 7, 5), Prefill(7, 7, 5)]
    again = await read_generation(engine.generate(Request([1, 2])))
    assert again.finished.cached_tokens == 1


async def test_generate_ends_at_its_limits(path: Path, encoding: HarmonyEncoding) -> None:
    engine = await load_script(path, encoding, {"tokens": [1, 2, 3, 4, 5]}, context=10)
    stopped = await read_generation(engine.generate(Request([9], stop_ids=frozenset({3}))))
    assert (stopped.ids, stopped.finished.reason) == ([1, 2, 3], "stop")
    cut = await read_generation(engine.generate(Request([9], max_tokens=2)))
    assert (cut.ids, cut.finished.reason) == ([1, 2], "length")
    full = await read_generation(engine.generate(Request([9] * 7)))
    assert (full.ids, full.finished.reason) == ([1, 2, 3], "context")
    with pytest.raises(ContextOverflowError):
        engine.generate(Request([9] * 10))
    with pytest.raises(EngineError, match="empty"):
        engine.generate(Request([]))


async def test_cancel_during_a_delay(path: Path, encoding: HarmonyEncoding) -> None:
    engine = await load_script(path, encoding, {"tokens": [1, 2], "delay_ms": 600_000})
    generation = engine.generate(Request([9]))
    result = await read_generation(generation, lambda item: generation.cancel())
    assert (result.ids, result.finished.reason) == ([], "cancelled")


async def test_cancel_from_a_thread_between_tokens(path: Path, encoding: HarmonyEncoding) -> None:
    engine = await load_script(path, encoding, {"tokens": [1] * 100_000})
    generation = engine.generate(Request([9]))
    loop = asyncio.get_running_loop()

    def cancel(item: object) -> None:
        if isinstance(item, Tokens):
            loop.run_in_executor(None, generation.cancel)

    result = await read_generation(generation, cancel)
    assert result.finished.reason == "cancelled" and len(result.ids) < 100_000


async def test_generate_waits_for_delays(path: Path, encoding: HarmonyEncoding) -> None:
    engine = await load_script(path, encoding, {"tokens": [1, 2, 3], "delay_ms": 10})
    result = await read_generation(engine.generate(Request([9])))
    assert result.ids == [1, 2, 3] and result.finished.decode_seconds >= 0.03


async def read_until_hold(stream: AsyncIterator[object], ids: list[int]) -> asyncio.Task[object]:
    """Read these tokens, and see that nothing follows them; the reading of what does follow."""
    written: list[int] = []
    while written != ids:
        if isinstance(item := await anext(stream), Tokens):
            written += item.ids
    following = asyncio.ensure_future(anext(stream))
    done, _ = await asyncio.wait({following}, timeout=10 * HOLD_POLL_SECONDS)
    assert not done
    return following


async def test_hold_ends_when_its_file_is_there(
    path: Path, tmp_path: Path, encoding: HarmonyEncoding
) -> None:
    go = tmp_path / "go"
    hold = {"after": 2, "until": str(go)}
    engine = await load_script(path, encoding, {"tokens": [1, 2, 3, 4], "hold": hold})
    stream = aiter(engine.generate(Request([9])))
    following = await read_until_hold(stream, [1, 2])
    go.touch()
    assert await following == Tokens([3])
    assert await anext(stream) == Tokens([4])
    finished = await anext(stream)
    assert isinstance(finished, Finished) and finished.reason == "stop"
    again = await read_generation(engine.generate(Request([9])))
    assert again.ids == [1, 2, 3, 4], "what is released stays so"


@pytest.mark.parametrize("until", [{}, {"until": "/nonexistent/go"}])
@pytest.mark.parametrize("after", [0, 2])
async def test_hold_that_nothing_releases_ends_with_a_cancel(
    path: Path, encoding: HarmonyEncoding, after: int, until: dict[str, str]
) -> None:
    line = {"tokens": [1, 2, 3], "hold": {"after": after, **until}}
    generation = (await load_script(path, encoding, line)).generate(Request([9]))
    stream = aiter(generation)
    for _ in range(2):
        assert isinstance(await anext(stream), Prefill)
    following = await read_until_hold(stream, [1, 2, 3][:after])
    generation.cancel()
    finished = await following
    assert isinstance(finished, Finished)
    assert (finished.reason, finished.output_tokens) == ("cancelled", after)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_hold_behind_the_last_token_or_a_limit_is_not_reached(
    path: Path, encoding: HarmonyEncoding
) -> None:
    engine = await load_script(path, encoding, {"tokens": [1, 2, 3], "hold": {"after": 3}})
    result = await read_generation(engine.generate(Request([9])))
    assert (result.ids, result.finished.reason) == ([1, 2, 3], "stop")
    engine = await load_script(path, encoding, {"tokens": [1, 2, 3], "hold": {"after": 2}})
    result = await read_generation(engine.generate(Request([9], max_tokens=2)))
    assert (result.ids, result.finished.reason) == ([1, 2], "length")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has no lines"),
        ('{"tokens":[1]}\n{', "Line 2 .*not JSON"),
        ("[1]", "Line 1 .*neither"),
        ('{"markup":3}', "Line 1 .*neither"),
        ('{"tokens":[true]}', "Line 1 .*neither"),
        ('{"tokens":[1],"delay_ms":"x"}', "Line 1 .*delay_ms"),
        ('{"tokens":[1],"delay":3}', "Line 1 .*'delay' is not a field"),
        ('{"tokens":[1],"hold":3}', 'Line 1 .*"hold" is not'),
        ('{"tokens":[1],"hold":{}}', 'Line 1 .*"hold" is not'),
        ('{"tokens":[1],"hold":{"after":-1}}', 'Line 1 .*"hold" is not'),
        ('{"tokens":[1],"hold":{"after":"1"}}', 'Line 1 .*"hold" is not'),
        ('{"tokens":[1],"hold":{"until":"/go"}}', 'Line 1 .*"hold" is not'),
        ('{"tokens":[1],"hold":{"after":1,"until":2}}', 'Line 1 .*"hold" is not'),
        ('{"tokens":[1],"hold":{"after":1,"for":2}}', 'Line 1 .*"hold" is not'),
        ('\n\n{"tokens":[-1]}', "Line 3 .*neither"),
    ],
)
async def test_load_invalid_script_raises(
    path: Path, encoding: HarmonyEncoding, text: str, reason: str
) -> None:
    path.write_text(text)
    with pytest.raises(EngineError, match=reason):
        await ScriptEngine(path, HarmonyFormat(encoding).encode_markup).load()


async def test_load_unreadable_script_raises(path: Path, encoding: HarmonyEncoding) -> None:
    with pytest.raises(EngineError, match="cannot be read"):
        await ScriptEngine(path, HarmonyFormat(encoding).encode_markup).load()
    path.write_bytes(b"\xff")
    with pytest.raises(EngineError, match="UTF-8"):
        await ScriptEngine(path, HarmonyFormat(encoding).encode_markup).load()
