"""Rewrites JSON Schemas into the subset that openai-harmony renders correctly.

gpt-oss sees the tools' parameters as TypeScript (the Harmony guide, "Function calling").
openai-harmony writes it (``src/encoding.rs``), but drops or garbles ``anyOf``, ``$ref``, ``const``,
enums other than of plain strings, unions in arrays, names that are no identifiers, and all but the
first line of a description. Here each of them becomes a form that it renders correctly, or a sentence
in the description::

    {"anyOf": [{"type": "string"}, {"type": "null"}]}   →   {"type": "string", "nullable": true}
    {"enum": [1, 2]}                                    →   {"type": "integer",
                                                             "description": "One of 1, 2."}
"""

from __future__ import annotations

import json
import re
from typing import Any

from agent.formats.tokenizer_text import single_line

Schema = dict[str, Any]

MAX_SCHEMA_DEPTH = 24
"""Nested levels that are rendered; openai-harmony's own limit is about 60."""
MAX_SUBSCHEMAS = 2_000
"""Schemas within one schema that are rendered: references can expand without end."""

_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_PLAIN = re.compile(r'[^"\\]*')
_MAX_DEFAULT = 1e300
_JSON_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def normalise_schema(schema: object) -> Schema:
    """Rewrite the schema of a tool's arguments, an object's. Never raises, whatever the value is."""
    out = _Normaliser(schema).convert(schema, 0, frozenset())
    for key in ("title", "description", "nullable"):
        out.pop(key, None)
    if out.get("type") != "object" and "oneOf" not in out:
        return {"type": "object", "properties": {}}
    return out


class _Normaliser:
    """Rewrites one schema; ``root`` is what its references refer to."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._remaining_subschemas = MAX_SUBSCHEMAS

    def convert(self, schema: object, depth: int, within: frozenset[str]) -> Schema:
        """Rewrite a schema; ``within`` are the references that are being expanded around it."""
        self._remaining_subschemas -= 1
        if (
            not isinstance(schema, dict)
            or depth > MAX_SCHEMA_DEPTH
            or self._remaining_subschemas < 0
        ):
            return {}
        schema, within = self._resolve(schema, within)
        out: Schema = {}
        notes: list[str] = []
        _copy_annotations(schema, out)
        self._convert_type(schema, out, notes, depth, within)
        if notes:
            out["description"] = " ".join([out.get("description", ""), *notes]).strip()
        return out

    def _convert_type(
        self, schema: Schema, out: Schema, notes: list[str], depth: int, within: frozenset[str]
    ) -> None:
        kinds = _declared_types(schema)
        if schema.get("nullable") is True or "null" in kinds:
            out["nullable"] = True
        kinds = [kind for kind in kinds if kind != "null"]
        choices = schema.get("enum")
        if "const" in schema:
            choices = [schema["const"]]
        variants = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(choices, list):
            _convert_enum(choices, out, notes)
        elif isinstance(variants, list):
            self._convert_variants(variants, out, depth, within)
        elif len(kinds) > 1 and {"array", "object"} & {*kinds}:
            self._convert_variants([{**schema, "type": kind} for kind in kinds], out, depth, within)
        elif len(kinds) > 1:
            out["type"] = kinds
        elif kinds:
            out["type"] = kinds[0]
            if kinds[0] == "object":
                self._convert_object(schema, out, notes, depth, within)
            elif kinds[0] == "array":
                self._convert_array(schema, out, notes, depth, within)

    # --- references ---------------------------------------------------------------------------------

    def _resolve(
        self, schema: Schema, within: frozenset[str], depth: int = 0
    ) -> tuple[Schema, frozenset[str]]:
        """Merge ``$ref`` and ``allOf`` into the schema; a reference within itself is left out."""
        seen = within
        while isinstance(ref := schema.get("$ref"), str):
            schema = {key: value for key, value in schema.items() if key != "$ref"}
            if ref in seen:
                break
            seen |= {ref}
            schema = {**self._resolve_pointer(ref), **schema}
        conditions = schema.get("allOf")
        for part in conditions if isinstance(conditions, list) and depth < MAX_SCHEMA_DEPTH else ():
            self._remaining_subschemas -= 1
            if isinstance(part, dict) and self._remaining_subschemas > 0:
                part, seen = self._resolve(part, seen, depth + 1)
                schema = _merge(part, schema)
        return schema, seen

    def _resolve_pointer(self, ref: str) -> Schema:
        """Return the schema at a JSON pointer (RFC 6901) of the same document, or an empty one."""
        target: Any = self._root
        for step in ref.removeprefix("#").split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            target = target.get(step) if isinstance(target, dict) else None
        return target if isinstance(target, dict) and ref.startswith("#") else {}

    # --- types -------------------------------------------------------------------------------------

    def _convert_object(
        self, schema: Schema, out: Schema, notes: list[str], depth: int, within: frozenset[str]
    ) -> None:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        out["properties"] = {}
        for name, value in properties.items():
            converted = self.convert(value, depth + 1, within)
            if _repeats_name(converted.get("title", ""), str(name)):
                del converted["title"]
            out["properties"][_property_name(str(name))] = converted
        required = schema.get("required")
        required = required if isinstance(required, list) else []
        out["required"] = [
            _property_name(name)
            for name in required
            if isinstance(name, str) and name in properties
        ]
        if not properties and isinstance(values := schema.get("additionalProperties"), dict):
            notes.append(
                f"Maps strings to {_type_expression(self.convert(values, depth + 1, within))}."
            )

    def _convert_array(
        self, schema: Schema, out: Schema, notes: list[str], depth: int, within: frozenset[str]
    ) -> None:
        items = self.convert(schema.get("items"), depth + 1, within)
        union = items.get("nullable") or isinstance(items.get("type"), list) or "oneOf" in items
        if (union or len(items.get("enum", ())) > 1) and (expression := _type_expression(items)):
            # The renderer writes `string | null[]`, which means something else.
            notes.append(f"Each item: {expression}.")
            items = {"type": "string"} if items.get("type") == "string" else {}
        out["items"] = items

    def _convert_variants(
        self, variants: list[Any], out: Schema, depth: int, within: frozenset[str]
    ) -> None:
        converted = [
            self.convert(variant, depth + 1, within)
            for variant in variants
            if not (isinstance(variant, dict) and variant.get("type") == "null")
        ]
        if len(converted) < len(variants) or any(
            variant.pop("nullable", False) for variant in converted
        ):
            out["nullable"] = True
        if len(converted) == 1:
            out.update({**converted[0], **out})
        elif converted:
            out["oneOf"] = converted
            if out.pop("nullable", False):
                # Beside oneOf it is dropped; on the last variant it is rendered.
                converted[-1]["nullable"] = True


def _declared_types(schema: Schema) -> list[str]:
    """Return the schema's JSON types, also where only its other keywords tell them."""
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    known = list(dict.fromkeys(kind for kind in kinds if isinstance(kind, str)))
    if not known and "properties" in schema:
        return ["object"]
    if not known and "items" in schema:
        return ["array"]
    return known


