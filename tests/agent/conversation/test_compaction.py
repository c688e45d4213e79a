"""A full context: the oldest turns become a summary, and everything stays in the conversation."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.conversation.compaction import (
    SUMMARY,
    minimum_prompt_tokens,
    needs_compaction,
    replaceable_tokens,
    turn_starts,
)
from agent.conversation.conversation import Conversation, Entry, StoredVersion
from agent.conversation.messages import (
    Assistant,
    Developer,
    ToolCallMessage,
    ToolResultMessage,
    User,
)
from agent.conversation.prompt_choices import PromptChoiceError, toggle_dropped, toggle_pinned
from agent.conversation.summary import shorten_entry
from agent.engine.protocol import EngineError, Generation, Request, Sampling
from agent.formats.protocol import PromptHeader
from agent.models.catalog import Model
from agent.runtime.runtime import Runtime
from agent.store.conversations import Store
from agent.turn.context_usage import conversation_parts
from agent.turn.jobs import compact_conversation
from agent.turn.loop import Turn
from agent.turn.options import TurnOptions
from tests.support.invariants import check
from tests.support.runtimes import MakeRuntime
from tests.support.scripts import hold
from tests.support.turns import FINAL, read_events, write_script

SUMMARY_TEXT = "They counted words; the answer was blue."
SUMMARY_REPLY = {
    "markup": "<|channel|>analysis<|message|>Short.<|end|>"
    f"<|start|>assistant<|channel|>final<|message|>{SUMMARY_TEXT}<|return|>"
}
FINAL_REPLY = {"markup": FINAL}
COMPACT = TurnOptions(compact=True, tools=())
CONTEXT_TOKENS = 1200

NewRecorder = Callable[..., Any]


@pytest.fixture
def new_recorder(make_runtime: MakeRuntime, tmp_path: Path) -> NewRecorder:
    """``await new_recorder(*replies)``: a runtime with these replies whose requests are recorded."""

    async def new(*replies: dict[str, Any], context: int = CONTEXT_TOKENS) -> RequestRecorder:
        path = write_script(tmp_path / "script.jsonl", *replies)
        return RequestRecorder(await make_runtime(path, context=context))

    return new


class RequestRecorder:
    """A runtime, and the requests that its engine got."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.requests = runtime, list[Request]()
        generate = runtime.generate

        def record(request: Request) -> Generation:
            self.requests.append(request)
            return generate(request)

        runtime.generate = record  # type: ignore[method-assign]

    def text(self, ids: Any) -> str:
        return str(self.runtime.format.encoding.decode(list(ids)))  # type: ignore[attr-defined]

    def conversation(self, turns: int, words: int = 40, result: int = 0) -> Conversation:
        """A conversation of finished turns; ``result``: words of each tool result, 0: no calls."""
        conversation, form = Conversation("c"), self.runtime.format
        conversation.vocabulary = self.runtime.loaded.vocabulary
        for number in range(turns):
            conversation.add(form, User(f"question {number}" + " word" * words))
            if result:
                conversation.add(form, ToolCallMessage("f", f'{{"n":{number}}}'))
                conversation.add(
                    form, ToolResultMessage("f", f"first {number}" + " more" * result + " last")
                )
            conversation.add(form, Assistant(f"answer {number}"))
        return conversation

    async def run_turn(
        self, conversation: Conversation, text: str = "and now?", options: TurnOptions = COMPACT
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Run one more turn; its events and its response."""
        return await run(Turn(self.runtime, conversation, [User(text)], options))


async def run(turn: Turn) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    events = await read_events(turn.start())
    return events, check(events)


def notices(events: list[dict[str, Any]]) -> str:
    return "\n".join(event["message"] for event in events if event["type"] == "agent.notice")


async def test_oldest_turns_become_a_summary(new_recorder: NewRecorder) -> None:
    recorder = await new_recorder(SUMMARY_REPLY, FINAL_REPLY)
    conversation = recorder.conversation(20)
    events, final = await recorder.run_turn(conversation)
    assert final["status"] == "completed" and len(recorder.requests) == 2
    prompt = recorder.text(recorder.requests[1].prompt)
    system, developer, *rest = prompt.split("<|start|>")[1:]
    assert system.startswith("system") and developer.startswith("developer")
    assert SUMMARY in developer and SUMMARY_TEXT in developer
    assert "question 0 " not in prompt and "question 19" in prompt and rest[-2:] == [
        "user<|message|>and now?<|end|>", "assistant",
    ]  # fmt: skip
    assert (
        recorder.text(recorder.requests[0].prompt).count("<|start|>user<|message|>question 0 ") == 1
    )
    assert len(recorder.requests[1].prompt) < 0.6 * CONTEXT_TOKENS
    (stats,) = [event for event in events if event["type"] == "agent.stats"]
    assert stats["aside_input_tokens"] == len(recorder.requests[0].prompt) > 0
    assert stats["aside_output_tokens"] > final["usage"]["output_tokens"] > 0
    assert final["usage"]["input_tokens"] == len(recorder.requests[1].prompt), "of the answer alone"
    messages = notices(events)
    assert "earlier turns summarised" in messages
    assert f"has {len(recorder.requests[1].prompt):,} t" in messages
    everything = recorder.text([i for entry in conversation.entries for i in entry.ids])
    assert all(f"question {number} " in everything for number in range(20)), "nothing is lost"


async def test_no_compaction_unless_enabled_and_needed(new_recorder: NewRecorder) -> None:
    recorder = await new_recorder(FINAL_REPLY)
    conversation = recorder.conversation(20)
    await recorder.run_turn(conversation, options=TurnOptions(tools=()))
    await recorder.run_turn(recorder.conversation(3))
    assert len(recorder.requests) == 2 and conversation.compacted is None


async def test_long_results_are_shortened_first(new_recorder: NewRecorder) -> None:
    recorder = await new_recorder(FINAL_REPLY)
    conversation = recorder.conversation(4, words=5, result=200)
    before = [list(entry.ids) for entry in conversation.entries]
    conversation.saved = StoredVersion(conversation.id, 5)
    events, _ = await recorder.run_turn(conversation)
    (request,) = recorder.requests
    prompt = recorder.text(request.prompt)
    assert "first 0 more" in prompt and prompt.count("more last") == 4
    assert prompt.count("tokens were cut here") == 3, "the latest turn stays whole"
    assert prompt.count("the whole: agent sessions show c") == 1, "one of them is in the store"
    assert prompt.count("<|call|>") == prompt.count("<|start|>functions.f to=assistant") == 4
    assert "3 long results of tools shortened" in notices(events)
    assert [entry.ids for entry in conversation.entries[: len(before)]] == before


async def test_results_shortened_when_they_came_are_shortened_further(
    new_recorder: NewRecorder,
) -> None:
    """A result that would have filled the context takes half of it: too much for an old turn."""
    recorder = await new_recorder(FINAL_REPLY)
    conversation = recorder.conversation(4, words=5, result=400)
    for entry in conversation.entries:
        if entry.recipient:
            entry.shortened_ids = shorten_entry(recorder.runtime.format, entry, 200)
    events, _ = await recorder.run_turn(conversation)
    assert "3 long results of tools shortened" in notices(events)
    sizes = [len(entry.prompt_ids) for entry in conversation.entries if entry.recipient]
    assert max(sizes[:3]) < 150 < 200 <= sizes[3]


async def test_compacted_conversation_is_compacted_again(new_recorder: NewRecorder) -> None:
    recorder = await new_recorder(SUMMARY_REPLY, FINAL_REPLY)
    conversation = recorder.conversation(20)
    for number in range(30):
        _, final = await recorder.run_turn(conversation, f"more {number}" + " word" * 40)
        assert final["status"] == "completed"
    summaries = [r for r in recorder.requests if r.max_tokens is not None]
    assert len(summaries) >= 3
    for request in summaries[1:]:
        assert SUMMARY_TEXT in recorder.text(request.prompt), (
            "the summary before is summarised with the rest"
        )
    assert recorder.text(recorder.requests[-1].prompt).count(SUMMARY) == 1
    assert len(turn_starts(conversation.entries)) == 50


async def test_failed_summary_keeps_the_earlier_one(new_recorder: NewRecorder) -> None:
    recorder = await new_recorder(
        SUMMARY_REPLY,
        FINAL_REPLY,
        NO_SUMMARY_REPLIES[0],
        FINAL_REPLY,
        NO_SUMMARY_REPLIES[0],
        FINAL_REPLY,
    )
    conversation = recorder.conversation(20)
    await recorder.run_turn(conversation)
    for _ in range(2):
        for number in range(16):
            conversation.add(recorder.runtime.format, User(f"more {number}" + " word" * 40))
            conversation.add(recorder.runtime.format, Assistant("yes"))
        events, _ = await recorder.run_turn(conversation)
        assert "left out" in notices(events)
        prompt = recorder.text(recorder.requests[-1].prompt)
        assert SUMMARY_TEXT in prompt and prompt.count("were left out, unsummarised") == 1
        assert not needs_compaction(recorder.runtime.format, CONTEXT_TOKENS, conversation)


async def test_compaction_with_results_in_user_messages(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    """Qwen writes results into messages of the user: they begin no turn."""
    replies = [f"<think>\nHm.\n</think>\n\n{SUMMARY_TEXT}<|im_end|>", "ok<|im_end|>"]
    path = write_script(tmp_path / "script.jsonl", *({"markup": reply} for reply in replies))
    qwen = Model("qwen", path=tmp_path / "nowhere.gguf", format="qwen3")
    recorder = RequestRecorder(await make_runtime(path, context=2500, model=qwen))
    conversation = recorder.conversation(10, words=10, result=100)
    assert len(turn_starts(conversation.entries)) == 10
    # Its test vocabulary has a token a byte.
    context = int(len(conversation.prompt(recorder.runtime.format)) / 0.9)
    recorder.runtime.provider.context_length = recorder.runtime.loaded.engine.context_length = (
        context
    )
    _, final = await recorder.run_turn(conversation)
    assert final["status"] == "completed" and len(recorder.requests) == 2
    form: Any = recorder.runtime.format
    prompt = b"".join(map(form.token_bytes, recorder.requests[1].prompt)).decode()
    assert SUMMARY_TEXT in prompt and "question 9" in prompt and "question 0 " not in prompt
    assert prompt.count("<tool_call>") == prompt.count("<tool_response>") > 0
    assert form.name == "qwen3"


async def test_long_history_is_summarised_in_chunks(new_recorder: NewRecorder) -> None:
    recorder = await new_recorder(SUMMARY_REPLY)
    conversation = recorder.conversation(60)
    await recorder.run_turn(conversation)
    *chunks, _ = recorder.requests
    assert len(chunks) > 2
    assert all(len(r.prompt) + r.max_tokens <= CONTEXT_TOKENS for r in chunks)
    prompts = "".join(recorder.text(request.prompt) for request in chunks)
    assert all(prompts.count(f"question {number} ") == 1 for number in range(50))


async def test_message_longer_than_context_is_shortened(new_recorder: NewRecorder) -> None:
    recorder = await new_recorder(SUMMARY_REPLY)
    conversation = recorder.conversation(2)
    conversation.add(recorder.runtime.format, User("begin" + " word" * 3000 + " finish"))
    conversation.add(recorder.runtime.format, Assistant("long."))
    _, final = await recorder.run_turn(conversation)
    assert final["status"] == "completed"
    prompts = "".join(recorder.text(request.prompt) for request in recorder.requests[:-1])
    assert "begin word" in prompts and "finish" in prompts and "tokens were cut here" in prompts


NO_SUMMARY_REPLIES = [
    {"markup": "<|channel|>final<|message|><|return|>"},
    {"markup": "<|channel|>analysis<|message|>I only think.<|return|>"},
    {"markup": '<|channel|>commentary to=functions.f<|message|>{"a":1}<|call|>'},
    {"markup": "<|channel|>final<|message|>" + "on and on " * 600 + "<|return|>"},
]


@pytest.mark.parametrize("reply", NO_SUMMARY_REPLIES, ids=["empty", "thought", "call", "too-long"])
async def test_without_summary_oldest_turns_are_left_out(
    new_recorder: NewRecorder, reply: dict[str, Any]
) -> None:
    recorder = await new_recorder(reply, FINAL_REPLY)
    conversation = recorder.conversation(20)
    events, final = await recorder.run_turn(conversation)
    assert final["status"] == "completed" and "left out" in notices(events)
    prompt = recorder.text(recorder.requests[-1].prompt)
    assert "were left out to make room" in prompt and "question 19" in prompt


@pytest.mark.parametrize("reply", NO_SUMMARY_REPLIES, ids=["empty", "thought", "call", "too-long"])
async def test_compaction_job_without_summary_fails(
    new_recorder: NewRecorder, reply: dict[str, Any]
) -> None:
    recorder = await new_recorder(reply)
    conversation = recorder.conversation(5)
    _, final = await run(
        Turn(recorder.runtime, conversation, [], COMPACT, job=compact_conversation)
    )
    assert "Nothing was compacted" in final["error"]["message"]
    assert conversation.compacted is None and len(conversation.entries) == 10


async def test_compaction_job_summarises_all_but_latest_turn(new_recorder: NewRecorder) -> None:
    recorder = await new_recorder(SUMMARY_REPLY)
    conversation = recorder.conversation(5)
    events, final = await run(
        Turn(recorder.runtime, conversation, [], COMPACT, job=compact_conversation)
    )
    assert final["status"] == "completed" and not final["output"]
    assert "4 earlier turns summarised" in notices(events)
    prompt = recorder.text(conversation.ids())
    assert "question 3" not in prompt and "question 4" in prompt and SUMMARY_TEXT in prompt
    _, final = await run(
        Turn(recorder.runtime, conversation, [], COMPACT, job=compact_conversation)
    )
    assert "no earlier turn to compact" in final["error"]["message"]


async def test_stop_during_summary_changes_nothing(new_recorder: NewRecorder) -> None:
    recorder = await new_recorder(hold(SUMMARY_REPLY["markup"], after=0))
    conversation = recorder.conversation(20)
    turn = Turn(recorder.runtime, conversation, [User("and now?")], COMPACT).start()
    async for batch in turn.log.follow():
        if any(event.type == "agent.prefill" for event in batch):
            turn.stop()
    events = await read_events(turn)
    assert check(events)["status"] == "cancelled"
    assert "Compacting was interrupted" in notices(events)
    assert conversation.compacted is None
    assert all(entry.shortened_ids is None for entry in conversation.entries)


async def test_engine_failure_during_summary_changes_nothing(new_recorder: NewRecorder) -> None:
    recorder = await new_recorder(FINAL_REPLY)
    conversation, generate = recorder.conversation(20), recorder.runtime.generate

    def fail(request: Request) -> Generation:
        if request.max_tokens is not None:
            raise EngineError("The engine has no room.")
        return generate(request)  # type: ignore[no-any-return]

    recorder.runtime.generate = fail
    events, final = await recorder.run_turn(conversation)
    assert "Nothing was compacted: The engine has no room." in notices(events)
    assert final["status"] == "completed" and conversation.compacted is None


async def test_turn_starts_keep_calls_with_results(new_recorder: NewRecorder) -> None:
    """Whatever the history: what begins a turn never parts a result from its call."""
    recorder, random_ = await new_recorder(SUMMARY_REPLY), random.Random(7)
    form = recorder.runtime.format
    for _ in range(300):
        conversation = Conversation("c")
        conversation.set_header(form, PromptHeader(date="2026-01-01"))
        messages = [
            User("u"),
            Assistant("a"),
            Developer("d"),
            ToolCallMessage("f", "{}"),
            ToolResultMessage("f", "r"),
        ]
        for message in random_.choices(messages, k=random_.randrange(1, 12)):
            conversation.add(form, message)
        roles = [entry.role for entry in conversation.entries]
        for start in turn_starts(conversation.entries):
            after = [role for role in roles[start:] if role not in ("user", "developer")]
            assert roles[start] in ("user", "developer") and after[:1] != ["result"]


async def test_unanswered_call_stays_with_its_question(new_recorder: NewRecorder) -> None:
    recorder = await new_recorder(SUMMARY_REPLY, FINAL_REPLY)
    conversation = recorder.conversation(20)
    conversation.add(recorder.runtime.format, User("call it"))
    conversation.add(recorder.runtime.format, ToolCallMessage("f", "{}"))
    turn = Turn(recorder.runtime, conversation, [ToolResultMessage("f", "the result")], COMPACT)
    _, final = await run(turn)
    prompt = recorder.text(recorder.requests[-1].prompt)
    assert final["status"] == "completed" and SUMMARY in prompt
    assert "call it<|end|>" in prompt and "<|call|><|start|>functions.f" in prompt


async def test_store_keeps_entries_and_compaction(
    new_recorder: NewRecorder, tmp_path: Path
) -> None:
    recorder = await new_recorder(SUMMARY_REPLY, FINAL_REPLY)
    store = Store(tmp_path / "store.sqlite")
    conversation = recorder.conversation(6, words=5, result=200)
    turn = Turn(recorder.runtime, conversation, [User("and now?")], COMPACT)
    store.begin(conversation, "and now?", turn.response)
    await run(turn)
    store.finish(conversation, turn.response)
    again = store.load("c")
    assert any(entry.shortened_ids for entry in again.entries) or again.compacted
    again.set_header(recorder.runtime.format, conversation.header)
    assert again.ids() == conversation.ids() and again.entries == [
        Entry(e.ids, e.reasoning, None, e.role, e.recipient, e.shortened_ids)
        for e in conversation.entries
    ]


async def test_minimum_prompt_tokens_bounds_the_prompt(new_recorder: NewRecorder) -> None:
    recorder = await new_recorder(SUMMARY_REPLY)
    conversation = recorder.conversation(20)
    turn = Turn(recorder.runtime, conversation, [User("now" + " word" * 300)], COMPACT)
    turn.prepare()
    bound = minimum_prompt_tokens(recorder.runtime.format, conversation)
    assert 300 < bound < 600
    await run(turn)
    assert bound <= len(recorder.requests[-1].prompt)


async def test_compaction_spares_pinned_turn(new_recorder: NewRecorder) -> None:
    recorder = await new_recorder(SUMMARY_REPLY, FINAL_REPLY)
    form, conversation = recorder.runtime.format, recorder.conversation(20)
    toggle_pinned(form, conversation, 2)
    await recorder.run_turn(conversation)
    summarising, answering = (recorder.text(request.prompt) for request in recorder.requests)
    assert "question 1 " in summarising and SUMMARY_TEXT in answering
    assert "question 1 " in answering and "answer 1<" in answering
    assert "question 0 " not in answering and "question 2 " not in answering
    assert answering.index(SUMMARY_TEXT) < answering.index("question 1 ")
    toggle_pinned(form, conversation, 2)
    assert "question 1 " not in recorder.text(conversation.ids()), "the summary stands for it"
    toggle_pinned(form, conversation, 1)
    assert "question 0 " in recorder.text(conversation.ids()), "it comes back"
    with pytest.raises(PromptChoiceError, match="summary stands for this turn"):
        toggle_dropped(form, conversation, 2)


async def test_turn_dropped_before_compaction_comes_back(new_recorder: NewRecorder) -> None:
    recorder = await new_recorder(SUMMARY_REPLY, FINAL_REPLY)
    form, conversation = recorder.runtime.format, recorder.conversation(20)
    toggle_dropped(form, conversation, 2)
    await recorder.run_turn(conversation)
    assert conversation.compacted is not None
    assert "question 1 " not in recorder.text(conversation.ids())
    toggle_dropped(form, conversation, 2)
    assert "question 1 " in recorder.text(conversation.ids()), "the summary tells nothing of it"
    toggle_dropped(form, conversation, 2)
    assert "question 1 " not in recorder.text(conversation.ids())


async def test_summary_of_another_branch_is_not_taken_for_a_dropped_turn(
    new_recorder: NewRecorder,
) -> None:
    second = {"markup": SUMMARY_REPLY["markup"].replace(SUMMARY_TEXT, "Without question 1.")}
    recorder = await new_recorder(SUMMARY_REPLY, FINAL_REPLY, second, FINAL_REPLY)
    form, conversation = recorder.runtime.format, recorder.conversation(20)
    branch = conversation.branch("d", len(conversation.entries))
    await recorder.run_turn(conversation)
    assert SUMMARY_TEXT in recorder.text(conversation.ids())
    toggle_dropped(form, branch, 2)
    await recorder.run_turn(branch)
    read = recorder.text(recorder.requests[-1].prompt)
    assert SUMMARY_TEXT not in read and "Without question 1." in read


async def test_compaction_of_pinned_turns_alone_is_refused(new_recorder: NewRecorder) -> None:
    recorder = await new_recorder(SUMMARY_REPLY)
    form, conversation = recorder.runtime.format, recorder.conversation(3)
    toggle_pinned(form, conversation, 1)
    toggle_dropped(form, conversation, 2)
    assert replaceable_tokens(conversation) == 0
    turn = Turn(recorder.runtime, conversation, [], COMPACT, job=compact_conversation)
    _, final = await run(turn)
    assert "pinned or dropped" in final["error"]["message"] and not recorder.requests
    toggle_dropped(form, conversation, 2)
    assert replaceable_tokens(conversation) == sum(len(e.ids) for e in conversation.entries[2:4])


async def test_compaction_counts_the_turns_that_leave_the_prompt(new_recorder: NewRecorder) -> None:
    recorder = await new_recorder(SUMMARY_REPLY)
    form, conversation = recorder.runtime.format, recorder.conversation(6)
    toggle_pinned(form, conversation, 1)
    toggle_dropped(form, conversation, 3)
    events, _ = await run(
        Turn(recorder.runtime, conversation, [], COMPACT, job=compact_conversation)
    )
    messages = notices(events)
    assert "Summarising 3 earlier turns" in messages
    assert "compacted: 3 earlier turns summarised" in messages
    parts = [part for part in conversation_parts(form, conversation) if part.kind == "prompt"]
    assert [part.state for part in parts] == ["", "summarised", "dropped", *["summarised"] * 2, ""]


async def test_turns_left_out_are_counted_without_pinned_ones(new_recorder: NewRecorder) -> None:
    recorder = await new_recorder({"markup": ""}, FINAL_REPLY)
    form, conversation = recorder.runtime.format, recorder.conversation(20)
    toggle_pinned(form, conversation, 1)
    events, _ = await recorder.run_turn(conversation)
    parts = [part for part in conversation_parts(form, conversation) if part.kind == "prompt"]
    left_out = sum(part.state == "summarised" for part in parts)
    assert f"{left_out} earlier turns left out" in notices(events) and left_out > 1


async def test_compaction_keeps_the_last_turn_that_is_not_dropped(
    new_recorder: NewRecorder,
) -> None:
    recorder = await new_recorder(SUMMARY_REPLY)
    form, conversation = recorder.runtime.format, recorder.conversation(4)
    toggle_dropped(form, conversation, 4)
    expected = sum(len(entry.ids) for entry in conversation.entries[:4])
    assert replaceable_tokens(conversation) == expected
    events, _ = await run(
        Turn(recorder.runtime, conversation, [], COMPACT, job=compact_conversation)
    )
    assert "2 earlier turns summarised" in notices(events)
    prompt = recorder.text(conversation.ids())
    assert "question 1 " not in prompt and "question 2 " in prompt and "question 3 " not in prompt
    toggle_dropped(form, conversation, 4)
    assert "question 3 " in recorder.text(conversation.ids())


async def test_latest_turns_stay_beside_a_pinned_one(new_recorder: NewRecorder) -> None:
    """A pinned turn stays in any case, so it takes no room from the turns before it."""
    recorder = await new_recorder(SUMMARY_REPLY, FINAL_REPLY)
    form, conversation = recorder.runtime.format, recorder.conversation(12)
    conversation.add(form, User("question 12" + " word" * 330))
    conversation.add(form, Assistant("answer 12"))
    toggle_pinned(form, conversation, 13)
    await recorder.run_turn(conversation)
    prompt = recorder.text(recorder.requests[-1].prompt)
    assert SUMMARY_TEXT in prompt and "question 12 " in prompt and "question 11 " in prompt


async def test_summary_of_a_conversation_without_dropped_turns_is_not_reused(
    new_recorder: NewRecorder,
) -> None:
    recorder = await new_recorder(SUMMARY_REPLY, FINAL_REPLY)
    form, conversation = recorder.runtime.format, recorder.conversation(20)
    toggle_dropped(form, conversation, 1)
    await recorder.run_turn(conversation)
    assert "question 0 " not in recorder.text(recorder.requests[0].prompt)
    await recorder.run_turn(recorder.conversation(20))
    assert len(recorder.requests) == 4, "that one is summarised by itself"


@pytest.mark.long
async def test_embedded_model_never_exceeds_context(make_runtime: MakeRuntime) -> None:
    """tiny cannot summarise; whatever it writes, no turn is cut off by the context."""
    runtime = await make_runtime(context=512, tools="python")
    conversation, compactions, lengths = Conversation("c"), list[str](), list[int]()
    options = TurnOptions(compact=True, sampling=Sampling(temperature=0))
    for number in range(12, 26):
        turn = Turn(runtime, conversation, [User(f"What is {number}*34?")], options)
        events, final = await run(turn)
        assert final["status"] == "completed"
        assert not needs_compaction(runtime.format, 512, conversation)
        compactions += [notices(events)] if notices(events) else []
        lengths.append(len(conversation.prompt(runtime.format)))
        if len(compactions) > 1 and not notices(events):
            break
    assert len(compactions) > 1
    assert all("was compacted" in message for message in compactions)
    assert sum(len(entry.ids) for entry in conversation.entries) > 512 > max(lengths)
    assert conversation.ids()[: len(conversation.header_ids)] == conversation.header_ids
