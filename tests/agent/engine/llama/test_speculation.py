"""Drafts, the decision how many of them a step verifies, and that they change no token."""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.engine.llama.draft_model import Drafting, DraftModel
from agent.engine.llama.engine import LlamaEngine
from agent.engine.llama.model import LlamaModel
from agent.engine.llama.scheduler import Scheduler
from agent.engine.llama.speculation import (
    LONG_MATCH_TOKENS,
    MIN_MATCH_TOKENS,
    Drafter,
    DraftLengths,
    DraftPlanner,
    PromptLookup,
    StepCosts,
)
from agent.engine.llama.step_loop import StepLoop
from agent.engine.llama.token_stream import TokenStream
from agent.engine.placement.placement import MAX_DRAFT_TOKENS, Placement, ThreadCounts
from agent.engine.protocol import EngineError, Finished, Logprob, Request, Sampling, Tokens
from agent.formats.harmony.format import HarmonyFormat
from tests.support import random_gguf
from tests.support.engines import (
    GenerationResult,
    assert_likely,
    greedy_request,
    random_prompt,
    read_generation,
    user_request,
)
from tests.support.fake_llama import FakeLlamaModel


class FreeSteps(StepCosts):
    """Steps with drafts cost nothing more, as on a device with time to spare."""

    def ratio(self, generations: int, drafted: int) -> float:
        return 1.0

    def is_measured(self, generations: int, drafted: int) -> bool:
        return True


# --- drafts ---


def brute_force_draft(ids: Sequence[int], limit: int) -> tuple[list[int], int]:
    for length in range(LONG_MATCH_TOKENS, MIN_MATCH_TOKENS - 1, -1):
        for end in range(len(ids) - 1, length - 1, -1):
            if ids[end - length : end] == ids[len(ids) - length :]:
                following = itertools.cycle(ids[end:])
                return [next(following) for _ in range(limit)], length
    return [], 0


@settings(max_examples=200)
@given(st.lists(st.integers(0, 3), max_size=60), st.data())
@example([1, 2, 3, 1, 2, 3], None)
def test_lookup_drafts_what_followed_the_longest_latest_match(ids: list[int], data: Any) -> None:
    lookup = PromptLookup()
    if data is not None and ids:  # the ids grow
        lookup.draft(ids[: data.draw(st.integers(1, len(ids)))], 4)
    if ids:
        assert lookup.draft(ids, 7) == brute_force_draft(ids, 7)


def test_lookup_grows_beyond_its_buffer() -> None:
    ids = random_prompt(5000)
    lookup = PromptLookup()
    for end in (1, 1024, 1025, 4000):
        lookup.draft(ids[:end], 4)
    assert lookup.draft(ids + ids[10:20], 4) == (ids[20:24], LONG_MATCH_TOKENS)


# --- how many ---


REPETITION = [*range(30)] * 2


def learned(*outcomes: int) -> Drafter:
    """A drafter whose last drafts, of long matches, had so many right tokens."""
    drafter = Drafter()
    drafter.draft(REPETITION)
    for accepted in outcomes:
        drafter.acceptance.record(accepted)
    return drafter


def draft_length(costs: dict[int, float], drafter: Drafter, limit: int = 99) -> int:
    """The tokens that are drafted at these costs, relative to a plain step, of steps with so many."""
    speculation = DraftPlanner()
    speculation.costs.record(1, 0, 1.0)
    for drafted, cost in costs.items():
        for _ in range(2):  # the first is not counted
            speculation.costs.record(1, drafted, cost)
    (draft,) = speculation.draft([(drafter, REPETITION, limit)])
    return len(draft)


GPU = {2: 1.05, 4: 1.1, 8: 1.15, 16: 1.3}
LITTLE_MODEL_ON_A_CPU = {2: 2.8, 4: 4.7, 8: 7.3, 16: 9.2}
MIXTURE_ON_A_CPU = {2: 5.0, 4: 7.8, 8: 8.9, 16: 13.6}


