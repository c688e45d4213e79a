"""Whatever is drawn under a guide is Harmony, and fits its grammars; what models write is allowed."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest
from openai_harmony import HarmonyEncoding

from agent.engine.grammars import DIGITS, Grammar, GrammarError
from agent.engine.protocol import Constraint
from agent.formats.constraints import Rules
from agent.formats.harmony.format import HarmonyFormat
from agent.formats.harmony.token_ids import CALL, END
from agent.formats.protocol import Closed, Delta, Kind, Opened, Repair, Stop
from agent.formats.recipients import ALIASES, Recipients

ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": [1, 2]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def form(encoding: HarmonyEncoding) -> HarmonyFormat:
    return HarmonyFormat(encoding)


def test_what_is_waited_for_need_not_be_made_first(form: HarmonyFormat) -> None:
    grammar, gate = Grammar.of_schema({"const": "both at once"}), threading.Event()
    form.grammars._thread.submit(gate.wait)
    first = form.grammars.first(lambda: grammar)
    later = form.grammars.compile(grammar)
    gate.set()
    assert first.result(30).unenforced is None and later.result(30).unenforced is None


def said(form: HarmonyFormat, grammar: Grammar, text: str) -> tuple[str, bool]:
    """As much of it as may be said, a character at a time, and whether it may end there."""
    matcher = form.grammars.compile(grammar).result(30).begin()
    ids = [form.plain(one)[0] for one in text]
    took = next((n for n, one in enumerate(ids) if not matcher.accept(one)), len(ids))
    for one in ids[took : took + 1]:
        assert one not in matcher.allowed()
    return text[:took], matcher.complete


@pytest.mark.parametrize(
    ("kind", "before"),
    [("integer", ""), ("integer", "-"), ("integer", "[7, "), ("number", "0."), ("number", "1e")],
)
def test_a_number_ends_once_no_double_is_so_long(
    form: HarmonyFormat, kind: str, before: str
) -> None:
    value = {"type": kind}
    is_list = before.startswith("[")
    grammar = Grammar.of_schema({"type": "array", "items": value} if is_list else value)
    found, ends = said(form, grammar, before + "9" * 1000)
    assert found == before + "9" * DIGITS and ends is not is_list
    longest = before + "9" * 341 + "]" * is_list
    assert said(form, grammar, longest) == (longest, True)


def test_digits_of_a_text_go_on(form: HarmonyFormat) -> None:
    text = '"' + "9" * 1000 + '"'
    for schema in ({"type": "string"}, {"type": "string", "pattern": "^[0-9]{1000}$"}, {}):
        assert said(form, Grammar.of_schema(schema), text) == (text, True)
    digits = "9" * 1000
    assert said(form, Grammar("regex", "[0-9]+"), digits) == (digits, True), "a client's own form"


NAMES = ("functions.add", "functions.files__read", "python")


def guide(form: HarmonyFormat, **rules: Any) -> Constraint:
    arguments: Mapping[str, Any] = rules.pop("arguments", {"functions.add": ADD})
    grammars = {name: Grammar.of_arguments(schema) for name, schema in arguments.items()}
    if "answer" in rules:
        rules["answer"] = form.grammars.compile(Grammar.of_schema(rules["answer"]))
    return form.guide(Rules(arguments=grammars, **rules), Recipients(NAMES, ALIASES))


def drawn(guide: Constraint, seed: int, form: HarmonyFormat, most: int = 80) -> list[int]:
    """What a model says that knows nothing, mostly stops, and gets tired: ids until the end."""
    draw = random.Random(seed)
    ids: list[int] = []
    marks = [200_002, 200_003, 200_005, 200_006, 200_007, 200_008, 200_012]
    while len(ids) < most:
        wanted = draw.choice([*marks, draw.randrange(201_088)])
        if not guide.accept(wanted):
            choices = guide.allowed()
            assert len(choices) and wanted not in choices
            wanted = int(choices[draw.randrange(len(choices))])
            assert guide.accept(wanted)
        ids.append(wanted)
        if wanted in form.stop:
            break
    return ids


def pieces(form: HarmonyFormat, ids: list[int]) -> list[Any]:
    return [*form.parser(Recipients(NAMES, ALIASES)).feed(ids)]


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize(
    "rules", [{"exact": True}, {"calls": "must"}, {"calls": "none"}, {"answer": ADD}], ids=str
)
def test_what_is_drawn_is_well_formed(
    form: HarmonyFormat, rules: dict[str, Any], seed: int
) -> None:
    ids = drawn(guide(form, **rules), seed, form)
    found = pieces(form, ids)
    kinds = [piece.kind for piece in found if isinstance(piece, Opened)]
    assert not [piece for piece in found if isinstance(piece, Repair)]
    assert Kind.TOOL_UNKNOWN not in kinds
    if ids[-1] in form.stop:
        assert isinstance(found[-1], Stop) and found[-1].reason in ("call", "return")
        if rules.get("calls") == "must":
            assert kinds[-1] is Kind.TOOL and Kind.FINAL not in kinds and len(kinds) <= 3
    if rules.get("calls") == "none":
        assert Kind.TOOL not in kinds
    if "answer" in rules:
        assert Kind.PREAMBLE not in kinds
    said = ""
    for piece in found:
        match piece:
            case Opened():
                opened, said = piece, ""
            case Delta(text):
                said += text
            case Closed(complete=True) if opened.recipient == "functions.add":
                jsonschema.validate(json.loads(said), ADD)
            case Closed(complete=True) if opened.kind is Kind.FINAL and "answer" in rules:
                jsonschema.validate(json.loads(said), ADD)


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


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("markup", WRITTEN)
def test_what_models_write_passes(
    form: HarmonyFormat, encoding: HarmonyEncoding, markup: str, exact: bool
) -> None:
    constraint = guide(form, exact=exact)
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
]


@pytest.mark.parametrize(("before", "after"), REJECTED)
def test_arguments_are_held_under_any_header_that_is_understood(
    form: HarmonyFormat, encoding: HarmonyEncoding, before: str, after: str
) -> None:
    """Headers are free where nothing else is asked."""
    constraint = guide(form)
    for token in encoding.encode(before, allowed_special="all"):
        assert constraint.accept(token)
    (token, *_) = encoding.encode(after, allowed_special="all")
    assert token not in constraint.allowed() and not constraint.accept(token)


def test_what_is_allowed_is_what_is_accepted(
    form: HarmonyFormat, encoding: HarmonyEncoding
) -> None:
    written = encoding.encode(WRITTEN[1], allowed_special="all")
    constraint = guide(form, exact=True)
    draw = random.Random(1)
    for at, token in enumerate(written):
        allowed = constraint.allowed().tolist()
        assert token in allowed and allowed[-1] < 201_088 and len(set(allowed)) == len(allowed)
        some = [draw.randrange(201_088) for _ in range(500)] + list(range(199_998, 200_020))
        assert not any(constraint.accept(one) for one in set(some) - set(allowed))
        for one in (allowed[0], allowed[-1], draw.choice(allowed)):
            again = guide(form, exact=True)
            assert all(again.accept(before) for before in written[:at]) and again.accept(one)
        assert constraint.accept(token)


def test_without_a_grammar_everything_is_free(
    form: HarmonyFormat, encoding: HarmonyEncoding
) -> None:
    constraint = guide(form)
    odd = "<|channel|>fnal<|message|>x<|channel|><|start|>user"
    for token in encoding.encode(odd, allowed_special="all"):
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
def test_a_tool_s_own_grammar(
    form: HarmonyFormat, encoding: HarmonyEncoding, grammar: Grammar, text: str, wrong: str
) -> None:
    rules = Rules(arguments={"functions.add": grammar})
    constraint = form.guide(rules, Recipients(NAMES, ALIASES))
    header = "<|channel|>commentary to=functions.add code<|message|>"
    for token in encoding.encode(header + text, allowed_special="all"):
        assert constraint.accept(token)
    (odd,) = encoding.encode(wrong)
    allowed = constraint.allowed()
    assert odd not in allowed and not constraint.accept(odd)
    assert CALL in allowed and not constraint.accept(END) and constraint.accept(CALL)


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
    Grammar.of_schema(DEEP),
    Grammar("lark", DOUBLING),
    Grammar("lark", "start: <[200012]>"),
    Grammar("lark", "start: a\na: b b\nb: a a"),
    Grammar("lark", "start: " + "(" * 5000 + '"a"' + ")" * 5000),
    Grammar("lark", 'start: "a" x'),
    Grammar("regex", "(?=a)b"),
    Grammar("regex", "(" * 2000 + "a" + ")" * 2000),
    Grammar("lark", "x" * 200_000),
    Grammar("lark", ""),
    Grammar.of_schema({"allOf": [{"type": "string", "pattern": f"^.*{i}.*$"} for i in range(200)]}),
]


@pytest.mark.parametrize("grammar", HOSTILE, ids=range(len(HOSTILE)))
def test_a_grammar_that_cannot_be_used_is_an_error(form: HarmonyFormat, grammar: Grammar) -> None:
    with pytest.raises(GrammarError):
        form.grammars.compile(grammar).result(30)
