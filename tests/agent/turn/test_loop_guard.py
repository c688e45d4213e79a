"""A generation that repeats itself ends; text that merely repeats words goes on."""

import random
from pathlib import Path

import pytest

from agent.engine.json_bounds import find_period
from agent.engine.protocol import LoopLimits
from agent.turn.decoder import is_code_or_table
from agent.turn.options import AnswerForm, TurnOptions
from tests.support.invariants import check
from tests.support.runtimes import MakeRuntime
from tests.support.scripts import call, final, python, thought
from tests.support.turns import FINAL, run_turn, write_script

LIMITS = LoopLimits()
GUARDED = TurnOptions(loop_limits=LIMITS)
LOOP = "I try it once more and it fails again. " * 400
TABLE = "| a | b |\n|---|---|\n" + "| 0 | 0 |\n" * 60


@pytest.mark.parametrize(("period", "periods"), [(1, 256), (7, 40), (50, 6), (200, 6)])
def test_find_period_exact_repetition_returns_it(period: int, periods: int) -> None:
    rng = random.Random(period)
    unit = [rng.randrange(200_000) for _ in range(period)]
    before = [rng.randrange(200_000) for _ in range(100)]
    assert find_period([*before, *unit * periods], LIMITS, LIMITS.min_tokens) == period


@pytest.mark.parametrize(
    "ids",
    [
        [],
        [1] * 255,
        list(range(1000)),
        list(range(201)) * 6,  # a period too long
        list(range(100)) * 5,  # five periods
        [*[1, 2, 3] * 200, 4],  # it has ended
        [n if n % 97 else 0 for n in range(600)],
    ],
)
def test_find_period_text_that_goes_on_is_none(ids: list[int]) -> None:
    assert find_period(ids, LIMITS, LIMITS.min_tokens) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", False), ("", False), ("```py\nx = 1\n", True), ("```\nx\n```\nend", False),
        ("a\n| 1 | 2 |", True), ("| 1 |\n| 2 |\n", True), ("| 1 |\n\nend", False),
    ],
)  # fmt: skip
def test_is_code_or_table_end_decides(text: str, expected: bool) -> None:
    assert is_code_or_table(text) == expected


@pytest.mark.parametrize(
    "markup",
    [
        thought(LOOP) + final("x"),
        final(LOOP),
        python("x = 1\n" * 999),
        call("container.exec", cmd=LOOP),
    ],
    ids=["reasoning", "answer", "code", "call"],
)
async def test_turn_that_loops_is_incomplete_with_notice(
    make_runtime: MakeRuntime, tmp_path: Path, markup: str
) -> None:
    runtime = await make_runtime(write_script(tmp_path / "s.jsonl", {"markup": markup}))
    events = await run_turn(runtime, GUARDED)
    response = check(events)
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["usage"]["output_tokens"] < 1400
    (notice,) = [event for event in events if event["type"] == "agent.notice"]
    assert "repeated itself" in notice["message"]


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [
        TurnOptions(),
        TurnOptions(loop_limits=LoopLimits(min_tokens=100_000)),
        TurnOptions(loop_limits=LIMITS, answer_form=AnswerForm({"type": "string"})),
    ],
)
async def test_turn_that_may_repeat_is_complete(
    make_runtime: MakeRuntime, tmp_path: Path, options: TurnOptions
) -> None:
    text = f'"{LOOP}"' if options.answer_form else LOOP
    runtime = await make_runtime(write_script(tmp_path / "s.jsonl", {"markup": final(text)}))
    assert check(await run_turn(runtime, options))["status"] == "completed"


@pytest.mark.parametrize(
    "markup", [final('{"a":"' + "word " * 600 + '"}'), python("y = 2\n" * 250)]
)
async def test_turn_with_overlong_json_or_code_is_incomplete(
    make_runtime: MakeRuntime, tmp_path: Path, markup: str
) -> None:
    """Where no grammar could close it."""
    form = AnswerForm({"type": "object"}) if "word" in markup else None
    limits = LoopLimits(min_code_tokens=100_000, max_json_tokens=100)
    runtime = await make_runtime(write_script(tmp_path / "s.jsonl", {"markup": markup}))
    events = await run_turn(runtime, TurnOptions(loop_limits=limits, answer_form=form))
    assert check(events)["status"] == "incomplete"


async def test_turn_with_table_goes_on_for_longer(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    runtime = await make_runtime(write_script(tmp_path / "s.jsonl", {"markup": final(TABLE)}))
    assert check(await run_turn(runtime, GUARDED))["status"] == "completed"


async def test_turn_that_looped_can_be_continued(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    script = write_script(tmp_path / "s.jsonl", {"markup": final(LOOP)}, {"markup": FINAL})
    runtime = await make_runtime(script)
    assert check(await run_turn(runtime, GUARDED))["status"] == "incomplete"
    assert check(await run_turn(runtime, GUARDED))["status"] == "completed"
