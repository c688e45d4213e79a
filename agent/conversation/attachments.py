"""Attachments of a prompt: files, piped text, prompts of MCP servers, output of the person's commands.
They are blocks after the person's words, which the model and `agent.turn.exposure` distinguish."""

import asyncio
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from agent.errors import UserError
from agent.util.images import CANNOT_SEE, SIGNATURE_BYTES, decode_text, document_kind, is_image

Kind = Literal["file", "prompt", "command", "server"]
"""file: a file or stdin; prompt: a prompt or resource of an MCP server, or a project's prompt; command:
what a shell command of the person wrote; server: an MCP server's instructions, in no prompt."""
MAX_FILE_BYTES, MAX_DOCUMENT_BYTES = 256 * 1024, 16 << 20
"""Sizes of the largest text and the largest document that can be attached."""
_ATTRIBUTES: dict[Kind, str] = {
    "file": "path", "prompt": "name", "command": "run", "server": "name",
}  # fmt: skip
_HEADER = re.compile(
    r'\n\n<(?P<tag>(?P<kind>file|prompt|command)_*) (?:path|name|run)="(?P<source>[^"\n]*)"'
    r' lines="(?P<lines>[0-9]{1,9})">\n'
)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A text that was attached to a prompt."""

    kind: Kind
    source: str
    """A file's path, ``stdin``, ``server:prompt``, ``server:uri``, or a shell command."""
    lines: int
    text: str = field(default="", compare=False)


def format_attachment(source: str, text: str, kind: Kind = "file") -> str:
    """Return the block that is appended to a prompt for a text that came from ``source``."""
    tag: str = kind
    while f"</{tag}>" in text:
        tag += "_"
    name = source.replace('"', "'").replace("\n", " ")
    text = text.rstrip("\n")
    header = f'<{tag} {_ATTRIBUTES[kind]}="{name}" lines="{text.count(chr(10)) + 1}">'
    return f"\n\n{header}\n{text}\n</{tag}>"


def attached_text(data: bytes, name: str, errors: str = "strict") -> str:
    """A file's text, or slowly a document's. ``errors``: as in `bytes.decode`. Raises UserError."""
    if document_kind(data):
        from tools.builtin.browser.extraction import read_document  # few prompts have one

        document = asyncio.run(read_document(data))
        if document.problem:
            raise UserError(f"{name} cannot be attached. {document.problem}")
        return document.text
    if is_image(data):
        raise UserError(f"{name} is an image, and {CANNOT_SEE}.")
    if (text := decode_text(data, errors)) is None:
        raise UserError(
            f"{name} cannot be attached: it is neither text nor a PDF, DOCX or XLSX file."
        )
    return text


def read_attachment(file: Path, name: str) -> str:
    """The text of a file on disk, which takes a while. Raises UserError, which calls it ``name``."""
    try:
        with file.open("rb") as stream:
            data, size = stream.read(SIGNATURE_BYTES), file.stat().st_size
            most = MAX_DOCUMENT_BYTES if document_kind(data) else MAX_FILE_BYTES
            if size <= most:
                data += stream.read(most)
            elif not is_image(data):
                raise UserError(f"{name} is too long to attach: {size:,} bytes, at most {most:,}.")
    except OSError as error:
        raise UserError(f"{name} cannot be read: {error.strerror}.") from error
    return attached_text(data, name)


def split_attachments(text: str) -> tuple[str, list[Attachment]]:
    """Split a prompt into its own text and the blocks attached to it, in linear time."""
    words, attachments, end = [], [], 0
    unclosed = set()
    for header in _HEADER.finditer(text):
        closing = f"\n</{header['tag']}>"
        if header.start() < end or closing in unclosed:
            continue
        # The first one closes it, for no attached text has the tag that closes its own block.
        at = text.find(closing, header.end())
        if at < 0:
            unclosed.add(closing)
            continue
        words.append(text[end : header.start()])
        (kind,) = (each for each in _ATTRIBUTES if each == header["kind"])
        inner = text[header.end() : at]
        attachments.append(Attachment(kind, header["source"], int(header["lines"]), inner))
        end = at + len(closing)
    return "".join(words) + text[end:], attachments
