"""Writes functions as TypeScript, the form in which gpt-oss was trained to read them.

It is openai-harmony's form (``src/encoding.rs``; the Harmony guide, "Function calling"), token by
token, except for what that drops or garbles; docs/architecture.md lists the differences. Here it is
written as text, which the renderer tokenises in chunks like that of any other message::

    // Gets the weather.
    type get_weather = (_: {
    // The city
    city: string,
    unit?: "celsius" | "fahrenheit", // default: celsius
    }) => any;
"""

import json
import re
from collections.abc import Iterable
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import unquote

from tools.sanitize import strip_hidden

Schema = dict[str, Any]

MAX_SCHEMA_DEPTH = 24
"""Nested levels that are written; what is below is ``any``."""
MAX_SUBSCHEMAS = 2_000
"""Schemas within one schema that are written: references can expand without end."""

_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_TYPE_NAMES = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean"}
_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "nullable"})
_UNIONS = frozenset({"anyOf", "oneOf"})
_TYPE_KEYWORDS = _UNIONS | {"$ref", "allOf", "type", "enum", "const", "properties", "items"}
"""The keywords that define a value's type; others, such as ``required``, only restrict it."""


def declare_functions(declarations: Iterable[str]) -> str:
    """Write the developer message's part about tools, of what `declare_function` wrote."""
    parts = ["# Tools", "## functions", "namespace functions {", *declarations]
    return "\n\n".join([*parts, "} // namespace functions"])


def declare_function(name: str, description: str, parameters: object) -> str:
    """Write a function. ``parameters``: the JSON Schema of its arguments, or nothing. Never raises."""
    arguments = f"_: {_Writer(parameters).arguments()}" if parameters else ""
    return f"{_comment(description, '')}type {name} = ({arguments}) => any;"


class _Node(NamedTuple):
    """A schema without ``$ref`` and ``allOf``, with null expressed by ``nullable``."""

    schema: Schema
    within: frozenset[str] = frozenset()
    """The references that are being expanded around it."""
    depth: int = 0


class _Type(NamedTuple):
    """A type's text, of which the first line has no indentation yet."""

    text: str
    union: bool = False
    """An array puts it in parentheses."""


