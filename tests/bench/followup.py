"""How soon a conversation with tools goes on, beside llama-server with its cache as it comes.

Both hold the same conversation in token ids, each with what its own model wrote: a question, a thought
and a call, a result, a thought and an answer. When a turn is over its thoughts leave the prompt, as in
Harmony, so the next prompt parts from memory behind the question before. Theirs is asked through
``/completion`` and told where messages begin, which is what its chat endpoint does with GPT-OSS, but
spares it templates. Ours lays the finished turn ahead, as the app does. Both get the same pause.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Protocol

from agent.engine.protocol import Prefill, Request, Sampling, Tokens
from agent.formats.harmony.token_ids import CALL, END
from agent.formats.protocol import Format
from tests.bench import Row, progress
from tests.bench.models import endless
from tests.bench.ours import Chosen
from tests.bench.peer import GREEDY, LlamaServer, threads

HISTORIES = (2_000, 8_000, 16_000)
TURNS = 10
QUESTION, RESULT = 40, 200
THOUGHT, SAID = 32, 32
"""Tokens of a thought, and of the call or the answer after it."""
PAUSE = 0.5
"""Seconds in which the person reads."""
CONTEXT = 32_768
WORDS = ("light", "storm", "ship", "stone", "water", "house", "people", "night", "wind", "rope")
MESSAGES = [
    {"role": role, "delimiter": f"<|start|>{role}"} for role in ("system", "user", "assistant")
]


@dataclass(frozen=True)
class Told:
    """One generation: seconds to its first token, prompt tokens that were computed, its ids."""

    first: float
    prefilled: int
    ids: list[int]


class Side(Protocol):
    async def generate(self, prompt: list[int]) -> Told: ...

    async def rest(self, ids: list[int]) -> None:
        """The turn is over; these ids are what is left of the conversation."""
        ...


class Ours:
    def __init__(self, runtime: Chosen) -> None:
        self._runtime = runtime

    async def generate(self, prompt: list[int]) -> Told:
        request = Request(prompt, THOUGHT + SAID, sampling=Sampling(temperature=0))
        first, prefilled, ids = 0.0, -1, list[int]()
        asked = time.perf_counter()
        async for item in self._runtime.generate(request):
            match item:
                case Prefill(total=total, cached=cached):
                    prefilled = total - cached
                case Tokens(new):
                    first = first or time.perf_counter() - asked
                    ids += new
        return Told(first, prefilled, ids)

    async def rest(self, ids: list[int]) -> None:
        self._runtime.lay_ahead(ids)
        await asyncio.sleep(PAUSE)


class Theirs:
    def __init__(self, server: LlamaServer) -> None:
        self._server = server

    async def generate(self, prompt: list[int]) -> Told:
        answer = await self._server.complete(
            prompt, THOUGHT + SAID, **GREEDY, return_tokens=True, message_delimiters=MESSAGES
        )
        ids = [token for _, event in answer.events for token in event["tokens"]]
        return Told(answer.first, answer.events[-1][1]["timings"]["prompt_n"], ids)

    async def rest(self, ids: list[int]) -> None:
        await asyncio.sleep(PAUSE)


@dataclass
class Talk:
    """A conversation as one side has it."""

    side: Side
    form: Format
    ids: list[int]
    random: random.Random = field(default_factory=lambda: random.Random(1))

    def _text(self, words: int) -> str:
        return " ".join(self.random.choices(WORDS, k=words))

    def remember(self, tokens: int) -> None:
        """Turns from before."""
        end = len(self.ids) + tokens
        while len(self.ids) < end:
            self.ids += self.form.user(self._text(QUESTION))
            self.ids += self.form.said(self._text(RESULT), phase="final_answer")

    async def turn(self) -> Told:
        """A question up to its answer; what the first generation was."""
        self.ids += self.form.user(self._text(QUESTION))
        opening = self.form.open_assistant()
        prompt = self.ids + opening
        thought = await self.side.generate(prompt)
        result = [CALL, *self.form.result("functions.look", self._text(RESULT)), *opening]
        answer = await self.side.generate(prompt + thought.ids + result)
        self.ids += [*opening, *thought.ids[THOUGHT:], *result, *answer.ids[THOUGHT:], END]
        await self.side.rest(self.ids)
        return thought


def rows() -> list[Row]:
    """For each length of history the time of turns 2 … 10, and the tokens prefilled for them."""
    return asyncio.run(_rows())


async def _rows() -> list[Row]:
    runtime = Chosen(endless(), threads(endless()), CONTEXT)
    await runtime.ready()
    found = []
    with LlamaServer(endless(), context=CONTEXT) as server:
        for length in HISTORIES:
            progress(f"turns after {length // 1000}k tokens …")
            talks = [Talk(side, runtime.format, []) for side in (Ours(runtime), Theirs(server))]
            for talk in talks:
                talk.remember(length)
                await talk.turn()
            pairs = [[await talk.turn() for talk in talks] for _ in range(TURNS - 1)]
            ours, theirs = zip(*pairs, strict=True)
            name = f"follow-up after {length // 1000}k tokens"
            found += [
                Row(
                    f"{name}, first token",
                    "ms",
                    "llama-server",
                    [told.first * 1000 for told in ours],
                    [told.first * 1000 for told in theirs],
                    "≤ 0.5",
                ),
                Row(
                    f"{name}, tokens to prefill",
                    "tokens",
                    "llama-server",
                    [told.prefilled for told in ours],
                    [told.prefilled for told in theirs],
                ),
            ]
    await runtime.close()
    return found
