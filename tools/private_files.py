"""What is its owner's alone: files, folders, and what a URL holds besides its address."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from urllib.parse import urlsplit


def folder(path: Path) -> None:
    """Make it, and what is missing above it, its owner's only (0700); raises OSError."""
    for missing in reversed([one for one in (path, *path.parents) if not one.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def opener(path: str, flags: int) -> int:
    """For ``open``: a file that it makes is its owner's only (0600)."""
    return os.open(path, flags, 0o600)


def write(path: Path, text: str) -> None:
    """Put it in place whole, readable by its owner only (0600); raises OSError."""
    folder(path.parent)
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path.resolve())
    except OSError:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def address(url: str) -> str:
    """Where a URL leads; without what may be secret in it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "its URL"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
