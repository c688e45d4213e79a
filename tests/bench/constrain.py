"""Decoding a call's arguments under their schema, beside the same without it.

The embedded model does not know the long form: a quarter of what it would write is rejected. What a
model costs that keeps to a schema by itself, the last row tells.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

from agent.engine.grammars import Grammar
from agent.engine.llama.engine import LlamaEngine
from agent.engine.protocol import Constraint, Finished, Prefill, Request, Sampling
from agent.formats.constraints import Rules
from agent.formats.harmony.encoding import encoding
from agent.formats.harmony.format import HarmonyFormat
from agent.formats.protocol import FunctionTool, Head
from agent.formats.recipients import Recipients
from agent.tiny.vocabulary import ranks
from tests.bench import Row, beside
from tests.bench.models import model

COUNT = 200
NAME = "functions.record"
SCHEMA = {
    "type": "object",
    "properties": {
        "items": {
            "type": "array",
            "minItems": COUNT,
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "value": {"type": "number"}},
                "required": ["name", "value"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["items"],
}
"""Not done within COUNT tokens, whatever is written."""
CALL = FunctionTool(
    "get_weather",
    "The weather of a city.",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
)
CALLS = 8
"""Generations of one measurement, each with a call that the model writes by itself."""
OPENING = f"<|channel|>commentary to={NAME} <|constrain|>json<|message|>"


def rows() -> list[Row]:
    """Greedy, where a reject costs least, and sampled; every token is checked."""
    form = HarmonyFormat(encoding(ranks))
    arguments = {NAME: Grammar.of_arguments(SCHEMA)}
    opening: list[int] = form.encoding.encode(OPENING, allowed_special="all")
    prompt = form.user("Record it.") + form.open_assistant() + opening

    def guided() -> Constraint:
        guide = form.guide(Rules(arguments=arguments), Recipients([NAME]))
        for token in opening:
            guide.accept(token)
        return guide

    with asyncio.Runner() as runner:
        engine = LlamaEngine(model())
        runner.run(engine.load())

        def rate(sampling: Sampling, held: bool) -> float:
            constraint = guided() if held else None
            request = Request(prompt, COUNT, sampling=sampling, constraint=constraint)
            return runner.run(_tokens_per_second(engine, request))

        found = [
            beside(
                f"arguments under their schema, {name}",
                "tokens/s",
                partial(rate, sampling, True),
                "without",
                partial(rate, sampling, False),
            )
            for name, sampling in {
                "greedy": Sampling(temperature=0),
                "temperature 1": Sampling(seed=1),
            }.items()
        ]
        found.append(
            beside(
                "a call as the model writes it by itself, greedy",
                "tokens/s",
                lambda: runner.run(_call(engine, form, held=True)),
                "without",
                lambda: runner.run(_call(engine, form, held=False)),
                goal="≥ 0.97",
            )
        )
        runner.run(engine.close())
    return found


async def _call(engine: LlamaEngine, form: HarmonyFormat, *, held: bool) -> float:
    """Tokens per second of whole generations: reasoning, header, arguments."""
    tokens, seconds = 0, 0.0
    head = form.head(Head("2026-01-01", functions=(CALL,)))
    name = f"functions.{CALL.name}"
    for _ in range(CALLS):
        rules = Rules(arguments={name: Grammar.of_arguments(CALL.parameters)})
        guide = form.guide(rules, Recipients([name])) if held else None
        prompt = head + form.user("Use get_weather for Oslo.") + form.open_assistant()
        request = Request(prompt, 200, form.stop, Sampling(temperature=0), constraint=guide)
        async for item in engine.generate(request):
            if isinstance(item, Finished):
                assert item.reason == "stop"
                tokens += item.output_tokens
                seconds += item.decode_seconds
    return tokens / seconds


async def _tokens_per_second(engine: LlamaEngine, request: Request) -> float:
    start = 0.0
    async for item in engine.generate(request):
        if isinstance(item, Prefill):
            start = time.perf_counter()
    return COUNT / (time.perf_counter() - start)
