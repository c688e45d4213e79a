"""Group ``constrain``: decoding a call's arguments constrained by their JSON Schema, and unconstrained.

The embedded model does not know the schema of the long arguments: a quarter of the tokens it samples
are rejected. The last row has a call that the model writes correctly by itself.
"""

import asyncio
import time
from functools import partial

from agent.engine.grammars import Grammar
from agent.engine.llama.engine import LlamaEngine
from agent.engine.protocol import Constraint, Finished, Prefill, Request, Sampling
from agent.formats.constraints import GenerationConstraints
from agent.formats.harmony.encoding import load_encoding
from agent.formats.harmony.format import HarmonyFormat
from agent.formats.protocol import FunctionTool, PromptHeader
from agent.formats.recipients import Recipients
from agent.tiny.vocabulary import ranks
from tests.bench import BenchmarkRow, compare
from tests.bench.models import embedded_model

TOKENS = 200
RECORD_FUNCTION = "functions.record"
RECORD_SCHEMA = {
    "type": "object",
    "properties": {
        "items": {
            "type": "array",
            "minItems": TOKENS,
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
"""Arguments that are still incomplete after TOKENS tokens."""
WEATHER_TOOL = FunctionTool(
    "get_weather",
    "The weather of a city.",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
)
CALLS_PER_MEASUREMENT = 8
"""Generations of one measurement of the last row."""
RECORD_CALL_HEADER = f"<|channel|>commentary to={RECORD_FUNCTION} <|constrain|>json<|message|>"


def rows() -> list[BenchmarkRow]:
    """Greedy decoding, where a rejected token costs least, and sampling; every token is checked."""
    form = HarmonyFormat(load_encoding(ranks))
    arguments = {RECORD_FUNCTION: Grammar.from_argument_schema(RECORD_SCHEMA)}
    header: list[int] = form.encoding.encode(RECORD_CALL_HEADER, allowed_special="all")
    prompt = form.user_message("Record it.") + form.open_assistant() + header

    def make_constraint() -> Constraint:
        constraint = form.new_constraint(
            GenerationConstraints(argument_grammars=arguments), Recipients([RECORD_FUNCTION])
        )
        for token in header:
            constraint.accept(token)
        return constraint

    with asyncio.Runner() as runner:
        engine = LlamaEngine(embedded_model())
        runner.run(engine.load())

        def rate(sampling: Sampling, constrained: bool) -> float:
            constraint = make_constraint() if constrained else None
            request = Request(prompt, TOKENS, sampling=sampling, constraint=constraint)
            return runner.run(_decode_rate(engine, request))

        table = [
            compare(
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
        table.append(
            compare(
                "a call as the model writes it by itself, greedy",
                "tokens/s",
                lambda: runner.run(_call_rate(engine, form, constrained=True)),
                "without",
                lambda: runner.run(_call_rate(engine, form, constrained=False)),
                goal="≥ 0.97",
            )
        )
        runner.run(engine.close())
    return table


async def _call_rate(engine: LlamaEngine, form: HarmonyFormat, *, constrained: bool) -> float:
    """Tokens per second of generations with reasoning, a call's header and its arguments."""
    tokens, seconds = 0, 0.0
    head = form.prompt_header(PromptHeader("2026-01-01", functions=(WEATHER_TOOL,)))
    name = f"functions.{WEATHER_TOOL.name}"
    for _ in range(CALLS_PER_MEASUREMENT):
        constraints = GenerationConstraints(
            argument_grammars={name: Grammar.from_argument_schema(WEATHER_TOOL.parameters)}
        )
        constraint = form.new_constraint(constraints, Recipients([name])) if constrained else None
        prompt = head + form.user_message("Use get_weather for Oslo.") + form.open_assistant()
        request = Request(
            prompt, 200, form.stop_ids, Sampling(temperature=0), constraint=constraint
        )
        async for item in engine.generate(request):
            if isinstance(item, Finished):
                assert item.reason == "stop"
                tokens += item.output_tokens
                seconds += item.decode_seconds
    return tokens / seconds


async def _decode_rate(engine: LlamaEngine, request: Request) -> float:
    """Tokens per second from the end of the prefill."""
    start = 0.0
    async for item in engine.generate(request):
        if isinstance(item, Prefill):
            start = time.perf_counter()
    return TOKENS / (time.perf_counter() - start)
