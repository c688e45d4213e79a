"""The embedded model with several conversations side by side."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.engine.grammars import Grammar
from agent.engine.llama.engine import LlamaEngine
from agent.engine.placement.placement import Placement, ThreadCounts
from agent.engine.protocol import EngineBusyError, Request, Sampling
from agent.formats.constraints import GenerationConstraints
from agent.formats.harmony.format import HarmonyFormat
from agent.formats.protocol import FunctionTool, PromptHeader
from agent.formats.recipients import Recipients
from tests.support.engines import block_compiler, read_generation

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding

WEATHER = FunctionTool(
    "get_weather",
    "The weather in a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
QUESTIONS = [
    "Hello! Who are you?",
    "What is the weather in Paris?",
    "What is 21 times 2?",
    "Thank you, good night.",
]
HEAD = PromptHeader(date="2026-01-01", functions=(WEATHER,), python=True)


@pytest.fixture
async def tiny_engine(tiny_gguf: Path) -> AsyncIterator[LlamaEngine]:
    engine = LlamaEngine(tiny_gguf, placement=Placement(4096), threads=ThreadCounts(1, 1))
    await engine.load()
    yield engine
    await engine.close()


@pytest.fixture
def requests(encoding: HarmonyEncoding) -> list[Request]:
    """The questions under the same head, to be answered greedily."""
    form = HarmonyFormat(encoding)

    def request(question: str) -> Request:
        conversation = Conversation("c")
        conversation.set_header(form, HEAD)
        conversation.add(form, User(question))
        return Request(conversation.prompt(form), 40, form.stop_ids, Sampling(temperature=0))

    return [request(question) for question in QUESTIONS]


@pytest.mark.parametrize("count", [2, 4])
async def test_conversations_side_by_side_have_equal_answers(
    tiny_engine: LlamaEngine, requests: list[Request], count: int
) -> None:
    requests = requests[:count]
    alone = [await read_generation(tiny_engine.generate(request)) for request in requests]
    assert len({tuple(result.ids) for result in alone}) == count
    await tiny_engine.close()
    await tiny_engine.load()
    together = await asyncio.gather(
        *(read_generation(tiny_engine.generate(request)) for request in requests)
    )
    assert [result.ids for result in together] == [result.ids for result in alone]


async def test_conversations_compute_the_shared_header_once(
    tiny_engine: LlamaEngine, requests: list[Request]
) -> None:
    first, *others = await asyncio.gather(
        *(read_generation(tiny_engine.generate(r)) for r in requests)
    )
    assert first.finished.cached_tokens == 0
    shared = [result.finished.cached_tokens for result in others]
    assert min(shared) > 0.7 * len(requests[0].prompt)


async def test_draft_prefill_is_reused_by_the_request(
    tiny_engine: LlamaEngine, requests: list[Request]
) -> None:
    request = requests[0]
    for typed in (30, 20, 10):
        draft = Request(request.prompt[:-typed], max_tokens=0, background=True)
        assert (await read_generation(tiny_engine.generate(draft))).finished.reason == "length"
    result = await read_generation(tiny_engine.generate(request))
    assert result.finished.cached_tokens == len(request.prompt) - 10


@pytest.fixture
def gate(encoding: HarmonyEncoding) -> Iterator[threading.Event]:
    """No grammar is compiled before it is set."""
    gate = block_compiler(HarmonyFormat(encoding).grammars)
    yield gate
    gate.set()


@pytest.mark.long
async def test_waiting_for_a_grammar_blocks_no_other_request(
    tiny_engine: LlamaEngine,
    requests: list[Request],
    encoding: HarmonyEncoding,
    gate: threading.Event,
) -> None:
    form = HarmonyFormat(encoding)
    # A grammar that no other test has compiled.
    constraints = GenerationConstraints(
        "must", {"functions.get_weather": Grammar("lark", 'start: "{}"', trusted=True)}
    )

    def constrained_request() -> Request:
        constraint = form.new_constraint(
            constraints, Recipients(["functions.get_weather", "functions.at_the_gate"])
        )
        return replace(requests[1], constraint=constraint)

    waiting = asyncio.create_task(read_generation(tiny_engine.generate(constrained_request())))
    cancelled = [tiny_engine.generate(constrained_request()) for _ in range(2)]
    # One sequence is left: the second of these requests has to wait for it.
    await asyncio.gather(
        *(read_generation(tiny_engine.generate(request)) for request in requests[:2])
    )
    for each in cancelled:
        each.cancel()
        assert not (await read_generation(each)).ids and not waiting.done()
    gate.set()
    text = encoding.decode((await waiting).ids)
    assert "to=functions." in text and text.endswith("{}<|call|>")


async def test_cancelled_grammar_wait_leaves_other_waits_alone(
    encoding: HarmonyEncoding, gate: threading.Event
) -> None:
    grammars = HarmonyFormat(encoding).grammars
    count = grammars.max_awaited - 1
    lark = [Grammar("lark", f'start: "{i}"', trusted=True) for i in range(count)]
    first, *others = (
        asyncio.create_task(grammars.wait_compiled(each)) for each in (lark[0], *lark)
    )
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(EngineBusyError):
        await grammars.wait_compiled(Grammar("lark", 'start: "more"', trusted=True))
    gate.set()
    await asyncio.gather(*others)
    await grammars.wait_compiled(Grammar("lark", 'start: "more"', trusted=True))
