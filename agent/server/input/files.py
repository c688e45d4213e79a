"""Reads the text of files attached to messages (``input_file`` with ``file_data``); PDFs are read
before (`agent.server.input.pdf_texts`). Reference: https://platform.openai.com/docs/guides/pdf-files"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from pathlib import PurePath
from urllib.parse import unquote_to_bytes

from agent.conversation.attachments import format_attachment
from agent.server.http.errors import ApiError, invalid
from agent.server.input.schemas import ContentPart
from agent.util.images import CANNOT_SEE, PDF_MAGIC, decode_text, is_image
from tools.builtin.browser.extraction import PdfText

MAX_FILE_BYTES = 2 * 1024 * 1024
"""Longest file; a context of 131,072 tokens holds about half a million characters."""
_DATA_URL = re.compile(r"data:[^,]{0,200}?(?P<base64>;base64)?,", re.IGNORECASE)


def file_text(part: ContentPart, param: str, pdfs: Mapping[str, PdfText]) -> str:
    """The block that the model reads for a file, marked as not the user's own text. ``param``: the
    part's path. ``pdfs``: by ``file_data``. Raises ApiError."""
    if not part.file_data:
        raise _without_data(part, param)
    param = f"{param}.file_data"
    data = decode_file(part.file_data)
    if data is None:
        message = f"Invalid '{param}': it is neither base64 nor a data URL."
        raise invalid(param, message)
    if len(data) > MAX_FILE_BYTES:
        message = f"The file is longer than {MAX_FILE_BYTES:,} bytes: send a part of it."
        raise invalid(param, message, "string_above_max_length")
    name = PurePath(part.filename or "attached file").name[:200]
    if data.startswith(PDF_MAGIC):
        pdf = pdfs.get(part.file_data, PdfText(problem="The PDF was not read: send it again."))
        if pdf.problem:
            raise invalid(param, pdf.problem, "unsupported_value")
        return format_attachment(name, pdf.text)
    return format_attachment(name, _text(data, param))


def is_pdf(file_data: str) -> bool:
    url = _DATA_URL.match(file_data)
    start = url.end() if url else 0
    content = file_data[start : start + 64]
    if not url or url["base64"]:  # 8 characters are 6 bytes
        content = "".join(content.split())[:8]
    data = decode_file(file_data[:start] + content)
    return data is not None and data.startswith(PDF_MAGIC)


def decode_file(file_data: str) -> bytes | None:
    """The bytes of a data URL, or of bare base64; None for what is neither."""
    url = _DATA_URL.match(file_data)
    content = file_data[url.end() :] if url else file_data
    if url and not url["base64"]:
        return unquote_to_bytes(content)
    try:
        return base64.b64decode("".join(content.split()), validate=True)
    except (binascii.Error, ValueError):
        return None


def _without_data(part: ContentPart, param: str) -> ApiError:
    if part.file_id:
        message = "This server keeps no files: send the file in 'file_data', as base64."
        return invalid(f"{param}.file_id", message, "unsupported_parameter")
    if part.file_url:
        message = "This server fetches no files: send the file in 'file_data', as base64."
        return invalid(f"{param}.file_url", message, "unsupported_parameter")
    param = f"{param}.file_data"
    return invalid(param, f"Missing required parameter: '{param}'.", "missing_required_parameter")


def _text(data: bytes, param: str) -> str:
    if is_image(data):
        raise invalid(param, f"The file is an image: {CANNOT_SEE}.", "unsupported_value")
    if (text := decode_text(data)) is None:
        message = (
            "The file is not text: text, Markdown, JSON, CSV and source code in UTF-8, and PDFs are"
            " read."
        )
        raise invalid(param, message, "unsupported_value")
    return text
