"""JSON Schema as openai-harmony can show it.

It renders schemas as TypeScript, but drops or garbles what it does not know: ``anyOf``, ``$ref``,
``const``, enums that are not plain strings, unions in arrays, names that are no identifiers, and all
but the first line of a description. Here each of them becomes a form that it renders right.
"""

from __future__ import annotations

import json
import re
from typing import Any

from agent.formats.tokenizer_text import line

Schema = dict[str, Any]

DEEPEST = 24
"""Nested levels that are shown; the renderer's own limit is some 60."""
LARGEST = 2_000
"""Schemas within one that are shown: references can unfold without end."""

_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_PLAIN = re.compile(r'[^"\\]*')
_HUGE = 1e300
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def normalise(schema: object) -> Schema:
    """The schema of a tool's arguments, in the renderer's subset. Never raises."""
    out = _Normaliser(schema).convert(schema, 0, frozenset())
    for key in ("title", "description", "nullable"):
        out.pop(key, None)
    if out.get("type") != "object" and "oneOf" not in out:
        return {"type": "object", "properties": {}}
    return out


class _Normaliser:
    def __init__(self, root: object) -> None:
        self._root = root
        self._budget = LARGEST

    def convert(self, schema: object, depth: int, within: frozenset[str]) -> Schema:
        """``within``: the references that this schema stands in."""
        self._budget -= 1
        if not isinstance(schema, dict) or depth > DEEPEST or self._budget < 0:
            return {}
        schema, within = self._resolve(schema, within)
        out: Schema = {}
        notes: list[str] = []
        _texts(schema, out)
        self._shape(schema, out, notes, depth, within)
        if notes:
            out["description"] = " ".join([out.get("description", ""), *notes]).strip()
        return out

    def _shape(
        self, schema: Schema, out: Schema, notes: list[str], depth: int, within: frozenset[str]
    ) -> None:
        kinds = _kinds(schema)
        if schema.get("nullable") is True or "null" in kinds:
            out["nullable"] = True
        kinds = [kind for kind in kinds if kind != "null"]
        choices = schema.get("enum")
        if "const" in schema:
            choices = [schema["const"]]
        variants = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(choices, list):
            _enum(choices, out, notes)
        elif isinstance(variants, list):
            self._variants(variants, out, depth, within)
        elif len(kinds) > 1 and {"array", "object"} & {*kinds}:
            self._variants([{**schema, "type": kind} for kind in kinds], out, depth, within)
        elif len(kinds) > 1:
            out["type"] = kinds
        elif kinds:
            out["type"] = kinds[0]
            if kinds[0] == "object":
                self._object(schema, out, notes, depth, within)
            elif kinds[0] == "array":
                self._array(schema, out, notes, depth, within)

    # --- references ---------------------------------------------------------------------------------

    def _resolve(
        self, schema: Schema, within: frozenset[str], depth: int = 0
    ) -> tuple[Schema, frozenset[str]]:
        """With ``$ref`` and ``allOf`` merged in; a reference within itself is left out."""
        seen = within
        while isinstance(ref := schema.get("$ref"), str):
            schema = {key: value for key, value in schema.items() if key != "$ref"}
            if ref in seen:
                break
            seen |= {ref}
            schema = {**self._at(ref), **schema}
        conditions = schema.get("allOf")
        for part in conditions if isinstance(conditions, list) and depth < DEEPEST else ():
            self._budget -= 1
            if isinstance(part, dict) and self._budget > 0:
                part, seen = self._resolve(part, seen, depth + 1)
                schema = _merged(part, schema)
        return schema, seen

    def _at(self, ref: str) -> Schema:
        """The schema at a JSON pointer of the same document."""
        found: Any = self._root
        for step in ref.removeprefix("#").split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            found = found.get(step) if isinstance(found, dict) else None
        return found if isinstance(found, dict) and ref.startswith("#") else {}

    # --- shapes -------------------------------------------------------------------------------------

    def _object(
        self, schema: Schema, out: Schema, notes: list[str], depth: int, within: frozenset[str]
    ) -> None:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        out["properties"] = {}
        for name, value in properties.items():
            shown = self.convert(value, depth + 1, within)
            if _same(shown.get("title", ""), str(name)):
                del shown["title"]
            out["properties"][_name(str(name))] = shown
        required = schema.get("required")
        required = required if isinstance(required, list) else []
        out["required"] = [
            _name(name) for name in required if isinstance(name, str) and name in properties
        ]
        if not properties and isinstance(values := schema.get("additionalProperties"), dict):
            notes.append(f"Maps strings to {_spoken(self.convert(values, depth + 1, within))}.")

    def _array(
        self, schema: Schema, out: Schema, notes: list[str], depth: int, within: frozenset[str]
    ) -> None:
        items = self.convert(schema.get("items"), depth + 1, within)
        union = items.get("nullable") or isinstance(items.get("type"), list) or "oneOf" in items
        if (union or len(items.get("enum", ())) > 1) and (spoken := _spoken(items)):
            # The renderer writes `string | null[]`, which means something else.
            notes.append(f"Each item: {spoken}.")
            items = {"type": "string"} if items.get("type") == "string" else {}
        out["items"] = items

    def _variants(
        self, variants: list[Any], out: Schema, depth: int, within: frozenset[str]
    ) -> None:
        shown = [
            self.convert(variant, depth + 1, within)
            for variant in variants
            if not (isinstance(variant, dict) and variant.get("type") == "null")
        ]
        if len(shown) < len(variants) or any(variant.pop("nullable", False) for variant in shown):
            out["nullable"] = True
        if len(shown) == 1:
            out.update({**shown[0], **out})
        elif shown:
            out["oneOf"] = shown
            if out.pop("nullable", False):
                # Beside oneOf it is dropped; on the last variant it is shown.
                shown[-1]["nullable"] = True


