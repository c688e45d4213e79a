"""Turns the body of a tool call into a JSON object, or into an error for the model to read.

pydantic_core parses JSON, also where it is cut off; what it refuses but models do write (missing
closing brackets and quotes, raw line breaks in strings) is repaired here first. Libraries that repair
more (``json_repair``) guess where a call should rather fail, so that the model writes it again.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

_JSON_TOKEN = re.compile(r'\\u[0-9a-fA-F]{4}|\\[^u]|\\|["{}\[\]\x00-\x1f]', re.DOTALL)
_CLOSING_BRACKETS = {"{": "}", "[": "]"}


@dataclass(frozen=True, slots=True)
class ToolArguments:
    """The arguments of a finished call."""

    json: str
    """The text of a JSON object, always; ``{"raw": …}`` where the model wrote something else."""
    repaired: bool = False
    """Whether ``json`` differs from what the model wrote."""
    error: str | None = None
    """Why the call cannot run, for the model to read."""


def repair_arguments(text: str, complete: bool) -> ToolArguments:
    """Make a finished call's body a JSON object.

    Valid JSON stays as it is, byte for byte; an empty body becomes ``{}``. Missing closing quotes and
    brackets are added, raw control characters in strings escaped. With ``complete`` False the stream
    ended within the body: the result always has an error.
    """
    if complete and not text.strip():
        return ToolArguments("{}")
    value, problem = _parse(text)
    if problem is None and isinstance(value, dict):
        return ToolArguments(text)
    if problem is None:
        return _rejected(text, f"an object is expected, not {_type_name(value)}")
    closed_text = _close_open_brackets(text)
    value = _parse(closed_text)[0] if closed_text is not None else None
    repaired = closed_text if isinstance(value, dict) else None
    if not complete:
        return ToolArguments(repaired or _parse_partial(text), True, "they are cut off")
    if repaired is not None:
        return ToolArguments(repaired, True)
    return _rejected(text, problem)


class CodeArgumentsStream:
    """Encodes a code body, as it streams, as the JSON arguments ``{"code":"…"}``."""

    def open(self) -> str:
        """Return the JSON before the code."""
        return '{"code":"'

    def feed(self, text: str) -> str:
        """Return more code as the contents of a JSON string."""
        return json.dumps(text, ensure_ascii=False)[1:-1]

    def close(self) -> str:
        """Return the JSON after the code."""
        return '"}'


def _rejected(text: str, problem: str) -> ToolArguments:
    raw = json.dumps({"raw": text}, ensure_ascii=False)
    return ToolArguments(raw, True, problem)


def _parse(text: str) -> tuple[Any, str | None]:
    """Return the JSON value, or None and the problem."""
    try:
        return from_json(text, allow_inf_nan=False), None
    except ValueError as error:
        return None, str(error)


def _type_name(value: object) -> str:
    """Name a value that is no object, for an error message."""
    match value:
        case None:
            return "null"
        case list():
            return "an array"
        case str():
            return "a string"
        case _:
            return json.dumps(value)


def _close_open_brackets(text: str) -> str | None:
    """Close open strings and brackets, and escape raw control characters in strings.

    Returns None where the brackets do not match, so that closing them cannot help.
    """
    out: list[str] = []
    closers: list[str] = []
    in_string = False
    copied = 0
    for match in _JSON_TOKEN.finditer(text):
        token = match[0]
        if in_string and len(token) == 1 and token < " ":
            out += text[copied : match.start()], json.dumps(token)[1:-1]
            copied = match.end()
        elif token == '"':
            in_string = not in_string
        elif in_string and token == "\\":
            # An escape that was cut off at the very end is dropped; any other is an error.
            if not re.fullmatch(r"\\(u[0-9a-fA-F]{0,3})?", text[match.start() :]):
                return None
            text = text[: match.start()]
        elif in_string:
            continue
        elif token in _CLOSING_BRACKETS:
            closers.append(_CLOSING_BRACKETS[token])
        elif token in ("}", "]") and (not closers or closers.pop() != token):
            return None
    return "".join([*out, text[copied:], '"' if in_string else "", *reversed(closers)])


def _parse_partial(text: str) -> str:
    """Return the complete part of an object that was cut off, as JSON."""
    try:
        value = from_json(text, allow_inf_nan=False, allow_partial="trailing-strings")
    except ValueError:
        value = {"raw": text}
    return to_json(value if isinstance(value, dict) else {"raw": text}).decode()
