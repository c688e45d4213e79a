"""Turns the content blocks of MCP results into text for the model."""

import base64
import codecs
import contextlib
import json
import mimetypes
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.util import private_files
from agent.util.temporary_folders import make_temporary_folder
from tools.types import ToolResult

MAX_RESULT_FILES, MAX_RESULT_BYTES = 200, 200_000_000
"""Number of files with full results and attachments that are kept, the newest ones."""
MAX_COMPARED_VALUES = 200
"""Values of structured content that are searched for in the text of the same result."""
FILE_PREFIX = "result-"
_TEXT_TYPES = ("text/", "application/json", "application/xml")
MAX_ABORTED_CHARS = 8_000
"""Characters of a call's output that are reported when the call is aborted."""


class ResultBuilder:
    """Builds ToolResults from MCP content, and saves the full text of those it has to shorten."""

    def __init__(
        self,
        max_chars: int,
        folder: Path | None,
        *,
        max_files: int = MAX_RESULT_FILES,
        max_bytes: int = MAX_RESULT_BYTES,
    ) -> None:
        """``max_chars``: for the model. ``folder``: made when it is needed; None: a temporary one."""
        self.max_chars = max_chars
        self._folder = folder
        self._max_files, self._max_bytes = max_files, max_bytes

    def build(
        self,
        content: list[dict[str, Any]],
        structured: Any = None,
        *,
        failed: bool = False,
        own: bool = False,
    ) -> ToolResult:
        """Build a result from MCP content blocks; may write files, so it blocks. Structured content
        follows as JSON where blocks do not repeat it; that of our ``own`` tools is for programs."""
        content = [encodable(block) for block in content]
        text = "\n".join(self._block_text(block) for block in content)
        if not (own or structured is None or (content and _is_repeated(structured, text))):
            data = replace_surrogates(json.dumps(structured, ensure_ascii=False))
            text = "\n".join(filter(None, [text, data]))
        if failed and not text:
            text = "the tool failed and gave no reason"
        path = None
        if len(text) > self.max_chars:
            path = self._save(text.encode(), ".txt")
            text = shorten(text, self.max_chars, path)
        return ToolResult(text, "execution" if failed else "none", 0, content, structured, path)

    def with_notes(self, result: ToolResult, notes: Sequence[str]) -> ToolResult:
        """Append notes for the model; the result's own text is shortened to make room for them."""
        if not notes:
            return result
        appendix = shorten(replace_surrogates("\n".join(notes)), self.max_chars // 2)
        text = shorten(result.text, self.max_chars - len(appendix) - 1, result.full_text_path)
        return replace(result, text="\n".join(filter(None, [text, appendix])))

    def _block_text(self, block: dict[str, Any]) -> str:
        """Return a block as text; binary data is moved into a file, which the text names."""
        match block:
            case {"type": "text"}:
                return str(block.get("text", ""))
            case {"type": "image" | "audio" as kind}:
                return f"[{kind} {self._save_attachment(block, 'data')}]"
            case {"type": "resource", "resource": dict()}:
                resource: dict[str, Any] = block["resource"]
                uri = resource.get("uri", "")
                text = resource.get("text")
                if text is None and str(resource.get("mimeType")).startswith(_TEXT_TYPES):
                    text = resource["text"] = _decoded(resource.get("blob"))
                    resource.pop("blob" if text is not None else "text", None)
                if text is not None:
                    return f"[resource {uri}]\n{text}"
                return f"[resource {uri} {self._save_attachment(resource, 'blob')}]"
            case {"type": "resource_link"}:
                size = f"{block['size']:,} B" if isinstance(block.get("size"), int) else ""
                about = (block.get("mimeType"), size, block.get("description"))
                words = ("resource link", block.get("name", ""), block.get("uri", ""))
                return f"[{', '.join(filter(None, (' '.join(words), *about)))}]"
            case other:
                return f"[{other.get('type')}]"

    def _save_attachment(self, holder: dict[str, Any], key: str) -> str:
        """Take base64 out of a block, write it to a file, and describe that file."""
        kind = str(holder.get("mimeType", "")) or "application/octet-stream"
        try:
            data = base64.b64decode(str(holder.pop(key, "")), validate=True)
        except ValueError:
            return f"{kind}, not valid base64"
        size = f"{len(data)} B" if len(data) < 1000 else f"{len(data) / 1000:.0f} kB"
        suffix, subtype = mimetypes.guess_extension(kind, strict=False), kind.rpartition("/")[2]
        if suffix is None:
            suffix = f".{subtype}" if subtype.isalnum() and len(subtype) < 6 else ".bin"
        path = self._save(data, suffix)
        return f"{kind}, {size}, kept in {path}" if path else f"{kind}, {size}"

    def _save(self, data: bytes, suffix: str) -> str | None:
        """Write a file and return its path; None if that fails, as on a full disk."""
        try:
            if self._folder is None:
                self._folder = make_temporary_folder("agent-results-")
            private_files.make_folder(self._folder)
            with tempfile.NamedTemporaryFile(
                dir=self._folder, prefix=FILE_PREFIX, suffix=suffix, delete=False
            ) as file:
                file.write(data)
            with contextlib.suppress(OSError):
                self._delete_oldest(self._folder, file.name)
            return file.name
        except OSError:
            return None

    def _delete_oldest(self, folder: Path, newest: str) -> None:
        """Delete the oldest files beyond the limits, but never ``newest``."""
        with os.scandir(folder) as entries:
            files = [
                (entry.path != newest, -status.st_mtime, status.st_size, entry.path)
                for entry in entries
                if entry.name.startswith(FILE_PREFIX) and entry.is_file(follow_symlinks=False)
                for status in [entry.stat(follow_symlinks=False)]
            ]
        size = 0
        for number, (old, _, bytes_, path) in enumerate(sorted(files)):
            size += bytes_
            if old and (number >= self._max_files or size > self._max_bytes):
                Path(path).unlink(missing_ok=True)


def _is_repeated(structured: Any, text: str) -> bool:
    """Whether a text has at least half of the strings and numbers of structured content."""
    values: list[str | int | float] = []
    stack = [structured]
    while stack and len(values) < MAX_COMPARED_VALUES:
        match stack.pop():
            case dict() as part:
                stack += part.values()
            case list() as part:
                stack += part
            case str() | int() | float() as value if not isinstance(value, bool):
                values.append(value)
    spellings = (
        (str(v), json.dumps(v).strip('"'), json.dumps(v, ensure_ascii=False).strip('"'))
        for v in values
    )
    return 2 * sum(any(s in text for s in each) for each in spellings) >= len(values)


def _decoded(data: Any) -> str | None:
    """Return the text of base64; None if that fails."""
    with contextlib.suppress(ValueError):
        return base64.b64decode(str(data), validate=True).decode()
    return None


def protocol_failure(sentence: str, code: int) -> ToolResult:
    """Return the result of a call that could not be run; ``code`` is a JSON-RPC error code."""
    text = replace_surrogates(sentence)
    return ToolResult(text, "protocol", code, content=[{"type": "text", "text": text}])


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded as UTF-8; file names can contain them."""
    return text if text.isascii() else text.encode("utf-8", "agent.replace").decode()


def _replacement(error: UnicodeError) -> tuple[bytes, int]:
    """Return U+FFFD for each of a run of surrogates, so that millions take milliseconds."""
    assert isinstance(error, UnicodeEncodeError)
    return b"\xef\xbf\xbd" * (error.end - error.start), error.end


codecs.register_error("agent.replace", _replacement)


def encodable(value: Any) -> Any:
    """Replace lone surrogates in all strings of a JSON value."""
    match value:
        case str():
            return replace_surrogates(value)
        case dict():
            return {replace_surrogates(str(key)): encodable(item) for key, item in value.items()}
        case list():
            return [encodable(item) for item in value]
    return value


def aborted_text(printed: str, why: str) -> str:
    """Return the result text of a call that was aborted after it had printed ``printed``."""
    return f"{shorten(printed.rstrip(), MAX_ABORTED_CHARS)}\n{why}".lstrip()


def shorten(text: str, limit: int, full_text_path: str | None = None) -> str:
    """Cut to ``limit`` characters: head, a note (with the path if half is left for the text), tail."""
    if len(text) <= limit:
        return text

    def note(cut: int) -> str:
        return f"\n[... {cut:,} of {len(text):,} characters left out{where} ...]\n"

    where = f"; the whole is in {replace_surrogates(full_text_path)}" if full_text_path else ""
    if len(note(len(text))) > limit // 2:
        where = ""
    room = max(limit - len(note(len(text))), 0)
    head, tail = room - room // 3, room // 3
    return text[:head] + note(len(text) - room) + text[len(text) - tail :]
