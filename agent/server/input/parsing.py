"""Parses and validates the JSON of requests; ApiError has one sentence about the deepest fault.
Unsupported fields are refused, or with ``agent serve --lenient`` passed over, and named in the answer's
`IGNORED_HEADER`."""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from agent.server.http.errors import (
    FOREIGN_TAG,
    FieldPath,
    client_param,
    client_params,
    field_path,
    from_validation,
    invalid,
    param_name,
)
from agent.server.http.request_body import parse_json_object
from agent.server.input.listed_items import ITEM_FIELDS, KNOWN_PART_TYPES, PART_FIELDS, PART_LISTS
from agent.server.input.schemas import (
    ITEM_MODELS,
    KNOWN_TOOLS,
    AllowedTools,
    ApprovalFilter,
    ConversationParam,
    CreateResponse,
    RequestModel,
    ToolChoice,
)

MAX_ITEMS = {
    "input": 5_000, "items": 5_000, "messages": 5_000, "tools": 1_000, "include": 100,
    "metadata": 1_000, "logit_bias": 2_000, "stop": 1_000,
}  # fmt: skip
"""Items of lists and objects of a request, with their parts: reading them blocks the event loop, and
each that is wrong is an error with a text."""
MAX_SCHEMA_VALUES = 15_000
"""JSON values of all tools together, and of the answer's form: rendering them takes some 5 µs each."""
TOOL_ITEMS = ("additional_tools", "tool_search_output")
"""Types of input items that declare tools."""
RequestT = TypeVar("RequestT", bound=RequestModel)
_UNION_TAGS = frozenset((*ITEM_MODELS, FOREIGN_TAG, *KNOWN_TOOLS, "other", "text", "grammar")) | {
    model.__name__ for model in (AllowedTools, ApprovalFilter, ToolChoice, ConversationParam)
}
IGNORED_HEADER = "agent-ignored"
"""Response header with the paths of passed over fields, separated by commas."""
MAX_NAMED_PATHS = 20
MIN_OUTPUT_TOKENS = 16
"""Least ``max_output_tokens``, as in OpenAI's API."""
_HEADER_PATH = re.compile(r"[\w.\[\]-]{1,100}", re.ASCII)
_IGNORABLE_FAULTS = ("extra_forbidden", "literal_error", "union_tag_invalid")
_MAX_ROUNDS = 8


def parse_request(body: bytes | bytearray, *, lenient: bool = False) -> CreateResponse:
    """Read the body of ``POST /v1/responses``. Raises ApiError: 400, with the parameter's path."""
    return request_from_object(parse_json_object(body), len(body), lenient=lenient)


def request_from_object(
    value: dict[str, Any], size: int, *, lenient: bool = False
) -> CreateResponse:
    """Validate a parsed body of ``size`` bytes. Raises ApiError."""
    _check_sizes(value)
    ignored, dropped = unknown_item_fields(value.get("input")), list[str]()
    if lenient:
        ignored += unknown_parts(value.get("input"))
        value, dropped = _drop_ignorable(CreateResponse, value)
    with client_params(dropped):
        request = _validated(CreateResponse, value)
    if not lenient:
        check_minimum(value, request.max_output_tokens)
    origin = request.origin
    origin.sent_input, origin.sent_bytes = value.get("input") or "", size
    origin.ignored, origin.dropped = (*ignored, *dropped), tuple(dropped)
    origin.refuses_unseen = not lenient
    return request


def validate(
    kind: type[RequestT], value: dict[str, Any], *, extra: Literal["ignore"] | None = "ignore"
) -> RequestT:
    """A body's model; unknown fields are ignored, or refused (``extra=None``). Raises ApiError."""
    _check_sizes(value)
    return _validated(kind, value, extra=extra)


