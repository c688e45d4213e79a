"""Reads the text of files attached to messages (``input_file`` with ``file_data``). Documents are
read before, a few at a time, and their texts are remembered. Reference:
https://platform.openai.com/docs/guides/pdf-files"""

import asyncio
import base64
import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from urllib.parse import unquote_to_bytes

from agent.conversation.attachments import format_attachment
from agent.server.http.errors import ApiError, invalid, missing, rate_limited
from agent.server.input.schemas import ContentPart, InputFunctionCallOutput, InputItem, InputMessage
from agent.util.images import CANNOT_SEE, decode_text, document_kind, is_image
from tools.builtin.browser.extraction import (
    DOCUMENT_LIMITS,
    DOCUMENT_TIMEOUT_SECONDS,
    DocumentText,
    read_document,
)
from tools.sandbox.isolation import ResourceLimits

MAX_FILE_BYTES = 2 * 1024 * 1024
"""Longest file; a context of 131,072 tokens holds about half a million characters."""
MAX_DOCUMENTS = 16
"""Documents of one request."""
MAX_READERS = 2
"""Documents that are read at a time, of all requests."""
MAX_WAITING = 32
"""Requests that wait for theirs; further ones are refused with status 429."""
CACHE_CHARACTERS = 8_000_000
"""Texts that are remembered, for clients that send their whole history with each request."""
_DATA_URL = re.compile(r"data:[^,]{0,200}?(?P<base64>;base64)?,", re.IGNORECASE)


def file_text(part: ContentPart, param: str, documents: Mapping[str, DocumentText]) -> str:
    """The block that the model reads for a file, marked as not the user's own text. ``param``: the
    part's path. ``documents``: by ``file_data``. Raises ApiError."""
    if not part.file_data:
        raise _without_data(part, param)
    param = f"{param}.file_data"
    if (data := decode_file(part.file_data)) is None:
        message = f"Invalid '{param}': it is neither base64 nor a data URL."
        raise invalid(param, message)
    if len(data) > MAX_FILE_BYTES:
        message = f"The file is longer than {MAX_FILE_BYTES:,} bytes: send a part of it."
        raise invalid(param, message, "string_above_max_length")
    name = PurePath(part.filename or "attached file").name[:200]
    if document_kind(data):
        unread = DocumentText(problem="The document was not read: send it again.")
        document = documents.get(part.file_data, unread)
        if document.problem:
            raise invalid(param, document.problem, "unsupported_value")
        return format_attachment(name, document.text)
    if is_image(data):
        raise invalid(param, f"The file is an image: {CANNOT_SEE}.", "unsupported_value")
    if (text := decode_text(data)) is None:
        message = (
            "The file is not text: text, Markdown, JSON, CSV and source code in UTF-8, PDF, DOCX and"
            " XLSX are read."
        )
        raise invalid(param, message, "unsupported_value")
    return format_attachment(name, text)


def decode_file(file_data: str) -> bytes | None:
    """The bytes of a data URL, or of bare base64; None for what is neither."""
    url = _DATA_URL.match(file_data)
    content = file_data[url.end() :] if url else file_data
    if url and not url["base64"]:
        return unquote_to_bytes(content)
    try:
        return base64.b64decode("".join(content.split()), validate=True)
    except ValueError:
        return None


def _without_data(part: ContentPart, param: str) -> ApiError:
    if part.file_id:
        message = "This server keeps no files: send the file in 'file_data', as base64."
        return invalid(f"{param}.file_id", message, "unsupported_parameter")
    if part.file_url:
        message = "This server fetches no files: send the file in 'file_data', as base64."
        return invalid(f"{param}.file_url", message, "unsupported_parameter")
    return missing(f"{param}.file_data")


class DocumentReader:
    """Reads documents for all requests of a server."""

    def __init__(
        self, limits: ResourceLimits = DOCUMENT_LIMITS, seconds: float = DOCUMENT_TIMEOUT_SECONDS
    ) -> None:
        """``limits``, ``seconds``: of the process that reads one."""
        self._limits, self._seconds = limits, seconds
        self._readers = asyncio.Semaphore(MAX_READERS)
        self._waiting = 0
        self._texts: OrderedDict[bytes, DocumentText] = OrderedDict()

    async def read(
        self, items: str | Iterable[InputItem], most: int | None = MAX_DOCUMENTS
    ) -> Mapping[str, DocumentText]:
        """The attached documents, ``most`` at most, by ``file_data``. Raises ApiError if many wait."""
        files = {} if isinstance(items, str) else dict(_documents(items))
        if not files:
            return {}
        if self._waiting >= MAX_WAITING:
            raise rate_limited("Too many documents are being read; please retry in a few seconds.")
        self._waiting += 1
        try:
            return {
                file: await self._read(data)
                if most is None or number < most
                else DocumentText(
                    problem=f"The request has more than {most} documents: send fewer."
                )
                for number, (file, data) in enumerate(files.items())
            }
        finally:
            self._waiting -= 1

    async def _read(self, data: bytes) -> DocumentText:
        if len(data) > MAX_FILE_BYTES:
            return DocumentText()  # as for any other file, `file_text` says so
        key = hashlib.sha256(data).digest()
        if key not in self._texts:
            async with self._readers:
                read = await read_document(data, self._limits, self._seconds)
            if read.problem:
                return read
            self._texts[key] = read
        self._texts.move_to_end(key)
        read = self._texts[key]
        while sum(len(known.text) for known in self._texts.values()) > CACHE_CHARACTERS:
            self._texts.popitem(last=False)
        return read


def _documents(items: Iterable[InputItem]) -> Iterator[tuple[str, bytes]]:
    for item in items:
        match item:
            case InputMessage(content=[*parts]) | InputFunctionCallOutput(output=[*parts]):
                for part in parts:
                    file = part.file_data if part.type == "input_file" else None
                    if file and (data := decode_file(file)) and document_kind(data):
                        yield file, data
