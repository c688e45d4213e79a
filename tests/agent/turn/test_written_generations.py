"""A branch takes another token of a generation, and everything before it stays as it was."""

import json
import random
from typing import Any

import pytest

from agent import events as ev
from agent.conversation.conversation import Conversation, Entry
from agent.conversation.messages import User
from agent.engine.protocol import Sampling
from agent.formats.harmony.encoding import load_encoding
from agent.formats.harmony.format import HarmonyFormat
from agent.formats.harmony.token_ids import CALL_ID, END_ID, RETURN_ID, START_ID
from agent.formats.protocol import Format
from agent.store.recorder import TurnRecorder
from agent.tiny.vocabulary import ranks
from agent.turn.continuation import with_reasoning
from agent.turn.loop import Turn
from agent.turn.options import TurnOptions
from agent.turn.token_choices import token_choices
from agent.turn.written_generations import (
    WrittenGeneration,
    continue_with_token,
    generation_prompt,
    written_generations,
)
from tests.support.invariants import check
from tests.support.scripts import final, preamble, python, thought
from tests.support.turns import Recorded, read_events

FORM = HarmonyFormat(load_encoding(ranks))


class PastTurn:
    """The only turn of a conversation, as it was stored."""

    def __init__(self, runs: Recorded, talk: Conversation) -> None:
        form = runs.runtime.format
        assert form is not None
        self.runs, self.talk, self.form = runs, talk, form
        (turn,) = runs.store.turns(talk.id)
        entries = runs.store.turn_entries(runs.store.read(talk.id), turn.response.id)
        self.entries: list[Entry] = with_reasoning(form, entries, turn.response.output)
        self.events = [event for _, event in runs.store.events(turn.response.id)]
        self.generations = written_generations(form, self.entries, self.events)

    async def branch(
        self, number: int, index: int, token: int, **options: Any
    ) -> tuple[dict[str, Any], Conversation]:
        """The response of a branch that takes another token, and its conversation."""
        begun = continue_with_token(
            self.form, self.entries, self.events, self.generations[number], index, token
        )
        branch = self.talk.branch(f"b{number}.{index}.{token}", 0)
        response, _ = await self.runs.run(branch, lambda _: begun, **options)
        return response, branch

    def index(self, number: int, text: str) -> int:
        """Where a text begins in a generation."""
        ids = self.generations[number].ids
        return next(n for n in range(len(ids)) if spell(self.form, ids[n:]).startswith(text))


def spell(form: Format, ids: Any) -> str:
    return b"".join(map(form.token_bytes, ids)).decode("utf-8", "replace")


