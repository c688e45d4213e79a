"""Errors of the API in OpenAI's shape, pydantic's as one of them. Reference:
https://platform.openai.com/docs/guides/error-codes/api-errors"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count, islice

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from agent.errors import AgentError
from agent.turn.endings import RATE_LIMIT
from agent.util.json_text import json_type

RETRY_AFTER_SECONDS = "5"


class ApiError(AgentError):
    """Refuses a request, with an HTTP status and the parameter that is wrong."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param, self.headers = status, code, param, headers

    @property
    def body(self) -> dict[str, str | None]:
        default = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = {424: "external_connector_error", 429: "rate_limit_error"}.get(self.status, default)
        return {"message": str(self), "type": kind, "param": self.param, "code": self.code}


def unsupported(param: str, feature: str) -> ApiError:
    """Status 400 for a part of the API that this server does not have, rather than ignoring it."""
    return invalid(param, f"{feature} is not supported by this server.", "unsupported_parameter")


def invalid(param: str, message: str, code: str = "invalid_value") -> ApiError:
    """Status 400 for a parameter, named by its path: ``input[0].content``."""
    return ApiError(400, message, code=code, param=param)


def missing(param: str) -> ApiError:
    return invalid(param, f"Missing required parameter: '{param}'.", "missing_required_parameter")


def body_too_large(max_bytes: int) -> ApiError:
    message = f"The body of the request is longer than {max_bytes:,} bytes."
    return ApiError(413, message, code="request_too_large")


def rate_limited(message: str = "Too many responses are running: try again later.") -> ApiError:
    return ApiError(429, message, code=RATE_LIMIT, headers={"retry-after": RETRY_AFTER_SECONDS})


def internal_error() -> ApiError:
    """Status 500 for a fault of this program, which the log has with its traceback."""
    message = "Something went wrong inside this server; its log file has the details."
    return ApiError(500, message, code="server_error")


def failed(code: str, message: str) -> ApiError:
    if code == RATE_LIMIT:
        return rate_limited(message)
    status = {"invalid_prompt": 400, "no_summary": 422}.get(code, 500)
    return ApiError(status, message, code=code)


class PromptTooLongError(ApiError):
    """Refuses a prompt that does not fit into the context."""

    anthropic_message = ""
    """The same in Anthropic's words, by which Claude Code knows that it has to compact."""


def context_length_exceeded(context_tokens: int, tokens: int | str) -> PromptTooLongError:
    """Status 400, in OpenAI's words; ``tokens``: the prompt's, or ``more than N``."""
    message = (
        f"This model's maximum context length is {context_tokens} tokens. However, your messages"
        f" resulted in {tokens} tokens. Please reduce the length of the messages."
    )
    error = PromptTooLongError(400, message, code="context_length_exceeded", param="input")
    error.anthropic_message = f"prompt is too long: {tokens} tokens > {context_tokens} maximum"
    return error


# --- parts of the API that this server lacks ---

UNSUPPORTED_FIELDS = frozenset(
    {"access_programs", "moderation", "prompt"}
    | {"background_options.continuation_id", "image", "prompt_cache_options.ttl"}
    | {"prompt_cache_options.comparison_response_id", "prompt_cache_options.prewarm"}
    | {"tools[].async", "tools[].output_schema", "tools[].tunnel_id"}
    | {"tools[].tools[].async", "tools[].tools[].output_schema"}
)
"""Fields of OpenAI's API that no model here has; an error distinguishes them from misspelled ones."""
FOREIGN_TAG = "foreign"
FOREIGN_ITEMS = (
    "apply_patch_call", "apply_patch_call_output", "computer_call", "computer_call_output",
    "file_search_call", "image_generation_call", "local_shell_call", "local_shell_call_output",
    "program", "program_output", "shell_call", "shell_call_output", "tool_search_call",
    "tool_search_output",
)  # fmt: skip
"""Types of items that are read as text."""


# --- from pydantic's validation errors to one sentence ---

FieldPath = tuple[str | int, ...]
"""Names and indexes that lead to a field of a request."""
_EXPECTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a decimal",
    "bool_type": "a boolean",
    "list_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
_JSON_TYPES = {
    "null": "null", "boolean": "a boolean", "integer": "an integer", "number": "a decimal",
    "string": "a string", "array": "an array", "object": "an object",
}  # fmt: skip
_LIMITS = {
    "greater_than_equal": (
        "{number}_below_min_value",
        "{number} below minimum value. Expected a value >= {ge}",
    ),
    "less_than_equal": (
        "{number}_above_max_value",
        "{number} above maximum value. Expected a value <= {le}",
    ),
    "less_than": (
        "{number}_above_max_value",
        "{number} above maximum value. Expected a value < {lt}",
    ),
    "string_too_short": (
        "string_below_min_length",
        "string too short. Expected a length of at least {min_length}",
    ),
    "string_too_long": (
        "string_above_max_length",
        "string too long. Expected a length of at most {max_length}",
    ),
    "too_short": ("array_below_min_length", "too short. Expected at least {min_length} items"),
    "too_long": ("array_above_max_length", "too long. Expected at most {max_length} items"),
}
"""OpenAI's codes for values beyond a limit, and what they say."""
_BRANCHES = ("str", "list[", "dict[", "tagged-union[", "literal[", "function-", "union[")
"""Pydantic's names of a union's alternatives, between the fields, in an error's ``loc``."""


