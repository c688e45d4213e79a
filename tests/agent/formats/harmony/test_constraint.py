"""The constraint of Harmony: random ids under it are well-formed, and what models write is allowed."""

import json
import random
from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest
from openai_harmony import HarmonyEncoding

from agent.engine.grammars import MAX_CONSECUTIVE_DIGITS, Grammar, GrammarCompiler, GrammarError
from agent.engine.protocol import Constraint, LoopLimits
from agent.formats.constraints import GenerationConstraints, constraint_of
from agent.formats.harmony.format import HarmonyFormat
from agent.formats.harmony.token_ids import CALL_ID, CHANNEL_ID, END_ID, MESSAGE_ID, RETURN_ID
from agent.formats.protocol import Closed, Delta, Opened, Repair, SegmentKind, Stop
from agent.formats.recipients import TOOL_ALIASES, Recipients
from tests.support.engines import block_compiler

ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": [1, 2]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def harmony_format(encoding: HarmonyEncoding) -> HarmonyFormat:
    return HarmonyFormat(encoding)


def test_compiler_nested_wait_does_not_deadlock(harmony_format: HarmonyFormat) -> None:
    grammar = Grammar.from_schema({"const": "both at once"})
    gate = block_compiler(harmony_format.grammars)
    first = harmony_format.grammars.submit_first_usable(lambda: grammar)
    later = harmony_format.grammars.submit(grammar)
    gate.set()
    assert first.result(30).unenforced is None and later.result(30).unenforced is None


def accepted_prefix(harmony_format: HarmonyFormat, grammar: Grammar, text: str) -> tuple[str, bool]:
    """The prefix that the grammar accepts, a character at a time, and whether it may end there."""
    matcher = harmony_format.grammars.submit(grammar).result(30).new_matcher()
    ids = [harmony_format.encode_text(character)[0] for character in text]
    length = next((n for n, token in enumerate(ids) if not matcher.accept(token)), len(ids))
    for token in ids[length : length + 1]:
        assert token not in matcher.allowed()
    return text[:length], matcher.complete


@pytest.mark.parametrize(
    ("kind", "before"),
    [("integer", ""), ("integer", "-"), ("integer", "[7, "), ("number", "0."), ("number", "1e")],
)
def test_number_grammar_limits_digits(
    harmony_format: HarmonyFormat, kind: str, before: str
) -> None:
    value = {"type": kind}
    is_list = before.startswith("[")
    grammar = Grammar.from_schema({"type": "array", "items": value} if is_list else value)
    prefix, ends = accepted_prefix(harmony_format, grammar, before + "9" * 1000)
    assert prefix == before + "9" * MAX_CONSECUTIVE_DIGITS and ends is not is_list
    longest = before + "9" * 341 + "]" * is_list
    assert accepted_prefix(harmony_format, grammar, longest) == (longest, True)


@pytest.mark.parametrize(
    ("more", "longest"),
    [
        ({}, '{"a":1'),
        ({"additionalProperties": True}, '{"a":1,"b":2}'),
        ({"patternProperties": {"^b": {}}}, '{"a":1,"b":2}'),
        ({"anyOf": [{"required": ["b"]}, {}]}, '{"a":1,"b":2}'),
        ({"required": ["a", "b"]}, '{"a":1,"b":2}'),
        ({"enum": [{"a": 1, "b": 2}]}, '{"a":1,"b":2}'),
    ],
)
def test_argument_grammar_has_declared_properties_only(
    harmony_format: HarmonyFormat, more: dict[str, Any], longest: str
) -> None:
    schema = {"properties": {"a": {"type": "integer"}}, **more}
    grammar = Grammar.from_argument_schema(schema)
    text = '{"a":1,"b":2}'
    assert accepted_prefix(harmony_format, grammar, text) == (longest, longest == text)
    nested = Grammar.from_argument_schema({"properties": {"list": {"items": schema}}})
    inside = accepted_prefix(harmony_format, nested, f'{{"list":[{text}]}}')
    assert inside == (f'{{"list":[{longest}' + "]}" * (longest == text), longest == text)


def test_argument_grammar_of_combined_parts_is_open(harmony_format: HarmonyFormat) -> None:
    """A part that another keyword speaks of too may have properties that only the other declares."""
    part = {"properties": {"a": {"properties": {"b": {"type": "integer"}}}}}
    other = {"properties": {"a": {"properties": {"c": {"type": "integer"}}}}}
    grammar = Grammar.from_argument_schema({**part, "allOf": [other]})
    text = '{"a":{"b":1,"c":2}}'
    assert accepted_prefix(harmony_format, grammar, text) == (text, True)


