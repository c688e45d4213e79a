"""The embedded model answers the demonstration list, through llama.cpp, greedy."""

import random
from pathlib import Path

import pytest

from agent.tiny.train import cases, data
from agent.tiny.train.cases import Case, Expected, Step
from agent.tiny.train.evaluate import Runner, Score, run_case

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.long
def test_model_answers_demonstration_list(tiny_gguf: Path) -> None:
    runner = Runner(tiny_gguf, threads=1, temperature=0)
    demo_cases = cases.handwritten("demo30")
    assert len(demo_cases) == 30
    wrong = [problem for case in demo_cases if (problem := run_case(runner, case, Score()))]
    # Measured: none; one is left to the kernels of another processor.
    assert len(wrong) <= 1, wrong


@pytest.mark.long
@pytest.mark.parametrize("sums", ["2*3 4*5", "17*23 100/4", "12*12 3+4 50/5", "2+2 3*3 10-4"])
def test_model_conversation_of_sums_answers_each(tiny_gguf: Path, sums: str) -> None:
    python, tools = cases.declared(["python", "files"])
    prefix = data.render_prefix(random.Random(7), python, tools, None)
    steps = []
    for code in sums.split():
        result = repr(eval(code))
        steps.append(Step(code, [Expected("python", {}, result)], [f" = {result}."]))
    runner = Runner(tiny_gguf, threads=1, temperature=0)
    assert not run_case(runner, Case("row", prefix, steps), Score())
