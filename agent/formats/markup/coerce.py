"""A value that was written as plain text, as JSON of the type that the tool's schema asks for."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

_DEEPEST = 8
_LONGEST_LITERAL = 20_000
"""Characters; Python's own parser is slow, and recursive."""


def types(schema: Mapping[str, Any], name: str) -> frozenset[str]:
    """The JSON types that the property may have; empty where the schema does not say."""
    properties = schema.get("properties")
    found = properties.get(name) if isinstance(properties, Mapping) else None
    return frozenset(_types(found, schema, 0))


def _types(found: object, root: Mapping[str, Any], depth: int) -> set[str]:
    if not isinstance(found, Mapping) or depth > _DEEPEST:
        return set()
    out: set[str] = set()
    match found.get("type"):
        case str(one):
            out.add(one)
        case list(several):
            out |= {one for one in several if isinstance(one, str)}
    if not out:
        match found.get("$ref"):
            case str(ref) if ref.startswith("#/"):
                out |= _types(_at(root, ref[2:].split("/")), root, depth + 1)
        for group in ("anyOf", "oneOf", "allOf"):
            if isinstance(options := found.get(group), list):
                for option in options:
                    out |= _types(option, root, depth + 1)
        if not out:
            values = found.get("enum", [found["const"]] if "const" in found else [])
            out |= {_type(value) for value in values if isinstance(values, list)}
    return out


def _at(root: Mapping[str, Any], path: list[str]) -> object:
    value: object = root
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _type(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def streams(wanted: frozenset[str]) -> bool:
    """Whether the text can only mean itself, so that it need not be whole."""
    return wanted <= {"string"}


def settled(text: str, wanted: frozenset[str]) -> str:
    """The value as JSON; valid JSON of a wanted type stays as it was written, all else is a string."""
    plain = text.strip()
    if "null" in wanted and plain.lower() in ("null", "none"):
        return "null"
    if "boolean" in wanted and plain.lower() in ("true", "false"):
        return plain.lower()
    try:
        value = from_json(plain, allow_inf_nan=False)
    except ValueError:
        value = _literal(plain) if wanted & {"array", "object"} else plain
        plain = json.dumps(value, ensure_ascii=False)
    found = _type(value)
    if found in wanted or (found == "integer" and "number" in wanted):
        return plain if found != "string" else json.dumps(value, ensure_ascii=False)
    if found == "number" and "integer" in wanted and value == int(value):
        return str(int(value))
    return json.dumps(text, ensure_ascii=False)


def _literal(text: str) -> Any:
    """A list or dict as Python writes it, which models do too; else the text itself."""
    if len(text) > _LONGEST_LITERAL or text[:1] not in ("[", "{"):
        return text
    try:
        value = ast.literal_eval(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return text
    return value
