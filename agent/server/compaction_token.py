"""A summary as the opaque content of a compaction item, that clients send back."""

from __future__ import annotations

import base64
import binascii

from agent.server.errors import invalid

OURS = "agent-1:"
"""What a summary begins with before it is packed; another form would have another number."""


def packed(text: str) -> str:
    """Not encrypted: the client may know what its own conversation was about."""
    return base64.urlsafe_b64encode(f"{OURS}{text}".encode()).decode()


def unpacked(content: str, param: str) -> str:
    """Raises ApiError for what this server did not pack."""
    try:
        text = base64.urlsafe_b64decode(content.encode()).decode()
    except (binascii.Error, ValueError):
        text = ""
    if not text.startswith(OURS):
        message = "The compaction item was not made by this server, so it cannot be read."
        raise invalid(f"{param}.encrypted_content", message, "invalid_encrypted_content")
    return text.removeprefix(OURS)