@pytest.mark.parametrize("part", [{"type": "object"}, {"type": "object", "properties": {}}, True])
def test_argument_grammar_of_any_object(harmony_format: HarmonyFormat, part: Any) -> None:
    grammar = Grammar.from_argument_schema({"properties": {"filter": part}})
    text = '{"filter":{"a":1}}'
    assert accepted_prefix(harmony_format, grammar, text) == (text, True)


def test_argument_grammar_without_properties(harmony_format: HarmonyFormat) -> None:
    nothing = Grammar.from_argument_schema({"type": "object", "properties": {}})
    assert accepted_prefix(harmony_format, nothing, "{}") == ("{}", True)
    assert accepted_prefix(harmony_format, nothing, '{"a":1}') == ("{", False)
    anything = Grammar.from_argument_schema({"type": "object"})
    assert accepted_prefix(harmony_format, anything, '{"a":1}') == ('{"a":1}', True)


@pytest.mark.long
def test_string_grammar_does_not_limit_digits(harmony_format: HarmonyFormat) -> None:
    text = '"' + "9" * 1000 + '"'
    for schema in ({"type": "string"}, {"type": "string", "pattern": "^[0-9]{1000}$"}, {}):
        assert accepted_prefix(harmony_format, Grammar.from_schema(schema), text) == (text, True)
    digits = "9" * 1000
    assert accepted_prefix(harmony_format, Grammar("regex", "[0-9]+"), digits) == (digits, True), (
        "a client's own grammar"
    )


@pytest.mark.parametrize("from_recipe", [False, True])
def test_answer_that_goes_on_without_end_is_closed(
    harmony_format: HarmonyFormat, encoding: HarmonyEncoding, from_recipe: bool
) -> None:
    answer = Grammar.from_answer_schema({"type": "array", "items": {"type": "string"}})
    constraints = GenerationConstraints(
        "none",
        answer_grammar=harmony_format.grammars.submit(answer),
        answer_source=answer,
        answer_limits=LoopLimits(max_string_tokens=5, max_json_tokens=12),
    )
    constraint = harmony_format.new_constraint(constraints, Recipients(()))
    if from_recipe:
        spec = json.loads(json.dumps(constraints.spec(Recipients(()), [])))
        constraint = constraint_of(harmony_format, spec)
    markup = '<|channel|>final <|constrain|>json<|message|>["'
    for token in encoding.encode(markup, allowed_special="all"):
        assert constraint.accept(token)
    (word,), written = encoding.encode(" word"), ""
    while RETURN_ID not in constraint.allowed():
        token = word if constraint.accept(word) else int(constraint.allowed()[0])
        assert token == word or constraint.accept(token)
        written += encoding.decode([token])
    assert written.startswith(" word word word word") and written.endswith('"]')
    assert len(json.loads('["' + written)) > 1, "the model went on behind the first string"


def test_answer_with_a_grammar_has_one_reasoning(
    harmony_format: HarmonyFormat, encoding: HarmonyEncoding
) -> None:
    """A small model could write one after the other until the context is full."""
    answer = {"answer_grammar": {"type": "integer"}, "calls": "none"}
    constraint = new_constraint(harmony_format, **answer)
    markup = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>"
    for token in encoding.encode(markup, allowed_special="all"):
        assert constraint.accept(token)
    first = {encoding.decode([int(token)])[0] for token in constraint.allowed()}
    assert first == {"f"}, "the answer"


@pytest.mark.parametrize("from_recipe", [False, True])
@pytest.mark.parametrize("before", ["", "<|channel|>analysis<|message|>Hm."])
def test_no_reasoning_begins_after_its_end(
    harmony_format: HarmonyFormat, encoding: HarmonyEncoding, before: str, from_recipe: bool
) -> None:
    """A model that was free before can call, say something, or answer."""
    prefix = encoding.encode(before, allowed_special="all")
    constraints = GenerationConstraints(reasoning_until=len(prefix))
    recipients = Recipients(("functions.add",))
    constraint = harmony_format.new_constraint(constraints, recipients)
    if from_recipe:
        spec = json.loads(json.dumps(constraints.spec(recipients, prefix)))
        constraint = constraint_of(harmony_format, spec)
    else:
        assert all(map(constraint.accept, prefix))
    if before:
        assert all(map(constraint.accept, harmony_format.end_reasoning(before_call=True)))
    opening = encoding.encode("<|channel|>", allowed_special="all")
    assert all(map(constraint.accept, opening))
    allowed = {encoding.decode([int(token)]) for token in constraint.allowed()}
    assert {"final", "comment", "analysis"} <= allowed, "a call may be in the analysis channel"
    (analysis,), (message,) = encoding.encode("analysis"), [MESSAGE_ID]
    assert constraint.accept(analysis) and not constraint.accept(message)


