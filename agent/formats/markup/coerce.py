"""Converts a parameter's plain text into JSON of the type in the tool's schema, as tags carry no types:
``<parameter=count>5</parameter>`` is 5 for an integer, "5" for a string."""

import ast
import json
import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pydantic_core import from_json

from agent.formats.markup.syntax import to_json
from agent.util.json_text import json_type

Types = set[str]
WRITTEN: Types = {"any"}
"""The type of a value that is JSON as it is written."""
_MAX_REFERENCE_DEPTH = 8
"""Nested references and unions that are followed for a type."""
MAX_LITERAL_CHARS = 20_000
"""Characters of a Python literal that is parsed: Python's own parser is slow, and recursive."""


def schema_types(schema: object, root: Mapping[str, Any], depth: int = 0) -> Types:
    """Return the JSON types that this schema allows; empty: any. ``root``: holds its references."""
    if not isinstance(schema, Mapping) or depth > _MAX_REFERENCE_DEPTH:
        return set()
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if out := {kind for kind in kinds if isinstance(kind, str)}:
        return out
    target: object = None
    if isinstance(ref := schema.get("$ref"), str) and ref.startswith("#/"):
        target = root
        for key in ref[2:].split("/"):
            target = target.get(key) if isinstance(target, Mapping) else None
    groups = (schema.get(group) for group in ("anyOf", "oneOf", "allOf"))
    options = [option for group in groups if isinstance(group, list) for option in group]
    for option in (target, *options):
        out |= schema_types(option, root, depth + 1)
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return out or {json_type(value) for value in values if isinstance(values, list)}


def coerce_value(text: str, types: Types) -> str:
    """A complete value as JSON of one of the types: as it was written, or else a string."""
    plain = text.strip()
    if "null" in types and plain.lower() in ("null", "none"):
        return "null"
    if "boolean" in types and plain.lower() in ("true", "false"):
        return plain.lower()
    try:
        value = from_json(plain, allow_inf_nan=False)
    except ValueError:
        # Python's own parser is slow, and recursive.
        may_be_literal = types & {"array", "object"} and len(plain) <= MAX_LITERAL_CHARS
        value = None
        with suppress(ValueError):
            value = parse_literal(plain) if may_be_literal else None
        if not isinstance(value, list | dict):
            return to_json(text)
        plain = to_json(value)
    kind = json_type(value)
    if kind in types or types == WRITTEN or (kind == "integer" and "number" in types):
        return plain if kind != "string" else to_json(value)
    if kind == "number" and "integer" in types and value.is_integer():  # JSON has no infinity
        return str(int(value))
    return to_json(text)


def parse_literal(text: str) -> Any:
    """Parse a Python literal that JSON has too. Raises ValueError."""
    try:
        with warnings.catch_warnings():  # of odd literals, such as "1or 2"
            warnings.simplefilter("ignore")
            value = ast.literal_eval(text)
        json.dumps(value, allow_nan=False)
    except (TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError from error
    return value
