"""Turns the body of a tool call into a JSON object, or into an error for the model. pydantic_core
parses JSON; what models do write (missing closing brackets, raw line breaks in strings) is repaired
first. A call that ends within a string or a list is cut off: a file would get half of its content.
``json_repair`` guesses where a call should rather fail."""

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from pydantic_core import from_json, to_json

_VALUE_END = re.compile(r'(?:["}\]]|true|false|null)\s*\Z')
"""The end of a complete value, which a number or a separator is not."""
_JSON_TOKEN = re.compile(r'\\u[0-9a-fA-F]{4}|\\[^u]|\\|["{}\[\]\x00-\x1f]', re.DOTALL)
_STREAM_PART = re.compile(r'\\.|\\\Z|["{}\[\]\x00-\x1f]', re.DOTALL)
"""An escape, or its beginning at the end of the text; a quote, a bracket, a raw control character."""
_EXPONENT = re.compile(r"\d[eE]\+?\d{3}")
_TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(\s*[}\]])', re.DOTALL)
_CLOSING_BRACKETS = {"{": "}", "[": "]"}
PATCH_BEGIN, PATCH_END = "*** Begin Patch", "*** End Patch"
CUT_OFF = "they are cut off; write the whole call again"
TEXT_BEHIND = "there is more text behind the object; write one call with one object"


@dataclass(frozen=True, slots=True)
class ToolArguments:
    """The arguments of a finished call."""

    json: str
    """The text of a JSON object, always; ``{"raw": …}`` where the model wrote something else."""
    repaired: bool = False
    """Whether ``json`` differs from what the model wrote."""
    error: str | None = None
    """Why the call cannot run, for the model to read."""
    cut: bool = False
    """Whether the text ends within an argument, or its stream did."""


def repair_arguments(text: str, complete: bool) -> ToolArguments:
    """Make a finished call's body a JSON object. Valid JSON stays byte for byte; an empty body becomes
    ``{}``; brackets are closed, control characters escaped. The result has an error if a value is
    missing or cut off, or ``complete`` is False: the stream ended."""
    if complete and not text.strip():
        return ToolArguments("{}")
    value, problem = _parse(text)
    if problem is None and isinstance(value, dict):
        return ToolArguments(text)
    if problem is None:
        return _rejected(text, f"an object is expected, not {_type_name(value)}")
    closed_text, in_value = _close_open_brackets(_TRAILING_COMMA.sub(r"\1\2", text))
    value = _parse(closed_text)[0] if closed_text is not None else None
    repaired = closed_text if isinstance(value, dict) else None
    if in_value or not complete:
        return ToolArguments(repaired or _parse_partial(text), True, CUT_OFF, cut=True)
    return ToolArguments(repaired, True) if repaired is not None else _rejected(text, problem)


def respell_arguments(name: str, text: str) -> str | None:
    """JSON of a call of gpt-oss's own tools in another spelling that https://github.com/openai/gpt-oss
    has: a bare patch or one in any key, a command as a line or list; None: the text as it is."""
    if name == "apply_patch" and text.strip().startswith(PATCH_BEGIN):
        return json.dumps({"input": text}) if text.rstrip().endswith(PATCH_END) else None
    value, _ = _parse(text)
    if name == "apply_patch":
        match value:
            case {"input": _}:
                return None
            case dict() if len(value) == 1 and isinstance(patch := next(iter(value.values())), str):
                return json.dumps({"input": patch})
    elif name == "container.exec":
        if isinstance(value, list | str):
            value = {"cmd": value}
        if isinstance(value, dict):
            renamed = {"cmd" if key == "command" else key: each for key, each in value.items()}
            if isinstance(line := renamed.get("cmd"), str):
                renamed["cmd"] = ["bash", "-lc", line]
            return json.dumps(renamed) if renamed != value or text.strip()[:1] != "{" else None
    return None