NAMES = ("functions.add", "functions.files__read", "python")


def new_constraint(harmony_format: HarmonyFormat, **options: Any) -> Constraint:
    arguments: Mapping[str, Any] = options.pop("arguments", {"functions.add": ADD})
    grammars = {name: Grammar.from_argument_schema(schema) for name, schema in arguments.items()}
    if "answer_grammar" in options:
        answer = Grammar.from_schema(options["answer_grammar"])
        options["answer_grammar"] = harmony_format.grammars.submit(answer)
    return harmony_format.new_constraint(
        GenerationConstraints(argument_grammars=grammars, **options),
        Recipients(NAMES, TOOL_ALIASES),
    )


def random_ids(
    constraint: Constraint, seed: int, harmony_format: HarmonyFormat, limit: int = 80
) -> list[int]:
    """Random allowed ids until a stop or the limit; special ids are tried seven times of eight."""
    draw = random.Random(seed)
    ids: list[int] = []
    special_ids = [200_002, 200_003, 200_005, 200_006, 200_007, 200_008, 200_012]
    while len(ids) < limit:
        token = draw.choice([*special_ids, draw.randrange(201_088)])
        if not constraint.accept(token):
            choices = constraint.allowed()
            assert len(choices) and token not in choices
            token = int(choices[draw.randrange(len(choices))])
            assert constraint.accept(token)
        ids.append(token)
        if token in harmony_format.stop_ids:
            break
    return ids


