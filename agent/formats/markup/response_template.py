"""Reads Hugging Face's form of a syntax: ``response_template`` of a model's tokenizer_config.json
(https://huggingface.co/docs/transformers/chat_response_parsing)."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent.formats.markup.syntax import CallSyntax, MessageSyntax, tags_of

_GROUP = re.compile(r"\(\?P<(\w+)>(?:[^()\\]|\\.|\[[^\]]*\])*\)")
_SPACE = re.compile(r"\\s[*+?]*|\\n[*+?]|\(\?:[^()]*\)\?")
_CONTENTS = {"json": "json", "xml-inline": "tags"}


def load_response_template(template: Mapping[str, Any], source: str) -> MessageSyntax:
    """Read a template. Raises ValueError where it is invalid, or has patterns that are not supported:
    literal text, white space and named groups are."""
    fields = template.get("fields")
    if not isinstance(fields, Mapping) or not all(isinstance(f, Mapping) for f in fields.values()):
        raise ValueError("response_template: fields must be a table of tables")
    thinking = ("reasoning_content", "reasoning", "thinking")
    thought: Mapping[str, Any] = next((fields[n] for n in thinking if n in fields), {})
    content, calls = fields.get("content", {}), fields.get("tool_calls")
    close, opening = _parts(thought, "close")[0], _parts(content, "open")
    return MessageSyntax(
        "response template",
        think_open=_parts(thought, "open")[0],
        think_close=close,
        calls=() if calls is None else (_calls(calls),),
        ends=tuple(part for part in _parts(content, "close") if part),
        ignored=(*(part.strip() for part in opening if part), *tags_of(close)[1:]),
        source=source,
    )


def _calls(field: Mapping[str, Any]) -> CallSyntax:
    kind = field.get("content", "text")
    if kind not in _CONTENTS:
        raise ValueError(f"response_template: tool_calls.content must be one of {[*_CONTENTS]}")
    opening, closing = _parts(field, "open"), _parts(field, "close")
    options = field.get("content_args") or {}
    function = (field.get("transform") or {}).get("function", "{content}")
    given = function if isinstance(function, Mapping) else {}
    name, arguments = given.get("name", "{name}"), given.get("arguments", "{arguments}")
    if kind == "json" and len(opening) == 1:
        name_key, arguments_key = (str(key).strip("{}") for key in (name, arguments))
        call = CallSyntax(name_key=name_key, arguments_key=arguments_key)
        if field.get("transform_each"):
            return replace(call, section_open=opening[0], section_close=closing[0])
        return replace(call, open=opening[0], close=closing[0])
    if len(opening) != 2:
        raise ValueError("response_template: tool_calls.open_pattern must have a group name")
    values: dict[str, Any] = {}
    if kind == "json":
        delimiters = options.get("string_delims") or [['"', '"']]
        values = {"quote": delimiters[-1][0], "bare_keys": bool(options.get("unquoted_keys"))}
    else:
        parts = _literals(str(options.get("tag_pattern", "")), ("key", "value"))
        if len(parts) != 3:
            raise ValueError("response_template: tag_pattern must have the groups key and value")
        values = dict(zip(("key_open", "key_close", "value_close"), parts, strict=True))
    return CallSyntax(
        _CONTENTS[kind],  # type: ignore[arg-type]
        open=opening[0], after_name=opening[1], close=closing[0], **values,
    )  # fmt: skip


def _parts(field: Mapping[str, Any], edge: str) -> list[str]:
    """The literal texts of a field's ``open`` or ``close``, around the group ``name``."""
    if (pattern := field.get(f"{edge}_pattern")) is not None:
        return _literals(str(pattern), ("name",))
    literal = field.get(edge) or ""
    return [str(literal[0] if isinstance(literal, list) else literal)]


def _literals(pattern: str, groups: tuple[str, ...]) -> list[str]:
    """Split a pattern at its named groups into the literal texts between them."""
    pieces = _GROUP.split(_SPACE.sub("", pattern))
    if tuple(pieces[1::2]) not in ((), groups):
        raise ValueError(f"response_template: {pattern} must have the groups {', '.join(groups)}")
    for piece in pieces[::2]:
        if re.search(r"[()\[\].*+?^$]|(?<!\\)\|", re.sub(r"\\.", "", piece)):
            raise ValueError(f"response_template: the pattern {pattern} is not supported")
    return [re.sub(r"\\(.)", r"\1", piece) for piece in pieces[::2]]
