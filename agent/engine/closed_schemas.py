"""Closes the objects of a JSON Schema, as a small model would invent other properties without end:
``additionalProperties`` becomes false wherever no other keyword speaks of the same object (``allOf``,
``$ref`` next to ``properties``, …) or refers to it. Values of the closed schema fit the given one."""

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any
from urllib.parse import unquote

_DEFINITIONS = ("$defs", "definitions")
_JOINS = frozenset({"$ref", "allOf", "anyOf", "oneOf"})
"""Keywords with subschemas of the same value."""
_COMBINED = _JOINS | {
    "$dynamicRef", "not", "if", "dependentSchemas", "dependencies", "patternProperties", "enum",
    "const",
}  # fmt: skip
"""Keywords that may say something of what the declared properties contain."""
_MORE_PROPERTIES = _COMBINED | {
    "additionalProperties", "unevaluatedProperties", "propertyNames", "dependentRequired",
    "minProperties",
}  # fmt: skip
"""Keywords that may say something of other properties than the declared ones."""
_STRUCTURE = _MORE_PROPERTIES | {
    "properties", "required", "items", "prefixItems", "contains", "unevaluatedItems",
}  # fmt: skip
"""Keywords that describe what an object or a list contains."""
_NO_OBJECT_TYPES = ("string", "number", "integer", "boolean", "null", "array")

MAX_COMPARED_BRANCHES = 64
"""Branches of ``oneOf``, which are compared in pairs; the objects of more stay open."""

_Path = tuple[str, ...]


def close_objects(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema with closed objects, unless they declare nothing. Raises RecursionError."""
    closer = _Closer(schema)
    closer.close(schema, ())  # finds what has to stay open
    closed: dict[str, Any] = closer.close(schema, ())
    return closed


def declares_all_properties(schema: Mapping[str, Any]) -> bool:
    declared, required = schema.get("properties"), schema.get("required", [])
    return (
        isinstance(declared, Mapping)
        and isinstance(required, list)
        and all(isinstance(name, str) and name in declared for name in required)
        and not schema.keys() & _MORE_PROPERTIES
    )


class _Closer:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._open: set[_Path] = set()
        """Where subschemas are that describe a value together with others."""

    def close(self, schema: Any, path: _Path) -> Any:
        if not isinstance(schema, Mapping) or path in self._open:
            return schema
        closed = dict(schema)
        for keyword in _DEFINITIONS:
            self._close_each(closed, keyword, path)
        joins = schema.keys() & _JOINS
        if schema.keys() & (_COMBINED - _JOINS) or len(joins) > 1:
            self._leave_open(schema)
        elif joins:
            (join,) = joins
            has_more = bool(schema.keys() & (_STRUCTURE - joins))
            if has_more or not (join == "$ref" or self._are_apart(join, schema[join])):
                self._leave_open(schema)
            else:
                self._close_each(closed, join, path)
        else:
            for keyword in ("items", "additionalProperties"):
                if keyword in schema:
                    closed[keyword] = self.close(schema[keyword], (*path, keyword))
            self._close_each(closed, "prefixItems", path)
            self._close_each(closed, "properties", path)
            if schema.get("properties") and declares_all_properties(schema):
                closed["additionalProperties"] = False
        return closed

    def _close_each(self, closed: dict[str, Any], keyword: str, path: _Path) -> None:
        at = (*path, keyword)
        match closed.get(keyword):
            case Mapping() as parts:
                closed[keyword] = {k: self.close(part, (*at, k)) for k, part in parts.items()}
            case list() as parts:
                closed[keyword] = [self.close(p, (*at, str(i))) for i, p in enumerate(parts)]

    def _leave_open(self, schema: Mapping[str, Any]) -> None:
        parts: list[Any] = [{key: schema[key] for key in schema if key not in _DEFINITIONS}]
        while parts:
            match parts.pop():
                case Mapping() as part:
                    path = _path_of(part.get("$ref"))
                    if path is not None and path not in self._open:
                        self._open.add(path)
                        parts.append(self._at(path))
                    parts += part.values()
                case list() as items:
                    parts += items

    def _are_apart(self, join: str, branches: Any) -> bool:
        """Whether no value of one closed branch is valid by another one, unless it may be."""
        if join == "anyOf" or not isinstance(branches, list):
            return True
        if len(branches) > MAX_COMPARED_BRANCHES:
            return False
        if join == "allOf":
            return len(branches) == 1
        resolved = [self._resolve(branch) for branch in branches]
        return all(_excludes(other, closed) for closed, other in permutations(resolved, 2))

    def _resolve(self, branch: Any) -> Any:
        seen = set[_Path]()
        while isinstance(branch, Mapping) and (path := _path_of(branch.get("$ref"))) is not None:
            if path in seen:
                return None
            seen.add(path)
            branch = self._at(path)
        return branch

    def _at(self, path: _Path) -> Any:
        part: Any = self._root
        for name in path:
            if isinstance(part, Sequence) and not isinstance(part, str) and name.isdecimal():
                part = part[int(name)] if int(name) < len(part) else None
            else:
                part = part.get(name) if isinstance(part, Mapping) else None
        return part


def _path_of(reference: object) -> _Path | None:
    if not isinstance(reference, str) or not (reference + "/").startswith("#/"):
        return None
    names = unquote(reference).split("/")[1:]
    return tuple(name.replace("~1", "/").replace("~0", "~") for name in names)


def _excludes(open_branch: Any, closed_branch: Any) -> bool:
    """Whether no value of the one branch, once it is closed, is a value of the other as it is."""
    if not isinstance(open_branch, Mapping) or not isinstance(closed_branch, Mapping):
        return False
    kinds = (open_branch.get("type"), closed_branch.get("type"))
    if any(kind in _NO_OBJECT_TYPES for kind in kinds):
        return True  # not an object's business
    declared, others = closed_branch.get("properties"), open_branch.get("properties")
    required = open_branch.get("required")
    if not (isinstance(declared, Mapping) and isinstance(required, list)):
        return False
    for name in required:
        if name not in declared:
            return True
        ours, theirs = _values(declared[name]), _values((others or {}).get(name))
        if ours and theirs and not any(value in theirs for value in ours):
            return True
    return False


def _values(schema: Any) -> list[Any]:
    if not isinstance(schema, Mapping):
        return []
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else []
