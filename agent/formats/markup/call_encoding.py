"""Writes calls as the dialects' models do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agent.formats.markup.dialects import CALL, CALL_END, Dialect
from agent.formats.markup.vocabulary import MarkupEncoder


def encode_call(
    dialect: Dialect, encoder: MarkupEncoder, recipient: str, arguments: str | None
) -> list[int]:
    """Encode a call; with ``arguments`` None only the part before them."""
    markup, text = encoder.encode_markup, encoder.encode_text
    name = json.dumps(recipient, ensure_ascii=False)
    if dialect.xml_calls:
        ids = markup(f"{CALL}\n<function=") + text(recipient) + markup(">\n")
        if arguments is None:
            return ids
        for key, value in _argument_values(arguments).items():
            value = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            ids += text(f"<parameter={key}>\n{value}\n</parameter>\n")
        return ids + markup(f"</function>\n{CALL_END}")
    if dialect.bare_json_calls:
        ids = text(f'{{"name": {name}, "parameters": ')
        return ids + text(f"{arguments}}}") if arguments is not None else ids
    ids = markup(f"{CALL}\n") + text(f'{{"name": {name}, "arguments": ')
    return ids if arguments is None else ids + text(f"{arguments}}}\n") + markup(CALL_END)


def code_arguments(code: str) -> str:
    return json.dumps({"code": code}, ensure_ascii=False)


def _argument_values(arguments: str) -> Mapping[str, Any]:
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        values = None
    return values if isinstance(values, dict) else {"arguments": arguments}
