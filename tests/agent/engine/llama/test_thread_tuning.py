"""Which numbers of threads are measured, and which is taken."""

from types import SimpleNamespace
from typing import Any

import pytest

from agent.engine.llama import thread_tuning


def test_performance_cores_are_tried_first(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def seconds(model: object, threads: int, ids: list[int], limit: float) -> float:
        tried.append(threads)
        return {6: 0.05}.get(threads, 0.08)

    monkeypatch.setattr(thread_tuning, "performance_cores", lambda: 6)
    monkeypatch.setattr(thread_tuning, "_median_seconds", seconds)
    model: Any = SimpleNamespace(clear=lambda: None)
    monkeypatch.setattr(thread_tuning, "usable_cores", lambda: 20)
    assert thread_tuning.measure_threads(model).decode == 6
    assert tried[:3] == [6, 10, 20]