@pytest.mark.parametrize(
    ("costs", "outcomes", "expected"),
    [
        (GPU, [16] * 8, 16),
        (GPU, [3] * 8, 4),
        (GPU, [0] * 30, 0),
        (LITTLE_MODEL_ON_A_CPU, [16] * 8, 16),
        (LITTLE_MODEL_ON_A_CPU, [3] * 8, 2),
        (LITTLE_MODEL_ON_A_CPU, [8, 0, 16, 0], 0),
        (MIXTURE_ON_A_CPU, [16] * 8, 16),
        (MIXTURE_ON_A_CPU, [8] * 8, 0),
        ({}, [], 16),  # nothing is known: it is tried
    ],
)
def test_draft_length_is_what_pays(
    costs: dict[int, float], outcomes: list[int], expected: int
) -> None:
    assert draft_length(costs, learned(*outcomes)) == expected


def test_draft_length_is_at_most_the_limit() -> None:
    assert draft_length(GPU, learned(*[16] * 8), limit=5) == 5
    assert draft_length(GPU, learned(*[16] * 8), limit=0) == 0
    assert draft_length(GPU, learned(*[16] * 8), limit=-1) == 0


def test_drafts_of_several_generations_share_the_step() -> None:
    speculation = DraftPlanner()
    drafts = speculation.draft([(learned(*[16] * 8), REPETITION, 99) for _ in range(3)])
    assert [len(draft) for draft in drafts] == [4, 4, 4]
    unique = (Drafter(), [*range(60)], 99)
    drafts = speculation.draft([(learned(*[16] * 8), REPETITION, 99), unique])
    assert [len(draft) for draft in drafts] == [16, 0]


def test_drafts_are_compared_though_no_step_verifies_them() -> None:
    """So a text that begins to repeat itself is noticed where drafts did not pay."""
    drafter, ids = learned(*[0] * 30), list(REPETITION)
    before = drafter.acceptance.expected(16)
    for _ in range(200):
        drafter.draft(ids)
        ids.append(ids[-30])
        drafter.observe(ids[-1])
    assert before < 0.1 and drafter.acceptance.expected(16) > 15


def test_cost_that_was_measured_too_high_is_measured_again() -> None:
    costs = StepCosts()
    costs.record(1, 0, 1.0)
    for seconds in (50.0, 30.0):
        costs.record(1, 16, seconds)
    assert costs.ratio(1, 16) == 30  # the first was a warm-up
    for _ in range(3000):
        costs.record(1, 0, 1.0)
    assert costs.ratio(1, 16) < 3


def chosen_lengths(costs: dict[int, float], right: int, steps: int = 400) -> list[int]:
    """The lengths that a draft model drafts, step by step, at these costs of a step with so many,
    whose first ``right`` tokens are always right."""
    lengths = DraftLengths()
    chosen = []
    for _ in range(steps):
        chosen.append(length := lengths.choose([99]))
        lengths.costs.record(1, length, costs.get(length, 1.0))
        if length:
            lengths.acceptance.record(min(right, length), length)
    return chosen


def test_draft_model_drafts_as_much_as_pays() -> None:
    def usual(costs: dict[int, float], right: int) -> int:
        return Counter(chosen_lengths(costs, right)[200:]).most_common()[0][0]

    assert usual(GPU, 16) == 16
    assert usual(GPU, 3) == 4
    assert usual(GPU | {8: 20.0, 16: 40.0}, 16) == 4
    lengths = DraftLengths()
    lengths.costs = FreeSteps()
    assert [lengths.choose(limits) for limits in ([0], [-1], [99, 99])] == [0, 0, 8]


def test_draft_model_that_does_not_pay_is_hardly_tried() -> None:
    for costs, right in ((GPU, 0), (LITTLE_MODEL_ON_A_CPU, 1)):
        chosen = chosen_lengths(costs, right, steps=3000)
        assert sum(map(bool, chosen[:100])) < 15 and sum(map(bool, chosen[1000:])) < 20


