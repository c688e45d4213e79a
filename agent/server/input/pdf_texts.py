"""Reads the PDFs that requests bring, each in a process with limits of time and memory, without files
and network: its parser may be attacked, and takes as long as the PDF's maker wants."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping

from agent.server.http.errors import rate_limited
from agent.server.input.files import MAX_FILE_BYTES, PdfText, decode_file, is_pdf
from agent.server.input.schemas import InputFunctionCallOutput, InputItem, InputMessage
from tools.builtin.browser.extraction import ExtractionError, run_extract
from tools.sandbox.isolation import ResourceLimits, best_isolation

PDF_LIMITS = ResourceLimits(memory=1 << 30, cpu=20)
PDF_TIMEOUT_SECONDS = 30.0
MAX_PDFS = 16
"""PDFs of one request."""
MAX_READERS = 2
"""PDFs that are read at a time, of all requests."""
MAX_WAITING = 32
"""Requests that wait for theirs; further ones are refused with status 429."""
CACHE_CHARACTERS = 8_000_000
"""Texts that are remembered, for clients that send their whole history with each request."""
_PAGE_MARK = re.compile(r"^\[page \d+ of \d+\]$", re.MULTILINE)


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
                read = await self._extract(data)
            if read.problem:
                return read
            self._texts[key] = read
        self._texts.move_to_end(key)
        read = self._texts[key]
        while sum(len(known.text) for known in self._texts.values()) > CACHE_CHARACTERS:
            self._texts.popitem(last=False)
        return read

    async def _extract(self, data: bytes) -> PdfText:
        isolation = await asyncio.to_thread(best_isolation)
        if not isolation.ok:
            return PdfText(
                problem="PDFs are read only in isolation, and none works on this machine"
                " (agent doctor says why): send its text."
            )
        about: dict[str, object] = {
            "url": "",
            "kind": "application/pdf",
            "charset": None,
            "source": False,
        }
        try:
            answer = await run_extract(
                about, data, isolation, limits=self._limits, seconds=self._seconds
            )
        except ExtractionError:
            answer = b""
        return await asyncio.to_thread(parse_answer, answer)


def _pdfs(items: Iterable[InputItem]) -> Iterator[str]:
    for item in items:
        match item:
            case InputMessage(content=[*parts]) | InputFunctionCallOutput(output=[*parts]):
                for part in parts:
                    if part.type == "input_file" and part.file_data and is_pdf(part.file_data):
                        yield part.file_data


def parse_answer(answer: bytes) -> PdfText:
    """Read what the process wrote, which the PDF may have made it write."""
    try:
        result = json.loads(answer)
        text, error = str(result.get("text", "")), str(result.get("error", ""))
    except (ValueError, AttributeError, RecursionError):
        text, error = "", "MemoryError"
    match error.partition(":")[0]:
        case "":
            if _PAGE_MARK.sub("", text).strip():
                return PdfText(text.replace("\0", "").encode("utf-8", "replace").decode())
            problem = "The PDF has no text, its pages may be pictures: send what they say."
        case "FileNotDecryptedError" | "DependencyError":
            problem = "The PDF is encrypted: send it without a password."
        case "MemoryError" | "SystemError" | "ImportError":  # what Python raises when memory ends
            problem = (
                "Reading the PDF takes too much time or memory: send fewer pages, or its text."
            )
        case _:
            problem = "The PDF is damaged and cannot be read: send its text."
    return PdfText(problem=problem)
