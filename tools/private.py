"""Files that are their owner's alone."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write(path: Path, text: str) -> None:
    """Put it in place whole, readable by its owner only (0600); raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path.resolve())
    except OSError:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
