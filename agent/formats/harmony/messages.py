"""What the model saw and wrote, as messages: for requests with ``enable_response_messages``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from agent.conversation.conversation import Conversation, Entry
from agent.formats.protocol import Format

_MESSAGE = re.compile(
    r"<\|start\|>(?P<header>.*?)<\|message\|>(?P<text>.*?)(?=<\|(?:end|call|return|start)\|>|\Z)",
    re.DOTALL,
)
_CHANNEL = re.compile(r"<\|channel\|>(\w+)")
_RECIPIENT = re.compile(r"to=(\S+?)(?=\s|<\||\Z)")
_CONTENT_TYPE = re.compile(r"(?:<\|constrain\|>\s*|\s)(json|code)\b")
_ROLES = frozenset({"system", "developer", "user", "assistant"})


def transcript(form: Format, conversation: Conversation, begun: int) -> dict[str, Any]:
    """The response's fields; the model began when there were ``begun`` entries."""
    before, after = conversation.entries[:begun], conversation.entries[begun:]
    return {
        "input_messages": _parsed(form, conversation.head_ids, "system") + _of(form, before),
        "output_messages": _of(form, after),
    }


def _of(form: Format, entries: Iterable[Entry]) -> list[dict[str, Any]]:
    return [
        message for entry in entries for message in _parsed(form, entry.ids, entry.role or "tool")
    ]


def _parsed(form: Format, ids: Sequence[int], role: str) -> list[dict[str, Any]]:
    """Harmony's messages with their headers read; other families' as text with its markup."""
    text = b"".join(map(form.spelling, ids)).decode("utf-8", "replace")
    found = list(_MESSAGE.finditer(text)) if form.name == "harmony" else []
    if found:
        return [_message(one["header"], one["text"]) for one in found]
    return [_shown("tool" if role == "result" else role, None, text)] if text else []


def _message(header: str, text: str) -> dict[str, Any]:
    author = re.split(r"<\||\s", header, maxsplit=1)[0]
    own = author in _ROLES
    message = _shown(author if own else "tool", None if own else author, text)
    if channel := _CHANNEL.search(header):
        message["channel"] = channel[1]
    if recipient := _RECIPIENT.search(header):
        message["recipient"] = recipient[1]
    if kind := _CONTENT_TYPE.search(header):
        message["content_type"] = kind[1]
    return message


def _shown(role: str, name: str | None, text: str) -> dict[str, Any]:
    return {"role": role, "name": name, "content": [{"type": "text", "text": text}]}
