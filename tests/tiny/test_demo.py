"""The embedded model does what the demonstration list asks, through llama.cpp, greedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.tiny import cases
from agent.tiny.evaluate import Runner, Score, run_case

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_the_demonstration_list(tiny_gguf: Path) -> None:
    runner = Runner(tiny_gguf, threads=1, temperature=0)
    listed = cases.handwritten("demo30")
    assert len(listed) == 30
    wrong = [said for case in listed if (said := run_case(runner, case, Score()))]
    # Measured: none. Kernels differ between processors, and one answer may hang on a narrow margin.
    assert len(wrong) <= 1, wrong