def test_draft_model_is_tried_again() -> None:
    lengths = DraftLengths()
    for _ in range(20):
        lengths.acceptance.record(0, 2)
        lengths.costs.record(1, lengths.choose([99]), 1.0)
    drafted = 0
    for _ in range(500):
        length = lengths.choose([99])
        lengths.costs.record(1, length, GPU.get(length, 1.0))
        if length:
            lengths.acceptance.record(length, length)
            drafted += length
    assert drafted > 4000


# --- exactness ---


@dataclass
class Alternating:
    """A constraint: even and odd tokens in turn; now and then its grammar has to be awaited."""

    count: int = 0
    pending: Future[Any] | None = None

    def accept(self, token: int) -> bool:
        if token % 2 != self.count % 2:
            return False
        self.count += 1
        return True

    def allowed(self) -> Any:
        return np.arange(self.count % 2, 12, 2)


@dataclass(frozen=True)
class Outcome:
    """What a generation yielded, and what was left in its sequence."""

    ids: list[int]
    logprobs: list[Logprob]
    reason: str
    cells: dict[int, list[int]]


def run_generations(
    requests: Sequence[Request],
    drafting: Drafting | None,
    model: FakeLlamaModel | None = None,
    on_step: Callable[[list[TokenStream]], object] = lambda streams: None,
) -> tuple[list[Outcome], list[Finished]]:
    """Run requests side by side on the fake model, step by step."""
    model = model or FakeLlamaModel()

    async def run() -> tuple[list[Outcome], list[Finished]]:
        inbox: SimpleQueue[Any] = SimpleQueue()
        loop = StepLoop(cast(LlamaModel, model), 4, inbox, lambda request: None, drafting=drafting)
        streams = [TokenStream(lambda stream: None) for _ in requests]
        for pair in zip(requests, streams, strict=True):
            inbox.put(pair)
        model.on_decode = lambda: inbox.put(None)  # each call of `run_step` is one step
        for _ in range(5000):
            if all(stream.ended for stream in streams):
                break
            loop.run_step()
            on_step(streams)
            inbox.put(None)
        outcomes, ends = [], []
        for stream in streams:
            ids: list[int] = []
            logprobs: list[Logprob] = []
            async for item in stream:
                match item:
                    case Tokens():
                        ids += item.ids
                        logprobs += item.logprobs or []
                    case Finished():
                        ends.append(item)
                        cells = {seq: list(cells) for seq, cells in model.cells.items()}
                        outcomes.append(Outcome(ids, logprobs, item.reason, cells))
        return outcomes, ends

    return asyncio.run(run())


def speculate() -> Drafting:
    lookup = DraftPlanner()
    lookup.costs = FreeSteps()
    return Drafting(lookup)


class HalfRightModel(FakeLlamaModel):
    """A draft model that often writes what the model does."""

    def _logits(self, last: list[int]) -> Any:
        row = super()._logits(last)
        return row if sum(last) % 3 else -row


def draft_with(model: FakeLlamaModel, *, lookup: bool = False) -> Drafting:
    draft_model = DraftModel(cast(LlamaModel, model), 4)
    draft_model.lengths.costs = FreeSteps()
    return Drafting(speculate()._lookup if lookup else None, draft_model)


requests_strategy = st.builds(
    lambda prompt, max_tokens, stop, sampling, logprobs, constrained: Request(
        prompt,
        max_tokens,
        stop,
        sampling,
        logprobs,
        constraint=Alternating() if constrained else None,
    ),
    st.lists(st.integers(0, 11), min_size=1, max_size=40),
    st.integers(0, 80),
    st.frozensets(st.integers(0, 11), max_size=1),
    st.builds(
        Sampling,
        temperature=st.sampled_from([0.0, 0.3, 1.0]),
        top_k=st.sampled_from([0, 3]),
        top_p=st.sampled_from([1.0, 0.9]),
        seed=st.integers(0, 1000),
        presence_penalty=st.sampled_from([0.0, 0.5]),
        frequency_penalty=st.sampled_from([0.0, 0.2]),
        repeat_penalty=st.sampled_from([1.0, 1.2]),
        logit_bias=st.sampled_from([(), ((3, 2.0),)]),
    ),
    st.sampled_from([None, 0, 2]),
    st.booleans(),
)


