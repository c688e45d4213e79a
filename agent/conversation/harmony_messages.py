"""Lists Harmony messages for requests with ``enable_response_messages``, as vLLM does: what the model
saw and wrote, split at special ids, so that text that spells markup stays text."""

import re
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import Any

from agent.conversation.conversation import Conversation, Entry
from agent.formats.protocol import EditableFormat, Format, decode

_RECIPIENT_PATTERN = re.compile(r"to=(\S+)")
_CONTENT_TYPE_PATTERN = re.compile(r"\s(json|code)\b")
_ROLES = frozenset({"system", "developer", "user", "assistant"})


def response_messages(
    format: Format, conversation: Conversation, first_generated_entry: int
) -> dict[str, Any]:
    """The fields ``input_messages`` and ``output_messages``, split at ``first_generated_entry``."""
    outputs = conversation.entries[first_generated_entry:]
    prompt = conversation.prompt_entries()
    inputs = prompt[: len(prompt) - len(outputs)]
    header = _parse_messages(format, conversation.header_ids, "system")
    return {
        "input_messages": header + _entry_messages(format, inputs),
        "output_messages": _entry_messages(format, outputs),
    }


def _entry_messages(format: Format, entries: Iterable[Entry]) -> list[dict[str, Any]]:
    parsed = (_parse_messages(format, entry.ids, entry.role or "tool") for entry in entries)
    return list(chain.from_iterable(parsed))


def _parse_messages(format: Format, ids: Sequence[int], role: str) -> list[dict[str, Any]]:
    """Parse Harmony's messages with their headers; other formats' stay text with its markup."""
    starts = [at for at, id in enumerate(ids) if _markup(format, id) == "<|start|>"]
    if isinstance(format, EditableFormat) and starts:
        messages = (ids[start:end] for start, end in pairwise([*starts, len(ids)]))
        return [_parse_message(format, *format.split_message(message)) for message in messages]
    text = decode(format, ids)
    return [_message("tool" if role == "result" else role, None, text)] if text else []


def _parse_message(format: Format, header: Sequence[int], body: Sequence[int]) -> dict[str, Any]:
    # The text after each special token; an assistant's header has lost its beginning.
    parts = {"<|start|>": "assistant"}
    marks = [at for at, id in enumerate(header) if _markup(format, id)]
    for mark, end in pairwise([*marks, len(header)]):
        parts[_markup(format, header[mark])] = decode(format, header[mark + 1 : end])
    author, channel = parts["<|start|>"], parts.get("<|channel|>", "")
    recipient = _RECIPIENT_PATTERN.search(channel) or _RECIPIENT_PATTERN.search(author)
    kind = _CONTENT_TYPE_PATTERN.search(f"{channel} {parts.get('<|constrain|>', '')}")
    author = author.split(maxsplit=1)[0] if author.strip() else ""
    role, name = (author, None) if author in _ROLES else ("tool", author)
    message = _message(role, name, decode(format, body))
    if channel.strip():
        message["channel"] = channel.split(maxsplit=1)[0]
    if recipient:
        message["recipient"] = recipient[1]
    if kind:
        message["content_type"] = kind[1]
    return message


def _markup(format: Format, id: int) -> str:
    return format.token_bytes(id).decode() if format.is_markup(id) else ""


def _message(role: str, name: str | None, text: str) -> dict[str, Any]:
    return {"role": role, "name": name, "content": [{"type": "text", "text": text}]}
