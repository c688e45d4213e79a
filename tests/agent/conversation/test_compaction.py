"""A full context: the oldest turns become a summary, and everything stays in the conversation."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.conversation.compaction import SUMMARY, full, least, starts
from agent.conversation.conversation import (
    Assistant,
    Called,
    Conversation,
    Developer,
    Entry,
    Returned,
    User,
)
from agent.engine.protocol import EngineError, Generation, Request, Sampling
from agent.formats.protocol import Head
from agent.models.catalog import Model
from agent.runtime.runtime import Runtime
from agent.store.conversations import Store
from agent.turn.jobs import CompactTurn
from agent.turn.loop import Turn
from agent.turn.options import Options
from tests.support.invariants import check
from tests.support.runtimes import MakeRuntime

TOLD = "They counted words; the answer was blue."
SAID = {"markup": f"<|channel|>analysis<|message|>Short.<|end|><|start|>assistant<|channel|>final<|message|>{TOLD}<|return|>"}  # fmt: skip # noqa: E501
OK = {"markup": "<|channel|>final<|message|>ok<|return|>"}
COMPACT = Options(compact=True, tools=())
CONTEXT = 1200

Make = Callable[..., Any]


@pytest.fixture
def make(make_runtime: MakeRuntime, tmp_path: Path) -> Make:
    """A runtime that says these lines, and records what it is asked."""

    async def runtime(*lines: dict[str, Any], context: int = CONTEXT) -> Recorded:
        path = tmp_path / "script.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return Recorded(await make_runtime(path, context=context))

    return runtime


class Recorded:
    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.requests = runtime, list[Request]()
        generate = runtime.generate

        def record(request: Request) -> Generation:
            self.requests.append(request)
            return generate(request)

        runtime.generate = record  # type: ignore[method-assign]

    def text(self, ids: Any) -> str:
        return str(self.runtime.format.encoding.decode(list(ids)))  # type: ignore[attr-defined]

    def talk(self, turns: int, words: int = 40, result: int = 0) -> Conversation:
        """``result``: words of each turn's tool result; 0: no call."""
        conversation, form = Conversation("c"), self.runtime.format
        conversation.vocabulary = self.runtime.vocabulary
        for number in range(turns):
            conversation.add(form, User(f"question {number}" + " word" * words))
            if result:
                conversation.add(form, Called("f", f'{{"n":{number}}}'))
                conversation.add(
                    form, Returned("f", f"first {number}" + " more" * result + " last")
                )
            conversation.add(form, Assistant(f"answer {number}"))
        return conversation

    async def ask(
        self, conversation: Conversation, text: str = "and now?", options: Options = COMPACT
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """One more turn; its events and its response."""
        return await played(Turn(self.runtime, conversation, [User(text)], options))


async def played(turn: Turn) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    turn.start()
    await turn.done()
    events = [json.loads(event.model_dump_json()) for event in turn.log.events]
    return events, check(events)


def notices(events: list[dict[str, Any]]) -> str:
    return "\n".join(event["message"] for event in events if event["type"] == "agent.notice")


async def test_the_oldest_turns_become_a_summary(make: Make) -> None:
    made = await make(SAID, OK)
    conversation = made.talk(20)
    events, final = await made.ask(conversation)
    assert final["status"] == "completed" and len(made.requests) == 2
    prompt = made.text(made.requests[1].prompt)
    system, developer, *rest = prompt.split("<|start|>")[1:]
    assert system.startswith("system") and developer.startswith("developer")
    assert SUMMARY in developer and TOLD in developer
    assert "question 0 " not in prompt and "question 19" in prompt and rest[-2:] == [
        "user<|message|>and now?<|end|>", "assistant",
    ]  # fmt: skip
    assert made.text(made.requests[0].prompt).count("<|start|>user<|message|>question 0 ") == 1
    assert len(made.requests[1].prompt) < 0.6 * CONTEXT
    (stats,) = [event for event in events if event["type"] == "agent.stats"]
    assert stats["aside_input_tokens"] == len(made.requests[0].prompt) > 0
    assert stats["aside_output_tokens"] > final["usage"]["output_tokens"] > 0
    assert final["usage"]["input_tokens"] == len(made.requests[1].prompt), "of the answer alone"
    said = notices(events)
    assert "earlier turns summarised" in said and f"has {len(made.requests[1].prompt):,} t" in said
    everything = made.text([i for entry in conversation.entries for i in entry.ids])
    assert all(f"question {number} " in everything for number in range(20)), "nothing is lost"


async def test_nothing_happens_unasked_or_while_there_is_room(make: Make) -> None:
    made = await make(OK)
    conversation = made.talk(20)
    await made.ask(conversation, options=Options(tools=()))
    await made.ask(made.talk(3))
    assert len(made.requests) == 2 and conversation.compacted is None


async def test_long_results_are_cut_first(make: Make) -> None:
    made = await make(OK)
    conversation = made.talk(4, words=5, result=200)
    before = [list(entry.ids) for entry in conversation.entries]
    conversation.saved = 5
    events, _ = await made.ask(conversation)
    (request,) = made.requests
    prompt = made.text(request.prompt)
    assert "first 0 more" in prompt and prompt.count("more last") == 4
    assert prompt.count("tokens were cut here") == 3, "the latest turn stays whole"
    assert prompt.count("the whole: agent sessions show c") == 1, "one of them is in the store"
    assert prompt.count("<|call|>") == prompt.count("<|start|>functions.f to=assistant") == 4
    assert "3 long results of tools shortened" in notices(events)
    assert [entry.ids for entry in conversation.entries[: len(before)]] == before


async def test_what_was_compacted_is_compacted_again(make: Make) -> None:
    made = await make(SAID, OK)
    conversation = made.talk(20)
    for number in range(30):
        _, final = await made.ask(conversation, f"more {number}" + " word" * 40)
        assert final["status"] == "completed"
    summaries = [r for r in made.requests if r.max_tokens is not None]
    assert len(summaries) >= 3
    for request in summaries[1:]:
        assert TOLD in made.text(request.prompt), "the summary before is summarised with the rest"
    assert made.text(made.requests[-1].prompt).count(SUMMARY) == 1
    assert len(starts(made.runtime.format, conversation.entries)) == 50


async def test_an_earlier_summary_outlives_one_that_fails(make: Make) -> None:
    made = await make(SAID, OK, NONE[0], OK, NONE[0], OK)
    conversation = made.talk(20)
    await made.ask(conversation)
    for _ in range(2):
        for number in range(16):
            conversation.add(made.runtime.format, User(f"more {number}" + " word" * 40))
            conversation.add(made.runtime.format, Assistant("yes"))
        events, _ = await made.ask(conversation)
        assert "left out" in notices(events)
        prompt = made.text(made.requests[-1].prompt)
        assert TOLD in prompt and prompt.count("was left out, unsummarised") == 1
        assert not full(made.runtime, conversation)


async def test_a_family_whose_results_are_a_users_words(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    """Qwen writes results into messages of the user: they begin no turn, with or without roles."""
    path = tmp_path / "script.jsonl"
    lines = [f"<think>\nHm.\n</think>\n\n{TOLD}<|im_end|>", "ok<|im_end|>"]
    path.write_text("".join(json.dumps({"markup": line}) + "\n" for line in lines))
    qwen = Model("qwen", path=tmp_path / "nowhere.gguf", format="qwen3")
    made = Recorded(await make_runtime(path, context=2500, model=qwen))
    conversation = made.talk(10, words=10, result=100)
    assert len(starts(made.runtime.format, conversation.entries)) == 10
    for entry in conversation.entries:
        entry.role = None
    assert len(starts(made.runtime.format, conversation.entries)) == 10
    # Its test vocabulary has a token a byte.
    context = int(len(conversation.prompt(made.runtime.format)) / 0.9)
    made.runtime.context_length = made.runtime.engine.context_length = context
    _, final = await made.ask(conversation)
    assert final["status"] == "completed" and len(made.requests) == 2
    form: Any = made.runtime.format
    raw = form.encoder._vocabulary.raw
    prompt = b"".join(raw(token) or b"" for token in made.requests[1].prompt).decode()
    assert TOLD in prompt and "question 9" in prompt and "question 0 " not in prompt
    assert prompt.count("<tool_call>") == prompt.count("<tool_response>") > 0
    assert form.name == "qwen3"


async def test_a_long_history_is_summarised_in_pieces(make: Make) -> None:
    made = await make(SAID)
    conversation = made.talk(60)
    await made.ask(conversation)
    *pieces, _ = made.requests
    assert len(pieces) > 2
    assert all(len(r.prompt) + r.max_tokens <= CONTEXT for r in pieces)
    told = "".join(made.text(request.prompt) for request in pieces)
    assert all(told.count(f"question {number} ") == 1 for number in range(50))


async def test_a_message_longer_than_the_context_is_told_by_its_ends(make: Make) -> None:
    made = await make(SAID)
    conversation = made.talk(2)
    conversation.add(made.runtime.format, User("begin" + " word" * 3000 + " finish"))
    conversation.add(made.runtime.format, Assistant("long."))
    _, final = await made.ask(conversation)
    assert final["status"] == "completed"
    told = "".join(made.text(request.prompt) for request in made.requests[:-1])
    assert "begin word" in told and "finish" in told and "tokens were cut here" in told


NONE = [
    {"markup": "<|channel|>final<|message|><|return|>"},
    {"markup": "<|channel|>analysis<|message|>I only think.<|return|>"},
    {"markup": '<|channel|>commentary to=functions.f<|message|>{"a":1}<|call|>'},
    {"markup": "<|channel|>final<|message|>" + "on and on " * 600 + "<|return|>"},
]


@pytest.mark.parametrize("reply", NONE, ids=["empty", "thought", "call", "too-long"])
async def test_without_a_summary_the_oldest_turns_are_left_out(
    make: Make, reply: dict[str, Any]
) -> None:
    made = await make(reply, OK)
    conversation = made.talk(20)
    events, final = await made.ask(conversation)
    assert final["status"] == "completed" and "left out" in notices(events)
    prompt = made.text(made.requests[-1].prompt)
    assert "were left out to make room" in prompt and "question 19" in prompt


@pytest.mark.parametrize("reply", NONE, ids=["empty", "thought", "call", "too-long"])
async def test_who_asks_for_a_summary_gets_one_or_nothing(
    make: Make, reply: dict[str, Any]
) -> None:
    made = await make(reply)
    conversation = made.talk(5)
    _, final = await played(CompactTurn(made.runtime, conversation, [], COMPACT))
    assert "stays as it was" in final["error"]["message"]
    assert conversation.compacted is None and len(conversation.entries) == 10


async def test_asked_all_turns_but_the_latest_are_summarised(make: Make) -> None:
    made = await make(SAID)
    conversation = made.talk(5)
    events, final = await played(CompactTurn(made.runtime, conversation, [], COMPACT))
    assert final["status"] == "completed" and not final["output"]
    assert "4 earlier turns summarised" in notices(events)
    prompt = made.text(conversation.ids())
    assert "question 3" not in prompt and "question 4" in prompt and TOLD in prompt
    _, final = await played(CompactTurn(made.runtime, conversation, [], COMPACT))
    assert "nothing to compact" in final["error"]["message"]


async def test_stopped_while_it_is_summarised(make: Make) -> None:
    made = await make({**SAID, "delay_ms": 50_000})
    conversation = made.talk(20)
    turn = Turn(made.runtime, conversation, [User("and now?")], COMPACT).start()
    async for batch in turn.log.follow():
        if any(event.type == "agent.prefill" for event in batch):
            turn.stop()
    events = [json.loads(event.model_dump_json()) for event in turn.log.events]
    assert check(events)["status"] == "cancelled"
    assert "Stopped while it was compacted" in notices(events)
    assert conversation.compacted is None
    assert all(entry.short is None for entry in conversation.entries)


async def test_an_engine_that_fails_changes_nothing(make: Make) -> None:
    made = await make(OK)
    conversation, generate = made.talk(20), made.runtime.generate

    def fails(request: Request) -> Generation:
        if request.max_tokens is not None:
            raise EngineError("The engine has no room.")
        return generate(request)  # type: ignore[no-any-return]

    made.runtime.generate = fails
    events, final = await made.ask(conversation)
    assert "stays as it was: The engine has no room." in notices(events)
    assert final["status"] == "completed" and conversation.compacted is None


async def test_calls_and_results_stay_together(make: Make) -> None:
    """Whatever the history: what begins a turn never parts a result from its call."""
    made, random_ = await make(SAID), random.Random(7)
    form = made.runtime.format
    for _ in range(300):
        conversation = Conversation("c")
        conversation.set_head(form, Head(date="2026-01-01"))
        messages = [
            User("u"),
            Assistant("a"),
            Developer("d"),
            Called("f", "{}"),
            Returned("f", "r"),
        ]
        for message in random_.choices(messages, k=random_.randrange(1, 12)):
            conversation.add(form, message)
        roles = [entry.role for entry in conversation.entries]
        for start in starts(form, conversation.entries):
            after = [role for role in roles[start:] if role not in ("user", "developer")]
            assert roles[start] in ("user", "developer") and after[:1] != ["result"]


async def test_a_call_that_waits_for_its_result_stays_with_its_question(make: Make) -> None:
    made = await make(SAID, OK)
    conversation = made.talk(20)
    conversation.add(made.runtime.format, User("call it"))
    conversation.add(made.runtime.format, Called("f", "{}"))
    turn = Turn(made.runtime, conversation, [Returned("f", "the result")], COMPACT)
    _, final = await played(turn)
    prompt = made.text(made.requests[-1].prompt)
    assert final["status"] == "completed" and SUMMARY in prompt
    assert "call it<|end|>" in prompt and "<|call|><|start|>functions.f" in prompt


async def test_the_store_keeps_both(make: Make, tmp_path: Path) -> None:
    made = await make(SAID, OK)
    store = Store(tmp_path / "store.sqlite")
    conversation = made.talk(6, words=5, result=200)
    turn = Turn(made.runtime, conversation, [User("and now?")], COMPACT)
    store.begin(conversation, "and now?", turn.response)
    await played(turn)
    store.finish(conversation, turn.response)
    again = store.load("c")
    assert any(entry.short for entry in again.entries) or again.compacted
    again.set_head(made.runtime.format, conversation.head)
    assert again.ids() == conversation.ids() and again.entries == [
        Entry(e.ids, e.reasoning, None, e.role, e.recipient, e.short) for e in conversation.entries
    ]


async def test_entries_of_an_earlier_version_have_no_roles(make: Make) -> None:
    made = await make(SAID)
    conversation = made.talk(4, result=3)
    known = starts(made.runtime.format, conversation.entries)
    for entry in conversation.entries:
        entry.role = entry.recipient = None
    assert starts(made.runtime.format, conversation.entries) == known == [0, 4, 8, 12]


async def test_what_cannot_be_taken_away_is_known_before(make: Make) -> None:
    made = await make(SAID)
    conversation = made.talk(20)
    turn = Turn(made.runtime, conversation, [User("now" + " word" * 300)], COMPACT)
    turn.prepare()
    bound = least(made.runtime, conversation)
    assert 300 < bound < 600
    await played(turn)
    assert bound <= len(made.requests[-1].prompt)


@pytest.mark.slow
async def test_the_real_model_goes_on_and_on(make_runtime: MakeRuntime) -> None:
    """tiny cannot summarise; whatever it writes, no turn is cut off by the context."""
    runtime = await make_runtime(context=512, tools="python")
    conversation, told, lengths = Conversation("c"), list[str](), list[int]()
    options = Options(compact=True, sampling=Sampling(temperature=0))
    for number in range(12, 26):
        turn = Turn(runtime, conversation, [User(f"What is {number}*34?")], options)
        events, final = await played(turn)
        assert final["status"] == "completed" and not full(runtime, conversation)
        told += [notices(events)] if notices(events) else []
        lengths.append(len(conversation.prompt(runtime.format)))
    assert len(told) > 1 and all("was compacted" in said for said in told)
    assert sum(len(entry.ids) for entry in conversation.entries) > 512 > max(lengths)
    assert conversation.ids()[: len(conversation.head_ids)] == conversation.head_ids
