"""Reads PDFs, each in a process with limits of time and memory, without files and network: the parser
may be attacked, and takes as long as the PDF's maker wants."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass

from tools.builtin.browser.extraction import ExtractionError, run_extract
from tools.sandbox.isolation import ResourceLimits, best_isolation

PDF_LIMITS = ResourceLimits(memory=1 << 30, cpu=20)
PDF_TIMEOUT_SECONDS = 30.0
_PAGE_MARK = re.compile(r"^\[page \d+ of \d+\]$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PdfText:
    """The text of a PDF; without one, a sentence that says why."""

    text: str = ""
    problem: str = ""


async def read_pdf(
    data: bytes, limits: ResourceLimits = PDF_LIMITS, seconds: float = PDF_TIMEOUT_SECONDS
) -> PdfText:
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
        answer = await run_extract(about, data, isolation, limits=limits, seconds=seconds)
    except ExtractionError:
        answer = b""
    return await asyncio.to_thread(parse_answer, answer)


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