def without_unknown_values(
    kind: type[RequestModel], value: dict[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """A body without values and kinds that the model lacks, and their paths. Raises ApiError."""
    _check_sizes(value)
    return _drop_ignorable(kind, value, extra="ignore")


def _validated(
    kind: type[RequestT], value: dict[str, Any], extra: Literal["ignore"] | None = None
) -> RequestT:
    try:
        return kind.model_validate(value, extra=extra)
    except ValidationError as error:
        raise from_validation(error, _UNION_TAGS) from None


def _check_sizes(value: dict[str, Any]) -> None:
    """Raises ApiError for a body with more values than are read."""
    for param, limit in MAX_ITEMS.items():
        if (number := _count_items(value.get(param))) > limit:
            message = (
                f"Invalid '{param}': array too long. Expected at most {limit} items and"
                f" parts of items, but got {number} instead."
            )
            raise invalid(param, message, "array_above_max_length")
    schemas = {
        name: value.get(name) for name in ("tools", "text", "response_format", "tool_choice")
    }
    for name in ("input", "items"):
        items = (item for _, item in _objects(value.get(name), name))
        schemas[name] = [item.get("tools") for item in items if item.get("type") in TOOL_ITEMS]
    for param, schema in schemas.items():
        if not has_few_values(schema, MAX_SCHEMA_VALUES):
            tools = "its tools have " if param in ("input", "items") else ""
            message = f"Invalid '{param}': {tools}more than {MAX_SCHEMA_VALUES:,} JSON values."
            raise invalid(param, message, "array_above_max_length")


def _count_items(value: object) -> int:
    """Count an object's members, or a list's items and the elements of the lists in them."""
    if isinstance(value, dict):
        return len(value)
    items = value if isinstance(value, list) else []
    fields = (field for item in items if isinstance(item, dict) for field in item.values())
    return len(items) + sum(len(field) for field in fields if isinstance(field, list))


def has_few_values(value: object, most: int) -> bool:
    pending = [value]
    while pending and most >= len(pending):
        most -= 1
        match pending.pop():
            case dict() as members:
                pending += members.values()
            case list() as elements:
                pending += elements
    return not pending


def _drop_ignorable(
    kind: type[BaseModel], value: dict[str, Any], *, extra: Literal["ignore"] | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Copy a body without fields, values and kinds of items that the model does not have; return the
    paths of these. ``extra``: "ignore" keeps unknown fields."""
    ignored: list[str] = []
    for _ in range(_MAX_ROUNDS):  # dropping a value of a union brings up the faults of the others
        try:
            kind.model_validate(value, extra=extra)
        except ValidationError as error:
            faults = [(field_path(e["loc"], _UNION_TAGS), e["type"]) for e in error.errors()]
            paths = {
                path
                for path, fault in faults
                if fault in _IGNORABLE_FAULTS
                and path[-1] != "role"  # without it the rest has no meaning
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
    # The last element of a list comes first.
    for path in sorted(paths, key=lambda path: [f"{step!s:>9}" for step in path], reverse=True):
        target: Any = value
        *above, last = path
        try:
            for step in above:
                target = target[step]
            del target[last]
        except (LookupError, TypeError):
            continue  # it was within another one
    return value


def _objects(values: object, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a list, each with its path."""
    for index, value in enumerate(values if isinstance(values, list) else ()):
        if isinstance(value, dict):
            yield f"{path}[{index}]", value


def unknown_item_fields(items: object) -> list[str]:
    found: list[str] = []
    for path, item in _objects(items, "input"):
        found += [f"{path}.{name}" for name in item if name not in ITEM_FIELDS]
        for field in PART_LISTS:
            for place, part in _objects(item.get(field), f"{path}.{field}"):
                found += [f"{place}.{name}" for name in part if name not in PART_FIELDS]
        if len(found) > MAX_NAMED_PATHS:
            break
    return found


def unknown_parts(items: object) -> list[str]:
    return [
        place
        for path, item in _objects(items, "input")
        for place, part in _objects(item.get("content"), f"{path}.content")
        if part.get("type") not in KNOWN_PART_TYPES
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
