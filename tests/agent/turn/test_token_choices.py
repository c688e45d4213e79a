"""What the model could have written in place of a token, computed anew and compared with its logits."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from starlette.responses import JSONResponse

from agent.engine.llama.engine import LlamaEngine
from agent.engine.llama.model import LlamaModel
from agent.engine.llama.scheduler import MAX_BACKGROUND_JOBS
from agent.engine.placement.placement import Placement, ThreadCounts
from agent.engine.protocol import (
    ContextOverflowError,
    EngineError,
    Logprob,
    Request,
    Sampling,
    Tokens,
)
from agent.engine.remote.engine import RemoteEngine
from agent.formats.harmony.format import HarmonyFormat
from agent.formats.protocol import PromptHeader
from agent.turn.token_choices import (
    OTHER_CHOICES,
    TokenChoice,
    TokenChoices,
    token_choices,
    token_logprobs,
)
from tests.support import random_gguf
from tests.support.engines import DigitsConstraint, greedy_request, random_prompt, read_generation
from tests.support.fake_vllm import FakeVllm
from tests.support.runtimes import MakeRuntime
from tests.support.turns import write_script

EXACT = 1e-4
"""Of what is computed from the same logits."""
Floats = npt.NDArray[np.float64]


def close(value: float, rounding: float = 0.01) -> Any:
    """Almost the same log probability: steps of other lengths round otherwise, which unlikely tokens
    show most."""
    return pytest.approx(value, abs=rounding + abs(value) / 50)


@pytest.fixture
def seen_logits(monkeypatch: pytest.MonkeyPatch) -> list[Floats]:
    """The logits that tokens were sampled from."""
    seen: list[Floats] = []
    logits = LlamaModel.logits

    def recorded(self: LlamaModel, output: int = 0) -> Any:
        row = logits(self, output)
        seen.append(row.astype(np.float64))
        return row

    monkeypatch.setattr(LlamaModel, "logits", recorded)
    return seen


def naive_logprobs(logits: Floats) -> Floats:
    shifted = logits - logits.max()
    return shifted - math.log(np.exp(shifted).sum())  # type: ignore[no-any-return]


def naive_probabilities(logits: Floats, s: Sampling, read: list[int], written: list[int]) -> Floats:
    """Penalties and biases, temperature, top_k, top_p and min_p, one after the other."""
    logits = logits.copy()
    for token in set([*read, *written][-64:]) if s.repeat_penalty != 1 else ():
        value = logits[token]
        logits[token] = value / s.repeat_penalty if value > 0 else value * s.repeat_penalty
    for token in set(written):
        logits[token] -= s.presence_penalty + s.frequency_penalty * written.count(token)
    for token, bias in s.logit_bias:
        logits[token] += bias
    if s.temperature == 0:
        return (np.arange(len(logits)) == logits.argmax()).astype(np.float64)
    p = np.exp((logits - logits.max()) / s.temperature)
    order = np.argsort(-p) if s.top_k or s.top_p < 1 else np.arange(len(p))
    if s.top_k:
        p[order[s.top_k :]] = 0
    p /= p.sum()
    if s.top_p < 1:
        p[order[np.searchsorted(np.cumsum(p[order]), s.top_p) + 1 :]] = 0
    p[p < s.min_p * p.max()] = 0
    return p / p.sum()  # type: ignore[no-any-return]


def best(logits: Floats) -> list[int]:
    """The most likely tokens, the first one first."""
    chosen = np.argpartition(-logits, 2 * OTHER_CHOICES)[: 2 * OTHER_CHOICES]
    return [int(token) for token in chosen[np.argsort(-logits[chosen])]]


SAMPLINGS = [
    Sampling(),
    Sampling(temperature=0),
    Sampling(temperature=0.7),
    Sampling(temperature=1.5, top_k=5),
    Sampling(top_p=0.8),
    Sampling(temperature=1.3, min_p=0.02),
    Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05),
    Sampling(presence_penalty=1.5, frequency_penalty=0.7),
    Sampling(repeat_penalty=1.3, top_k=8),
    Sampling(logit_bias=((300, 4.0), (11, -5.0)), temperature=0.9),
]


@pytest.fixture
async def tiny_engine(tiny_gguf: Path) -> AsyncIterator[LlamaEngine]:
    """The embedded model, loaded."""
    engine = LlamaEngine(tiny_gguf, placement=Placement(4096), threads=ThreadCounts(1, 1))
    await engine.load()
    yield engine
    await engine.close()


def arithmetic_prompt(form: HarmonyFormat, text: str = "What is 12 plus 30?") -> list[int]:
    header = form.prompt_header(PromptHeader(date="2026-11-24", effort="low"))
    return [*header, *form.user_message(text), *form.open_assistant()]


async def generate(engine: LlamaEngine, request: Request) -> tuple[list[int], list[Logprob]]:
    """What a request wrote, and what was reported of it."""
    reported: list[Logprob] = []

    def on_item(item: object) -> None:
        if isinstance(item, Tokens):
            reported.extend(item.logprobs or ())

    result = await read_generation(engine.generate(request), on_item)
    return result.ids, reported


@pytest.mark.sampled(6)
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
async def test_choices_are_those_of_a_softmax_over_the_logits(
    tiny_engine: LlamaEngine, form: HarmonyFormat, sampling: Sampling, seen_logits: list[Floats]
) -> None:
    """And those that the generation itself reported, whatever its settings."""
    prompt = arithmetic_prompt(form)
    seeded = replace(sampling, seed=1)
    request = Request(prompt, 12, sampling=seeded, logprobs=11, probabilities=True)
    written, reported = await generate(tiny_engine, request)
    ids, start = [*prompt, *written], len(prompt)
    assert len(reported) == len(written)
    for at in (0, 1, len(written) // 2, len(written) - 1):
        seen_logits.clear()
        found = await token_choices(tiny_engine, ids, start + at, sampling, None, start=start)
        (logits,) = seen_logits
        logprobs = naive_logprobs(logits)
        chances = naive_probabilities(logits, sampling, prompt, written[:at])
        assert found.chosen.token == written[at]
        assert len(found.alternatives) == OTHER_CHOICES
        for choice in (found.chosen, *found.alternatives):
            assert choice.logprob == pytest.approx(logprobs[choice.token], abs=EXACT)
            assert choice.probability == pytest.approx(chances[choice.token], abs=EXACT)
            assert choice.rank == (logits > logits[choice.token]).sum() + 1
            assert choice.grammar == "free"
        others = [other for other in best(logits) if other != written[at]]
        assert [choice.token for choice in found.alternatives] == others[:OTHER_CHOICES]
        assert found.chosen.logprob == close(reported[at].logprob, 0.05)
        assert found.chosen.probability == pytest.approx(reported[at].probability, abs=0.02)
    values = await token_logprobs(tiny_engine, ids, start, len(ids))
    for value, one in zip(values, reported, strict=True):
        assert value == close(one.logprob, 0.3)  # CPUs round prompts and steps differently


@pytest.fixture(scope="module")
def long_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The random model with a longer context."""
    shape = random_gguf.RandomShape(experts=2, context=8192)
    return random_gguf.write_model(tmp_path_factory.mktemp("models") / "long.gguf", shape)


