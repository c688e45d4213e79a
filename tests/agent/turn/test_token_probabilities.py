"""How likely each token was is recorded with it where a setting asks for it, and nowhere else."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent import events as ev
from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.engine.protocol import Logprob, Request, Sampling
from agent.engine.scripted import ScriptGeneration
from agent.store.recorder import TurnRecorder
from agent.turn.constraints import TurnSettings
from agent.turn.continuation import with_reasoning
from agent.turn.logprobs import recorded_logprob, sampled_logprob
from agent.turn.loop import Turn
from agent.turn.options import TurnOptions
from agent.turn.token_choices import OTHER_CHOICES, describe_choices, token_choices
from agent.turn.written_generations import (
    WrittenGeneration,
    continue_with_token,
    generation_prompt,
    written_generations,
)
from tests.support.invariants import check
from tests.support.scripts import final, python, thought
from tests.support.turns import Recorded, read_events

QUESTION = "What is 12 plus 30?"


async def run_turn(runs: Recorded, talk: Conversation, **options: Any) -> Turn:
    """A turn that has ended, and was stored."""
    runs.runtime.token_events = True
    turn = Turn(runs.runtime, talk, [User(QUESTION)], TurnOptions(**options))
    TurnRecorder(runs.store, lambda error: None).record(turn, QUESTION)
    check(await read_events(turn.start()))
    return turn


def stored_generations(runs: Recorded, turn: Turn) -> list[WrittenGeneration]:
    """What another process reads of a turn."""
    entries = runs.store.turn_entries(runs.store.read(turn.conversation.id), turn.response.id)
    form = turn.format
    events = [event for _, event in runs.store.events(turn.response.id)]
    assert isinstance(events[-1], ev.Terminal)
    return written_generations(form, with_reasoning(form, entries, turn.response.output), events)


@pytest.mark.long
@pytest.mark.parametrize("temperature", [0.0, 1.2])
async def test_probabilities_come_with_the_tokens_and_are_stored(
    recorded: Any, temperature: float
) -> None:
    runs: Recorded = await recorded(tools="python")
    sampling = Sampling(temperature=temperature, top_k=50, seed=3)
    turn = await run_turn(
        runs, Conversation("c"), sampling=sampling, token_probabilities=True, max_output_tokens=150
    )
    tokens = [event for event in turn.log.events if isinstance(event, ev.AgentTokens)]
    assert all(event.logprobs and len(event.logprobs) == len(event.ids) for event in tokens)
    assert not any(
        part.logprobs
        for item in turn.items
        if isinstance(item, ev.MessageItem)
        for part in item.content
    ), "messages have them on a client's request alone"
    stored = stored_generations(runs, turn)
    ids = [token for event in tokens for token in event.ids]
    assert [token for generation in stored for token in generation.ids] == ids
    rows = [row for event in tokens for row in event.logprobs or ()]
    assert [row for generation in stored for row in generation.logprobs] == rows
    # What is stored says the same as computing it anew.
    generation = stored[-1]
    entries = runs.store.turn_entries(turn.conversation, turn.response.id)
    prompt = generation_prompt(turn.format, turn.conversation.header_ids, entries, generation)
    assert len(prompt) + len(generation.ids) > 0
    index = len(generation.ids) // 2
    row = generation.logprobs[index]
    assert row is not None and len(row.top) == OTHER_CHOICES + 1
    kept = await describe_choices(
        sampled_logprob(generation.ids[index], row), generation.ids[:index], None
    )
    anew = await token_choices(
        runs.runtime, [*prompt, *generation.ids], len(prompt) + index, sampling, None,
        start=len(prompt),
    )  # fmt: skip
    assert kept.chosen.token == anew.chosen.token and len(kept.alternatives) == OTHER_CHOICES
    assert kept.chosen.logprob == pytest.approx(anew.chosen.logprob, abs=0.1)
    assert kept.chosen.probability == pytest.approx(anew.chosen.probability, abs=0.05)


async def test_without_the_setting_nothing_of_it_is_written(recorded: Any) -> None:
    runs: Recorded = await recorded()
    turn = await run_turn(runs, Conversation("c"), max_output_tokens=20)
    tokens = [event for event in turn.log.events if isinstance(event, ev.AgentTokens)]
    first, *others = [set(json.loads(event.model_dump_json())) for event in tokens]
    assert first == {"type", "ids", "entry"}
    assert others and all(names == {"type", "ids"} for names in others)
    events = [event for _, event in runs.store.events(turn.response.id)]
    assert not any(isinstance(event, ev.AgentTokens) for event in events)
    assert all(not generation.logprobs for generation in stored_generations(runs, turn))


async def test_what_is_not_reported_of_a_token_is_none(
    recorded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As llama-server reports only the last of several tokens that are one character."""
    runs: Recorded = await recorded(final("\N{LLAMA} and more"))
    form = runs.runtime.format or (await runs.runtime.load()).format
    unknown = set(form.encode_text("\N{LLAMA}")[:-1])
    monkeypatch.setattr(
        ScriptGeneration,
        "_logprobs",
        lambda _, token: [None if token in unknown else Logprob(token, -1.0)],
    )
    turn = await run_turn(runs, Conversation("c"), token_probabilities=True, logprobs=0)
    tokens = [event for event in turn.log.events if isinstance(event, ev.AgentTokens)]
    rows = {event.ids[0]: event.logprobs for event in tokens}
    assert unknown and all(rows[token] == [None] for token in unknown)
    assert all(rows[token] != [None] for token in rows if token not in unknown)
    (message,) = turn.items
    assert isinstance(message, ev.MessageItem)
    (part,) = message.content
    assert [each["logprob"] for each in part.logprobs] == [-1.0] * len(part.logprobs)
    last, *others = part.logprobs
    assert bytes(last["bytes"]) == "\N{LLAMA}".encode()[-len(last["bytes"]) :]
    assert b"".join(bytes(each["bytes"]) for each in others) == b" and more"


