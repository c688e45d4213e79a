"""The text of a prompt that an editor sends as blocks of content."""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import acp.schema as S
from acp.helpers import ContentBlock

from agent.conversation.attachments import (
    MAX_FILE_BYTES,
    attached_text,
    format_attachment,
    read_attachment,
)
from agent.errors import UserError
from agent.util.images import CANNOT_SEE

ReadFile = Callable[[Path], Awaitable[str | None]]
"""The text that the editor has of a file; None: as on disk."""


async def prompt_text(blocks: Sequence[ContentBlock], read_file: ReadFile) -> str:
    """The prompt with its files attached to it, as the app attaches them. Raises UserError."""
    words, attached = [], dict[str, str]()
    for block in blocks:
        match block:
            case S.TextContentBlock(text=text):
                words.append(text)
            case S.ResourceContentBlock(uri=uri):
                if (path := file_path(uri)) is None:
                    words.append(uri)
                    continue
                words.append(f"@{path}")
                if not path.is_dir():
                    if (text_read := await read_file(path)) is None:
                        text_read = await asyncio.to_thread(read_attachment, path, f"@{path}")
                    attached[str(path)] = text_read
            case S.EmbeddedResourceContentBlock(resource=resource):
                name = str(file_path(resource.uri) or resource.uri)
                words.append(f"@{name}")
                attached[name] = await _embedded_text(resource, name)
            case _:
                raise UserError(f"The prompt has an {block.type}, and {CANNOT_SEE}.")
    for name, text in attached.items():
        if len(text) > MAX_FILE_BYTES:
            raise UserError(f"{name} is too long to attach: at most {MAX_FILE_BYTES:,} characters.")
    prompt = ""
    for word in words:  # a mention is a word of its own
        prompt += f" {word}" if word[:1] == "@" and prompt[-1:].strip() else word
    if not prompt.strip():
        raise UserError("The prompt is empty.")
    return prompt + "".join(format_attachment(name, text) for name, text in attached.items())


async def _embedded_text(
    resource: S.TextResourceContents | S.BlobResourceContents, name: str
) -> str:
    if isinstance(resource, S.TextResourceContents):
        return resource.text
    try:
        data = base64.b64decode(resource.blob, validate=True)
    except ValueError:
        raise UserError(f"{name} cannot be attached: it is not base64.") from None
    return await asyncio.to_thread(attached_text, data, name)


def file_path(uri: str) -> Path | None:
    """The path of a file's URI; None: it is not one."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    path = unquote(parts.path)
    return Path(path) if path.startswith("/") and "\0" not in path else None