@pytest.fixture
async def random_engine(long_gguf: Path) -> AsyncIterator[Callable[..., Awaitable[LlamaEngine]]]:
    """Loads the random model as it is placed."""
    engines: list[LlamaEngine] = []

    async def load(**placement: Any) -> LlamaEngine:
        engine = LlamaEngine(
            long_gguf, placement=Placement(**placement), threads=ThreadCounts(1, 1)
        )
        engines.append(engine)
        await engine.load()
        return engine

    yield load
    for engine in engines:
        await engine.close()


PLAIN = Sampling(temperature=0)


@pytest.mark.long
@pytest.mark.parametrize("sequences", [1, 4])
async def test_looking_back_leaves_the_conversation_in_memory(
    random_engine: Any, sequences: int
) -> None:
    """3,000 tokens and more; the model has sliding windows, which do not let it go back."""
    engine = await random_engine(context=8192, sequences=sequences)
    ids = random_prompt(3250)
    ids += (await read_generation(engine.generate(greedy_request(ids, 50)))).ids
    for at in (len(ids) - 1, 2900, 400, 310, 1700):
        choices = await token_choices(engine, ids, at, PLAIN, None, start=300)
        assert choices.chosen.token == ids[at]
    await token_logprobs(engine, ids, 350, 700)
    after = await read_generation(engine.generate(greedy_request([*ids, 1, 2, 3], 2)))
    assert after.finished.cached_tokens == len(ids) - 1


