"""Runs extract.py, confined: the text of pages and documents, which may attack their parser."""

import asyncio
import contextlib
import importlib.util
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from agent.errors import AgentError
from agent.util.images import document_kind
from agent.util.temporary_folders import make_temporary_folder
from tools import process_groups
from tools.sandbox import isolation as sandbox
from tools.sandbox.isolation import Isolation, ResourceLimits, best_isolation

EXTRACT_SCRIPT = Path(__file__).with_name("extract.py")
EXTRACT_TIMEOUT_SECONDS = 30.0
EXTRACT_LIMITS = ResourceLimits(memory=3 << 30, cpu=60)
DOCUMENT_LIMITS, DOCUMENT_TIMEOUT_SECONDS = ResourceLimits(memory=1 << 30, cpu=20), 30.0
MAX_EXTRACT_BYTES = 16_000_000
"""Size of extract.py's answer, which a page may have made it write: it is not trusted."""
_PAGE_MARK = re.compile(r"^\[page \d+ of \d+\]$", re.MULTILINE)


def missing_package() -> str:
    """Return which package to install before pages can be read; empty where it is installed."""
    if importlib.util.find_spec("trafilatura"):
        return ""
    return (
        "The browser needs the package trafilatura; install it with: pipx inject agent-local"
        " trafilatura (or with pip or uv: agent-local[browser])"
    )


class ExtractionError(AgentError):
    """There is no answer; the message says why."""


async def run_extract(
    about: dict[str, object],
    data: bytes,
    isolation: Isolation,
    *,
    limits: ResourceLimits = EXTRACT_LIMITS,
    seconds: float = EXTRACT_TIMEOUT_SECONDS,
    max_bytes: int = MAX_EXTRACT_BYTES,
) -> bytes:
    """Run extract.py, which describes ``about``; empty: a limit ended it. Raises ExtractionError."""
    home = make_temporary_folder("agent-page-")
    try:
        process = await asyncio.create_subprocess_exec(
            *sandbox.script_command(isolation.name, EXTRACT_SCRIPT, home, limits),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=sandbox.environment(home),
            cwd=home,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(seconds):
                request = json.dumps({**about, "confined": isolation.ok}).encode() + b"\n" + data
                return await _communicate(process, request, max_bytes)
        except TimeoutError:
            raise ExtractionError("it took too long to read") from None
        finally:
            if process.returncode is None:
                # bwrap alone, killed as it starts, would leave a child that holds the pipes open.
                process_groups.kill(process.pid)
                if process.stdin is not None:
                    process.stdin.close()
                await process.wait()
    finally:
        await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)


async def _communicate(process: asyncio.subprocess.Process, request: bytes, limit: int) -> bytes:
    """Send a request and return the answer; raises ExtractionError if that is too large."""
    assert process.stdin is not None and process.stdout is not None

    async def send(stdin: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):  # it has ended before it read all
            stdin.write(request)
            await stdin.drain()
        stdin.close()

    sending = asyncio.create_task(send(process.stdin))
    try:
        await process.stdout.readexactly(limit + 1)
    except asyncio.IncompleteReadError as error:
        return error.partial
    finally:
        sending.cancel()
    raise ExtractionError("there is too much text in it")


@dataclass(frozen=True, slots=True)
class DocumentText:
    """The text of a document; without one, a sentence that says why."""

    text: str = ""
    problem: str = ""


async def read_document(
    data: bytes, limits: ResourceLimits = DOCUMENT_LIMITS, seconds: float = DOCUMENT_TIMEOUT_SECONDS
) -> DocumentText:
    """Read a PDF, DOCX or XLSX in a process with limits, without files and network, which its parser
    may attack."""
    kind = document_kind(data)
    if kind == "application/x-ole-storage":
        return DocumentText(
            problem="The file has a password or an old format of Word or Excel: save it as DOCX, XLSX"
            " or PDF without a password."
        )
    isolation = await asyncio.to_thread(best_isolation)
    if not isolation.ok:
        return DocumentText(
            problem="Documents are read only in isolation, and none works on this machine"
            " (agent doctor says why): send its text."
        )
    try:
        about: dict[str, object] = {"kind": kind}
        answer = await run_extract(about, data, isolation, limits=limits, seconds=seconds)
    except ExtractionError:
        answer = b""
    noun = "PDF" if kind == "application/pdf" else "document"
    return await asyncio.to_thread(parse_answer, answer, noun)


def parse_answer(answer: bytes, noun: str = "PDF") -> DocumentText:
    """Read what the process wrote, which the document may have made it write."""
    try:
        result = json.loads(answer)
        text, error = str(result.get("text", "")), str(result.get("error", ""))
    except (ValueError, AttributeError, RecursionError):
        text, error = "", "MemoryError"
    match error.partition(":")[0]:
        case "":
            if _PAGE_MARK.sub("", text).strip():
                return DocumentText(text.replace("\0", "").encode("utf-8", "replace").decode())
            problem = f"The {noun} has no text, its pages may be pictures: send what they say."
        case "FileNotDecryptedError" | "DependencyError":
            problem = "The PDF is encrypted: send it without a password."
        case "UnknownArchive":
            problem = "The file is an archive, and no DOCX or XLSX: send its text."
        case "MemoryError" | "SystemError" | "ImportError":  # what Python raises when memory ends
            problem = (
                f"Reading the {noun} takes too much time or memory: send a part of it, or its text."
            )
        case _:
            problem = f"The {noun} is damaged and cannot be read: send its text."
    return DocumentText(problem=problem)
