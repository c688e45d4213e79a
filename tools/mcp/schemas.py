"""Brings the schemas of tools into the form that the rest of the program reads, draft 2020-12: those of
older drafts, of OpenAPI 3.0, and those that say less than MCP demands where their meaning is clear."""

from collections.abc import Iterator
from typing import Any

from agent.errors import AgentError
from tools.sanitize import MAX_SCHEMA_DEPTH

MAX_REFERENCES = 20
"""References that are followed from the root of a schema."""
_SINGLE = (
    *("additionalProperties", "propertyNames", "unevaluatedProperties", "unevaluatedItems"),
    *("items", "additionalItems", "contains", "not", "if", "then", "else"),
)
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_BOUNDS = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))
_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")


class SchemaError(AgentError):
    """A tool cannot be used; the message is a clause."""


def mend_schema(schema: Any, *, is_input: bool = True) -> dict[str, Any]:
    """Return the schema of a tool's arguments or result; raises SchemaError if it is not clear."""
    if schema is None or schema is True:
        return {"type": "object"} if is_input else {}
    if not isinstance(schema, dict):
        raise SchemaError(f"its schema is not an object but {_kind(schema)}")
    for part in _subschemas(schema):
        _modernize(part)
    if not is_input:
        return dict(schema)
    mended = _without_root_reference(schema)
    kind = mended.get("type")
    if "type" not in mended or (isinstance(kind, list) and "object" in kind):
        mended = {**mended, "type": "object"}
    if mended["type"] != "object":
        raise SchemaError(f"its arguments are not an object but {kind!r:.100}")
    for key, form in (("properties", dict), ("required", list)):
        if key in mended and mended[key] is None:
            del mended[key]
        elif not isinstance(mended.get(key, form()), form):
            raise SchemaError(f"{key} of its schema is {_kind(mended[key])}")
    return mended


def _kind(value: Any) -> str:
    names = {str: "a text", list: "a list", bool: "true or false", dict: "an object"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else "null")


def _without_root_reference(schema: dict[str, Any]) -> dict[str, Any]:
    """Put the definition that the root refers to in its place."""
    schema = dict(schema)
    for _ in range(MAX_REFERENCES):
        if "$ref" not in schema:
            return schema
        reference, target = schema["$ref"], None
        if reference == "#" and schema.get("type") == "object":  # it says nothing more
            return {key: value for key, value in schema.items() if key != "$ref"}
        if isinstance(reference, str) and reference.startswith("#/"):
            target = schema
            for step in reference[2:].split("/"):
                key = step.replace("~1", "/").replace("~0", "~")
                target = target.get(key) if isinstance(target, dict) else None
        if not isinstance(target, dict):
            raise SchemaError(f"its schema refers to {reference!r:.100}, which is not in it")
        schema = (
            target
            | {key: value for key, value in schema.items() if key != "$ref"}
            | ({"$ref": target["$ref"]} if "$ref" in target else {})
        )
    raise SchemaError("its schema refers to itself")


def _subschemas(schema: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the schemas inside of one, and then itself; anything else is passed over."""
    if not isinstance(schema, dict) or depth > MAX_SCHEMA_DEPTH:
        return
    inner = [schema.get(key) for key in _SINGLE]
    for key in _LISTED:
        inner += value if isinstance(value := schema.get(key), list) else ()
    for key in _NAMED:
        inner += value.values() if isinstance(value := schema.get(key), dict) else ()
    for part in inner:
        yield from _subschemas(part, depth + 1)
    yield schema


def _modernize(schema: dict[str, Any]) -> None:
    """Rewrite the keywords of one schema that draft 2020-12 lacks, or has for something else."""
    kind = schema.get("type")
    if isinstance(kind, str) and kind not in _TYPES and kind.lower() in _TYPES:
        schema["type"] = kind = kind.lower()
    for exclusive, inclusive in _BOUNDS:
        if isinstance(flag := schema.get(exclusive), bool):
            del schema[exclusive]
            if flag and inclusive in schema:
                schema[exclusive] = schema.pop(inclusive)
    if schema.pop("nullable", None) is True:
        _allow_null(schema)
    if isinstance(items := schema.get("items"), list):
        del schema["items"]
        schema["prefixItems"] = items
        if "additionalItems" in schema:
            schema["items"] = schema.pop("additionalItems")
    if isinstance(dependencies := schema.pop("dependencies", None), dict):
        for name, needed in dependencies.items():
            key = "dependentRequired" if isinstance(needed, list) else "dependentSchemas"
            schema.setdefault(key, {})[name] = needed
    if isinstance(properties := schema.get("properties"), dict):
        _gather_required(schema, properties)


def _allow_null(schema: dict[str, Any]) -> None:
    if isinstance(kind := schema.get("type"), str):
        schema["type"] = [kind, "null"]
    elif isinstance(kind, list) and "null" not in kind:
        schema["type"] = [*kind, "null"]
    elif kind is None and (rest := schema.keys() - {"description", "title", "default"}):
        schema["anyOf"] = [{key: schema.pop(key) for key in rest}, {"type": "null"}]
    if isinstance(values := schema.get("enum"), list) and None not in values:
        schema["enum"] = [*values, None]


def _gather_required(schema: dict[str, Any], properties: dict[str, Any]) -> None:
    """Move ``required: true`` of single properties to where it is a list of names."""
    for name, about in properties.items():
        if isinstance(about, dict) and isinstance(flag := about.get("required"), bool):
            del about["required"]
            names = schema.get("required") or []
            if flag and isinstance(names, list) and name not in names:
                schema["required"] = [*names, name]
