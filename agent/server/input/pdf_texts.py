"""Reads the PDFs that requests bring, a few at a time, and remembers their texts."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping

from agent.server.http.errors import rate_limited
from agent.server.input.files import MAX_FILE_BYTES, decode_file, is_pdf
from agent.server.input.schemas import InputFunctionCallOutput, InputItem, InputMessage
from tools.builtin.browser.extraction import PDF_LIMITS, PDF_TIMEOUT_SECONDS, PdfText, read_pdf
from tools.sandbox.isolation import ResourceLimits

MAX_PDFS = 16
"""PDFs of one request."""
MAX_READERS = 2
"""PDFs that are read at a time, of all requests."""
MAX_WAITING = 32
"""Requests that wait for theirs; further ones are refused with status 429."""
CACHE_CHARACTERS = 8_000_000
"""Texts that are remembered, for clients that send their whole history with each request."""


class PdfReader:
    """Reads PDFs for all requests of a server."""

    def __init__(
        self, limits: ResourceLimits = PDF_LIMITS, seconds: float = PDF_TIMEOUT_SECONDS
    ) -> None:
        """``limits``, ``seconds``: of the process that reads one."""
        self._limits, self._seconds = limits, seconds
        self._readers = asyncio.Semaphore(MAX_READERS)
        self._waiting = 0
        self._texts: OrderedDict[bytes, PdfText] = OrderedDict()

    async def read(
        self, items: str | Iterable[InputItem], most: int | None = MAX_PDFS
    ) -> Mapping[str, PdfText]:
        """The attached PDFs, ``most`` at most, by ``file_data``. Raises ApiError if too many wait."""
        files = {} if isinstance(items, str) else dict.fromkeys(_pdfs(items))
        if not files:
            return {}
        if self._waiting >= MAX_WAITING:
            raise rate_limited("Too many PDFs are being read; please retry in a few seconds.")
        self._waiting += 1
        try:
            return {
                file: await self._read(file)
                if most is None or number < most
                else PdfText(problem=f"The request has more than {most} PDFs: send fewer.")
                for number, file in enumerate(files)
            }
        finally:
            self._waiting -= 1

    async def _read(self, file: str) -> PdfText:
        data = decode_file(file)
        if data is None or len(data) > MAX_FILE_BYTES:
            return PdfText()  # as for any other file, `file_text` says so
        key = hashlib.sha256(data).digest()
        if key not in self._texts:
            async with self._readers:
                read = await read_pdf(data, self._limits, self._seconds)
            if read.problem:
                return read
            self._texts[key] = read
        self._texts.move_to_end(key)
        read = self._texts[key]
        while sum(len(known.text) for known in self._texts.values()) > CACHE_CHARACTERS:
            self._texts.popitem(last=False)
        return read


def _pdfs(items: Iterable[InputItem]) -> Iterator[str]:
    for item in items:
        match item:
            case InputMessage(content=[*parts]) | InputFunctionCallOutput(output=[*parts]):
                for part in parts:
                    if part.type == "input_file" and part.file_data and is_pdf(part.file_data):
                        yield part.file_data
