"""The end of a model's reasoning: its budget, and "answer now" while a turn runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent.config.paths import Paths
from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.engine.protocol import Sampling
from agent.events import OfficialEvent
from agent.formats.harmony.format import HarmonyFormat
from agent.formats.protocol import FunctionTool
from agent.models import resolve
from agent.runtime.runtime import Runtime
from agent.turn.loop import Turn
from agent.turn.options import AnswerForm, TurnOptions
from tests.support.invariants import check
from tests.support.runtimes import MakeRuntime
from tests.support.scripts import WEATHER, call, final, hold, preamble, thought
from tests.support.turns import Recorded, read_events, write_script
from tests.support.waiting import wait_until

GREEDY = Sampling(temperature=0)
GET_WEATHER = FunctionTool("get_weather", "The weather of a place.", WEATHER["parameters"])
PARIS = '{"place":"Paris"}'
ENDED = "<|end|><|start|>assistant<|channel|>final<|message|>"
THOUGHTS = "one two three four five six seven eight"


async def start(
    make_runtime: MakeRuntime, tmp_path: Path, *lines: str | dict[str, Any], **options: Any
) -> Turn:
    script = [{"markup": line} if isinstance(line, str) else line for line in lines]
    runtime = await make_runtime(write_script(tmp_path / "s.jsonl", *script))
    return Turn(runtime, Conversation("c"), [User("go")], TurnOptions(**options)).start()


def written(turn: Turn) -> str:
    """What the last generation of the turn wrote, given ids included."""
    form, ids = turn.format, turn.generations[-1].ids
    return b"".join(form.token_bytes(token) for token in ids).decode()


def outline(response: dict[str, Any]) -> list[tuple[str, str]]:
    """The items by type, with their text or arguments."""
    return [
        (item["type"], item.get("arguments") or "".join(p["text"] for p in item.get("content", ())))
        for item in response["output"]
    ]


def reasoning_tokens(response: dict[str, Any]) -> int:
    tokens: int = response["usage"]["output_tokens_details"]["reasoning_tokens"]
    return tokens


# --- the budget, with the embedded model ---


async def ask(runtime: Runtime, prompt: str, **options: Any) -> tuple[Turn, dict[str, Any]]:
    options = {"tools": (), "sampling": GREEDY, **options}
    turn = Turn(runtime, Conversation("c"), [User(prompt)], TurnOptions(**options)).start()
    return turn, check(await read_events(turn))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("budget", [0, 3, 8, 100_000])
async def test_model_calls_a_tool_when_its_budget_is_spent(
    make_runtime: MakeRuntime, budget: int
) -> None:
    runtime = await make_runtime(tools="python")
    turn, response = await ask(runtime, "What is 123*456?", max_reasoning_tokens=budget, tools=None)
    reasoning = [item for item in response["output"] if item["type"] == "reasoning"]
    assert [item["type"] for item in response["output"] if item not in reasoning] == [
        "mcp_call",
        "message",
    ]
    assert "56088" in turn.items[-1].content[0].text  # type: ignore[union-attr]
    assert len(reasoning) == (budget > 0)
    assert reasoning_tokens(response) == (budget if budget < 9 else 12)
    output = sum(len(decoder.ids) for decoder in turn.generations)
    assert response["usage"]["output_tokens"] == output


@pytest.mark.parametrize("budget", [0, 3])
async def test_choice_of_a_tool_holds_when_the_budget_is_spent(
    make_runtime: MakeRuntime, budget: int
) -> None:
    runtime = await make_runtime()
    options = {"functions": (GET_WEATHER,), "tool_choice": "must", "max_reasoning_tokens": budget}
    _, response = await ask(runtime, "Hello, who are you?", **options)
    assert response["output"][-1]["type"] == "function_call"
    assert reasoning_tokens(response) == budget


@pytest.mark.parametrize("budget", [0, 3])
async def test_answer_has_its_form_when_the_budget_is_spent(
    make_runtime: MakeRuntime, budget: int
) -> None:
    properties = {"colour": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["colour"]}
    runtime = await make_runtime()
    form = AnswerForm(schema, strict=True)
    options = {"answer_form": form, "max_reasoning_tokens": budget}
    turn, response = await ask(runtime, "Name a colour.", **options)
    assert list(json.loads(outline(response)[-1][1])) == ["colour"]
    assert reasoning_tokens(response) == budget
    if budget:
        assert ENDED in written(turn)


# --- the budget, with replies that the model would not write ---


async def test_answer_follows_spent_budget(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    turn = await start(
        make_runtime, tmp_path, thought(THOUGHTS), "It is so.<|return|>", max_reasoning_tokens=3
    )
    response = check(await read_events(turn))
    assert outline(response) == [("reasoning", "one two three"), ("message", "It is so.")]
    assert response["output"][0]["status"] == "completed"
    expected = f"<|channel|>analysis<|message|>one two three{ENDED}It is so.<|return|>"
    assert written(turn) == expected
    assert response["usage"]["output_tokens"] == len(turn.generations[0].ids)


async def test_generation_within_its_budget_is_as_without(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    reply = preamble("So.") + thought("one two") + final("word " * 50)
    turn = await start(make_runtime, tmp_path, reply, max_reasoning_tokens=3)
    response = check(await read_events(turn))
    assert [text for _, text in outline(response)] == ["So.", "one two", "word " * 50]
    assert written(turn) == reply


async def test_reasoning_after_a_preamble_counts(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    reply = thought("one") + preamble("So " * 20) + thought(THOUGHTS)
    turn = await start(make_runtime, tmp_path, reply, "It is so.<|return|>", max_reasoning_tokens=3)
    response = check(await read_events(turn))
    assert outline(response) == [
        ("reasoning", "one"),
        ("message", "So " * 20),
        ("reasoning", "one two"),
        ("message", "It is so."),
    ]


async def test_call_may_follow_where_no_grammar_leads(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    """A script is not constrained. Where reasoning begins again, the answer is begun."""
    options = {"functions": (GET_WEATHER,), "max_reasoning_tokens": 2}
    turn = await start(
        make_runtime, tmp_path, thought(THOUGHTS), call("get_weather", place="Rome"), **options
    )
    response = check(await read_events(turn))
    assert outline(response) == [("reasoning", "one two"), ("function_call", '{"place": "Rome"}')]
    turn = await start(
        make_runtime, tmp_path, thought(THOUGHTS), thought("a b"), "Done.<|return|>", **options
    )
    response = check(await read_events(turn))
    assert outline(response)[0] == ("reasoning", "one two")
    assert outline(response)[-1] == ("message", "Done.")
    assert written(turn).endswith(f"{ENDED}Done.<|return|>")


async def test_limit_of_output_holds_for_written_ids(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    lines = thought(THOUGHTS), "It is so.<|return|>"
    turn = await start(make_runtime, tmp_path, *lines, max_reasoning_tokens=3)
    full = check(await read_events(turn))["usage"]["output_tokens"]
    for limit in range(1, full + 2):
        options = {"max_reasoning_tokens": 3, "max_output_tokens": limit}
        turn = await start(make_runtime, tmp_path, *lines, **options)
        response = check(await read_events(turn))
        assert response["usage"]["output_tokens"] <= limit
        assert response["status"] == ("completed" if limit >= full else "incomplete"), limit


async def test_no_room_for_the_answer_ends_the_turn(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    path = write_script(tmp_path / "s.jsonl", {"markup": thought("word " * 2000)})
    runtime = await make_runtime(path, context=256)
    turn = Turn(runtime, Conversation("c"), [User("go")], TurnOptions())
    turn.prepare()
    room = 256 - len(turn.conversation.prompt(turn.format))
    for budget in range(room - 12, room + 2):
        options = TurnOptions(max_reasoning_tokens=budget)
        turn = Turn(runtime, Conversation("c"), [User("go")], options).start()
        assert check(await read_events(turn))["status"] == "incomplete"


async def test_what_was_written_is_stored_and_read_by_the_next_turn(recorded: Any) -> None:
    runs: Recorded = await recorded(thought(THOUGHTS), "It is so.<|return|>", final("And?"))
    talk = Conversation("c")
    response, _ = await runs.run(talk, max_reasoning_tokens=3)
    (stored,) = runs.store.turns("c")
    assert stored.response.model_dump(mode="json") == response
    replayed = [event for _, event in runs.store.events(response["id"])]
    official = [e.model_dump(mode="json") for e in replayed if isinstance(e, OfficialEvent)]
    text = {e["type"]: e for e in official}["response.reasoning_text.done"]["text"]
    assert text == "one two three"
    form = runs.runtime.format
    assert form is not None
    again = runs.store.read("c")
    await runs.run(again)
    prompt = b"".join(map(form.token_bytes, runs.requests[-1].prompt)).decode()
    assert "<|channel|>final<|message|>It is so.<|end|>" in prompt


@pytest.mark.parametrize("thinks", [True, False], ids=["thinks", "answers"])
async def test_family_of_markup_ends_its_reasoning(
    make_runtime: MakeRuntime, tmp_path: Path, thinks: bool
) -> None:
    lines = ["<think>\n" * thinks + "one two three four", "\n\nIt is so.<|im_end|>"]
    path = write_script(tmp_path / "s.jsonl", *({"markup": line} for line in lines))
    paths = Paths(tmp_path / "config", tmp_path / "cache", tmp_path / "state")
    runtime = await make_runtime(
        path, model=resolve.resolve_model("qwen3-4b", paths, scripted=True)
    )
    options = TurnOptions(max_reasoning_tokens=2 if thinks else 0)
    turn = Turn(runtime, Conversation("c"), [User("go")], options)
    turn.prepare()
    turn.start()
    response = check(await read_events(turn))
    if thinks:
        assert [kind for kind, _ in outline(response)] == ["reasoning", "message"]
        assert written(turn).endswith("on\n</think>\n\n\n\nIt is so.<|im_end|>")
        assert outline(response)[0] == ("reasoning", "on")  # here a character is a token
        assert reasoning_tokens(response) == 2
    else:
        assert outline(response) == [("message", "one two three four")]


async def test_model_without_reasoning_is_not_stopped(
    make_runtime: MakeRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HarmonyFormat, "end_reasoning", lambda self: [])
    go = tmp_path / "go"
    reply = hold(final("one two three"), after=0, until=go)
    turn = await start(make_runtime, tmp_path, reply, max_reasoning_tokens=0)
    await wait_until(lambda: turn.generations)
    assert not turn.answer_now()
    go.touch()
    assert outline(check(await read_events(turn))) == [("message", "one two three")]
    assert written(turn) == final("one two three")


# --- answer now ---


async def test_answer_now_ends_open_reasoning(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    turn = await start(
        make_runtime, tmp_path, hold(thought(THOUGHTS), after=6), "It is so.<|return|>"
    )
    await wait_until(lambda: turn.generations and turn.generations[-1].ids[5:])
    assert turn.answer_now()
    response = check(await read_events(turn))
    assert outline(response) == [("reasoning", "one two three"), ("message", "It is so.")]
    assert response["usage"]["output_tokens"] == len(turn.generations[0].ids)
    assert not turn.answer_now(), "it has ended"


async def test_answer_now_before_the_first_token(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    turn = await start(make_runtime, tmp_path, hold(thought(THOUGHTS), after=0), "So.<|return|>")
    await wait_until(lambda: turn.accepted.is_set() and turn.generations)
    assert turn.answer_now()
    response = check(await read_events(turn))
    assert outline(response) == [("message", "So.")]
    assert response["usage"]["input_tokens"] > 0


async def test_answer_now_within_a_header_ends_the_reasoning_as_it_begins(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    reply = hold(thought(THOUGHTS), after=2, until=go)
    turn = await start(make_runtime, tmp_path, reply, "So.<|return|>")
    await wait_until(lambda: turn.generations and turn.generations[-1].ids[1:])
    assert turn.answer_now()
    go.touch()
    response = check(await read_events(turn))
    assert outline(response)[-1] == ("message", "So.")
    assert len(outline(response)[0][1].split()) <= 1


async def test_answer_now_changes_no_answer(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    go = tmp_path / "go"
    reply = thought("one") + final("two three four five")
    turn = await start(make_runtime, tmp_path, hold(reply, after=13, until=go))
    await wait_until(lambda: turn.generations and turn.generations[-1].ids[12:])
    assert not turn.answer_now()
    go.touch()
    assert outline(check(await read_events(turn))) == [
        ("reasoning", "one"),
        ("message", "two three four five"),
    ]


async def test_answer_now_during_a_call_holds_for_the_next_generation(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    reply = thought("one") + call("nothing", a=1)
    turn = await start(make_runtime, tmp_path, hold(reply, after=16, until=go), "So.<|return|>")
    await wait_until(lambda: turn.generations and turn.generations[-1].ids[15:])
    assert turn.answer_now()
    go.touch()
    response = check(await read_events(turn))
    assert [kind for kind, _ in outline(response)] == ["reasoning", "mcp_call", "message"]
    assert written(turn) == "<|channel|>final<|message|>So.<|return|>"


async def test_answer_now_ends_the_real_models_reasoning(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime(tools="none")
    options = TurnOptions(sampling=GREEDY, tools=(), max_output_tokens=400)
    turn = Turn(runtime, Conversation("c"), [User("What is 123*456?")], options).start()
    await wait_until(lambda: turn.generations and turn.generations[-1].ids[20:])
    assert turn.answer_now()
    response = check(await read_events(turn))
    assert outline(response)[-1][0] == "message"
    assert ENDED in written(turn)
