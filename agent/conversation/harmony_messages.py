"""Lists a conversation's Harmony messages for requests with ``enable_response_messages``.

vLLM's Responses API has this option: the response then contains ``input_messages`` and
``output_messages``, which the model saw and wrote. The ids are decoded and split by a
regular expression, and not by the parser of generations: that knows neither other roles' messages nor
content types.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from agent.conversation.conversation import Conversation, Entry
from agent.formats.protocol import Format

_MESSAGE_PATTERN = re.compile(
    r"<\|start\|>(?P<header>.*?)<\|message\|>(?P<text>.*?)(?=<\|(?:end|call|return|start)\|>|\Z)",
    re.DOTALL,
)
_CHANNEL_PATTERN = re.compile(r"<\|channel\|>(\w+)")
_RECIPIENT_PATTERN = re.compile(r"to=(\S+?)(?=\s|<\||\Z)")
_CONTENT_TYPE_PATTERN = re.compile(r"(?:<\|constrain\|>\s*|\s)(json|code)\b")
_ROLES = frozenset({"system", "developer", "user", "assistant"})


def response_messages(
    format: Format, conversation: Conversation, first_generated_entry: int
) -> dict[str, Any]:
    """Return the response's fields ``input_messages`` and ``output_messages``.

    The model wrote the entries from the index ``first_generated_entry`` on.
    """
    inputs = conversation.entries[:first_generated_entry]
    outputs = conversation.entries[first_generated_entry:]
    header = _parse_messages(format, conversation.header_ids, "system")
    return {
        "input_messages": header + _entry_messages(format, inputs),
        "output_messages": _entry_messages(format, outputs),
    }


def _entry_messages(format: Format, entries: Iterable[Entry]) -> list[dict[str, Any]]:
    return [
        message
        for entry in entries
        for message in _parse_messages(format, entry.ids, entry.role or "tool")
    ]


def _parse_messages(format: Format, ids: Sequence[int], role: str) -> list[dict[str, Any]]:
    """Parse Harmony's messages with their headers; other formats' stay text with its markup."""
    text = b"".join(map(format.token_bytes, ids)).decode("utf-8", "replace")
    matches = list(_MESSAGE_PATTERN.finditer(text)) if format.name == "harmony" else []
    if matches:
        return [_parse_message(match["header"], match["text"]) for match in matches]
    return [_message("tool" if role == "result" else role, None, text)] if text else []


def _parse_message(header: str, text: str) -> dict[str, Any]:
    author = re.split(r"<\||\s", header, maxsplit=1)[0]
    is_role = author in _ROLES
    message = _message(author if is_role else "tool", None if is_role else author, text)
    if channel := _CHANNEL_PATTERN.search(header):
        message["channel"] = channel[1]
    if recipient := _RECIPIENT_PATTERN.search(header):
        message["recipient"] = recipient[1]
    if kind := _CONTENT_TYPE_PATTERN.search(header):
        message["content_type"] = kind[1]
    return message


def _message(role: str, name: str | None, text: str) -> dict[str, Any]:
    return {"role": role, "name": name, "content": [{"type": "text", "text": text}]}