def parse(harmony_format: HarmonyFormat, ids: list[int]) -> list[Any]:
    return [*harmony_format.parser(Recipients(NAMES, TOOL_ALIASES)).feed(ids)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize(
    "options",
    [{"declared_tools_only": True}, {"calls": "must"}, {"calls": "none"}, {"answer_grammar": ADD}],
    ids=str,
)
def test_constrained_random_ids_are_well_formed(
    harmony_format: HarmonyFormat, options: dict[str, Any], seed: int
) -> None:
    ids = random_ids(new_constraint(harmony_format, **options), seed, harmony_format)
    events = parse(harmony_format, ids)
    kinds = [event.kind for event in events if isinstance(event, Opened)]
    assert not [event for event in events if isinstance(event, Repair)]
    assert SegmentKind.TOOL_UNKNOWN not in kinds
    if ids[-1] in harmony_format.stop_ids:
        assert isinstance(events[-1], Stop) and events[-1].reason in ("call", "return")
        if options.get("calls") == "must":
            assert (
                kinds[-1] is SegmentKind.TOOL and SegmentKind.FINAL not in kinds and len(kinds) <= 3
            )
    if options.get("calls") == "none":
        assert SegmentKind.TOOL not in kinds
    if "answer_grammar" in options:
        assert SegmentKind.PREAMBLE not in kinds
    body = ""
    for event in events:
        match event:
            case Opened():
                opened, body = event, ""
            case Delta(text):
                body += text
            case Closed(complete=True) if opened.recipient == "functions.add":
                jsonschema.validate(json.loads(body), ADD)
            case Closed(complete=True) if (
                opened.kind is SegmentKind.FINAL and "answer_grammar" in options
            ):
                jsonschema.validate(json.loads(body), ADD)


WRITTEN = [
    "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>4<|return|>",
    "<|channel|>commentary<|message|>First.<|end|><|start|>assistant"
    '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 1, "b": 2}<|call|>',
    '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a":1,"b":2}<|call|>',
    "<|channel|>commentary to=functions.add<|constrain|>json<|message|>"
    '{\n  "a": 1,\n  "b": 2\n}<|call|>',
    ' to=functions.add<|channel|>commentary <|constrain|>json<|message|>{"a": 1, "b": 2}<|call|>',
    '<|channel|>commentary to=functions.add json<|message|>{"a": 1, "b": 2}<|call|>',
    '<|channel|>analysis to=functions.add code<|message|>{"a": 1, "b": 2}<|call|>',
    "<|channel|>analysis to=python code<|message|>print(1)\n<|call|>",
    '<|channel|>commentary to=functions.files__read <|constrain|>json<|message|>{"path": "a"}<|call|>',
]


@pytest.mark.parametrize("declared_tools_only", [False, True])
@pytest.mark.parametrize("markup", WRITTEN)
def test_constraint_accepts_trained_forms(
    harmony_format: HarmonyFormat, encoding: HarmonyEncoding, markup: str, declared_tools_only: bool
) -> None:
    constraint = new_constraint(harmony_format, declared_tools_only=declared_tools_only)
    for token in encoding.encode(markup, allowed_special="all"):
        assert constraint.accept(token)


REJECTED = [
    ('<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 1, "b": ', "3"),
    ('<|channel|>commentary to=add <|constrain|>json<|message|>{"a": ', '"x'),
    ("<|channel|>commentary to=functions.add <|constrain|>json<|message|>", "<|call|>"),
    (
        '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 1, "b": 2}',
        "<|end|>",
    ),
    ("<|channel|>analysis to=mcp.add code<|message|>{", "<|start|>"),
    ('<|start|>assistant<|channel|>commentary to=functions.add<|message|>{"a": 1, "b": 2}', " "),
    ("<|channel|>commentary to=functions", ".subtract"),
    ("<|channel|>commentary to=functions.", "mcp"),
    ("<|channel|>commentary to=functions.add", "ition"),
    ("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions", ".multiply"),
]


@pytest.mark.parametrize(("before", "after"), REJECTED)
def test_constraint_any_header_enforces_names_and_arguments(
    harmony_format: HarmonyFormat, encoding: HarmonyEncoding, before: str, after: str
) -> None:
    """Without other constraints, headers are free but for the name of a function."""
    constraint = new_constraint(harmony_format)
    for token in encoding.encode(before, allowed_special="all"):
        assert constraint.accept(token)
    (token, *_) = encoding.encode(after, allowed_special="all")
    assert token not in constraint.allowed() and not constraint.accept(token)


def test_allowed_ids_equal_accepted_ids(
    harmony_format: HarmonyFormat, encoding: HarmonyEncoding
) -> None:
    written = encoding.encode(WRITTEN[1], allowed_special="all")
    constraint = new_constraint(harmony_format, declared_tools_only=True)
    draw = random.Random(1)
    for at, token in enumerate(written):
        allowed = constraint.allowed().tolist()
        assert token in allowed and allowed[-1] < 201_088 and len(set(allowed)) == len(allowed)
        some = [draw.randrange(201_088) for _ in range(500)] + list(range(199_998, 200_020))
        assert not any(constraint.accept(other) for other in set(some) - set(allowed))
        for other in (allowed[0], allowed[-1], draw.choice(allowed)):
            again = new_constraint(harmony_format, declared_tools_only=True)
            assert all(again.accept(before) for before in written[:at]) and again.accept(other)
        assert constraint.accept(token)


@pytest.mark.parametrize(
    "markup",
    [
        "<|channel|>fnal<|message|>x<|channel|><|start|>user",
        # gpt-oss also writes this; the parser takes it for python.
        "<|channel|>analysis to=functions.python code<|message|>print(1)",
    ],
)
def test_constraint_without_grammar_accepts_anything(
    harmony_format: HarmonyFormat, encoding: HarmonyEncoding, markup: str
) -> None:
    constraint = new_constraint(harmony_format)
    for token in encoding.encode(markup, allowed_special="all"):
        assert constraint.accept(token)


LARK = """
%llguidance {"no_forcing": false}
start: "add " NUMBER ("," NUMBER)*
NUMBER: /[0-9]+/
"""


@pytest.mark.parametrize(
    ("grammar", "text", "wrong"),
    [
        (Grammar("lark", LARK), "add 1,22,3", "x"),
        (Grammar("regex", r"\d{3}/[a-z]+"), "123/abc", "A"),
    ],
    ids=["lark", "regex"],
)
def test_custom_tool_grammar_is_enforced(
    harmony_format: HarmonyFormat,
    encoding: HarmonyEncoding,
    grammar: Grammar,
    text: str,
    wrong: str,
) -> None:
    constraints = GenerationConstraints(argument_grammars={"functions.add": grammar})
    constraint = harmony_format.new_constraint(constraints, Recipients(NAMES, TOOL_ALIASES))
    header = "<|channel|>commentary to=functions.add code<|message|>"
    for token in encoding.encode(header + text, allowed_special="all"):
        assert constraint.accept(token)
    (odd,) = encoding.encode(wrong)
    allowed = constraint.allowed()
    assert odd not in allowed and not constraint.accept(odd)
    assert CALL_ID in allowed and not constraint.accept(END_ID) and constraint.accept(CALL_ID)


DOUBLING = "\n".join(
    ["start: T0", *(f"T{i}: T{i + 1} T{i + 1}" for i in range(1000)), 'T1000: "a"']
)
DEEP = {
    "$ref": "#/$defs/0",
    "$defs": {
        "1500": {"type": "string"},
        **{str(i): {"allOf": [{"$ref": f"#/$defs/{i + 1}"}]} for i in range(1500)},
    },
}
HOSTILE = [
    Grammar.from_schema(DEEP),
    Grammar("lark", DOUBLING),
    Grammar("lark", "start: <[200012]>"),
    Grammar("lark", "start: a\na: b b\nb: a a"),
    Grammar("lark", "start: " + "(" * 5000 + '"a"' + ")" * 5000),
    Grammar("lark", 'start: "a" x'),
    Grammar("regex", "(?=a)b"),
    Grammar("regex", "(" * 2000 + "a" + ")" * 2000),
    Grammar("lark", "x" * 200_000),
    Grammar("lark", ""),
    Grammar.from_schema(
        {"allOf": [{"type": "string", "pattern": f"^.*{i}.*$"} for i in range(200)]}
    ),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("grammar", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_grammar_raises_error(harmony_format: HarmonyFormat, grammar: Grammar) -> None:
    with pytest.raises(GrammarError):
        harmony_format.grammars.submit(grammar).result(30)


ANSWERED = [
    WRITTEN[0],
    "<|channel|>commentary<|message|>First.<|end|><|start|>assistant<|channel|>final<|message|>4"
    "<|return|>",
    "<|channel|>final <|constrain|>json<|message|>{}<|return|>",
    "<|channel|>final<|constrain|>json<|message|>{}<|end|><|return|>",
]


@pytest.mark.parametrize("markup", ANSWERED)
def test_answer_constraint_allows_exactly_what_it_accepts(
    harmony_format: HarmonyFormat, encoding: HarmonyEncoding, markup: str
) -> None:
    constraint = new_constraint(harmony_format, calls="none")
    for token in encoding.encode(markup, allowed_special="all"):
        allowed = set(constraint.allowed().tolist())
        some = {token, 0, 1_000, 199_997, *range(199_998, 200_020), 201_087}
        assert token in allowed
        assert not any(constraint.accept(other) for other in some - allowed)
        assert constraint.accept(token)


@pytest.mark.parametrize("markup", WRITTEN[1:])
def test_answer_constraint_rejects_calls(
    harmony_format: HarmonyFormat, encoding: HarmonyEncoding, markup: str
) -> None:
    """Whatever is called, the header of the call cannot be written; an answer then can."""
    constraint = new_constraint(harmony_format, calls="none")
    ids = encoding.encode(markup, allowed_special="all")
    refused = next(n for n, token in enumerate(ids) if not constraint.accept(token))
    assert MESSAGE_ID not in ids[ids.index(CHANNEL_ID, max(0, refused - 4)) : refused]
    assert len(constraint.allowed())


def test_answer_constraint_compiles_nothing(
    harmony_format: HarmonyFormat, encoding: HarmonyEncoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It costs no grammar, and no mask where the model answers by itself."""

    def refuse(*_: object) -> None:
        raise AssertionError("no grammar is needed")

    monkeypatch.setattr(GrammarCompiler, "submit", refuse)
    constraint = new_constraint(harmony_format, calls="none")
    monkeypatch.setattr(type(constraint), "allowed", refuse)
    for token in encoding.encode(ANSWERED[0], allowed_special="all"):
        assert constraint.pending is None and constraint.accept(token)


@pytest.mark.parametrize("max_tokens", [25, 60, 301])
def test_answer_constraint_ends_in_time(harmony_format: HarmonyFormat, max_tokens: int) -> None:
    """A model that never ends a message by itself still answers within its tokens."""
    constraint = new_constraint(harmony_format, calls="none", max_tokens=max_tokens)
    ids: list[int] = []
    while 200_002 not in ids:
        wanted = 1_000 if constraint.accept(1_000) else int(constraint.allowed()[0])
        assert wanted == 1_000 or constraint.accept(wanted)
        ids.append(wanted)
    assert len(ids) <= max_tokens
    closed = [event for event in parse(harmony_format, ids) if isinstance(event, Opened | Closed)]
    assert closed[-2].kind is SegmentKind.FINAL and closed[-1].complete  # type: ignore[union-attr]
