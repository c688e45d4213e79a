"""Distinguishes images from text by their first bytes."""

from __future__ import annotations

import shlex
from pathlib import Path
from urllib.parse import unquote

CANNOT_SEE = "this model cannot see images"
"""Message for people and clients who send an image to the model."""
SIGNATURE_BYTES = 12
"""Length of the longest signature."""
MAX_PATH_CHARACTERS = 4096
_SIGNATURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\0", b"MM\0*")
"""PNG, JPEG, GIF, TIFF (https://www.iana.org/assignments/media-types/#image)."""
_BRANDS = (b"ftypavif", b"ftypheic", b"ftypheix", b"ftypmif1")


def is_image(data: bytes) -> bool:
    """Whether data begins like a picture: PNG, JPEG, GIF, TIFF, WebP, AVIF or HEIC."""
    is_webp = data[:4] == b"RIFF" and data[8:12] == b"WEBP"
    return data.startswith(_SIGNATURES) or is_webp or data[4:12] in _BRANDS


def is_image_file(file: Path) -> bool:
    """Whether a file begins as a picture does. Raises OSError."""
    with file.open("rb") as stream:
        return is_image(stream.read(SIGNATURE_BYTES))


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
        return len(words) == 1 and file.is_file() and is_image_file(file)
    except (IndexError, OSError, ValueError, RuntimeError):
        return False