def fresh(request: Request) -> Request:
    """The request with a constraint of its own."""
    return replace(request, constraint=Alternating() if request.constraint else None)


drafting_strategy = st.builds(
    lambda source, context: {
        "lookup": lambda: speculate(),
        "model": lambda: draft_with(HalfRightModel(context_length=context)),
        "both": lambda: draft_with(HalfRightModel(context_length=context), lookup=True),
    }[source],
    st.sampled_from(["lookup", "model", "both"]),
    st.sampled_from([60, 400]),
)


@pytest.mark.long
@settings(max_examples=300)
@given(st.lists(requests_strategy, min_size=1, max_size=3), drafting_strategy)
def test_generations_with_drafts_are_those_without(
    requests: list[Request], drafting: Callable[[], Drafting]
) -> None:
    plain, _ = run_generations([fresh(request) for request in requests], None)
    drafted, ends = run_generations([fresh(request) for request in requests], drafting())
    for with_drafts, without in zip(drafted, plain, strict=True):
        assert (with_drafts.ids, with_drafts.reason) == (without.ids, without.reason)
        assert with_drafts.logprobs == without.logprobs
    assert all(0 <= end.accepted_tokens <= end.drafted_tokens for end in ends)
    if len(requests) == 1:  # nothing is left of a rejected draft
        assert drafted[0].cells == plain[0].cells


def test_drafts_save_steps() -> None:
    request = Request([1, 2], 200, sampling=Sampling(temperature=0))
    model = FakeLlamaModel()
    (outcome,), (end,) = run_generations([request], speculate(), model)
    assert len(outcome.ids) == 200
    assert end.drafted_tokens >= end.accepted_tokens > 100
    assert len(model.decoded_tokens) < 100
    (_,), (end,) = run_generations([request], None)
    assert (end.drafted_tokens, end.accepted_tokens) == (0, 0)


def test_draft_model_saves_steps() -> None:
    """Perfectly right drafts, of several generations side by side that begin with long prompts."""
    prompts = ([n, *random_ids(100, n)] for n in range(3))
    requests = [Request(prompt, 60, sampling=Sampling(temperature=0)) for prompt in prompts]
    model = FakeLlamaModel(context_length=2000)
    drafting = draft_with(FakeLlamaModel(context_length=2000))
    outcomes, ends = run_generations(requests, drafting, model)
    assert [len(outcome.ids) for outcome in outcomes] == [60] * 3
    assert all(end.accepted_tokens > 40 for end in ends)
    assert len(model.decoded_tokens) < 35


def random_ids(length: int, seed: int) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(12) for _ in range(length)]


def test_draft_model_reads_the_next_prompt_of_a_conversation_from_there_on() -> None:
    draft = FakeLlamaModel(context_length=2000)
    drafting = draft_with(draft)
    prompt = random_ids(300, 0)
    (first,), _ = run_generations([Request(prompt, 20)], drafting)
    before = sum(draft.decoded_tokens)
    run_generations([Request([*prompt, *first.ids, 3], 20)], drafting)
    assert sum(draft.decoded_tokens) - before < 200  # 320 without what it has read


class FailingModel(FakeLlamaModel):
    """It fails after some batches."""

    def decode(self, spans: Any) -> Any:
        if len(self.decoded_tokens) == 40:
            raise EngineError("llama.cpp failed with code -3")
        return super().decode(spans)


def test_draft_model_that_fails_is_abandoned() -> None:
    request = Request([1, 2], 100, sampling=Sampling(temperature=0))
    (plain,), _ = run_generations([request], None)
    (outcome,), (end,) = run_generations([request], draft_with(FailingModel()))
    assert outcome.ids == plain.ids and 0 < end.drafted_tokens < 99


