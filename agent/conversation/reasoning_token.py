"""The ``encrypted_content`` of a reasoning item: its text, for clients without state here (``"store":
false``), which send it back unread but drop the text itself."""

import base64
import zlib

TOKEN_PREFIX = b"agent-reasoning-1:"
"""Prefix of the compressed text; another encoding would have another number."""
MAX_REASONING_BYTES = 4 * 1024 * 1024
"""Longest text that a token may have: compressed, a short one can hold a huge text."""


def encode_reasoning(text: str) -> str:
    """Encode a text as a token. It is not encrypted: the reasoning is the client's own."""
    return base64.urlsafe_b64encode(TOKEN_PREFIX + zlib.compress(text.encode())).decode()


def decode_reasoning(token: str) -> str:
    """Decode `encode_reasoning`. Raises ValueError for any other string."""
    data = base64.b64decode(token.encode(), altchars=b"-_", validate=True)
    if not data.startswith(TOKEN_PREFIX):
        raise ValueError("not a token of this program")
    decompressor = zlib.decompressobj()
    try:
        text = decompressor.decompress(data.removeprefix(TOKEN_PREFIX), MAX_REASONING_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not decompressor.eof:
        raise ValueError("the token is cut off or too long")
    return text.decode()
