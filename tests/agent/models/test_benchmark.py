"""What the benchmark of a model says of this machine."""

import pytest

from agent.engine.placement.placement import ThreadCounts
from agent.models import benchmark


def test_benchmark_says_what_was_chosen_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "usable_cores", lambda: 20)
    monkeypatch.setattr(benchmark, "performance_cores", lambda: 6)
    monkeypatch.setattr(benchmark, "power_saving", lambda: "on battery")
    assert benchmark.describe_threads(ThreadCounts(6, 6)) == (
        "threads: 6 for prompts, 6 for answers, of 20 cores (6 performance cores), measured now:"
        " more threads did not speed it up; slowed to save power: on battery"
    )
