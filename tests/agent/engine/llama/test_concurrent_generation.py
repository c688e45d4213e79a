"""The embedded model with several conversations at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.conversation.conversation import Conversation, User
from agent.engine import grammars as constrain
from agent.engine.grammars import Grammar
from agent.engine.llama.engine import LlamaEngine
from agent.engine.llama.thread_tuning import Threads
from agent.engine.placement.placement import Placement
from agent.engine.protocol import Busy, Request, Sampling
from agent.formats.constraints import Rules
from agent.formats.harmony.format import HarmonyFormat
from agent.formats.protocol import FunctionTool, Head
from agent.formats.recipients import Recipients
from tests.support.engines import read

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
HEAD = Head(date="2026-01-01", functions=(WEATHER,), python=True)


@pytest.fixture
async def tiny(tiny_gguf: Path) -> AsyncIterator[LlamaEngine]:
    engine = LlamaEngine(tiny_gguf, placement=Placement(4096), threads=Threads(1, 1))
    await engine.load()
    yield engine
    await engine.close()


@pytest.fixture
def requests(encoding: HarmonyEncoding) -> list[Request]:
    """The questions under the same head, to be answered greedily."""
    form = HarmonyFormat(encoding)

    def request(question: str) -> Request:
        conversation = Conversation("c")
        conversation.set_head(form, HEAD)
        conversation.add(form, User(question))
        return Request(conversation.prompt(form), 40, form.stop, Sampling(temperature=0))

    return [request(question) for question in QUESTIONS]


@pytest.mark.parametrize("count", [2, 4])
async def test_together_they_answer_what_they_answer_alone(
    tiny: LlamaEngine, requests: list[Request], count: int
) -> None:
    requests = requests[:count]
    alone = [await read(tiny.generate(request)) for request in requests]
    assert len({tuple(got.ids) for got in alone}) == count
    await tiny.close()
    await tiny.load()
    together = await asyncio.gather(*(read(tiny.generate(request)) for request in requests))
    assert [got.ids for got in together] == [got.ids for got in alone]


async def test_the_head_that_they_share_is_computed_once(
    tiny: LlamaEngine, requests: list[Request]
) -> None:
    first, *others = await asyncio.gather(*(read(tiny.generate(r)) for r in requests))
    assert first.finished.cached_tokens == 0
    shared = [got.finished.cached_tokens for got in others]
    assert min(shared) > 0.7 * len(requests[0].prompt)


async def test_what_was_prepared_costs_no_time_when_it_is_asked(
    tiny: LlamaEngine, requests: list[Request]
) -> None:
    asked = requests[0]
    for typed in (30, 20, 10):
        draft = Request(asked.prompt[:-typed], max_tokens=0, idle=True)
        assert (await read(tiny.generate(draft))).finished.reason == "length"
    got = await read(tiny.generate(asked))
    assert got.finished.cached_tokens == len(asked.prompt) - 10


@pytest.fixture
def gate(encoding: HarmonyEncoding) -> Iterator[threading.Event]:
    """No grammar is compiled before it is open."""
    gate = threading.Event()
    HarmonyFormat(encoding).grammars._thread.submit(gate.wait)
    yield gate
    gate.set()


async def test_who_waits_for_a_grammar_keeps_nobody_from_speaking(
    tiny: LlamaEngine, requests: list[Request], encoding: HarmonyEncoding, gate: threading.Event
) -> None:
    form = HarmonyFormat(encoding)
    # A grammar of its own: one that another test had compiled would be there at once.
    rules = Rules("must", {"functions.get_weather": Grammar("lark", 'start: "{}"', ours=True)})

    def held() -> Request:
        guide = form.guide(rules, Recipients(["functions.get_weather", "functions.at_the_gate"]))
        return replace(requests[1], constraint=guide)

    held_back = asyncio.create_task(read(tiny.generate(held())))
    cancelled = [tiny.generate(held()) for _ in range(2)]
    # One sequence is left: the second of these has to wait for it.
    await asyncio.gather(*(read(tiny.generate(request)) for request in requests[:2]))
    for each in cancelled:
        each.cancel()
        assert not (await read(each)).ids and not held_back.done()
    gate.set()
    written = encoding.decode((await held_back).ids)
    assert "to=functions." in written and written.endswith("{}<|call|>")


async def test_who_stops_waiting_for_a_grammar_takes_it_from_nobody(
    encoding: HarmonyEncoding, gate: threading.Event
) -> None:
    grammars = HarmonyFormat(encoding).grammars
    wanted = [Grammar("lark", f'start: "{i}"', ours=True) for i in range(constrain.WAITING - 1)]
    first, *others = (asyncio.create_task(grammars.compiled(each)) for each in (wanted[0], *wanted))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(Busy):
        await grammars.compiled(Grammar("lark", 'start: "more"', ours=True))
    gate.set()
    await asyncio.gather(*others)
    await grammars.compiled(Grammar("lark", 'start: "more"', ours=True))
