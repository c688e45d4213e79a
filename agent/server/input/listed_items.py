"""Input items as ``/input_items`` and conversations list them: with ids, without what is unknown."""

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from agent.util.ids import new_id

ID_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcpl",
}
"""Prefixes of ids by item type, for items that came without an id."""
ITEM_FIELDS = {
    *("id", "type", "role", "content", "status", "phase", "call_id", "name", "namespace"),
    *("arguments", "input", "output", "error", "action", "server_label", "approval_request_id"),
    *("approve", "reason", "tools", "code", "outputs", "container_id", "queries", "results"),
    *("result", "encrypted_content", "summary", "caller", "async", "execution", "actions"),
    *("environment", "max_output_length", "pending_safety_checks", "acknowledged_safety_checks"),
    *("reasoning", "text", "fingerprint", "revised_prompt", "size", "quality", "background"),
    *("operation", "output_format", "svg_usage"),
}
"""Fields of the API's input items that are stored and listed; a client's own ones are not."""
PART_FIELDS = {
    *("type", "text", "annotations", "logprobs", "refusal", "filename", "file_id", "file_data"),
    *("file_url", "image_url", "detail", "input_audio", "stdout", "stderr", "outcome"),
}
PART_LISTS = ("content", "output", "summary")
TEXT_PART_TYPES = ("input_text", "output_text", "text", "reasoning_text", "summary_text")
KNOWN_PART_TYPES = (*TEXT_PART_TYPES, "refusal", "input_image", "input_file", "input_audio")
SECRET_TOOL_FIELDS = ("headers", "authorization")
"""Fields of an ``mcp`` tool that are sent to its server only."""


def list_input(sent: str | Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """List a request's input items: each has an id, and messages have a list of parts."""
    if isinstance(sent, str):
        sent = [{"role": "user", "content": sent}]
    taken: set[str] = set()
    return tuple(_list_item(item, taken) for item in sent)


def _list_item(sent: dict[str, Any], taken: set[str]) -> dict[str, Any]:
    item = {
        name: _list_parts(value) if name in PART_LISTS else value
        for name, value in sent.items()
        if name in ITEM_FIELDS
    }
    item_type = item.get("type") or ("message" if "role" in item else "item_reference")
    listed = {**item, "type": item_type}
    if isinstance(tools := item.get("tools"), list):
        listed["tools"] = [_without_secrets(tool) for tool in tools]
    name, is_reference = sent.get("id"), item_type == "item_reference"
    # A page begins behind an id, so each item has one of its own.
    if not (isinstance(name, str) and name and (is_reference or name not in taken)):
        listed["id"] = new_id(ID_PREFIXES.get(item_type, "item"))
    taken.add(listed["id"])
    if item_type == "message":
        by_model, content = item.get("role") == "assistant", item["content"]
        if isinstance(content, str):
            part = {"type": "output_text" if by_model else "input_text", "text": content}
            content = [{**part, "annotations": []} if by_model else part]
        listed |= {"content": content, "status": item.get("status") or "completed"}
    return listed


def _without_secrets(tool: Any) -> Any:
    if not isinstance(tool, dict):
        return tool
    shown = {name: value for name, value in tool.items() if name not in SECRET_TOOL_FIELDS}
    if tool.get("type") == "mcp" and isinstance(url := tool.get("server_url"), str):
        shown["server_url"] = redact_url(url)
    return shown


def _list_parts(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [
        {name: field for name, field in part.items() if name in PART_FIELDS}
        if isinstance(part, dict)
        else part
        for part in value
    ]


def redact_url(url: str | None) -> str | None:
    """Reduce a URL to scheme, host and port: the rest may contain a password or a key."""
    if url is None or re.fullmatch(r"[\w.-]*", url):
        return url
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
    except ValueError:
        return None
