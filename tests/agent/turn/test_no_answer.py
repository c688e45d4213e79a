"""A turn ends with an answer, a call, or says that there is no answer."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent.formats.protocol import FunctionTool
from agent.turn.endings import CUT_OFF, EndReason
from agent.turn.options import TurnOptions
from tests.support.invariants import check
from tests.support.program import RunAgent
from tests.support.runtimes import MakeRuntime
from tests.support.turns import FINAL, run_turn, write_script

THOUGHT = "<|channel|>analysis<|message|>T.<|end|>"
SILENT = {
    "reasoning": THOUGHT,
    "reasoning returned": "<|channel|>analysis<|message|>T.<|return|>",
    "invented result": THOUGHT
    + '<|start|>functions.f to=assistant<|channel|>commentary<|message|>{"r":5}<|end|>',
    "invented user": f"{THOUGHT}<|start|>user<|message|>Go on.<|end|>",
    "nothing": "<|return|>",
    "empty answer": "<|channel|>final<|message|><|return|>",
    "blank answer": "<|channel|>final<|message|> \n<|return|>",
    "preamble": "<|channel|>commentary<|message|>I will look.<|end|>",
    "prose to a function": "<|channel|>commentary to=functions.f <|constrain|>json"
    "<|message|>So.<|return|>",
}
WRITE = FunctionTool(
    "write",
    "",
    {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}},
)
CALL = (
    '<|channel|>commentary to=functions.write <|constrain|>json<|message|>{"path":"a","content":"li'
)


def rules(events: list[dict[str, Any]]) -> list[str]:
    return [event["rule"] for event in events if event["type"] == "agent.repair"]


@pytest.mark.parametrize("reply", SILENT.values(), ids=SILENT)
async def test_model_without_an_answer_goes_on_once(
    make_runtime: MakeRuntime, tmp_path: Path, reply: str
) -> None:
    lines = ({"markup": reply}, {"markup": FINAL})
    events = await run_turn(await make_runtime(write_script(tmp_path / "s.jsonl", *lines)))
    response = check(events)
    assert response["status"] == "completed"
    assert response["output"][-1]["content"][0]["text"] == "ok"


@pytest.mark.parametrize("reply", [r for name, r in SILENT.items() if "function" not in name])
async def test_turn_without_an_answer_is_incomplete_and_says_so(
    make_runtime: MakeRuntime, tmp_path: Path, reply: str
) -> None:
    lines = [{"markup": reply}] * 2
    events = await run_turn(await make_runtime(write_script(tmp_path / "s.jsonl", *lines)))
    response = check(events)
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    notices = [event["message"] for event in events if event["type"] == "agent.notice"]
    assert notices == [CUT_OFF[EndReason.UNANSWERED]]
    assert rules(events).count("answer_missing") == 1


@pytest.mark.parametrize("reply", [SILENT["empty answer"], SILENT["blank answer"]])
async def test_an_empty_message_is_no_item(
    make_runtime: MakeRuntime, tmp_path: Path, reply: str
) -> None:
    lines = ({"markup": reply}, {"markup": FINAL})
    events = await run_turn(await make_runtime(write_script(tmp_path / "s.jsonl", *lines)))
    assert [item["content"][0]["text"] for item in check(events)["output"]] == ["ok"]
    events = await run_turn(
        await make_runtime(write_script(tmp_path / "t.jsonl", *[{"markup": reply}] * 2))
    )
    assert check(events)["output"] == []


async def test_invented_turns_are_reported(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    lines = [{"markup": SILENT["invented user"]}, {"markup": FINAL}]
    events = await run_turn(await make_runtime(write_script(tmp_path / "s.jsonl", *lines)))
    assert rules(events) == ["turn_invented", "answer_missing"]


async def test_a_second_final_message_ends_the_turn(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    again = "<|start|>assistant<|channel|>final<|message|>"
    reply = f"<|channel|>final<|message|>One.<|end|>{again}Two.<|end|>{again}Three.<|return|>"
    runtime = await make_runtime(write_script(tmp_path / "s.jsonl", {"markup": reply}))
    events = await run_turn(runtime)
    response = check(events)
    texts = [item["content"][0]["text"] for item in response["output"]]
    assert (response["status"], texts) == ("completed", ["One."])
    assert rules(events) == ["answer_repeated"]


async def test_final_message_before_a_call_does_not_end_the_turn(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    whole = f'{CALL}"}}<|call|>'
    reply = f"<|channel|>final<|message|>One.<|end|><|start|>assistant{whole}"
    runtime = await make_runtime(write_script(tmp_path / "s.jsonl", {"markup": reply}))
    response = check(await run_turn(runtime, functions=(WRITE,)))
    assert [item["type"] for item in response["output"]] == ["message", "function_call"]


@pytest.mark.parametrize("end", ["<|call|>", "<|return|>"])
async def test_client_call_that_is_cut_is_incomplete_and_written_again(
    make_runtime: MakeRuntime, tmp_path: Path, end: str
) -> None:
    lines = [{"markup": CALL + end}, {"markup": f'{CALL}ne"}}<|call|>'}]
    runtime = await make_runtime(write_script(tmp_path / "s.jsonl", *lines))
    response = check(await run_turn(runtime, TurnOptions(functions=(WRITE,))))
    found = [(item["status"], item["arguments"]) for item in response["output"]]
    assert found == [
        ("incomplete", '{"path":"a","content":"li"}'),
        ("completed", '{"path":"a","content":"line"}'),
    ]
    assert response["status"] == "completed"


@pytest.mark.parametrize(
    ("body", "arguments"),
    [("", "{}"), ('{"path":"a"', '{"path":"a"}'), ('{"path":"a\nb"', '{"path":"a\\nb"}')],
)
async def test_argument_deltas_add_up(
    make_runtime: MakeRuntime, tmp_path: Path, body: str, arguments: str
) -> None:
    markup = CALL.partition("{")[0] + body + "<|call|>"
    runtime = await make_runtime(write_script(tmp_path / "s.jsonl", {"markup": markup}))
    events = await run_turn(runtime, functions=(WRITE,))
    assert check(events)["output"][0]["arguments"] == arguments
    deltas = [e["delta"] for e in events if e["type"] == "response.function_call_arguments.delta"]
    assert "".join(deltas) == arguments


def test_run_without_an_answer_is_never_silent(agent: RunAgent, script: Any) -> None:
    engine = script(THOUGHT, THOUGHT)
    for quiet in ((), ("-q",)):
        ran = agent("run", "hi", *quiet, "--engine", engine)
        assert ran.code == 4 and not ran.out.strip()
        assert CUT_OFF[EndReason.UNANSWERED] in ran.err


FILES = ("run", "write", "--tools", "files", "--approve", "all")


@pytest.mark.parametrize(
    ("options", "markup"),
    [
        ((), CALL.replace("functions.write", "functions.files__write") + "<|call|>"),
        (
            ("--model", "qwen3-coder-30b-a3b"),
            "<tool_call>\n<function=files__write>\n<parameter=path>\na\n</parameter>\n"
            "<parameter=content>\nli<|im_end|>",
        ),
        (
            ("--model", "qwen3-4b"),
            '<tool_call>\n{"name": "files__write", "arguments": {"path": "a", "content": "li<|im_end|>',
        ),
    ],
)
def test_cut_call_changes_no_file(
    agent: RunAgent, script: Any, tmp_path: Path, options: tuple[str, ...], markup: str
) -> None:
    (tmp_path / "a").write_text("line1\nline2\n")
    engine = script(
        markup, "<|channel|>final<|message|>Done.<|return|>" if not options else "Done."
    )
    ran = agent(*FILES, *options, "--root", str(tmp_path), "--engine", engine)
    assert (tmp_path / "a").read_text() == "line1\nline2\n"
    assert "cut off" in ran.err and "Done." in ran.out


@pytest.mark.long
@pytest.mark.parametrize(("effort", "is_noticed"), [("high", True), ("medium", False)])
def test_effort_without_control_is_noticed_and_null(
    agent: RunAgent, script: Any, effort: str, is_noticed: bool
) -> None:
    engine = script("Done.<|im_end|>")
    options = ("--model", "qwen3-4b", "--effort", effort, "--engine", engine)
    ran = agent("run", "go", *options, "--json-events")
    assert ("qwen3-4b has no reasoning effort: high has no effect." in ran.out) is is_noticed
    done = next(
        event
        for event in map(json.loads, ran.out.splitlines())
        if event["type"] == "response.completed"
    )
    assert done["response"]["reasoning"]["effort"] is None
