"""JSON that goes on without end is closed, stays valid, and goes on behind what was closed."""

import json
import random
from collections.abc import Callable
from itertools import cycle
from typing import Any

import jsonschema
import pytest

from agent.engine.grammars import Grammar, GrammarCompiler, TokenBytes
from agent.engine.protocol import LoopLimits

LIMITS = LoopLimits(min_code_tokens=64, max_string_tokens=100, max_json_tokens=400)


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    tokens = [bytes([byte]) for byte in range(256)]
    return GrammarCompiler(lambda: TokenBytes([*tokens, b"<|end|>"], frozenset([256])))


def write(
    compiler: GrammarCompiler,
    schema: dict[str, Any],
    choose: Callable[[list[int]], int],
    limits: LoopLimits | None = LIMITS,
) -> str:
    """What a model writes that ends nothing by itself, up to 1,000 bytes."""
    grammar = compiler.submit(Grammar.from_answer_schema(schema)).result()
    matcher, written = grammar.new_matcher(limits), bytearray()
    while len(written) < 1000 and len(allowed := matcher.allowed()):
        token = choose(allowed.tolist())
        assert matcher.accept(token)
        written.append(token)
        if matcher.complete and not len(matcher.allowed()):
            break
    return written.decode()


def repeating(text: str) -> Callable[[list[int]], int]:
    """Writes the text over and over; what is not allowed there is left to the grammar."""
    upcoming = cycle(text.encode())
    return lambda allowed: token if (token := next(upcoming)) in allowed else allowed[0]


def rambling(seed: int) -> Callable[[list[int]], int]:
    """Writes anything but the end of something, where it can."""
    draw = random.Random(seed)

    def choose(allowed: list[int]) -> int:
        rest = [token for token in allowed if 31 < token < 127 and chr(token) not in '"}]\\']
        return draw.choice(rest or allowed)

    return choose


TEXT = {"type": "string"}
SCHEMAS: list[dict[str, Any]] = [
    {},
    {"type": "object"},
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {
        "type": "object",
        "properties": {"data": {"type": "object"}, "name": TEXT},
        "required": ["name"],
    },
    {"type": "object", "patternProperties": {"^[a-z]+$": TEXT}, "additionalProperties": False},
    {"type": "array", "items": TEXT},
    {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
    {"type": "array", "items": {"enum": [0, 1]}, "minItems": 30},
    {
        "type": "object",
        "properties": {
            "people": {"type": "array", "items": {"$ref": "#/$defs/person"}},
            "total": {"type": "integer"},
        },
        "required": ["people", "total"],
        "$defs": {
            "person": {
                "type": "object",
                "properties": {"name": TEXT, "friend": {"$ref": "#/$defs/person"}},
                "required": ["name"],
            }
        },
    },
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("schema", SCHEMAS, ids=range(len(SCHEMAS)))
@pytest.mark.parametrize("seed", range(6))
def test_text_without_end_is_closed(
    compiler: GrammarCompiler, schema: dict[str, Any], seed: int
) -> None:
    text = write(compiler, schema, rambling(seed))
    jsonschema.validate(json.loads(text), schema)
    assert len(text) < LIMITS.max_json_tokens + 100
    strings = text.split('"')[1::2]
    assert max(map(len, strings), default=0) <= LIMITS.max_string_tokens


@pytest.mark.parametrize(
    ("schema", "repeated", "value"),
    [
        (TEXT, "ab ", str),
        ({"type": "array", "items": {"type": "integer"}}, "[1,1,1", list),
        ({"type": "array", "items": TEXT}, '"a","a",', list),
        ({"type": "object"}, '"a":1,', dict),
        ({"type": "object"}, '{"a":', dict),
    ],
)
def test_repetition_is_closed(
    compiler: GrammarCompiler, schema: dict[str, Any], repeated: str, value: type
) -> None:
    text = write(compiler, schema, repeating(repeated))
    assert isinstance(json.loads(text), value)
    assert len(text) < LIMITS.max_json_tokens


def test_what_is_behind_a_closed_string_is_written_by_the_model(compiler: GrammarCompiler) -> None:
    schema = {"type": "object", "properties": {"a": TEXT, "b": {"type": "integer"}}}
    begun, wanted = '{"a":"', ',"b":42}'
    upcoming = [*begun.encode(), *b"x" * 64]

    def choose(allowed: list[int]) -> int:
        if upcoming:
            return upcoming.pop(0)
        return next((byte for byte in wanted.encode() if byte in allowed), allowed[0])

    text = write(compiler, {**schema, "required": ["a", "b"]}, choose)
    assert json.loads(text)["a"].startswith("x" * 64)
    assert set(json.loads(text)) == {"a", "b"}


@pytest.mark.parametrize(
    "schema", [{"const": "x" * 300}, {"type": "array", "items": {"const": 0}, "minItems": 300}]
)
def test_what_the_schema_demands_is_written(
    compiler: GrammarCompiler, schema: dict[str, Any]
) -> None:
    jsonschema.validate(json.loads(write(compiler, schema, rambling(1))), schema)


def test_without_limits_nothing_is_closed(compiler: GrammarCompiler) -> None:
    assert len(write(compiler, TEXT, repeating("ab"), limits=None)) == 1000


def test_id_outside_the_vocabulary_is_refused(compiler: GrammarCompiler) -> None:
    """A server's vocabulary may have padding; the text can go on."""
    matcher = compiler.submit(Grammar.from_schema(TEXT)).result().new_matcher()
    assert not matcher.accept(300)
    assert matcher.allowed().tolist() == [ord('"')] and matcher.accept(ord('"'))