def kinds(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


COMPUTE = thought("Compute.") + python("print(6*7)")


@pytest.fixture
async def past(recorded: Any) -> Any:
    async def run(*replies: str, **options: Any) -> PastTurn:
        runs: Recorded = await recorded(*replies, tools="python")
        talk = Conversation("c")
        await runs.run(talk, **options)
        return PastTurn(runs, talk)

    return run


async def test_generations_are_what_the_model_read_and_wrote(past: Any) -> None:
    answer = thought("So.") + final("42.")
    turn: PastTurn = await past(COMPUTE, answer)
    form = turn.form
    first, second = turn.generations
    assert (first.entry, second.entry) == (1, 4)
    assert list(first.ids) == form.encode_markup(COMPUTE)
    # Without the turn's events, the answer ends as in a history.
    assert list(second.ids) == form.encode_markup(answer.replace("<|return|>", "<|end|>"))
    for generation, request in zip(turn.generations, turn.runs.requests, strict=True):
        before = turn.talk.header_ids
        prompt = generation_prompt(form, before, turn.entries, generation)
        assert prompt == list(request.prompt)
        starts = [spell(form, generation.ids[at:]).split("<")[1] for _, at in generation.starts]
        assert starts == ["|channel|>analysis"] + ["|channel|>" + starts[1][10:]]


async def test_live_events_have_the_very_ids(past: Any) -> None:
    turn: PastTurn = await past(COMPUTE, thought("So.") + final("42."))
    ids = turn.form.encode_markup
    events: list[ev.Event] = [
        ev.AgentPrompt(ids=[1]), ev.AgentTokens(ids=ids(thought("Compute.")), entry=1),
        ev.AgentTokens(ids=ids(python("print(6*7)"))),
        ev.AgentPrompt(ids=[2]), ev.AgentTokens(ids=ids(thought("So.") + final("42.")), entry=4),
    ]  # fmt: skip
    first, second = written_generations(turn.form, turn.entries, events)
    assert list(first.ids) == ids(COMPUTE) and second.ids[-1] == RETURN_ID
    assert [list(g.starts) for g in (first, second)] == [list(g.starts) for g in turn.generations]
    # Where the model wrote other markup than the history has, the generation is taken as it is.
    other = "<|channel|>analysis<|message|>So.<|end|>" + final("42.")
    events[-1] = ev.AgentTokens(ids=ids(other), entry=4)
    assert written_generations(turn.form, turn.entries, events)[1].starts == [(4, 0)]


async def test_another_token_in_a_thought_keeps_the_call_before_it(past: Any) -> None:
    turn: PastTurn = await past(
        COMPUTE, thought("It is forty-two.") + final("42."),
        " No.<|end|><|start|>assistant" + final("43."),
    )  # fmt: skip
    before = kinds_and_ids(turn)
    index = turn.index(1, " forty")
    (token,) = turn.form.encode_text(" more")
    response, branch = await turn.branch(1, index, token)
    assert kinds(response) == ["reasoning", "mcp_call", "reasoning", "message"]
    assert [(item["type"], item["id"]) for item in response["output"][:2]] == before[:2]
    assert response["output"][2]["content"][0]["text"].endswith(" more No.")
    assert response["output"][3]["content"][0]["text"] == "43."
    assert len(turn.runs.requests) == 3, "the call did not run again"
    prompt = list(turn.runs.requests[2].prompt)
    sampled = [*turn.runs.requests[1].prompt, *turn.generations[1].ids[:index], token]
    assert prompt == sampled, "ids before are those that were read and sampled"
    stored = turn.runs.store.turn_entries(turn.runs.store.read(branch.id), response["id"])
    assert stored[:4] == turn.entries[:4]
    assert [turn.prompt for turn in turn.runs.store.turns("c")] == ["go"], "nothing of it is lost"


def kinds_and_ids(turn: PastTurn) -> list[tuple[str, str]]:
    (stored,) = turn.runs.store.turns(turn.talk.id)
    return [(item.type, item.id) for item in stored.response.output]


async def test_another_token_in_a_call_runs_it(past: Any) -> None:
    turn: PastTurn = await past(COMPUTE, final("42."), ")<|call|>", final("48."))
    (token,) = turn.form.encode_text("8")
    response, _ = await turn.branch(0, turn.index(0, "7)"), token)
    assert kinds(response) == ["reasoning", "mcp_call", "message"]
    assert response["output"][1]["output"].strip() == "48"


@pytest.mark.parametrize(
    ("at", "other", "reply", "output"),
    [
        ("analysis", "final", "<|message|>Hi<|return|>", [("message", "Hi")]),
        ("<|channel|>analysis", "<|message|>", "Hi<|return|>", [("message", "Hi")]),
        (
            " second",
            "<|end|>",
            "<|start|>assistant" + final("Yes"),
            [("reasoning", "One"), ("message", "Yes")],
        ),
        (
            " second",
            "<|channel|>",
            "final<|message|>Yes<|return|>",
            [("reasoning", "One"), ("message", "Yes")],
        ),
        (
            "<|start|>",
            "<|channel|>",
            "final<|message|>Yes<|return|>",
            [("reasoning", "One second."), ("message", "Yes")],
        ),
        (
            "assistant",
            "user",
            "<|message|>I ask<|end|>",
            # Without an answer the model is asked again.
            [("reasoning", "One second."), ("reasoning", "One second."), ("message", "So.")],
        ),
        (
            "<|end|>",
            " More",
            ".<|end|><|start|>assistant" + final("Yes"),
            [("reasoning", "One second. More."), ("message", "Yes")],
        ),
        (
            "final",
            "comment",
            "ary<|message|>So:<|end|><|start|>assistant" + final("Yes"),
            [("reasoning", "One second."), ("message", "So:"), ("message", "Yes")],
        ),
        ("So.", " No", "!<|return|>", [("reasoning", "One second."), ("message", " No!")]),
    ],
)
async def test_another_token_in_headers_and_at_markup(
    past: Any, at: str, other: str, reply: str, output: list[tuple[str, str]]
) -> None:
    turn: PastTurn = await past(thought("One second.") + final("So."), reply)
    (token,) = turn.form.encode_markup(other)
    index = turn.index(0, at)
    response, _ = await turn.branch(0, index, token)
    found = [(item["type"], item["content"][0]["text"].strip()) for item in response["output"]]
    assert found == [(kind, text.strip()) for kind, text in output]
    prompt = list(turn.runs.requests[1].prompt)
    assert prompt[len(prompt) - index - 1 :] == [*turn.generations[0].ids[:index], token]


async def test_a_stop_id_ends_the_answer_without_the_engine(past: Any) -> None:
    turn: PastTurn = await past(preamble("First.") + final("It is forty-two."), final("unread"))
    response, branch = await turn.branch(0, turn.index(0, "-two"), RETURN_ID)
    assert len(turn.runs.requests) == 1, "nothing is generated"
    assert response["status"] == "completed" and kinds(response) == ["message", "message"]
    assert response["output"][1]["content"][0]["text"] == "It is forty"
    assert branch.entries[-1].ids[-1] == END_ID
    assert response["usage"]["output_tokens"] == 0


async def test_a_stop_id_ends_a_call_which_then_runs(past: Any) -> None:
    turn: PastTurn = await past(python("print(6) * 7"), final("None."), final("It is 6."))
    response, _ = await turn.branch(0, turn.index(0, " *"), CALL_ID)
    assert kinds(response) == ["mcp_call", "message"]
    assert json.loads(response["output"][0]["arguments"]) == {"code": "print(6)"}
    assert response["output"][0]["output"].strip() == "6"
    assert response["output"][1]["content"][0]["text"] == "It is 6."
    assert len(turn.runs.requests) == 3


async def test_a_stop_id_in_a_header_ends_the_turn(past: Any) -> None:
    turn: PastTurn = await past(final("Hi"))
    response, _ = await turn.branch(0, 1, RETURN_ID)
    assert response["status"] == "completed" and response["output"] == []


@pytest.mark.parametrize("index", [-1, 4, 10**9])
def test_an_index_that_nothing_was_written_at_is_refused(index: int) -> None:
    generation = WrittenGeneration(0, [1, 2, 3, 4])
    with pytest.raises(ValueError, match="wrote 4 tokens"):
        continue_with_token(FORM, [], [], generation, index, START_ID)
    with pytest.raises(ValueError, match="no token"):
        continue_with_token(FORM, [], [], generation, 1, index + 10**9)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
async def test_branches_of_the_embedded_model_go_on_from_the_very_ids(
    recorded: Any, seed: int
) -> None:
    """With the likeliest other token at a random index of what it wrote at random."""
    source = random.Random(seed)
    runs: Recorded = await recorded(tools="python,files")
    sampling = Sampling(temperature=source.choice((0.5, 1.0, 1.5)), seed=seed)
    talk = Conversation("c")
    await runs.run(talk, sampling=sampling, max_output_tokens=160)
    turn = PastTurn(runs, talk)
    number = source.randrange(len(turn.generations))
    generation = turn.generations[number]
    prompt = generation_prompt(turn.form, talk.header_ids, turn.entries, generation)
    assert prompt == list(runs.requests[number].prompt)
    index = source.randrange(len(generation.ids))
    ids, start = [*prompt, *generation.ids], len(prompt)
    choices = await token_choices(runs.runtime, ids, start + index, sampling, start=start)
    assert choices.chosen.token == generation.ids[index] and choices.chosen.grammar is None
    other = choices.alternatives[0].token
    made = len(runs.requests)
    response, _ = await turn.branch(number, index, other, sampling=sampling, max_output_tokens=60)
    if other not in turn.form.stop_ids:
        assert list(runs.requests[made].prompt) == [*ids[: start + index], other]
    assert response["status"] in ("completed", "incomplete")


async def sampled(
    runs: Recorded, talk: Conversation, begin: Any = None
) -> tuple[list[Entry], list[ev.Event], list[ev.Event]]:
    """The entries of a turn that recorded its tokens, its events as they came and as stored."""
    runs.runtime.token_events = True
    options = TurnOptions(token_probabilities=True)
    turn = Turn(runs.runtime, talk, [User("go")], options, begin=begin)
    TurnRecorder(runs.store, lambda error: None).record(turn, "go")
    check(await read_events(turn.start()))
    stored = runs.store.turn_entries(runs.store.read(talk.id), turn.response.id)
    entries = with_reasoning(turn.format, stored, turn.response.output)
    events = [event for _, event in runs.store.events(turn.response.id)]
    return entries, list(turn.log.events), events


def spell_all(entries: list[Entry], events: list[ev.Event]) -> list[str]:
    return [spell(FORM, each.ids) for each in written_generations(FORM, entries, events)]


async def test_a_generation_without_a_message_takes_nothing_of_the_one_before(
    recorded: Any,
) -> None:
    runs: Recorded = await recorded(COMPUTE, thought("So.") + final("42."), tools="python")
    talk = Conversation("c")
    entries, live, _ = await sampled(runs, talk)
    second = written_generations(FORM, entries, live)[1]
    begun = continue_with_token(FORM, entries, live, second, 1, RETURN_ID)
    branch = await sampled(runs, talk.branch("b", 0), lambda _: begun)
    for events in branch[1:]:
        assert spell_all(branch[0], events) == [COMPUTE, "<|channel|><|return|>"]
        silent = written_generations(FORM, branch[0], events)[1]
        again = continue_with_token(FORM, branch[0], events, silent, 1, START_ID)
        assert [spell(FORM, entry.ids)[:40] for entry in again.entries] == [
            spell(FORM, entry.ids)[:40] for entry in branch[0][1:]
        ], "the call and its result are before it"


async def test_an_only_generation_that_a_stop_id_ends_keeps_its_reasoning(recorded: Any) -> None:
    runs: Recorded = await recorded(thought("One.") + final("Two."))
    talk = Conversation("c")
    entries, live, _ = await sampled(runs, talk)
    (generation,) = written_generations(FORM, entries, live)
    header = generation.starts[1].offset
    begun = continue_with_token(FORM, entries, live, generation, header + 1, RETURN_ID)
    branch = await sampled(runs, talk.branch("b", 0), lambda _: begun)
    for events in branch[1:]:
        kept = thought("One.") + "<|channel|><|return|>"
        assert spell_all(branch[0], events) == [kept]
        (generation,) = written_generations(FORM, branch[0], events)
        assert generation.starts == [(1, 0), (2, header)]


async def test_a_message_with_another_opening_stays_before_the_next_one(recorded: Any) -> None:
    odd = "<|start|>analysis<|message|>Two.<|end|><|start|>assistant"
    runs: Recorded = await recorded(
        "<|channel|>analysis<|message|>One.<|end|>" + odd + final("Hi there")
    )
    entries, live, _ = await sampled(runs, Conversation("c"))
    (generation,) = written_generations(FORM, entries, live)
    begun = continue_with_token(FORM, entries, live, generation, len(generation.ids) - 2, 12345)
    texts = [spell(FORM, entry.ids)[-11:] for entry in begun.entries]
    assert texts == ["One.<|end|>", "Two.<|end|>"]
    items = [event.item for event in begun.events if isinstance(event, ev.OutputItemAdded)]
    assert [item.type for item in items] == ["reasoning", "reasoning"]


async def test_stored_generations_are_apart_where_one_was_all_begun(recorded: Any) -> None:
    runs: Recorded = await recorded(
        python("print(6) * 7"), final("None."), final("It is 6."), tools="python"
    )
    talk = Conversation("c")
    entries, live, _ = await sampled(runs, talk)
    first = written_generations(FORM, entries, live)[0]
    index = next(n for n in range(len(first.ids)) if spell(FORM, first.ids[n:]).startswith(" *"))
    begun = continue_with_token(FORM, entries, live, first, index, CALL_ID)
    branch = await sampled(runs, talk.branch("b", 0), lambda _: begun)
    for events in branch[1:]:
        assert spell_all(branch[0], events) == [python("print(6)"), final("It is 6.")]
        one, two = written_generations(FORM, branch[0], events)
        assert [len(each.logprobs) for each in (one, two)] == [len(each.ids) for each in (one, two)]
        assert not any(one.logprobs) and all(two.logprobs)


def test_equal_generations_without_a_message_are_each_there() -> None:
    user, answer = FORM.encode_markup("<|start|>user<|message|>go<|end|>"), FORM.open_assistant()
    entries = [
        Entry(user, role="user"),
        Entry([*answer, *FORM.encode_markup(final("Hi"))], role="assistant"),
    ]
    header = FORM.encode_markup("<|channel|>final")
    events = [ev.AgentTokens(ids=header, entry=1)] * 2
    assert spell_all(entries[:1], events) == ["<|channel|>final"] * 2
    events.append(ev.AgentTokens(ids=FORM.encode_markup(final("Hi")), entry=1))
    assert spell_all(entries, events) == [*["<|channel|>final"] * 2, final("Hi")]
