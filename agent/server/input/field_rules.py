"""Unsupported fields of requests: they are refused, or with ``agent serve --lenient`` passed over, and
named in the answer's `IGNORED_HEADER`."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from agent.server.http.errors import FieldPath, client_param, field_path, invalid, param_name
from agent.server.input.listed_items import ITEM_FIELDS, KNOWN_PART_TYPES, PART_FIELDS, PART_LISTS

IGNORED_HEADER = "agent-ignored"
"""Response header with the paths of passed over fields, separated by commas."""
MAX_NAMED_PATHS = 20
MIN_OUTPUT_TOKENS = 16
"""Least ``max_output_tokens``, as in OpenAI's API."""
_HEADER_PATH = re.compile(r"[\w.\[\]-]{1,100}", re.ASCII)
_IGNORABLE_FAULTS = ("extra_forbidden", "literal_error", "union_tag_invalid")
_NEVER_IGNORED = ("role",)
"""Fields without which the rest has no meaning."""
_MAX_ROUNDS = 8


def drop_ignorable(
    kind: type[BaseModel],
    value: dict[str, Any],
    tags: frozenset[str],
    *,
    extra: Literal["ignore"] | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """Copy a body without fields, values and kinds of items that the model does not have; return the
    paths of these. ``extra``: "ignore" keeps unknown fields."""
    ignored: list[str] = []
    for _ in range(_MAX_ROUNDS):  # dropping a value of a union brings up the faults of the others
        try:
            kind.model_validate(value, extra=extra)
        except ValidationError as error:
            faults = [
                (field_path(details["loc"], tags), details["type"]) for details in error.errors()
            ]
            paths = {
                path
                for path, fault in faults
                if fault in _IGNORABLE_FAULTS
                and path[-1] not in _NEVER_IGNORED
                # Else another alternative of a union was meant, and the fault is deeper.
                and not any(other[: len(path)] == path != other for other, _ in faults)
            }
            if not paths:
                break
            ignored += [client_param(param_name(path) or "", (*ignored,)) for path in paths]
            value = _without(value, paths)
        else:
            break
    return value, sorted(ignored)


def _without(value: dict[str, Any], paths: Iterable[FieldPath]) -> dict[str, Any]:
    value = copy.deepcopy(value)
    for path in sorted(paths, key=str, reverse=True):  # of a list the last element first
        target: Any = value
        *above, last = path
        try:
            for step in above:
                target = target[step]
            del target[last]
        except (LookupError, TypeError):
            continue  # it was within another one
    return value


def unknown_item_fields(items: object) -> list[str]:
    if not isinstance(items, list):
        return []
    found = []
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            continue
        found += [f"input[{index}].{name}" for name in item if name not in ITEM_FIELDS]
        for field in PART_LISTS:
            parts = item.get(field)
            for number, part in enumerate(parts if isinstance(parts, list) else ()):
                if isinstance(part, dict):
                    where = f"input[{index}].{field}[{number}]"
                    found += [f"{where}.{name}" for name in part if name not in PART_FIELDS]
        if len(found) > MAX_NAMED_PATHS:
            break
    return found


def unknown_parts(items: object) -> list[str]:
    return [
        f"input[{index}].content[{number}]"
        for index, item in enumerate(items if isinstance(items, list) else ())
        if isinstance(item, dict) and isinstance(parts := item.get("content"), list)
        for number, part in enumerate(parts)
        if isinstance(part, dict) and part.get("type") not in KNOWN_PART_TYPES
    ]


def check_minimum(value: Mapping[str, Any], limit: int | None) -> None:
    """Refuse fewer output tokens than OpenAI's API takes, but for an empty input: with that, clients
    load the model. Raises ApiError."""
    if limit is not None and limit < MIN_OUTPUT_TOKENS and value.get("input"):
        message = (
            "Invalid 'max_output_tokens': integer below minimum value."
            f" Expected a value >= {MIN_OUTPUT_TOKENS}, but got {limit} instead."
        )
        raise invalid("max_output_tokens", message, "integer_below_min_value")


def ignored_header(paths: Sequence[str]) -> dict[str, str]:
    if not paths:
        return {}
    named = [path if _HEADER_PATH.fullmatch(path) else "?" for path in paths[:MAX_NAMED_PATHS]]
    more = ["..."] if len(paths) > MAX_NAMED_PATHS else []
    return {IGNORED_HEADER: ", ".join([*dict.fromkeys(named), *more])}