class CancellingConstraint(Alternating):
    """It cancels its generation at a token."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.tokens = tokens
        self.stream: TokenStream | None = None

    def accept(self, token: int) -> bool:
        accepted = super().accept(token)
        if self.stream is not None and self.count == self.tokens:
            self.stream.cancel()
        return accepted


def run_until_cancelled(
    drafting: Drafting | None, model: FakeLlamaModel, counts: Sequence[int]
) -> tuple[list[Outcome], list[Finished]]:
    """Run generations that cancel themselves after so many tokens."""
    constraints = [CancellingConstraint(count) for count in counts]
    requests = [
        Request([1, 2], constraint=each, sampling=Sampling(temperature=0)) for each in constraints
    ]

    def on_step(streams: list[TokenStream]) -> None:
        for constraint, stream in zip(constraints, streams, strict=True):
            constraint.stream = stream

    return run_generations(requests, drafting, model, on_step)


def test_cancelled_generation_takes_no_more_drafted_tokens() -> None:
    (outcome,), (end,) = run_until_cancelled(speculate(), FakeLlamaModel(), [150])
    assert (outcome.reason, len(outcome.ids)) == ("cancelled", 150)
    assert end.accepted_tokens > 100


def test_drafts_that_do_not_fit_stop_no_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two generations nearly fill the context; drafts would need more cells."""
    monkeypatch.delattr(Scheduler, "make_room")
    model = FakeLlamaModel(context_length=120)
    outcomes, _ = run_until_cancelled(speculate(), model, [58, 58])
    assert [(len(each.ids), each.reason) for each in outcomes] == [(58, "cancelled")] * 2


class PendingConstraint(Alternating):
    """Its grammar is compiled after each tenth token; `allowed` must not be called meanwhile."""

    def accept(self, token: int) -> bool:
        assert self.pending is None or self.pending.done(), "this would block the engine"
        self.pending = None
        accepted = super().accept(token)
        if accepted and self.count % 10 == 0:
            self.pending = Future()
        return accepted


def test_draft_stops_where_a_grammar_is_awaited() -> None:
    request = Request([1, 2], 60, sampling=Sampling(temperature=0))
    constraint = PendingConstraint()

    def compile_now(streams: list[TokenStream]) -> None:
        if constraint.pending is not None and not constraint.pending.done():
            constraint.pending.set_result(None)

    (plain,), _ = run_generations([replace(request, constraint=Alternating())], None)
    (drafted,), (end,) = run_generations(
        [replace(request, constraint=constraint)], speculate(), on_step=compile_now
    )
    assert drafted.ids == plain.ids and end.accepted_tokens > 0


class FailingConstraint(Alternating):
    """It breaks after some tokens."""

    def accept(self, token: int) -> bool:
        if self.count == 30:
            raise EngineError("broken")
        return super().accept(token)


def test_failure_within_a_draft_ends_one_generation() -> None:
    requests = [
        Request([1, 2], 80, constraint=FailingConstraint(), sampling=Sampling(temperature=0)),
        Request([1, 2], 80, sampling=Sampling(temperature=0)),
    ]
    with pytest.raises(EngineError, match="broken"):
        run_generations(requests, speculate())
    (plain,), _ = run_generations(requests[1:], None)
    assert len(plain.ids) == 80


# --- on real models ---


async def generate(
    path: Path,
    requests: Sequence[Request],
    speculation: Any = "off",
    draft: Path | None = None,
    ubatch: int = 512,
) -> list[GenerationResult]:
    """Run requests side by side on a model that is loaded for them."""
    placement = Placement(4096, speculation=speculation, ubatch=ubatch)
    if draft is not None:
        placement = replace(placement, draft=placement)
    engine = LlamaEngine(path, placement=placement, threads=ThreadCounts(1, 1), draft=draft)
    await engine.load()
    try:
        return await asyncio.gather(*(read_generation(engine.generate(r)) for r in requests))
    finally:
        await engine.close()


