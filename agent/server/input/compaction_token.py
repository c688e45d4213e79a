"""The ``encrypted_content`` of a compaction item: a summary that clients send back unread."""

import base64

from agent.conversation.compaction import TOKEN_PREFIX
from agent.server.http.errors import invalid


def decode_summary(content: str, param: str) -> str:
    """Decode `encode_summary`, or return plain text. Raises ApiError for another server's token."""
    try:
        text = base64.urlsafe_b64decode(content.encode()).decode()
    except ValueError:
        text = ""
    if text.startswith(TOKEN_PREFIX):
        return text.removeprefix(TOKEN_PREFIX)
    if len(content.split()) > 1:  # no encoding has blanks
        return content
    message = (
        "Another server made the compaction item, and only that server can read it: send the messages"
        " that it stands for instead, or leave it out."
    )
    raise invalid(f"{param}.encrypted_content", message, "invalid_encrypted_content")
