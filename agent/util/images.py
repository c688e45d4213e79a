"""Distinguishes images, documents and text by their first bytes."""

import shlex
from pathlib import Path
from urllib.parse import unquote

CANNOT_SEE = "this model cannot see images"
"""Message for people and clients who send an image to the model."""
DOCUMENT_KINDS = {
    b"%PDF-": "application/pdf",
    b"PK\x03\x04": "application/zip",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "application/x-ole-storage",
}
"""Kinds of documents by their first bytes: PDF; DOCX and XLSX; DOC, XLS and encrypted DOCX and XLSX."""
SIGNATURE_BYTES, MAX_PATH_CHARACTERS = 12, 4096
_SIGNATURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\0", b"MM\0*")
"""PNG, JPEG, GIF, TIFF (https://www.iana.org/assignments/media-types/#image)."""
_BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_BRANDS = (b"ftypavif", b"ftypheic", b"ftypheix", b"ftypmif1")


def is_image(data: bytes) -> bool:
    """Whether data begins like a picture: PNG, JPEG, GIF, TIFF, WebP, AVIF or HEIC."""
    is_webp = data[:4] == b"RIFF" and data[8:12] == b"WEBP"
    return data.startswith(_SIGNATURES) or is_webp or data[4:12] in _BRANDS


def document_kind(data: bytes) -> str:
    """The kind of document that data begins like; empty where it begins like none."""
    return next((kind for magic, kind in DOCUMENT_KINDS.items() if data.startswith(magic)), "")


def decode_text(data: bytes, errors: str = "strict") -> str | None:
    """Decode UTF-8, or UTF-16 with a byte order mark; None: no text. ``errors``: of `bytes.decode`."""
    encodings = (name for mark, name in _BYTE_ORDER_MARKS.items() if data.startswith(mark))
    try:
        text = data.decode(next(encodings, "utf-8"), errors)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def is_pasted_image(text: str) -> bool:
    """Whether a pasted text is an image: a data URL, or a file's path as terminals paste it."""
    text = text.strip()
    if text.startswith("data:image/"):
        return True
    if not text or len(text) > MAX_PATH_CHARACTERS or "\n" in text:
        return False
    try:
        words = [unquote(text[7:])] if text.startswith("file://") else shlex.split(text)
        file = Path(words[0]).expanduser()
        if len(words) > 1 or not file.is_file():
            return False
        with file.open("rb") as stream:
            return is_image(stream.read(SIGNATURE_BYTES))
    except (IndexError, OSError, ValueError, RuntimeError):
        return False
