"""The embedded model's file: the shipped core, expanded once into an ordinary GGUF.

The core holds the layers and the trained rows. The rest, the rows of 200,000 other tokens and the
tokenizer, follows from the vocabulary and is worked out on the user's machine.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tools import private_files

CORE = Path(__file__).with_name("core.xz")
Progress = Callable[[int, int], None]
HEAD = 1 << 16
"""So many bytes at either end of the file are hashed by the cheap check."""
STAMP = 1_600_000_000_000_000_000
"""The file's modification time, ns: another one tells that somebody changed it."""


def write_core(path: Path, shape: dict[str, Any], tensors: dict[str, npt.NDArray[Any]]) -> None:
    """Packs shape and tensors, deterministically."""
    index = []
    body = io.BytesIO()
    for name, data in tensors.items():
        index.append([name, data.dtype.str, list(data.shape)])
        body.write(data.tobytes())
    head = json.dumps({"shape": shape, "tensors": index}).encode()
    raw = len(head).to_bytes(4, "little") + head + body.getvalue()
    partial = path.with_suffix(".partial")
    partial.write_bytes(lzma.compress(raw, preset=9 | lzma.PRESET_EXTREME))
    partial.replace(path)


def read_core(packed: bytes) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Shape and tensors of a packed core."""
    raw = lzma.decompress(packed)
    size = int.from_bytes(raw[:4], "little")
    head = json.loads(raw[4 : 4 + size])
    at = 4 + size
    tensors: dict[str, npt.NDArray[Any]] = {}
    for name, kind, shape in head["tensors"]:
        dtype = np.dtype(kind)
        count = int(np.prod(shape))
        tensors[name] = np.frombuffer(raw, dtype, count, at).reshape(shape)
        at += count * dtype.itemsize
    return head["shape"], tensors


def _ends(path: Path) -> str:
    """A hash of the file's size, beginning and end: what a cheap check can afford."""
    size = path.stat().st_size
    with path.open("rb") as file:
        digest = hashlib.sha256(str(size).encode())
        digest.update(file.read(HEAD))
        file.seek(max(0, size - HEAD))
        digest.update(file.read(HEAD))
    return digest.hexdigest()


def _sound(path: Path, record: Path) -> bool:
    """Whether the file is the one that was written and recorded."""
    try:
        noted = json.loads(record.read_text())
        return bool(
            path.stat().st_size == noted["size"]
            and path.stat().st_mtime_ns == noted["mtime_ns"]
            and _ends(path) == noted["ends"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def ensure(cache: Path, progress: Progress | None = None) -> Path:
    """The model's GGUF below `cache`, made now if it is not there or not whole.

    `progress(done, total)` counts per cent. A later call costs two file reads. Two callers at once
    both end up with the same bytes: each writes a file of its own and renames it. `OSError` when
    the cache cannot be written, with the folder's name.
    """
    packed = CORE.read_bytes()
    path = cache / f"tiny-{hashlib.sha256(packed).hexdigest()[:12]}.gguf"
    record = path.with_suffix(".json")
    if _sound(path, record):
        return path
    tell = progress or (lambda done, total: None)
    tell(0, 100)
    try:
        private_files.folder(cache)
        handle, name = tempfile.mkstemp(prefix=path.stem, suffix=".partial", dir=cache)
    except OSError as error:
        raise OSError(
            error.errno, f"cannot write the embedded model into {cache}: {error.strerror}"
        ) from error
    os.close(handle)
    partial = Path(name)
    try:
        _write(partial, packed, tell)
        tell(90, 100)
        with partial.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        ends = _ends(partial)
        # One stamp for all: of two callers at once, either's record fits either's file.
        os.utime(partial, ns=(STAMP, STAMP))
        status = partial.stat()
        noted = {
            "sha256": digest,
            "size": status.st_size,
            "ends": ends,
            "mtime_ns": status.st_mtime_ns,
        }
        partial.replace(path)
        note = partial.with_suffix(".note")
        note.write_text(json.dumps(noted))
        note.replace(record)
    except OSError as error:
        raise OSError(
            error.errno, f"cannot write the embedded model into {cache}: {error.strerror}"
        ) from error
    finally:
        partial.unlink(missing_ok=True)
    tell(100, 100)
    return path


def _write(path: Path, packed: bytes, tell: Progress) -> None:
    from agent.tiny import gguf  # numpy-heavy and slow to import: only when needed

    shape, tensors = read_core(packed)
    tell(5, 100)
    gguf.write(path, shape, tensors, lambda percent: tell(percent, 100))