@pytest.mark.long
async def test_log_probabilities_of_a_clients_request_stay_its_own(recorded: Any) -> None:
    runs: Recorded = await recorded()
    options = {"sampling": Sampling(temperature=0), "logprobs": 2, "max_output_tokens": 200}
    turns = [
        await run_turn(runs, Conversation(f"c{wanted}"), token_probabilities=wanted, **options)
        for wanted in (False, True)
    ]
    without, with_them = ([item.model_dump(exclude={"id"}) for item in t.items] for t in turns)
    texts = [[part["text"] for part in item.get("content", ())] for item in with_them]
    assert texts == [[part["text"] for part in item.get("content", ())] for item in without]
    (message,) = (item for item in turns[1].items if isinstance(item, ev.MessageItem))
    rows = message.content[0].logprobs
    assert rows and all(len(row["top_logprobs"]) == 2 for row in rows)


async def test_what_was_begun_has_no_probability(recorded: Any) -> None:
    runs: Recorded = await recorded(
        thought("Compute.") + python("print(6*7)"), thought("So.") + final("42."),
        " it is.<|end|><|start|>assistant" + final("43."), tools="python",
    )  # fmt: skip
    options = {"token_probabilities": True}
    turn = await run_turn(runs, Conversation("c"), **options)
    generations = stored_generations(runs, turn)
    assert [len(g.logprobs) for g in generations] == [len(g.ids) for g in generations]
    certain = ev.TokenProbability(logprob=0.0, probability=1.0, rank=1, top=[])
    assert all(
        row is not None and row.model_copy(update={"top": []}) == certain
        for generation in generations
        for row in generation.logprobs
    ), "a script has no doubt"
    entries = runs.store.turn_entries(runs.store.read("c"), turn.response.id)
    (so,) = turn.format.encode_text("So")
    index = list(generations[1].ids).index(so) + 1
    (token,) = turn.format.encode_text(",")
    events = [event for _, event in runs.store.events(turn.response.id)]
    begun = continue_with_token(turn.format, entries, events, generations[1], index, token)
    branch = turn.conversation.branch("b", 0)
    again = Turn(
        runs.runtime, branch, [User(QUESTION)], TurnOptions(token_probabilities=True),
        begin=lambda _: begun,
    )  # fmt: skip
    TurnRecorder(runs.store, lambda error: None).record(again, QUESTION)
    check(await read_events(again.start()))
    (generation,) = stored_generations(runs, again)[1:]
    assert list(generation.ids[: index + 1]) == [*generations[1].ids[:index], token]
    assert [row is None for row in generation.logprobs] == [
        n <= index for n in range(len(generation.ids))
    ]