async def test_a_branch_goes_on_from_where_it_was_looked_at(random_engine: Any) -> None:
    engine = await random_engine(context=8192)
    ids = random_prompt(3250)
    ids += (await read_generation(engine.generate(greedy_request(ids, 50)))).ids
    choices = await token_choices(engine, ids, 2000, PLAIN, None, start=300)
    other = [*ids[:2000], choices.alternatives[0].token]
    branch = await read_generation(engine.generate(greedy_request(other, 2)))
    assert branch.finished.cached_tokens == 2000, "only new tokens are computed"
    again = await read_generation(engine.generate(greedy_request([*ids, 1], 2)))
    assert again.finished.cached_tokens == len(ids) - 1, "and what it left is there"


async def test_neighbours_are_computed_from_where_the_cursor_was(
    random_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await random_engine(context=8192)
    ids = random_prompt(3000)
    await read_generation(engine.generate(greedy_request(ids, 1)))
    await token_choices(engine, ids, 2500, PLAIN, None, start=300)
    computed: list[int] = []
    decode = LlamaModel.decode

    def counted(self: LlamaModel, spans: Any) -> Any:
        computed.append(sum(len(span.ids) for span in spans))
        return decode(self, spans)

    monkeypatch.setattr(LlamaModel, "decode", counted)
    for at in (2501, 2502, 2501, 2499, 2450):
        await token_choices(engine, ids, at, PLAIN, None, start=300)
    assert sum(computed) <= 5 + 64


@pytest.mark.long
async def test_generations_come_before_the_cursor(random_engine: Any) -> None:
    engine = await random_engine(context=8192)
    ids = random_prompt(1500, seed=3)
    scores = asyncio.create_task(token_logprobs(engine, ids, 1, len(ids)))
    looked = asyncio.create_task(token_choices(engine, ids, 1400, PLAIN, None, start=1))
    assert engine.unfinished == 0, "they do not count"
    turns = [
        read_generation(engine.generate(greedy_request(random_prompt(50, seed=n), 10)))
        for n in range(4)
    ]
    for result in await asyncio.gather(*turns):
        assert len(result.ids) == 10
    choices, values = await looked, await scores
    assert choices.chosen.logprob == close(values[1400 - 1])
    assert values == pytest.approx(await token_logprobs(engine, ids, 1, len(ids)), abs=0.02)


async def test_a_full_memory_refuses_in_a_sentence_and_keeps_the_conversation(
    random_engine: Any,
) -> None:
    engine = await random_engine(context=1024, sequences=1)
    ids = random_prompt(1000)
    await read_generation(engine.generate(greedy_request(ids, 2)))
    other = [*ids[:100], *random_prompt(400, seed=7)]
    with pytest.raises(EngineError, match="no room to go back"):
        await token_choices(engine, other, 450, PLAIN, None, start=100)
    after = await read_generation(engine.generate(greedy_request([*ids, 1], 2)))
    assert after.finished.cached_tokens == 1000


@pytest.mark.parametrize("is_closed", [True, False])
async def test_what_is_not_computed_says_why(random_engine: Any, is_closed: bool) -> None:
    """The model is unloaded while it waits, or too much else waits too."""
    engine = await random_engine(context=8192)
    ids = random_prompt(100)
    generation = engine.generate(greedy_request(ids, None))
    stream = aiter(generation)
    while not isinstance(await anext(stream), Tokens):
        pass
    choices = [token_choices(engine, ids, at, PLAIN, None, start=1) for at in range(50, 56)]
    tasks = [asyncio.create_task(each) for each in choices]
    if is_closed:
        await asyncio.wait(tasks, timeout=0)
        await engine.close()
    with pytest.raises(EngineError, match="was unloaded meanwhile, or had too much else"):
        await tasks[0]
    generation.cancel()
    await asyncio.wait(tasks)
    computed = [task for task in tasks if task.exception() is None]
    assert len(computed) == (0 if is_closed else MAX_BACKGROUND_JOBS)


async def test_looking_at_tokens_puts_off_the_unloading(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime()
    runtime.keep_alive = 3600.0
    runtime.restart_idle_timers()
    due = min(runtime.idle_timers.due_times)
    await token_choices(runtime, [1, 2, 3, 2, 5], 4, PLAIN, None, start=1)
    assert min(runtime.idle_timers.due_times) > due


async def test_other_conversations_make_room_but_not_the_one_that_is_looked_at(
    random_engine: Any,
) -> None:
    engine = await random_engine(context=1024)
    other, ids = random_prompt(400, seed=4), random_prompt(500)
    await read_generation(engine.generate(greedy_request(ids, 2)))
    await read_generation(engine.generate(greedy_request(other, 2)))
    changed = [*ids[:100], *random_prompt(350, seed=7)]
    await token_choices(engine, changed, 440, PLAIN, None, start=100)
    after = await read_generation(engine.generate(greedy_request([*ids, 1], 2)))
    assert after.finished.cached_tokens == 500
    after = await read_generation(engine.generate(greedy_request([*other, 1], 2)))
    assert after.finished.cached_tokens == 0


async def test_wrong_indexes_and_engines_are_refused_in_a_sentence(
    gguf: Path, random_engine: Any
) -> None:
    engine = await random_engine(context=1024)
    ids = random_prompt(2000)
    for index, start in ((1, 0), (5, 6), (2000, 1), (-1, 1)):
        with pytest.raises(ValueError, match="There is no token"):
            await token_choices(engine, ids, index, PLAIN, None, start=start)
    for first, stop in ((0, 5), (6, 5), (1, 2001)):
        with pytest.raises(ValueError, match="There are no tokens"):
            await token_logprobs(engine, ids, first, stop)
    assert await token_logprobs(engine, ids, 5, 5) == []
    with pytest.raises(ContextOverflowError, match="the context holds 1,024"):
        await token_choices(engine, ids, 1500, PLAIN, None, start=1)
    with pytest.raises(EngineError, match="before the first token"):
        await token_choices(engine, ids, 0, PLAIN, None, start=0)
    with pytest.raises(EngineError, match="vocabulary"):
        await token_choices(engine, [1, 10**9, 3], 2, PLAIN, None, start=1)
    for token in (-1, 10**6):
        with pytest.raises(EngineError, match="vocabulary"):
            await token_choices(engine, [1, 2, token], 2, PLAIN, None, start=1)
        with pytest.raises(EngineError, match="vocabulary"):
            await token_logprobs(engine, [1, 2, token, 3], 1, 4)
    with pytest.raises(EngineError, match="not loaded"):
        await token_choices(LlamaEngine(gguf), ids, 5, PLAIN, None, start=1)


@pytest.mark.long
async def test_one_token_does_not_wait_for_a_long_message(random_engine: Any) -> None:
    engine = await random_engine(context=8192)
    ids = random_prompt(2000)
    await read_generation(engine.generate(greedy_request(ids, 1)))
    scores = asyncio.create_task(token_logprobs(engine, ids, 1, len(ids)))
    await asyncio.sleep(0)  # its first piece is asked for
    await token_choices(engine, ids, 1500, PLAIN, None, start=1)
    assert not scores.done()
    assert len(await scores) == len(ids) - 1
    gone = asyncio.create_task(token_logprobs(engine, ids, 1, len(ids)))
    await asyncio.sleep(0)
    gone.cancel()  # the engine is free again
    assert (await read_generation(engine.generate(greedy_request([5, 6], 3)))).ids


async def test_a_grammar_forces_forbids_or_leaves_free(random_engine: Any) -> None:
    engine = await random_engine(context=1024)
    ids = [*random_prompt(20), 7, 8, 7, 9, 3]
    digits = [7, 8, 9]

    async def look(at: int, constraint: Any) -> Any:
        return await token_choices(engine, ids, at, PLAIN, constraint, start=20)

    free = await look(21, DigitsConstraint(digits, 3))
    assert free.chosen.grammar == "free"
    assert {c.grammar for c in free.alternatives} <= {"free", "forbidden"}
    assert "forbidden" in {c.grammar for c in free.alternatives}
    forced = await look(24, DigitsConstraint(digits, 3))
    assert forced.chosen.grammar == "forced"
    assert {c.grammar for c in forced.alternatives} == {"forbidden"}
    # The generation cannot have had this one.
    unknown = await look(22, DigitsConstraint([1, 2], 3))
    assert {c.grammar for c in (unknown.chosen, *unknown.alternatives)} == {None}
    assert (await look(22, "unknown")).chosen.grammar is None


async def test_a_server_says_what_it_reports_and_no_more(
    vllm: tuple[FakeVllm, RemoteEngine], form: HarmonyFormat
) -> None:
    fake, remote = vllm
    ids = form.encode_text("one two three four")

    def reply(token: int, top: dict[int, float]) -> dict[str, Any]:
        values = {"token_logprobs": [top[token]], "tokens": [f"token_id:{token}"]}
        names = {f"token_id:{other}": value for other, value in top.items()}
        choice = {"index": 0, "text": "", "token_ids": [token], "finish_reason": "length"}
        return {"choices": [{**choice, "logprobs": {**values, "top_logprobs": [names]}}]}

    top = {ids[2]: -0.5, 11: -1.5, 12: -3.0}
    fake.replies = [[reply(ids[2], top)]]
    found = await token_choices(remote, ids, 2, PLAIN, None, start=1)
    assert found.chosen == TokenChoice(ids[2], -0.5, None, 1, "free")
    assert found.alternatives == (
        TokenChoice(11, -1.5, None, 2, "free"),
        TokenChoice(12, -3.0, None, 3, "free"),
    )
    assert fake.bodies[-1]["logprobs"] == OTHER_CHOICES + 1
    # It samples another token: then this one is requested.
    rare = {11: -0.1, 12: -3.0, ids[2]: -9.0}
    fake.replies = [[reply(11, {11: -0.1, 12: -3.0})]]
    fake.replies.append(JSONResponse(reply(ids[2], rare)))
    found = await token_choices(remote, ids, 2, PLAIN, None, start=1)
    assert found.chosen.token == ids[2] and found.chosen.logprob == -9.0
    bare = {"choices": [{"index": 0, "text": "", "token_ids": [ids[2]], "finish_reason": "length"}]}
    fake.replies = [[bare]]
    with pytest.raises(EngineError, match="reports no probabilities"):
        await token_choices(remote, ids, 2, PLAIN, None, start=1)
    fake.replies = [[bare]]
    with pytest.raises(EngineError, match="reports no probabilities"):
        await token_logprobs(remote, ids, 2, 3)


async def test_a_script_is_certain_and_uses_up_no_line(
    make_runtime: MakeRuntime, tmp_path: Path, form: HarmonyFormat
) -> None:
    script = write_script(tmp_path / "s.jsonl", {"tokens": [5, 6]}, {"tokens": [7]})
    runtime = await make_runtime(script)
    ids = form.encode_text("one two three")
    found = await token_choices(runtime, ids, 2, PLAIN, None, start=1)
    assert found == TokenChoices(TokenChoice(ids[2], 0.0, 1.0, 1, "free"), ())
    assert await token_logprobs(runtime, ids, 1, 3) == [0.0, 0.0]
    assert (await read_generation(runtime.generate(Request([1])))).ids == [5, 6]