class JsonArgumentsStream:
    """Makes what streams as a call's arguments one JSON object, with raw control characters escaped.
    Any other text becomes ``{"raw": …}``, and text behind the object is left out."""

    def __init__(self, raw_key: str = "raw") -> None:
        """``raw_key``: the property for text that is not an object."""
        self._raw_key = raw_key
        self.changed = False
        """Whether the text is not what the model wrote."""
        self.behind = ""
        """Text that was left out, except surplus brackets."""
        self._in_string = self._after_backslash = False
        self._pending = ""
        """A beginning that does not tell yet whether it is an object's."""
        self.kind: Literal["", "object", "raw"] = ""
        """``raw``: the text is not an object, but the string in one."""
        self._depth = 0
        self._ended = False

    def feed(self, text: str) -> str:
        """Return more of the object; empty while the kind of the text is unknown."""
        if self.kind:
            return self._feed_object(text) if self.kind == "object" else string_content(text)
        self._pending += text
        begun = self._pending.lstrip()
        if not begun or (begun[0] == "{" and not begun[1:].lstrip()):
            return ""
        text, self._pending = self._pending, ""
        if begun[0] == "{" and begun[1:].lstrip()[0] in '"}':
            self.kind = "object"
            return self._feed_object(text)
        self.kind, self.changed = "raw", True
        return f'{{"{self._raw_key}": "' + string_content(text)

    def close(self) -> str:
        return '"}' if self.kind == "raw" else self._pending.strip()

    def _feed_object(self, text: str) -> str:
        if self._ended:
            return self._leave_out(text)
        if self._after_backslash and text:
            self._after_backslash = False
            return text[0] + self._feed_object(text[1:])
        out, copied = list[str](), 0
        for match in _STREAM_PART.finditer(text):
            part = match[0]
            if part == '"':
                self._in_string = not self._in_string
            elif part == "\\":
                self._after_backslash = True
            elif self._in_string:
                if len(part) == 1 and part < " ":
                    out += text[copied : match.start()], json.dumps(part)[1:-1]
                    copied, self.changed = match.end(), True
            elif part in "{[":
                self._depth += 1
            elif part in "}]":
                self._depth -= 1
                if self._depth == 0:
                    self._ended = True
                    out.append(text[copied : match.end()])
                    return "".join(out) + self._leave_out(text[match.end() :])
        return "".join([*out, text[copied:]])

    def _leave_out(self, text: str) -> str:
        """Return the blanks of what follows the object."""
        if text.strip():
            self.changed = True
            self.behind += text.strip().strip("}]")
            return ""
        return text


def string_content(text: str) -> str:
    """The text as JSON within quotation marks."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _rejected(text: str, problem: str) -> ToolArguments:
    return ToolArguments(json.dumps({"raw": text}, ensure_ascii=False), True, problem)


def _parse(text: str) -> tuple[Any, str | None]:
    try:
        value = from_json(text, allow_inf_nan=False)
        if _EXPONENT.search(text):  # pydantic takes 1e999, which no server could be sent
            json.dumps(value, allow_nan=False)
        return value, None
    except ValueError as error:
        return None, str(error)


def _type_name(value: object) -> str:
    match value:
        case None:
            return "null"
        case list():
            return "an array"
        case str():
            return "a string"
        case _:
            return json.dumps(value)


def _close_open_brackets(text: str) -> tuple[str | None, bool]:
    """Close strings and brackets, and escape control characters. Returns the text, None if brackets do
    not match, and whether more of a value may come."""
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
                return None, False
            text = text[: match.start()]
        elif in_string:
            continue
        elif token in _CLOSING_BRACKETS:
            closers.append(_CLOSING_BRACKETS[token])
        elif token in ("}", "]") and (not closers or closers.pop() != token):
            return None, False
    closed = "".join([*out, text[copied:], '"' if in_string else "", *reversed(closers)])
    in_value = in_string or "]" in closers
    if closers and not in_value:
        in_value = _VALUE_END.search(text) is None or _parse(closed)[1] is not None
    return closed, in_value


def _parse_partial(text: str) -> str:
    """Return the complete part of an object that was cut off, as JSON."""
    try:
        value = from_json(text, allow_inf_nan=False, allow_partial="trailing-strings")
    except ValueError:
        value = {"raw": text}
    return to_json(value if isinstance(value, dict) else {"raw": text}).decode()
