"""Reads the text of files that are attached to messages (``input_file`` with ``file_data``).

Reference: https://platform.openai.com/docs/guides/pdf-files
"""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import PurePath
from urllib.parse import unquote_to_bytes

from agent.conversation.attachments import format_attachment
from agent.server.errors import ApiError, invalid
from agent.server.schemas import ContentPart
from agent.util.images import CANNOT_SEE, is_image

MAX_FILE_BYTES = 2 * 1024 * 1024
"""Longest file; a context of 131,072 tokens holds about half a million characters."""
_DATA_URL = re.compile(r"data:[^,]{0,200}?(?P<base64>;base64)?,", re.IGNORECASE)
_BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


def file_text(part: ContentPart, param: str) -> str:
    """The block that the model reads for a file (`agent.conversation.attachments`): it marks the text
    as not the user's own. ``param``: the part's path. Raises ApiError."""
    if not part.file_data:
        raise _without_data(part, param)
    param = f"{param}.file_data"
    data = _decode(part.file_data, param)
    if len(data) > MAX_FILE_BYTES:
        message = f"The file is longer than {MAX_FILE_BYTES:,} bytes: send a part of it."
        raise invalid(param, message, "string_above_max_length")
    name = PurePath(part.filename or "attached file").name[:200]
    return format_attachment(name, _text(data, param))


def _without_data(part: ContentPart, param: str) -> ApiError:
    if part.file_id:
        message = "This server keeps no files: send the file in 'file_data', as base64."
        return invalid(f"{param}.file_id", message, "unsupported_parameter")
    if part.file_url:
        message = "This server fetches no files: send the file in 'file_data', as base64."
        return invalid(f"{param}.file_url", message, "unsupported_parameter")
    param = f"{param}.file_data"
    return invalid(param, f"Missing required parameter: '{param}'.", "missing_required_parameter")


def _decode(text: str, param: str) -> bytes:
    """The bytes of a data URL, or of bare base64."""
    url = _DATA_URL.match(text)
    content = text[url.end() :] if url else text
    if url and not url["base64"]:
        return unquote_to_bytes(content)
    try:
        return base64.b64decode("".join(content.split()), validate=True)
    except (binascii.Error, ValueError):
        message = f"Invalid '{param}': it is neither base64 nor a data URL."
        raise invalid(param, message) from None


def _text(data: bytes, param: str) -> str:
    if is_image(data):
        raise invalid(param, f"The file is an image: {CANNOT_SEE}.", "unsupported_value")
    if data.startswith(b"%PDF-"):
        message = "The file is a PDF, and this server reads text only: send its text."
        raise invalid(param, message, "unsupported_value")
    encodings = (name for mark, name in _BYTE_ORDER_MARKS.items() if data.startswith(mark))
    try:
        text = data.decode(next(encodings, "utf-8"))
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        message = (
            "The file is no text: text, Markdown, JSON, CSV and source code are read, in UTF-8."
        )
        raise invalid(param, message, "unsupported_value")
    return text