def _kinds(schema: Schema) -> list[str]:
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    known = list(dict.fromkeys(kind for kind in kinds if isinstance(kind, str)))
    if not known and "properties" in schema:
        return ["object"]
    if not known and "items" in schema:
        return ["array"]
    return known


def _merged(a: Schema, b: Schema) -> Schema:
    out = {**a, **b}
    for key, kind in (("properties", dict), ("required", list)):
        if isinstance(a.get(key), kind) and isinstance(b.get(key), kind):
            out[key] = {**a[key], **b[key]} if kind is dict else [*a[key], *b[key]]
    return out


def _texts(schema: Schema, out: Schema) -> None:
    for key in ("title", "description"):
        if isinstance(text := schema.get(key), str) and (text := line(text)):
            out[key] = text
    default = schema.get("default")
    if isinstance(default, bool | int | float):
        if abs(default) < _HUGE:  # JSON has no word for infinity, nor for what is not a number
            out["default"] = default
    elif isinstance(default, str):
        out["default"] = line(default)
    if isinstance(examples := schema.get("examples"), list):
        shown = [line(example) for example in examples if isinstance(example, str)]
        if shown:
            out["examples"] = shown


def _enum(choices: list[Any], out: Schema, notes: list[str]) -> None:
    if None in choices:
        out["nullable"] = True
    choices = [choice for choice in choices if choice is not None]
    types = {_TYPES.get(type(choice)) for choice in choices}
    if len(types) == 1 and (kind := types.pop()):
        out["type"] = kind
    if (
        all(isinstance(c, str) and _PLAIN.fullmatch(c) and line(c) == c for c in choices)
        and choices
    ):
        out["enum"] = choices
    elif choices:
        notes.append(f"One of {', '.join(_literal(choice) for choice in choices)}.")


def _literal(value: object) -> str:
    try:
        return line(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):
        return "…"


def _name(name: object) -> str:
    text = line(str(name))
    return text if _IDENTIFIER.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _same(title: str, name: str) -> bool:
    """Whether a title says no more than the name (pydantic makes ``User Id`` of ``user_id``)."""
    return bool(title) and title.lower().replace(" ", "_") == name.lower()


def _spoken(schema: Schema) -> str:
    """A plain type in words; empty for what has parts of its own."""
    if "enum" in schema:
        names = [json.dumps(choice, ensure_ascii=False) for choice in schema["enum"]]
    elif "oneOf" in schema:
        names = [_spoken(variant) for variant in schema["oneOf"]]
    else:
        kinds = schema.get("type", "any")
        names = list(kinds) if isinstance(kinds, list) else [kinds]
    if not all(names) or {"object", "array"} & {*names}:
        return ""
    return " | ".join([*names, *(["null"] if schema.get("nullable") else [])])