class _Writer:
    """Writes one schema; ``root`` is what its references refer to."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._remaining_subschemas = MAX_SUBSCHEMAS

    def arguments(self) -> str:
        node = self._node(self._root, _Node({}))
        if _kinds(node.schema) != ["object"] and not _alternatives(node.schema):
            return "{\n}"
        return self._type(node._replace(schema={**node.schema, "nullable": False}), "").text

    # --- what a schema refers to ---

    def _node(self, schema: object, parent: _Node) -> _Node:
        """Resolve a schema within another one; too deep or too many are ``any``."""
        self._remaining_subschemas -= 1
        depth, within = parent.depth + 1, parent.within
        is_too_much = depth > MAX_SCHEMA_DEPTH + 1 or self._remaining_subschemas < 0
        if is_too_much or not isinstance(schema, dict):
            return _Node({})
        schema = dict(schema)
        while isinstance(ref := schema.pop("$ref", None), str) and ref not in within:
            within |= {ref}
            schema = {**self._target(ref), **schema}
        parts = schema.pop("allOf", None)
        combined: Schema = {}
        for part in parts if isinstance(parts, list) else ():
            node = self._node(part, _Node({}, within, depth))
            combined, within = _merge(combined, node.schema), within | node.within
        return self._separate_null(_Node(_merge(combined, schema), within, depth))

    def _separate_null(self, node: _Node) -> _Node:
        """Say null by ``nullable``, and what is left of a union with it by the schema itself."""
        schema, kinds, choices = node.schema, _kinds(node.schema), _choices(node.schema)
        if "null" in kinds and len(kinds) > 1:
            schema = {**schema, "type": [k for k in kinds if k != "null"], "nullable": True}
        if None in choices and len(choices) > 1:
            schema = {**schema, "enum": [c for c in choices if c is not None], "nullable": True}
        elif not choices and (branches := _alternatives(schema)):
            rest = [b for b in branches if not (isinstance(b, dict) and b.get("type") == "null")]
            around = {key: schema[key] for key in schema if key not in _UNIONS}
            if len(rest) < len(branches):
                around["nullable"] = True
            if len(rest) == 1:
                only = self._node(rest[0], node)
                return _Node(_merge(only.schema, around), only.within, only.depth)
            schema = {**around, _union_key(schema): rest} if rest else {**around, "type": "null"}
        return node._replace(schema=schema)

    def _target(self, ref: str) -> Schema:
        fragment = unquote(ref.removeprefix("#"))
        target = self._root if not fragment or fragment[0] == "/" else self._anchors.get(fragment)
        for step in fragment.split("/")[1:]:  # a JSON pointer (RFC 6901)
            if isinstance(target, list):
                target = {str(index): element for index, element in enumerate(target)}
            step = step.replace("~1", "/").replace("~0", "~")
            target = target.get(step) if isinstance(target, dict) else None
        return target if isinstance(target, dict) and ref.startswith("#") else {}

    @cached_property
    def _anchors(self) -> dict[str, Schema]:
        """The subschemas that have names: ``$anchor``, or ``$id`` in older drafts."""
        anchors: dict[str, Schema] = {}
        remaining = [self._root]
        while remaining:
            value = remaining.pop()
            if isinstance(value, dict):
                name = value.get("$anchor", value.get("$id"))
                if isinstance(name, str):
                    anchors[name.removeprefix("#")] = value
                remaining += value.values()
            elif isinstance(value, list):
                remaining += value
        return anchors

    # --- types ---

    def _type(self, node: _Node, indent: str) -> _Type:
        written = self._type_without_null(node, indent)
        if node.schema.get("nullable") is not True or written.text == "null":
            return written
        separator = f"\n{indent} | " if written.text.startswith("\n") else " | "
        return _Type(f"{written.text}{separator}null", union=True)

    def _type_without_null(self, node: _Node, indent: str) -> _Type:
        schema, kinds = node.schema, _kinds(node.schema)
        if choices := _choices(schema):
            return _inline_union(map(_json, choices))
        if _alternatives(schema):
            return self._union(node, indent)
        match kinds:
            case ["object"]:
                return _Type(self._object(node, indent))
            case ["array"]:
                return _Type(self._array(node, indent))
            case [kind]:
                return _Type("null" if kind == "null" else _TYPE_NAMES.get(kind, "any"))
            case []:
                return _Type("any")
        return _inline_union(self._listed_kind(node, kind, indent) for kind in kinds)

    def _listed_kind(self, node: _Node, kind: str, indent: str) -> str:
        if kind == "object" and not node.schema.keys() & {"properties", "additionalProperties"}:
            return "object"
        bare = {key: node.schema[key] for key in node.schema if key not in _ANNOTATIONS}
        return self._type(node._replace(schema={**bare, "type": kind}), indent).text

    def _union(self, node: _Node, indent: str) -> _Type:
        """Write the alternatives: on one line those of an ``anyOf`` for which that is enough."""
        shared = {k: v for k, v in node.schema.items() if k not in _ANNOTATIONS | _UNIONS}
        texts, lines = [], ""
        for alternative in _alternatives(node.schema):
            if shared.keys() & _TYPE_KEYWORDS:
                alternative = {"allOf": [shared, alternative]}
            variant = self._node(alternative, node)
            texts.append(self._type(variant, f"{indent}   ").text)
            described = _lines(variant.schema.get("description"))
            notes = [*described, *filter(None, [_default(variant.schema)])]
            separator = f"\n{indent}   // " if len(described) > 1 else " "
            comment = f" // {separator.join(notes)}" if notes else ""
            lines += f"\n{indent} | {texts[-1]}{comment}"
        if "oneOf" in node.schema or lines.count("\n") > len(texts) or " // " in lines:
            return _Type(lines, union=True)
        return _inline_union(texts)

    def _array(self, node: _Node, indent: str) -> str:
        if "items" not in node.schema:
            return "Array<any>"
        elements = self._type(self._node(node.schema["items"], node), indent)
        if not elements.union:
            return f"{elements.text}[]"
        end = f"\n{indent}" if elements.text.startswith("\n") else ""
        return f"({elements.text}{end})[]"

    def _object(self, node: _Node, indent: str) -> str:
        schema = node.schema
        required = schema.get("required")
        required = required if isinstance(required, list) else []
        text = _comment(schema.get("description"), indent) + "{\n"
        for name, value in _dictionary(schema, "properties").items():
            key = f"{_property_name(name)}{'' if name in required else '?'}"
            text += self._property(key, name, value, node, indent)
        for pattern, value in _dictionary(schema, "patternProperties").items():
            text += _comment(f"Keys that match {pattern}", indent)
            text += self._property("[key: string]", "", value, node, indent)
        if further := _dictionary(schema, "additionalProperties"):
            text += self._property("[key: string]", "", further, node, indent)
        return f"{text}{indent}}}"

    def _property(self, key: str, name: str, value: object, parent: _Node, indent: str) -> str:
        node = self._node(value, parent)
        schema = node.schema
        deeper = indent if _alternatives(schema) and not _choices(schema) else f"{indent}    "
        written = self._type(node, deeper).text
        title, default = schema.get("title"), _default(schema)
        # pydantic makes the title ``User Id`` of ``user_id``.
        repeats = isinstance(title, str) and title.lower().replace(" ", "_") == name.lower()
        comments = "" if repeats else _comment(title, indent, f"{indent}//\n")
        described = _comment(schema.get("description"), indent)
        examples = schema.get("examples")
        shown = [f"- {_quoted(each)}" for each in examples] if isinstance(examples, list) else []
        listed = _comment("\n".join(["Examples:", *shown]), indent) if shown else ""
        if written.startswith("\n"):
            comments += listed + described + _comment(default, indent)
            return f"{comments}{indent}{key}:{written}\n{indent},\n"
        end = f" // {default}" if default else ""
        return f"{comments}{described}{listed}{indent}{key}: {written},{end}\n"


# --- keywords ---


def _kinds(schema: Schema) -> list[str]:
    """Return the schema's JSON types, also where only its other keywords imply them."""
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    known = list(dict.fromkeys(kind for kind in kinds if isinstance(kind, str)))
    implied = {"properties": "object", "items": "array"}
    return known or [kind for key, kind in implied.items() if key in schema][:1]


