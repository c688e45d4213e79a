"""Objects of a schema are closed wherever nothing else speaks of them, and only there."""

from typing import Any

import pytest

from agent.engine.closed_schemas import close_objects

NAME = {"type": "object", "properties": {"name": {"type": "string"}}}
AGE = {"type": "object", "properties": {"age": {"type": "integer"}}}
CLOSED_NAME, CLOSED_AGE = ({**schema, "additionalProperties": False} for schema in (NAME, AGE))
CAT, DOG = (
    {**NAME, "properties": {"kind": {"const": kind}, **NAME["properties"]}, "required": ["kind"]}  # type: ignore[dict-item]
    for kind in ("cat", "dog")
)
CLOSED_CAT, CLOSED_DOG = ({**schema, "additionalProperties": False} for schema in (CAT, DOG))
REFERENCE = {"$ref": "#/$defs/one"}


@pytest.mark.parametrize(
    ("schema", "closed"),
    [
        (NAME, CLOSED_NAME),
        ({"type": "array", "items": NAME}, {"type": "array", "items": CLOSED_NAME}),
        ({"prefixItems": [NAME, AGE]}, {"prefixItems": [CLOSED_NAME, CLOSED_AGE]}),
        ({"additionalProperties": NAME}, {"additionalProperties": CLOSED_NAME}),
        ({"anyOf": [NAME, {"type": "null"}]}, {"anyOf": [CLOSED_NAME, {"type": "null"}]}),
        ({"allOf": [NAME], "title": "A"}, {"allOf": [CLOSED_NAME], "title": "A"}),
        ({"oneOf": [CAT, DOG]}, {"oneOf": [CLOSED_CAT, CLOSED_DOG]}),
        ({**REFERENCE, "$defs": {"one": NAME}}, {**REFERENCE, "$defs": {"one": CLOSED_NAME}}),
        (
            {"properties": {"a": REFERENCE}, "definitions": {"one": {"properties": {"b": AGE}}}},
            {
                "properties": {"a": REFERENCE},
                "definitions": {
                    "one": {"properties": {"b": CLOSED_AGE}, "additionalProperties": False}
                },
                "additionalProperties": False,
            },
        ),
    ],
)
def test_object_that_nothing_else_describes_is_closed(
    schema: dict[str, Any], closed: dict[str, Any]
) -> None:
    assert close_objects(schema) == closed


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {}},
        {**NAME, "additionalProperties": True},
        {**NAME, "patternProperties": {"^x": AGE}},
        {**NAME, "required": ["other"]},
        {**NAME, "minProperties": 2},
        {**NAME, "propertyNames": {"maxLength": 3}},
        {**NAME, "anyOf": [AGE, {"required": ["b"]}]},
        {"allOf": [NAME, AGE]},
        {"oneOf": [NAME, AGE]},
        {"not": NAME},
        {"if": NAME, "then": AGE},
        {"enum": [{"properties": {"a": 1}}], **NAME},
        {
            "allOf": [REFERENCE, AGE],
            "$defs": {"one": {"items": {"$ref": "#/$defs/two"}}, "two": AGE},
        },
        {"allOf": [{"items": {"$ref": "#"}}, AGE]},
        {"oneOf": [REFERENCE, AGE], "$defs": {"one": REFERENCE}},
    ],
)
def test_object_that_something_else_describes_stays_open(schema: dict[str, Any]) -> None:
    assert close_objects(schema) == schema


def test_reference_with_escapes_keeps_its_target_open() -> None:
    """What a part of ``allOf`` refers to must have room for the other parts' properties."""
    definitions = {"a/b~c d": NAME, "other": AGE}
    schema = {"allOf": [{"$ref": "#/$defs/a~1b~0c%20d"}, {"properties": {"x": {}}}]}
    closed = close_objects({**schema, "$defs": definitions})
    assert closed == {**schema, "$defs": {**definitions, "other": CLOSED_AGE}}
