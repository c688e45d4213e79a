"""A turn begins with what somebody wrote in the model's place, and goes on from there."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.conversation.conversation import Conversation
from agent.engine.protocol import Sampling
from agent.formats.harmony.encoding import load_encoding
from agent.formats.harmony.format import HarmonyFormat
from agent.tiny.vocabulary import ranks
from agent.turn.continuation import (
    arguments_problem,
    begin_with,
    continue_from,
    edited_ids,
    with_reasoning,
    written_messages,
)
from agent.turn.options import AnswerForm
from tests.support.scripts import final, python, thought
from tests.support.turns import Recorded
from tools.builtin.shell.server import ShellServer
from tools.config.servers import ServerConfig
from tools.mcp.host import Host
from tools.types import Tool

TEXTS = st.text(st.sampled_from("ab c\n<|end|>é€🦊한"), max_size=40)


@cache
def harmony() -> HarmonyFormat:
    return HarmonyFormat(load_encoding(ranks))


def text_of(ids: list[int]) -> str:
    return b"".join(map(harmony().token_bytes, ids)).decode()


@given(TEXTS, TEXTS, TEXTS)
def test_edited_ids_keep_what_is_before_the_change(before: str, was: str, typed: str) -> None:
    body = harmony().encode_text(before + was)
    ids = edited_ids(harmony(), body, before + typed)
    assert text_of(ids) == before + typed and not any(map(harmony().is_markup, ids))
    same = next(
        (n for n, (a, b) in enumerate(zip(body, ids, strict=False)) if a != b),
        min(len(body), len(ids)),
    )
    # All of the sampled ids whose text is still there are kept, but for one that ends in a character.
    whole = [n for n in range(len(body) + 1) if (before + typed).encode().startswith(raw(body[:n]))]
    ends = [n for n in whole if is_text(raw(body[:n]))]
    assert same >= max(ends)


def raw(ids: list[int]) -> bytes:
    return b"".join(map(harmony().token_bytes, ids))


def is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_edited_ids_are_those_that_were_sampled_however_they_were_cut() -> None:
    """A model may sample a text in other tokens than the tokeniser would."""
    body = [token for letter in "squares" for token in harmony().encode_text(letter)]
    assert edited_ids(harmony(), body, "squares") == body != harmony().encode_text("squares")
    assert edited_ids(harmony(), body, "squared")[:6] == body[:6]
    assert edited_ids(harmony(), body, "") == []
    long = "x y " * 50_000
    assert text_of(edited_ids(harmony(), body, long)) == long


def test_begin_message_is_the_beginning_of_the_rendered_one() -> None:
    opening = harmony().open_assistant()
    thought_ids = harmony().reasoning_message("Hm <|end|>")
    assert [*opening, *harmony().begin_message("Hm <|end|>", None)] == thought_ids[:-1]
    answer = harmony().assistant_message("So", phase="final_answer")
    assert [*opening, *harmony().begin_message(None, "So")] == answer[:-1]
    both = [*opening, *harmony().begin_message("Hm <|end|>", "So")]
    assert both == [*thought_ids, *answer[:-1]]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"path": "a"}', None),
        ('{"path": "a", "co', None),
        ("", None),
        ('{"path": 1}', "1 is not of type"),
        ("{path", "not JSON"),
        ("{}", "required"),
        ('{"path": 5', "5 is not of type"),
        ('{"path": 5, "co', "5 is not of type"),
        ('{"path": "a"}{}', "after their end"),
        (' {"path": "a"}\n}', "after their end"),
        ('{"path": "}"', None),
        (' {"path": "a"} ', None),
        ('{"count": 1', None),  # it may become 12
        ('{"count": 12}', "required"),
        ('{"count": 1, "path": "a"}', "less than the minimum"),
        ('{"count": 1, "path": "a"', "less than the minimum"),
        ('{"names": ["a"', None),
        ('{"names": {', "not of type"),
        ('{"kind": "c"', "is not one of"),
        ("[1", "not of type"),
    ],
)
def test_arguments_problem_of_unfinished_and_wrong_json(text: str, problem: str | None) -> None:
    schema = {
        "type": "object",
        "properties": {
            "path": {"type": "string"}, "count": {"type": "integer", "minimum": 10},
            "names": {"type": "array", "minItems": 2}, "kind": {"enum": ["a", "b"]},
        },
        "required": ["path"],
    }  # fmt: skip
    found = arguments_problem(text, Tool("files", "read", "", schema), None)
    assert found is None if problem is None else problem in (found or "")


@pytest.mark.parametrize(
    "text", ['{"cmd": ["ls"], "foo": 1}', '{"foo": 1', '{"cmd": ["ls"], "foo": true, ']
)
def test_arguments_problem_of_a_builtin_tool_is_that_of_its_call(text: str) -> None:
    shell = ShellServer()
    host, tool = Host([ServerConfig(shell.name, builtin=shell)]), shell.tools[0]
    problem = arguments_problem(text, tool, host.builtins.argument_problem)
    assert problem == f"unknown argument: foo; known: {', '.join(tool.parameters['properties'])}"


@pytest.mark.parametrize(
    ("thinks", "answer", "reply", "output"),
    [
        ("I thi", None, "nk.<|end|><|start|>assistant" + final("Yes"), ["I think.", "Yes"]),
        (None, "It ", "is.<|return|>", ["It is."]),
        ("Hm.", "It ", "is.<|return|>", ["Hm.", "It is."]),
        ("", None, "Well.<|end|><|start|>assistant" + final("Yes"), ["Well.", "Yes"]),
        (None, "A<|end|>B", "!<|return|>", ["A<|end|>B!"]),
    ],
)
async def test_model_goes_on_with_what_was_begun(
    recorded: Any, thinks: str | None, answer: str | None, reply: str, output: list[str]
) -> None:
    runs: Recorded = await recorded(reply)
    form, talk = runs.runtime.format, Conversation("c")
    assert form is not None
    response, _ = await runs.run(talk, begin_with(thinks, answer))
    assert [item["content"][0]["text"] for item in response["output"]] == output
    begun = form.begin_message(thinks, answer)
    (request,) = runs.requests
    assert list(request.prompt)[-len(begun) :] == begun
    usage = response["usage"]
    assert usage["input_tokens"] == len(request.prompt), "what was begun is input"
    assert usage["output_tokens"] == len(harmony().encode_markup(reply))
    assert usage["output_tokens_details"]["reasoning_tokens"] <= usage["output_tokens"]
    assert text_of(talk.entries[-1].ids).endswith(output[-1] + "<|end|>")


async def test_edited_thought_goes_on_without_running_the_call_before_it_again(
    recorded: Any,
) -> None:
    first = thought("Compute.") + python("print(6*7)")
    runs: Recorded = await recorded(
        first, thought("It is for") + final("42."), "ty-three, no.<|end|><|start|>assistant"
        + final("Or 42."), tools="python",
    )  # fmt: skip
    talk = Conversation("c")
    response, _ = await runs.run(talk)
    (turn,) = runs.store.turns("c")
    entries = runs.store.turn_entries(runs.store.read("c"), turn.response.id)
    assert [entry.reasoning for entry in entries] == [False, True, False, False, True, False]
    messages = written_messages(harmony(), entries)
    assert [(message.kind, message.text) for message in messages] == [
        ("reasoning", "Compute."), ("call", "print(6*7)"), ("reasoning", "It is for"),
        ("answer", "42."),
    ]  # fmt: skip

    events = [event for _, event in runs.store.events(turn.response.id)]
    begun = continue_from(harmony(), entries, events, messages[2], "It is four")
    branch = talk.branch("b", 0)
    again, streamed = await runs.run(branch, lambda form: begun)
    assert [item["type"] for item in again["output"]] == [
        "reasoning", "mcp_call", "reasoning", "message",
    ]  # fmt: skip
    assert again["output"][:2] == response["output"][:2], "they are the same items"
    assert again["output"][2]["content"][0]["text"] == "It is fourty-three, no."
    assert len(runs.requests) == 3, "the call did not run again"
    prompt, sampled = list(runs.requests[2].prompt), list(runs.requests[1].prompt)
    assert prompt[: len(sampled)] == sampled, "the ids before are those that were read and sampled"
    assert runs.store.turn_entries(runs.store.read("b"), again["id"])[:4] == entries[:4]
    assert [turn.prompt for turn in runs.store.turns("c")] == ["go"], "nothing of it is lost"
    assert streamed[-1]["response"]["status"] == "completed"


async def test_edited_call_runs_and_the_thought_before_it_stays(recorded: Any) -> None:
    runs: Recorded = await recorded(
        thought("Compute.") + python("print(6*7)"), final("42."), "<|call|>", final("48."),
        tools="python",
    )  # fmt: skip
    talk = Conversation("c")
    await runs.run(talk)
    (turn,) = runs.store.turns("c")
    entries = runs.store.turn_entries(talk, turn.response.id)
    events = [event for _, event in runs.store.events(turn.response.id)]
    call = written_messages(harmony(), entries)[1]
    begun = continue_from(harmony(), entries, events, call, "print(6*8)")
    response, _ = await runs.run(talk.branch("b", 0), lambda form: begun)
    assert [item["type"] for item in response["output"]] == ["reasoning", "mcp_call", "message"]
    assert json.loads(response["output"][1]["arguments"]) == {"code": "print(6*8)"}
    assert response["output"][1]["output"].strip() == "48"


async def test_reasoning_that_only_its_items_have_is_tokenised_anew(recorded: Any) -> None:
    """Turns of earlier versions and of API clients."""
    runs: Recorded = await recorded(
        thought("Compute.") + python("1"), thought("So.") + final("1."), tools="python"
    )
    await runs.run(Conversation("c"))
    (turn,) = runs.store.turns("c")
    entries = runs.store.turn_entries(runs.store.read("c"), turn.response.id)
    without = [entry for entry in entries if not entry.reasoning]
    complete = with_reasoning(harmony(), without, turn.response.output)
    assert [entry.ids for entry in complete] == [entry.ids for entry in entries]


async def test_interrupted_text_goes_on_in_the_middle(recorded: Any, tmp_path: Path) -> None:
    runs: Recorded = await recorded("<|channel|>final<|message|>one two three", " four.<|return|>")
    talk = Conversation("c")
    await runs.run(talk, max_output_tokens=5)
    (turn,) = runs.store.turns("c")
    entries = runs.store.turn_entries(talk, turn.response.id)
    (message,) = written_messages(harmony(), entries)
    begun = continue_from(harmony(), entries, [], message, message.text)
    assert list(begun.ids) == [*message.header, *message.body]
    response, _ = await runs.run(talk.branch("b", 0), lambda form: begun)
    assert response["output"][0]["content"][0]["text"] == message.text + " four."


async def test_begun_answer_that_its_schema_forbids_is_a_sentence(recorded: Any) -> None:
    """On the embedded model: the scripted one has no constraints."""
    runs: Recorded = await recorded()
    form = AnswerForm({"type": "object", "properties": {}, "additionalProperties": False})
    greedy = Sampling(temperature=0)
    response, events = await runs.run(
        Conversation("c"), begin_with(None, "It is"), answer_form=form, sampling=greedy, tools=()
    )
    assert response["status"] == "failed" and "cannot be continued" in response["error"]["message"]
    assert not runs.requests and not any("delta" in event["type"] for event in events)
    fits, _ = await runs.run(
        Conversation("d"), begin_with(None, "{"), answer_form=form, sampling=greedy, tools=(),
        max_output_tokens=60,
    )  # fmt: skip
    assert fits["output"][0]["content"][0]["text"].startswith("{")


async def test_embedded_model_goes_on_with_its_own_words(recorded: Any) -> None:
    """What it would have written anyway is begun for it: the rest comes out the same."""
    runs: Recorded = await recorded(tools="python")
    greedy, talk = Sampling(temperature=0), Conversation("c")
    whole, _ = await runs.run(talk, sampling=greedy)
    (turn,) = runs.store.turns("c")
    first = written_messages(harmony(), runs.store.turn_entries(talk, turn.response.id))[0]
    begun = text_of(list(first.body[:4]))
    begin = begin_with(begun, None) if first.kind == "reasoning" else begin_with(None, begun)
    again, _ = await runs.run(Conversation("d"), begin, sampling=greedy)
    assert again["output"][0]["content"][0]["text"] == first.text
    assert [item["type"] for item in again["output"]] == [i["type"] for i in whole["output"]]
