"""What no grammar enforces is validated afterwards, and the person is told."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.engine.protocol import LoopLimits, Sampling
from agent.turn.loop import Turn
from agent.turn.options import AnswerForm, TurnOptions
from agent.util.json_schema import find_schema_error, find_violation
from agent.util.process import EXIT_FAILED, EXIT_USAGE
from tests.support.hosts import server_entry
from tests.support.invariants import check
from tests.support.runtimes import MakeRuntime
from tests.support.scripts import final
from tests.support.turns import FINAL, read_events, run_turn, write_script

GREEDY = Sampling(temperature=0)
TEXT = {"type": "string"}
LOOP = {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
WRONG = (
    '<|channel|>commentary to=functions.plain__echo <|constrain|>json<|message|>{"text": 5}<|call|>'
)


@pytest.mark.parametrize("constrain", [True, False])
async def test_invalid_arguments_fail_the_call(
    make_runtime: MakeRuntime, tmp_path: Path, constrain: bool
) -> None:
    config = tmp_path / "mcp.json"
    config.write_text(
        json.dumps(
            {"mcpServers": {"plain": server_entry("plain", constrain=constrain, required=True)}}
        )
    )
    lines = ({"markup": WRONG}, {"markup": FINAL})
    runtime = await make_runtime(
        write_script(tmp_path / "s.jsonl", *lines), tools="plain", mcp_config=(config,)
    )
    call, _ = check(await run_turn(runtime))["output"]
    assert call["status"] == "failed"
    validation = "do not fit the tool's schema: text: 5 is not of type 'string'"
    assert (validation in call["error"].get("message", "")) == constrain, (
        "else the server has its say"
    )


CHOICE = {
    "type": "object",
    "properties": {"ok": {"enum": [True, False]}},
    "required": ["ok"],
    "additionalProperties": False,
}


def answer_of(final: dict[str, Any]) -> Any:
    return json.loads(final["output"][-1]["content"][0]["text"])


async def test_answer_fits_schema(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime()
    options = TurnOptions(sampling=GREEDY, answer_form=AnswerForm(CHOICE, binding=True))
    events = await run_turn(runtime, options)
    jsonschema.validate(answer_of(check(events)), CHOICE)
    assert not [event for event in events if event["type"] == "agent.notice"]


async def test_checked_answer_that_does_not_fit_fails_turn(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime()
    schema = {**CHOICE, "not": {"required": ["ok"]}}
    options = TurnOptions(sampling=GREEDY, answer_form=AnswerForm(schema, binding=True))
    turn = Turn(runtime, Conversation("c"), [User("go")], options).start()
    events = await read_events(turn)
    response = check(events)
    assert "does not fit its JSON Schema" in response["error"]["message"]
    assert turn.exit_code == EXIT_FAILED and "ok" in answer_of(response), "what was held is held"
    (notice,) = [event for event in events if event["type"] == "agent.notice"]
    assert "not" in notice["message"] and events[0]["type"] == "agent.start"


async def test_answer_without_end_is_closed_with_notice(make_runtime: MakeRuntime) -> None:
    """The embedded model would fill the context with a property that its answer is not about."""
    runtime = await make_runtime()
    limits = LoopLimits(max_string_tokens=20, max_json_tokens=40)
    schema = {"type": "object", "properties": {"texts": {"type": "array", "items": TEXT}}}
    form = AnswerForm({**schema, "required": ["texts"]}, binding=True)
    options = TurnOptions(sampling=GREEDY, answer_form=form, loop_limits=limits)
    events = await run_turn(runtime, options)
    response = check(events)
    assert response["status"] == "completed" and answer_of(response).keys() == {"texts"}
    assert response["usage"]["output_tokens"] < 300
    closed = [event for event in events if "was closed" in event.get("message", "")]
    assert len(closed) == 1


@pytest.mark.parametrize(
    ("schema", "text", "wrong"),
    [
        ({"properties": {"a": {"type": "integer"}}}, '{"a":1,"\\u0061":"x"}', True),
        ({"properties": {"a": {"type": "string"}}}, '{"a":"\\u0061"}', False),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}, "0", True),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}, "0.5", False),
    ],
)
async def test_answer_that_its_grammar_may_misread_is_checked(
    make_runtime: MakeRuntime, tmp_path: Path, schema: dict[str, Any], text: str, wrong: bool
) -> None:
    runtime = await make_runtime(write_script(tmp_path / "s.jsonl", {"markup": final(text)}))
    options = TurnOptions(answer_form=AnswerForm(schema, binding=True))
    assert (check(await run_turn(runtime, options))["status"] == "failed") == wrong


@pytest.mark.parametrize(
    ("schema", "wrong"),
    [
        ({"type": "objekt"}, "type: 'objekt' is not valid"),
        ({"$defs": {"a": {"type": "int"}}}, "$defs.a.type: 'int' is not valid"),
        ({"prefixItems": [{"minimum": "3"}]}, "prefixItems.0.minimum: '3' is not of type"),
        ({"required": "a"}, "required: 'a' is not of type 'array'"),
        ({"type": ["object", "null"], "nullable": True, "items": [{}], "x": 1}, None),
        (LOOP, None),
    ],
)
def test_schema_error_names_its_place(schema: dict[str, Any], wrong: str | None) -> None:
    why = find_schema_error(schema)
    assert wrong in why if wrong and why else why == wrong


@pytest.mark.parametrize(
    ("schema", "strict", "why"),
    [
        ({"type": "object", "properties": {"a": False}, "required": ["a"]}, False, "no text can"),
        ({"$ref": "#"}, False, "no text can"),
        ({"type": "object", "not": {"required": ["a"]}}, True, "not"),
    ],
    ids=["impossible", "endless", "strict"],
)
async def test_unenforceable_answer_form_is_refused(
    make_runtime: MakeRuntime, schema: dict[str, Any], strict: bool, why: str
) -> None:
    runtime = await make_runtime()
    options = TurnOptions(answer_form=AnswerForm(schema, strict=strict))
    turn = Turn(runtime, Conversation("c"), [User("go")], options).start()
    message = check(await read_events(turn))["error"]["message"]
    assert "cannot be enforced: " in message and why in message
    assert turn.exit_code == EXIT_USAGE and not turn.generations


SLOW: dict[str, Any] = {"patternProperties": {"^(a+)+$": {}}}
MANY: dict[str, Any] = {"$defs": {"a40": {"type": "string"}}, "$ref": "#/$defs/a0"}
for level in range(40):
    MANY["$defs"][f"a{level}"] = {"anyOf": [{"$ref": f"#/$defs/a{level + 1}"}] * 2}


@pytest.mark.parametrize(
    ("schema", "value", "wrong"),
    [
        ({"not": {"type": "string"}}, "x", True),
        ({"not": {"type": "string"}}, 1, False),
        ({"uniqueItems": True}, [1, 1], True),
        (LOOP, 1, False),
        (MANY, 1, False),
        ({"$ref": "http://127.0.0.1:9/x"}, 1, False),
        ({"type": "frobnicate"}, 1, False),
        ({"pattern": "^(a+)+$"}, "a" * 40 + "b", False),
        ({**SLOW, "additionalProperties": False}, {"a" * 40 + "b": 1}, False),
        ({"allOf": [SLOW], "unevaluatedProperties": False}, {"a" * 40 + "b": 1}, False),
        ({"properties": {"a": {}}, "additionalProperties": False}, {"b": 1}, True),
    ],
    ids=range(11),
)
def test_validation_ends_whatever_the_schema(
    schema: dict[str, Any], value: Any, wrong: bool
) -> None:
    """A schema that cannot be checked in time counts as fulfilled."""
    assert (find_violation(schema, value) is not None) == wrong
