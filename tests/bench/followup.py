"""Group ``followup``: time to the first token of later turns with tools, beside llama-server.

Both sides have the same conversation in token ids, each with what its own model wrote. A turn is a
question, reasoning and a call, its result, reasoning and an answer. After a turn its reasoning leaves
the prompt, as Harmony demands, so the next prompt differs from the cached tokens from the last
question on:

    cached    … question | reasoning call result reasoning answer
    prompt    … question | call result answer question

llama-server is asked through ``/completion`` with the delimiters of messages, which is what its chat
endpoint does for GPT-OSS, but without the templates. Our side prefetches the finished turn, as the app
does. Both get READING_SECONDS between turns.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Protocol

from agent.engine.protocol import Prefill, Request, Sampling, Tokens
from agent.formats.harmony.token_ids import CALL_ID, END_ID
from agent.formats.protocol import Format
from tests.bench import GPU_LAYERS, BenchmarkRow, progress
from tests.bench.agent_process import FixedThreadsRuntime
from tests.bench.llama_server import GREEDY, LlamaServer, thread_counts
from tests.bench.models import chat_model

HISTORY_TOKENS = (8_000,) if GPU_LAYERS else (2_000, 8_000, 16_000)
TURNS = 5 if GPU_LAYERS else 10
QUESTION_WORDS, RESULT_WORDS = 40, 200
REASONING_TOKENS, REPLY_TOKENS = 32, 32
"""Tokens of the reasoning, and of the call or the answer after it."""
READING_SECONDS = 0.5
"""Pause after each turn, in which a person would read the answer."""
CONTEXT_TOKENS = 32_768
WORDS = ("light", "storm", "ship", "stone", "water", "house", "people", "night", "wind", "rope")
MESSAGE_DELIMITERS = [
    {"role": role, "delimiter": f"<|start|>{role}"} for role in ("system", "user", "assistant")
]


@dataclass(frozen=True)
class TimedGeneration:
    """A generation: seconds to its first token, prompt tokens that were not cached, generated ids."""

    first_token_seconds: float
    prefilled_tokens: int
    ids: list[int]


class Backend(Protocol):
    """One of the two sides that are compared."""

    async def generate(self, prompt: list[int]) -> TimedGeneration:
        """Generate REASONING_TOKENS + REPLY_TOKENS tokens after a prompt, greedily."""
        ...

    async def finish_turn(self, ids: list[int]) -> None:
        """Wait READING_SECONDS; ``ids``: the conversation without the turn's reasoning."""
        ...


class AgentBackend:
    """Our engine, which prefetches finished turns."""

    def __init__(self, runtime: FixedThreadsRuntime) -> None:
        self._runtime = runtime

    async def generate(self, prompt: list[int]) -> TimedGeneration:
        request = Request(prompt, REASONING_TOKENS + REPLY_TOKENS, sampling=Sampling(temperature=0))
        first, prefilled, ids = 0.0, -1, list[int]()
        requested_at = time.perf_counter()
        async for item in self._runtime.generate(request):
            match item:
                case Prefill(total=total, cached=cached):
                    prefilled = total - cached
                case Tokens(new):
                    first = first or time.perf_counter() - requested_at
                    ids += new
        return TimedGeneration(first, prefilled, ids)

    async def finish_turn(self, ids: list[int]) -> None:
        self._runtime.prefetcher.start(Request(ids, max_tokens=0, background=True))
        await asyncio.sleep(READING_SECONDS)


class LlamaServerBackend:
    """llama-server, through ``/completion``."""

    def __init__(self, server: LlamaServer) -> None:
        self._server = server

    async def generate(self, prompt: list[int]) -> TimedGeneration:
        answer = await self._server.complete(
            prompt,
            REASONING_TOKENS + REPLY_TOKENS,
            **GREEDY,
            return_tokens=True,
            message_delimiters=MESSAGE_DELIMITERS,
        )
        ids = [token for _, event in answer.events for token in event["tokens"]]
        return TimedGeneration(
            answer.seconds_to_first_text, answer.events[-1][1]["timings"]["prompt_n"], ids
        )

    async def finish_turn(self, ids: list[int]) -> None:
        await asyncio.sleep(READING_SECONDS)


@dataclass
class ToolConversation:
    """A conversation with tool calls on one backend; its random texts are the same on each."""

    backend: Backend
    form: Format
    ids: list[int]
    random: random.Random = field(default_factory=lambda: random.Random(1))

    def _random_text(self, words: int) -> str:
        return " ".join(self.random.choices(WORDS, k=words))

    def add_history(self, tokens: int) -> None:
        """Add earlier turns of at least so many tokens."""
        end = len(self.ids) + tokens
        while len(self.ids) < end:
            self.ids += self.form.user_message(self._random_text(QUESTION_WORDS))
            self.ids += self.form.assistant_message(
                self._random_text(RESULT_WORDS), phase="final_answer"
            )

    async def run_turn(self) -> TimedGeneration:
        """Run a turn from a question to its answer; returns its first generation."""
        self.ids += self.form.user_message(self._random_text(QUESTION_WORDS))
        opening = self.form.open_assistant()
        prompt = self.ids + opening
        call = await self.backend.generate(prompt)
        result = [
            CALL_ID,
            *self.form.tool_result("functions.look", self._random_text(RESULT_WORDS)),
            *opening,
        ]
        answer = await self.backend.generate(prompt + call.ids + result)
        self.ids += [
            *opening,
            *call.ids[REASONING_TOKENS:],
            *result,
            *answer.ids[REASONING_TOKENS:],
            END_ID,
        ]
        await self.backend.finish_turn(self.ids)
        return call


def rows() -> list[BenchmarkRow]:
    """For each length of the history: the first token of turns 2 … 10, and their prefilled tokens."""
    return asyncio.run(_rows())


async def _rows() -> list[BenchmarkRow]:
    runtime = FixedThreadsRuntime(chat_model(), thread_counts(chat_model()), CONTEXT_TOKENS)
    await runtime.ready()
    form = runtime.format
    assert form is not None
    table = []
    with LlamaServer(chat_model(), context=CONTEXT_TOKENS) as server:
        for length in HISTORY_TOKENS:
            progress(f"turns after {length // 1000}k tokens …")
            backends = (AgentBackend(runtime), LlamaServerBackend(server))
            conversations = [ToolConversation(backend, form, []) for backend in backends]
            for conversation in conversations:
                conversation.add_history(length)
                await conversation.run_turn()
            pairs = [
                [await conversation.run_turn() for conversation in conversations]
                for _ in range(TURNS - 1)
            ]
            ours, theirs = zip(*pairs, strict=True)
            name = f"follow-up after {length // 1000}k tokens"
            table += [
                BenchmarkRow(
                    f"{name}, first token",
                    "ms",
                    "llama-server",
                    [generation.first_token_seconds * 1000 for generation in ours],
                    [generation.first_token_seconds * 1000 for generation in theirs],
                    "≤ 0.5",
                ),
                BenchmarkRow(
                    f"{name}, tokens to prefill",
                    "tokens",
                    "llama-server",
                    [generation.prefilled_tokens for generation in ours],
                    [generation.prefilled_tokens for generation in theirs],
                ),
            ]
    await runtime.close()
    return table