async def test_generation_of_a_branch_has_the_messages_before_it(recorded: Any) -> None:
    runs: Recorded = await recorded(
        thought("Compute.") + python("print(6*7)"), final("42."),
        "*7)<|call|>", final("56."),
        "*7)<|call|>", final("63."), tools="python",
    )  # fmt: skip
    turn = await run_turn(runs, Conversation("c0"), token_probabilities=True)
    form, before = turn.format, turn.conversation.header_ids
    for number, digit in enumerate("89", 1):
        stored = runs.store.turn_entries(runs.store.read(turn.conversation.id), turn.response.id)
        entries = with_reasoning(form, stored, turn.response.output)
        first = stored_generations(runs, turn)[0]
        index = list(first.ids).index(form.encode_text("*")[0]) - 1
        (token,) = form.encode_text(digit)
        begun = continue_with_token(form, entries, turn.log.events, first, index, token)
        branch = turn.conversation.branch(f"c{number}", 0)
        turn = Turn(
            runs.runtime, branch, [User(QUESTION)], TurnOptions(token_probabilities=True),
            begin=lambda _, begun=begun: begun,
        )  # fmt: skip
        TurnRecorder(runs.store, lambda error: None).record(turn, QUESTION)
        check(await read_events(turn.start()))
        assert [item.type for item in turn.items] == ["reasoning", "mcp_call", "message"]
        stored = runs.store.turn_entries(runs.store.read(branch.id), turn.response.id)
        entries = with_reasoning(form, stored, turn.response.output)
        for generations in (
            stored_generations(runs, turn),
            written_generations(form, entries, turn.log.events),
        ):
            read = [
                [*generation_prompt(form, before, entries, each), *each.ids] for each in generations
            ]
            for ids, request in zip(read, runs.requests[2 * number :], strict=True):
                assert ids[: len(request.prompt)] == list(request.prompt)
            assert [len(each.logprobs) for each in generations] == [
                len(each.ids) for each in generations
            ]
            assert [row is None for row in generations[0].logprobs] == [
                n <= index for n in range(len(generations[0].ids))
            ]
            starts = [form.token_bytes(generations[0].ids[at]) for _, at in generations[0].starts]
            assert starts == [b"<|channel|>"] * 2


def test_recorded_log_probabilities_can_be_read_back() -> None:
    from agent.engine.protocol import Logprob

    full = Logprob(7, -0.123456789, ((7, -0.123456789), (9, -80.5)), 1, 1.0, (1.0, 1.5e-37))
    back = sampled_logprob(7, recorded_logprob(full))
    assert back.logprob == -0.12346 and back.rank == 1
    assert back.top_probabilities == (1.0, 1.5e-37), "not 0: it was not cut off"
    bare = Logprob(7, -1.0, ((9, -0.5),))
    assert sampled_logprob(7, recorded_logprob(bare)) == bare


async def test_grammar_of_a_turn_that_is_over_is_that_of_its_generations(
    recorded: Any, tmp_path: Path
) -> None:
    """On the embedded model, that calls a tool whose arguments have a schema."""
    (tmp_path / "root").mkdir()
    runs: Recorded = await recorded(tools="files", root=tmp_path / "root")
    requests: list[Request] = runs.requests
    turn = Turn(
        runs.runtime, Conversation("c"), [User("List the files in src")],
        TurnOptions(sampling=Sampling(temperature=0), tool_choice="must", max_output_tokens=120),
    )  # fmt: skip
    check(await read_events(turn.start()))
    settings: TurnSettings = turn.settings
    assert settings.tools and settings.options.approver is None
    ids = turn.generations[0].ids
    form, prompt = turn.format, list(requests[0].prompt)
    body = spelled_index(form, ids, "{")

    async def look(index: int) -> Any:
        return await token_choices(
            runs.runtime, [*prompt, *ids], len(prompt) + index, settings.options.sampling,
            await settings.new_constraint(form, first=True), start=len(prompt),
        )  # fmt: skip

    channel = await look(0)
    assert channel.chosen.grammar == "forced" or channel.chosen.grammar == "free"
    opening = await look(body)
    assert opening.chosen.grammar in ("free", "forced")
    assert "forbidden" in {choice.grammar for choice in opening.alternatives}
    free = await settings.new_constraint(form, first=False)
    assert free is not None, "arguments of later calls have grammars too"


def spelled_index(form: Any, ids: Any, text: str) -> int:
    return next(
        n for n, token in enumerate(ids) if form.token_bytes(token).startswith(text.encode())
    )
