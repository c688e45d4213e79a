"""A call's arguments: whatever the model wrote becomes a JSON object, or an error that it can read."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

_STEP = re.compile(r'\\u[0-9a-fA-F]{4}|\\[^u]|\\|["{}\[\]\x00-\x1f]', re.DOTALL)
_CLOSES = {"{": "}", "[": "]"}


@dataclass(frozen=True, slots=True)
class Arguments:
    """A call's arguments, settled."""

    json: str
    """A JSON object's text, always; ``{"raw": …}`` holds what was written where that is none."""
    repaired: bool = False
    """``json`` is not, byte for byte, what the model wrote."""
    error: str | None = None
    """Why the call cannot run, for the model to read."""


def settle(text: str, complete: bool) -> Arguments:
    """Make a finished call's body a JSON object.

    Valid JSON is kept as it is; an empty body is ``{}``. Missing closing quotes and brackets are added,
    raw control characters in strings escaped. ``complete`` False: the stream ended within the body.
    """
    if complete and not text.strip():
        return Arguments("{}")
    value, problem = _parsed(text)
    if problem is None and isinstance(value, dict):
        return Arguments(text)
    if problem is None:
        return _refused(text, f"an object is expected, not {_named(value)}")
    closed = _closed(text)
    value = _parsed(closed)[0] if closed is not None else None
    repaired = closed if isinstance(value, dict) else None
    if not complete:
        return Arguments(repaired or _partial(text), True, "they are cut off")
    if repaired is not None:
        return Arguments(repaired, True)
    return _refused(text, problem)


class CodeArguments:
    """A raw code body as it streams, as the arguments ``{"code":"…"}``."""

    def open(self) -> str:
        return '{"code":"'

    def feed(self, text: str) -> str:
        return json.dumps(text, ensure_ascii=False)[1:-1]

    def close(self) -> str:
        return '"}'


def _refused(text: str, problem: str) -> Arguments:
    raw = json.dumps({"raw": text}, ensure_ascii=False)
    return Arguments(raw, True, problem)


def _parsed(text: str) -> tuple[Any, str | None]:
    try:
        return from_json(text, allow_inf_nan=False), None
    except ValueError as error:
        return None, str(error)


def _named(value: object) -> str:
    match value:
        case None:
            return "null"
        case list():
            return "an array"
        case str():
            return "a string"
        case _:
            return json.dumps(value)


def _closed(text: str) -> str | None:
    """The text with what is open closed and raw control characters in strings escaped.

    None where brackets do not match, so that closing is no cure.
    """
    out: list[str] = []
    closers: list[str] = []
    in_string = False
    done = 0
    for step in _STEP.finditer(text):
        found = step[0]
        if in_string and len(found) == 1 and found < " ":
            out += text[done : step.start()], json.dumps(found)[1:-1]
            done = step.end()
        elif found == '"':
            in_string = not in_string
        elif in_string and found == "\\":
            # An escape that was cut off at the very end goes; any other is wrong.
            if not re.fullmatch(r"\\(u[0-9a-fA-F]{0,3})?", text[step.start() :]):
                return None
            text = text[: step.start()]
        elif in_string:
            continue
        elif found in _CLOSES:
            closers.append(_CLOSES[found])
        elif found in ("}", "]") and (not closers or closers.pop() != found):
            return None
    return "".join([*out, text[done:], '"' if in_string else "", *reversed(closers)])


def _partial(text: str) -> str:
    """What is whole of a text that was cut off."""
    try:
        value = from_json(text, allow_inf_nan=False, allow_partial="trailing-strings")
    except ValueError:
        value = {"raw": text}
    return to_json(value if isinstance(value, dict) else {"raw": text}).decode()