def _choices(schema: Schema) -> list[Any]:
    if "enum" not in schema and "const" in schema:
        return [schema["const"]]
    choices = schema.get("enum")
    return choices if isinstance(choices, list) else []


def _union_key(schema: Schema) -> str:
    return "oneOf" if schema.get("oneOf") else "anyOf"


def _alternatives(schema: Schema) -> list[Any]:
    """Return the branches of ``oneOf`` or ``anyOf``, unless they only restrict a given type."""
    alternatives = schema.get(_union_key(schema))
    if not isinstance(alternatives, list):
        return []
    if _kinds(schema) and not any(
        isinstance(each, dict) and each.keys() & _TYPE_KEYWORDS for each in alternatives
    ):
        return []
    return alternatives


def _dictionary(schema: Schema, key: str) -> Schema:
    value = schema.get(key)
    return value if isinstance(value, dict) else {}


def _merge(a: Schema, b: Schema) -> Schema:
    """Combine two schemas that both apply; ``b`` wins."""
    out = {**a, **b}
    for key, kind in (("properties", dict), ("required", list)):
        if isinstance(a.get(key), kind) and isinstance(b.get(key), kind):
            out[key] = {**a[key], **b[key]} if kind is dict else [*a[key], *b[key]]
    return out


# --- text ---


def _inline_union(texts: Iterable[str]) -> _Type:
    types = list(dict.fromkeys(texts))
    return _Type(" | ".join(types), len(types) > 1)


def _lines(text: object) -> list[str]:
    return strip_hidden(text).splitlines() if isinstance(text, str) else []


def _comment(text: object, indent: str, end: str = "") -> str:
    """Write a text as comments, a line each; without text nothing, not even ``end``."""
    lines = [f"{indent}// {line}\n" for line in _lines(text)]
    return "".join([*lines, end]) if lines else ""


def _property_name(name: object) -> str:
    text = strip_hidden(str(name))
    return text if _IDENTIFIER.fullmatch(text) else _json(text)


def _default(schema: Schema) -> str:
    if "default" not in schema:
        return ""
    value = schema["default"]
    if _choices(schema) and isinstance(value, str) and value == " ".join(_lines(value)):
        return f"default: {value}"
    return f"default: {written}" if (written := _quoted(value)) else ""


def _quoted(value: object) -> str:
    """Write a value as openai-harmony does: in strings, only what would end the line is escaped."""
    return f'"{value}"' if isinstance(value, str) and _lines(value) == [value] else _json(value)


def _json(value: object) -> str:
    """Write a value as JSON with Rust's form of numbers; empty for what JSON does not have."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return ""
    if isinstance(value, float):
        if 1e-5 <= abs(value) < 1e-4:
            return f"{Decimal(text):f}"
        return re.sub(r"e(-?)\+?0*", r"e\1", text)
    return strip_hidden(text)