@pytest.fixture
def free_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StepCosts, "ratio", FreeSteps.ratio)
    monkeypatch.setattr(StepCosts, "is_measured", FreeSteps.is_measured)


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.usefixtures("free_steps")
async def test_engine_drafts_leave_the_sliding_window_intact(
    gguf: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Drafts are right up to any of their tokens, over many times the window and its cells."""
    requests = [greedy_request(random_prompt(40, seed), 600) for seed in range(count)]
    plain = await generate(gguf, requests)
    outputs = {tuple(r.prompt): p.ids for r, p in zip(requests, plain, strict=True)}
    source = random.Random(0)

    def draft(self: Drafter, ids: list[int]) -> list[int]:
        right = source.randrange(MAX_DRAFT_TOKENS + 1)
        following = outputs[tuple(ids[:40])][len(ids) - 40 :][:right]
        return following + [source.randrange(512) for _ in range(MAX_DRAFT_TOKENS - len(following))]

    monkeypatch.setattr(Drafter, "draft", draft)
    drafted = await generate(gguf, requests, "lookup", ubatch=64)
    for request, result in zip(requests, drafted, strict=True):
        end = result.finished
        assert len(result.ids) == 600 and 0 < end.accepted_tokens < end.drafted_tokens
        assert_likely(gguf, list(request.prompt), result.ids)


@pytest.mark.long
@pytest.mark.usefixtures("free_steps")
async def test_engine_drafts_with_a_draft_model(gguf: Path, tmp_path: Path) -> None:
    """Itself, which is mostly right, and another one, which never is; prompts beyond the window and
    longer than a batch."""
    requests = [greedy_request(random_prompt(700, seed), 300) for seed in range(2)]
    other = random_gguf.write_model(tmp_path / "other.gguf", random_gguf.RandomShape(seed=1))
    for draft in (gguf, other):
        for request, result in zip(
            requests, await generate(gguf, requests, draft=draft, ubatch=128), strict=True
        ):
            end = result.finished
            assert len(result.ids) == 300 and end.drafted_tokens > 0
            assert (end.accepted_tokens > 100) == (draft == gguf)
            assert_likely(gguf, list(request.prompt), result.ids)


async def test_draft_model_with_another_vocabulary_is_refused(gguf: Path, tmp_path: Path) -> None:
    shape = random_gguf.RandomShape(vocabulary=600)
    other = random_gguf.write_model(tmp_path / "other.gguf", shape)
    with pytest.raises(EngineError, match="cannot be the draft model: it has 600 tokens and"):
        await generate(gguf, [], draft=other)


@pytest.mark.usefixtures("free_steps")
async def test_engine_drafts_repeated_text(gguf: Path) -> None:
    prompt = random_prompt(60)
    request = Request(
        prompt * 3,
        300,
        sampling=Sampling(temperature=0, logit_bias=tuple((i, 100.0) for i in prompt[:1])),
    )
    (result,) = await generate(gguf, [request], "lookup")
    assert result.ids == prompt[:1] * 300
    assert result.finished.accepted_tokens > 250


@pytest.mark.usefixtures("free_steps")
async def test_engine_drafts_fill_the_context_exactly(gguf: Path) -> None:
    prompt = [7] * 280
    engine = LlamaEngine(
        gguf, placement=Placement(300, speculation="lookup"), threads=ThreadCounts(1, 1)
    )
    await engine.load()
    request = Request(prompt, sampling=Sampling(temperature=0, logit_bias=((7, 100.0),)))
    result = await read_generation(engine.generate(request))
    assert (result.ids, result.finished.reason) == ([7] * 20, "context")
    assert result.finished.accepted_tokens >= 16
    await engine.close()


@pytest.mark.long
@pytest.mark.usefixtures("free_steps")
async def test_embedded_model_writes_the_same_with_drafts(
    tiny_gguf: Path, form: HarmonyFormat
) -> None:
    """Greedily: logits of batches are rounded otherwise, which a seed at temperature 1 shows."""
    words = "apple, pear, plum, " * 6
    requests = [
        user_request(form, text, max_tokens=60)
        for text in ("What is 123 * 456?", "Hello! Who are you?", f"Repeat this: {words}")
    ]
    # One by one: side by side is another batch, too.
    plain = [(await generate(tiny_gguf, [request]))[0] for request in requests]
    for options in ({"speculation": "lookup"}, {"draft": tiny_gguf}):
        drafted = [(await generate(tiny_gguf, [each], **options))[0] for each in requests]
        assert [result.ids for result in drafted] == [result.ids for result in plain]
        assert sum(result.finished.accepted_tokens for result in drafted) > 0