def _merge(a: Schema, b: Schema) -> Schema:
    """Combine two schemas that both apply; ``b`` wins."""
    out = {**a, **b}
    for key, kind in (("properties", dict), ("required", list)):
        if isinstance(a.get(key), kind) and isinstance(b.get(key), kind):
            out[key] = {**a[key], **b[key]} if kind is dict else [*a[key], *b[key]]
    return out


def _copy_annotations(schema: Schema, out: Schema) -> None:
    """Copy title, description, default and examples, as single lines."""
    for key in ("title", "description"):
        if isinstance(text := schema.get(key), str) and (text := single_line(text)):
            out[key] = text
    default = schema.get("default")
    if isinstance(default, bool | int | float):
        if abs(default) < _MAX_DEFAULT:  # JSON has neither infinity nor NaN
            out["default"] = default
    elif isinstance(default, str):
        out["default"] = single_line(default)
    if isinstance(examples := schema.get("examples"), list):
        texts = [single_line(example) for example in examples if isinstance(example, str)]
        if texts:
            out["examples"] = texts


def _convert_enum(choices: list[Any], out: Schema, notes: list[str]) -> None:
    if None in choices:
        out["nullable"] = True
    choices = [choice for choice in choices if choice is not None]
    types = {_JSON_TYPES.get(type(choice)) for choice in choices}
    if len(types) == 1 and (kind := types.pop()):
        out["type"] = kind
    if (
        all(isinstance(c, str) and _PLAIN.fullmatch(c) and single_line(c) == c for c in choices)
        and choices
    ):
        out["enum"] = choices
    elif choices:
        notes.append(f"One of {', '.join(_literal(choice) for choice in choices)}.")


def _literal(value: object) -> str:
    try:
        return single_line(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):
        return "…"


def _property_name(name: object) -> str:
    text = single_line(str(name))
    return text if _IDENTIFIER.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _repeats_name(title: str, name: str) -> bool:
    """Tell whether a title only repeats the name (pydantic makes ``User Id`` of ``user_id``)."""
    return bool(title) and title.lower().replace(" ", "_") == name.lower()


def _type_expression(schema: Schema) -> str:
    """Write a type as an expression (``string | null``); empty for objects and arrays."""
    if "enum" in schema:
        names = [json.dumps(choice, ensure_ascii=False) for choice in schema["enum"]]
    elif "oneOf" in schema:
        names = [_type_expression(variant) for variant in schema["oneOf"]]
    else:
        kinds = schema.get("type", "any")
        names = list(kinds) if isinstance(kinds, list) else [kinds]
    if not all(names) or {"object", "array"} & {*names}:
        return ""
    return " | ".join([*names, *(["null"] if schema.get("nullable") else [])])
