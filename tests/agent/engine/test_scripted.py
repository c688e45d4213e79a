"""The scripted engine says what its file says, and behaves like an engine otherwise."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.engine.protocol import ContextOverflow, EngineError, Prefill, Request, Tokens
from agent.engine.scripted import ScriptEngine
from tests.support.engines import read

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "script.jsonl"


async def load(
    path: Path, encoding: HarmonyEncoding, *lines: Any, context: int | None = None
) -> ScriptEngine:
    path.write_text("\n\n".join(json.dumps(line) for line in lines))
    engine = ScriptEngine(path, encoding, context=context)
    await engine.load()
    return engine


async def test_lines_come_in_turn_and_again(path: Path, encoding: HarmonyEncoding) -> None:
    engine = await load(path, encoding, {"tokens": [1, 2]}, {"tokens": [3]})
    said = [await read(engine.generate(Request([9]))) for _ in range(3)]
    assert [got.ids for got in said] == [[1, 2], [3], [1, 2]]
    assert {got.finished.reason for got in said} == {"stop"}


async def test_laying_a_prompt_ahead_says_nothing(path: Path, encoding: HarmonyEncoding) -> None:
    engine = await load(path, encoding, {"tokens": [1, 2]})
    laid = await read(engine.generate(Request([7, 8], max_tokens=0)))
    said = await read(engine.generate(Request([7, 8, 9])))
    assert laid.ids == [] and said.ids == [1, 2] and said.finished.cached_tokens == 2


async def test_special_tokens_are_spelled(path: Path, encoding: HarmonyEncoding) -> None:
    engine = await load(path, encoding, {"markup": "<|channel|>final<|message|>hi<|return|>"})
    got = await read(engine.generate(Request([9], stop=frozenset({200002}))))
    assert got.ids == [200005, 17196, 200008, 3686, 200002]


async def test_what_was_seen_counts_as_cached(path: Path, encoding: HarmonyEncoding) -> None:
    engine = await load(path, encoding, {"tokens": [4, 5]})
    await read(engine.generate(Request([1, 2, 3])))
    got = await read(engine.generate(Request([1, 2, 3, 4, 5, 6, 7])))
    assert got.prefills == [Prefill(5, 7, 5), Prefill(7, 7, 5)]
    again = await read(engine.generate(Request([1, 2])))
    assert again.finished.cached_tokens == 1


async def test_limits_end_it(path: Path, encoding: HarmonyEncoding) -> None:
    engine = await load(path, encoding, {"tokens": [1, 2, 3, 4, 5]}, context=10)
    stopped = await read(engine.generate(Request([9], stop=frozenset({3}))))
    assert (stopped.ids, stopped.finished.reason) == ([1, 2, 3], "stop")
    cut = await read(engine.generate(Request([9], max_tokens=2)))
    assert (cut.ids, cut.finished.reason) == ([1, 2], "length")
    full = await read(engine.generate(Request([9] * 7)))
    assert (full.ids, full.finished.reason) == ([1, 2, 3], "context")
    with pytest.raises(ContextOverflow):
        engine.generate(Request([9] * 10))
    with pytest.raises(EngineError, match="empty"):
        engine.generate(Request([]))


async def test_cancelled_during_a_delay(path: Path, encoding: HarmonyEncoding) -> None:
    engine = await load(path, encoding, {"tokens": [1, 2], "delay_ms": 600_000})
    generation = engine.generate(Request([9]))
    got = await read(generation, lambda item: generation.cancel())
    assert (got.ids, got.finished.reason) == ([], "cancelled")


async def test_cancelled_from_a_thread_between_tokens(
    path: Path, encoding: HarmonyEncoding
) -> None:
    engine = await load(path, encoding, {"tokens": [1] * 100_000})
    generation = engine.generate(Request([9]))
    loop = asyncio.get_running_loop()

    def cancel(item: object) -> None:
        if isinstance(item, Tokens):
            loop.run_in_executor(None, generation.cancel)

    got = await read(generation, cancel)
    assert got.finished.reason == "cancelled" and len(got.ids) < 100_000


async def test_delays_are_waited_for(path: Path, encoding: HarmonyEncoding) -> None:
    engine = await load(path, encoding, {"tokens": [1, 2, 3], "delay_ms": 10})
    got = await read(engine.generate(Request([9])))
    assert got.ids == [1, 2, 3] and got.finished.decode_seconds >= 0.03


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
        ('\n\n{"tokens":[-1]}', "Line 3 .*neither"),
    ],
)
async def test_a_bad_script(path: Path, encoding: HarmonyEncoding, text: str, reason: str) -> None:
    path.write_text(text)
    with pytest.raises(EngineError, match=reason):
        await ScriptEngine(path, encoding).load()


async def test_no_script(path: Path, encoding: HarmonyEncoding) -> None:
    with pytest.raises(EngineError, match="cannot be read"):
        await ScriptEngine(path, encoding).load()
    path.write_bytes(b"\xff")
    with pytest.raises(EngineError, match="UTF-8"):
        await ScriptEngine(path, encoding).load()
