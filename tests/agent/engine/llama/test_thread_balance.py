"""The number of threads follows the load of the machine."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.engine.llama.model import BatchSpan, LlamaModel
from agent.engine.llama.thread_balance import (
    LAST_WAIT,
    TRIAL_LIMIT,
    TRIAL_TOKENS,
    WINDOW_TOKENS,
    ThreadBalance,
)
from agent.engine.placement.placement import Placement, ThreadCounts

Machine = Callable[[int], float]
"""Seconds of a token with so many threads."""


def quiet(threads: int) -> float:
    return 0.02 / threads


def busy(threads: int) -> float:
    """Others hold all cores but one: who waits for two threads waits for a time slice."""
    return 0.03 if threads == 1 else 0.03 * 4 * threads


def half_busy(threads: int) -> float:
    """Others hold half of eight cores."""
    return 0.02 / threads if threads <= 4 else 0.1


class Program:
    """Generates on machines of different load."""

    def __init__(self, most: int, count: int | None = None) -> None:
        self.applied: list[int] = []
        self.balance = ThreadBalance(count or most, most, self.applied.append)
        self.now = 0.0

    def run(self, machine: Machine, seconds: float) -> float:
        """Generate for so long; the tokens a second."""
        end, tokens = self.now + seconds, 0
        while self.now < end:
            took = machine(self.balance.count)
            self.now += took
            tokens += 1
            self.balance.record(took, self.now)
        return tokens / seconds


def test_busy_machine_is_left_to_one_thread() -> None:
    program = Program(2)
    program.run(quiet, 5)
    program.run(busy, 2)
    assert program.balance.count == 1
    assert program.run(busy, 60) > 0.9 / busy(1)


def test_threads_come_back_when_the_load_has_gone() -> None:
    program = Program(2)
    program.run(quiet, 5)
    program.run(busy, 30)
    program.run(quiet, LAST_WAIT + 1)
    assert program.balance.count == 2


def test_model_that_was_loaded_on_a_busy_machine_gets_all_threads_later() -> None:
    program = Program(8, count=1)
    program.run(quiet, 60)
    assert program.balance.count == 8


@pytest.mark.parametrize("most", [2, 8, 12])
def test_quiet_machine_runs_as_before(most: int) -> None:
    program = Program(most)
    program.run(quiet, 60)
    assert program.applied == []


def test_as_many_threads_as_are_free() -> None:
    program = Program(8)
    program.run(quiet, 5)
    program.run(half_busy, 5)
    assert program.balance.count == 4
    assert program.run(half_busy, 60) > 0.95 / half_busy(4)


def test_longer_context_is_no_load() -> None:
    program = Program(4)
    tokens = 0

    def growing(threads: int) -> float:
        nonlocal tokens
        tokens += 1
        return quiet(threads) * (1 + tokens / 2000)

    program.run(growing, 100)
    assert program.applied == []


def test_more_threads_that_do_not_pay_are_tried_ever_less() -> None:
    program = Program(2, count=1)
    assert program.run(busy, 600) > 0.97 / busy(1)
    assert program.balance.count == 1


def test_batch_ends_a_trial() -> None:
    """Else a long prompt would be read with the threads of a trial."""
    program = Program(8)
    program.run(quiet, 5)
    while not program.applied:
        program.run(lambda threads: 0.1, 0.1)
    program.balance.end_trial(program.now)
    program.balance.end_trial(program.now)
    assert program.applied == [4, 8] and program.balance.count == 8
    program.run(quiet, 60)
    assert program.applied == [4, 8]


def test_model_reports_single_tokens(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[float] = []
    ended: list[float] = []
    monkeypatch.setattr(ThreadBalance, "record", lambda _, seconds, now: recorded.append(seconds))
    monkeypatch.setattr(ThreadBalance, "end_trial", lambda _, now: ended.append(now))
    model = LlamaModel(gguf, Placement(256), lambda done: True)
    try:
        model.balance_threads(ThreadCounts(1, 1), 1)
        model.decode([BatchSpan(0, [1, 2, 3], 0)])
        assert (recorded, len(ended)) == ([], 1)
        model.decode([BatchSpan(0, [4], 3)])
        assert len(recorded) == len(ended) == 1 and recorded[0] > 0
        model.decode([BatchSpan(0, [5], 4), BatchSpan(1, [5], 0)])
        assert (len(recorded), len(ended)) == (1, 2)
    finally:
        model.close()


class ImmediateTimer:
    """A timer whose time is up as soon as it starts."""

    def __init__(self, seconds: float, function: Callable[[], None]) -> None:
        self.start = function
        assert seconds == pytest.approx(TRIAL_LIMIT * TRIAL_TOKENS * 0.5)

    def cancel(self) -> None:
        pass


def test_token_of_a_trial_that_takes_too_long_is_computed_with_the_threads_before(
    gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On busy cores it may take seconds."""
    model = LlamaModel(gguf, Placement(256), lambda done: True)
    applied: list[int] = []
    balance = ThreadBalance(1, 2, applied.append)
    monkeypatch.setattr("agent.engine.llama.model.ThreadBalance", lambda *_: balance)
    monkeypatch.setattr("agent.engine.llama.model.Timer", ImmediateTimer)
    try:
        model.balance_threads(ThreadCounts(1, 1), 2)
        for second in range(WINDOW_TOKENS):
            balance.record(0.5, 100.0 * second)
        assert applied == [2] and model.decode([BatchSpan(0, [1], 0)]) == "stopped"
        assert applied == [2, 1]
        model.clear_abort()
        assert model.decode([BatchSpan(0, [1], 0)]) == "done"
    finally:
        model.close()


@pytest.mark.skipif(sys.platform != "linux", reason="GNU's OpenMP")
@pytest.mark.parametrize(("preset", "expected"), [({}, "1000"), ({"GOMP_SPINCOUNT": "77"}, "77")])
def test_threads_spin_for_each_other_only_shortly(preset: dict[str, str], expected: str) -> None:
    program = """
import os, sys
class Finder:
    def find_spec(name, path, target=None):
        if name.endswith("_ggml"):
            print(os.environ.get("GOMP_SPINCOUNT"))
sys.meta_path.insert(0, Finder)
import agent.engine.llama.bindings
child = os.popen("echo ${GOMP_SPINCOUNT-None}").read().strip()
print(os.environ.get("GOMP_SPINCOUNT"), child)
"""
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=environment | {"OMP_DISPLAY_ENV": "verbose"} | preset,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"GOMP_SPINCOUNT = '{expected}'" in ran.stderr
    # Other threads see no change, and children do not inherit it.
    assert ran.stdout.split() == [str(preset.get("GOMP_SPINCOUNT"))] * 3
