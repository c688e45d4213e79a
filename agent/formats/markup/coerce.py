"""Converts a parameter's plain text into JSON of the type in the tool's schema, as tags carry no types:
``<parameter=count>5</parameter>`` is 5 for an integer, "5" for a string."""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from agent.util.json_text import json_type

_MAX_REFERENCE_DEPTH = 8
"""Nested references and unions that are followed for a type."""
_MAX_LITERAL_CHARS = 20_000
"""Characters of a Python literal that is parsed: Python's own parser is slow, and recursive."""


def property_types(schema: Mapping[str, Any], name: str) -> frozenset[str]:
    """Return the JSON types that a property may have; empty if the schema does not define them."""
    properties = schema.get("properties")
    property_schema = properties.get(name) if isinstance(properties, Mapping) else None
    return frozenset(_schema_types(property_schema, schema, 0))


def _schema_types(schema: object, root: Mapping[str, Any], depth: int) -> set[str]:
    if not isinstance(schema, Mapping) or depth > _MAX_REFERENCE_DEPTH:
        return set()
    out: set[str] = set()
    match schema.get("type"):
        case str(name):
            out.add(name)
        case list(names):
            out |= {name for name in names if isinstance(name, str)}
    if not out:
        match schema.get("$ref"):
            case str(ref) if ref.startswith("#/"):
                out |= _schema_types(_resolve_path(root, ref[2:].split("/")), root, depth + 1)
        for group in ("anyOf", "oneOf", "allOf"):
            if isinstance(options := schema.get(group), list):
                for option in options:
                    out |= _schema_types(option, root, depth + 1)
        if not out:
            values = schema.get("enum", [schema["const"]] if "const" in schema else [])
            out |= {json_type(value) for value in values if isinstance(values, list)}
    return out


def _resolve_path(root: Mapping[str, Any], path: list[str]) -> object:
    value: object = root
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def coerce_value(text: str, types: frozenset[str]) -> str:
    """A complete value as JSON of one of the types: as it was written, or else a string."""
    plain = text.strip()
    if "null" in types and plain.lower() in ("null", "none"):
        return "null"
    if "boolean" in types and plain.lower() in ("true", "false"):
        return plain.lower()
    try:
        value = from_json(plain, allow_inf_nan=False)
    except ValueError:
        value = _parse_literal(plain) if types & {"array", "object"} else None
        if value is None:
            return json.dumps(text, ensure_ascii=False)
        plain = json.dumps(value, ensure_ascii=False)
    kind = json_type(value)
    if kind in types or (kind == "integer" and "number" in types):
        return plain if kind != "string" else json.dumps(value, ensure_ascii=False)
    if kind == "number" and "integer" in types and value.is_integer():  # JSON has no infinity
        return str(int(value))
    return json.dumps(text, ensure_ascii=False)


def _parse_literal(text: str) -> list[Any] | dict[Any, Any] | None:
    """Parse a Python list or dict, which models write too; None for any other text."""
    if len(text) > _MAX_LITERAL_CHARS or text[:1] not in ("[", "{"):
        return None
    try:
        with warnings.catch_warnings():  # of odd literals, such as "1or 2"
            warnings.simplefilter("ignore")
            value = ast.literal_eval(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return value if isinstance(value, list | dict) else None