def from_validation(error: ValidationError, tags: frozenset[str]) -> ApiError:
    """Make one error of pydantic's many: the deepest, as that alternative of a union was meant.

    ``tags``: names of alternatives, which in ``loc`` follow a list's index or are a model's name::

        loc  ("input", "list[tagged-union[…]]", 0, "message", "content", "str")
        path ("input", 0, "content")       param  input[0].content
    """
    errors = [(field_path(details["loc"], tags), details) for details in error.errors()]
    depth = max(len(path) for path, _ in errors)
    deepest = next(path for path, _ in errors if len(path) == depth)
    alternatives = [details for path, details in errors if path == deepest]
    return _field_error(param_name(deepest), alternatives)


def field_path(loc: Sequence[str | int], tags: frozenset[str]) -> FieldPath:
    """An error's ``loc`` without the alternatives of unions."""
    path: list[str | int] = []
    previous: str | int = ""
    for step in loc:
        is_tag = step in tags and (isinstance(previous, int) or str(step)[0].isupper())
        is_branch = isinstance(step, str) and path and step.startswith(_BRANCHES)
        if not is_tag and not is_branch:
            path.append(step)
        previous = step
    return tuple(path)


def param_name(path: FieldPath) -> str | None:
    """A path as OpenAI's errors write it: ``input[0].content``."""
    name = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return name.removeprefix(".") or None


def client_param(param: str, dropped: Collection[str]) -> str:
    """The name in the body as it was sent; ``param``: in one without what was ``dropped``."""
    *steps, last = re.split(r"\[(\d+)\]", param)
    found = ""
    for name, index in zip(steps[::2], steps[1::2], strict=True):
        places = (f"{found}{name}[{at}]" for at in count())
        found = next(islice((each for each in places if each not in dropped), int(index), None))
    return found + last


@contextmanager
def renamed_params(rename: Callable[[str], str]) -> Iterator[None]:
    """Name the parameters in errors, also in their messages, as ``rename`` does."""
    try:
        yield
    except ApiError as error:
        if error.param is None or (param := rename(error.param)) == error.param:
            raise
        message = str(error).replace(f"'{error.param}'", f"'{param}'")
        error.args, error.param = (message,), param
        raise


def client_params(dropped: Collection[str]) -> AbstractContextManager[None]:
    return renamed_params(lambda param: client_param(param, dropped))


def _field_error(param: str | None, alternatives: Sequence[ErrorDetails]) -> ApiError:
    """The error of one field, at which each alternative of its type failed."""
    first, where = alternatives[0], f"'{param}'" if param else "the request"
    value, context = first["input"], first.get("ctx", {})
    kinds = [details["type"] for details in alternatives]
    code = "invalid_value"
    if "missing" in kinds:
        code, message = "missing_required_parameter", f"Missing required parameter: {where}."
    elif all(kind in _EXPECTED for kind in kinds):
        known = " or ".join(dict.fromkeys(_EXPECTED[kind] for kind in kinds))
        code, given = "invalid_type", _JSON_TYPES[json_type(value)]
        message = f"Invalid type for {where}: expected {known}, but got {given} instead."
    elif "extra_forbidden" in kinds:
        code, message = "unknown_parameter", f"Unknown parameter: {where}."
        field = re.sub(r"\[\d+\]", "[]", param or "").removeprefix("input[].")
        if field in UNSUPPORTED_FIELDS:
            code = "unsupported_parameter"
            message = f"Unsupported parameter: {where} is not supported by this server."
    elif first["type"] in _LIMITS:
        code, message = _LIMITS[first["type"]]
        number = "decimal" if isinstance(value, float) else "integer"
        code = code.format(number=number)
        if isinstance(value, dict):
            code = "object_above_max_properties"
        message = f"Invalid {where}: {message.format(number=number, **context)}."
    elif first["type"] == "union_tag_not_found":
        code = "invalid_type"
        message = f"Invalid type for {where}: expected an object with a type."
    elif first["type"] == "union_tag_invalid":
        tag, tags = context.get("tag"), str(context.get("expected_tags"))
        tags = tags.replace(repr(FOREIGN_TAG), ", ".join(map(repr, FOREIGN_ITEMS)))
        message = f"Invalid value for {where}: type {_abbreviated(tag)} is not one of {tags}."
    elif first["type"] == "literal_error":
        known = context.get("expected", "")
        message = f"Invalid value for {where}: {_abbreviated(value)}. Supported values: {known}."
    else:
        message = f"Invalid value for {where}: {first['msg']}."
    return ApiError(400, message, code=code, param=param)


def _abbreviated(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…'"
