"""What a server answered, as the model reads it."""

from __future__ import annotations

import base64
import contextlib
import json
import mimetypes
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tools import private_files
from tools.types import ToolResult

MAX_FILES, MAX_BYTES = 200, 200_000_000
"""Of whole results and attachments that are kept; the oldest go first, the newest never."""
PREFIX = "result-"
PRINTED = 8_000
"""Characters that are kept of what a call printed until it was stopped."""


class Results:
    """Turns MCP results into ToolResults; keeps the whole of what had to be cut."""

    def __init__(self, limit: int, folder: Path | None) -> None:
        """``limit``: characters for the model. ``folder`` is made when first needed; None: a new
        temporary one, which stays for the person to read."""
        self.limit = limit
        self._folder = folder

    def of(
        self, content: list[dict[str, Any]], structured: Any = None, *, failed: bool = False
    ) -> ToolResult:
        """``content``: MCP blocks as on the wire. Structured content repeats them where they exist,
        so it is shown only where they do not."""
        content = [_encodable(block) for block in content]
        text = "\n".join(self._shown(block) for block in content)
        if not content and structured is not None:
            text = encodable(json.dumps(structured, ensure_ascii=False))
        if failed and not text:
            text = "Error: the tool failed and gave no reason"
        whole = None
        if len(text) > self.limit:
            whole = self._keep(text.encode(), ".txt")
            text = shorten(text, self.limit, whole)
        return ToolResult(text, "execution" if failed else "none", content=content, whole=whole)

    def noted(self, result: ToolResult, notes: Sequence[str]) -> ToolResult:
        """With what the model should know beside it; the result gives way to that."""
        if not notes:
            return result
        beside = shorten(encodable("\n".join(notes)), self.limit // 2)
        text = shorten(result.text, self.limit - len(beside) - 1, result.whole)
        return replace(result, text="\n".join(filter(None, [text, beside])))

    def _shown(self, block: dict[str, Any]) -> str:
        """As the model reads it: what is no text is kept in a file and named."""
        match block:
            case {"type": "text"}:
                return str(block.get("text", ""))
            case {"type": "image" | "audio" as kind}:
                return f"[{kind} {self._attached(block, 'data')}]"
            case {"type": "resource", "resource": dict()}:
                resource: dict[str, Any] = block["resource"]
                if (text := resource.get("text")) is not None:
                    return f"[resource {resource.get('uri', '')}]\n{text}"
                return f"[resource {resource.get('uri', '')} {self._attached(resource, 'blob')}]"
            case {"type": "resource_link"}:
                return f"[resource link {block.get('name', '')} {block.get('uri', '')}]"
            case other:
                return f"[{other.get('type')}]"

    def _attached(self, holder: dict[str, Any], key: str) -> str:
        """Base64 goes into a file, out of the block."""
        kind = str(holder.get("mimeType", "")) or "application/octet-stream"
        try:
            data = base64.b64decode(str(holder.pop(key, "")), validate=True)
        except ValueError:
            return f"{kind}, not valid base64"
        size = f"{len(data)} B" if len(data) < 1000 else f"{len(data) / 1000:.0f} kB"
        path = self._keep(data, _suffix(kind))
        return f"{kind}, {size}, kept in {path}" if path else f"{kind}, {size}"

    def _keep(self, data: bytes, suffix: str) -> str | None:
        """Where it lies; None where the disk does not take it."""
        try:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="agent-results-"))
            private_files.folder(self._folder)
            with tempfile.NamedTemporaryFile(
                dir=self._folder, prefix=PREFIX, suffix=suffix, delete=False
            ) as file:
                file.write(data)
            with contextlib.suppress(OSError):
                _bound(self._folder, file.name)
            return file.name
        except OSError:
            return None


def _suffix(kind: str) -> str:
    """Of a file with this MIME type."""
    known = mimetypes.guess_extension(kind, strict=False)
    subtype = kind.rpartition("/")[2]
    return known or (f".{subtype}" if subtype.isalnum() and len(subtype) < 6 else ".bin")


def failure(sentence: str, code: int) -> ToolResult:
    """A call that could not be run; ``code`` as in JSON-RPC."""
    text = encodable(f"Error: {sentence}")
    return ToolResult(text, "protocol", code, content=[{"type": "text", "text": text}])


def encodable(text: str) -> str:
    """Without lone surrogates, which no event could carry: names of files can have them."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _encodable(value: Any) -> Any:
    match value:
        case str():
            return encodable(value)
        case dict():
            return {encodable(str(key)): _encodable(one) for key, one in value.items()}
        case list():
            return [_encodable(one) for one in value]
        case _:
            return value


def stopped(printed: str, why: str) -> str:
    """Of a call that had begun: what it did until then is done."""
    return f"{shorten(printed.rstrip(), PRINTED)}\n{why}".lstrip()


def shorten(text: str, limit: int, whole: str | None = None) -> str:
    """At most ``limit`` characters: head, a note of how much is missing, tail.

    ``whole``: the path of the whole text, which the note names where it leaves room for a result.
    """
    if len(text) <= limit:
        return text

    def note(cut: int) -> str:
        return f"\n[... {cut:,} of {len(text):,} characters left out{where} ...]\n"

    where = f"; the whole is in {encodable(whole)}" if whole else ""
    if len(note(len(text))) > limit // 2:
        where = ""
    room = max(limit - len(note(len(text))), 0)
    head, tail = room - room // 3, room // 3
    return text[:head] + note(len(text) - room) + text[len(text) - tail :]


def _bound(folder: Path, newest: str) -> None:
    """Delete the oldest of what is too much."""
    with os.scandir(folder) as entries:
        found = [
            (entry.path != newest, -status.st_mtime, status.st_size, entry.path)
            for entry in entries
            if entry.name.startswith(PREFIX) and entry.is_file(follow_symlinks=False)
            for status in [entry.stat(follow_symlinks=False)]
        ]
    size = 0
    for number, (old, _, bytes_, path) in enumerate(sorted(found)):
        size += bytes_
        if old and (number >= MAX_FILES or size > MAX_BYTES):
            Path(path).unlink(missing_ok=True)
