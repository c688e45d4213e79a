"""Expands the shipped core of the embedded model, its layers and trained rows, into a GGUF, once. The
rows of 200,000 other tokens and the tokenizer are computed from the vocabulary."""

import hashlib
import json
import lzma
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from agent.util import private_files

CORE = Path(__file__).with_name("core.xz")
"""The shipped core: shape and tensors, see `agent.tiny.train.packing.write_core`."""
Progress = Callable[[float], None]
"""Called with the share that is done, 0 to 1."""
HASHED_END_BYTES = 1 << 16
"""Bytes at either end of the file that the cheap check hashes."""
FILE_MTIME_NS = 1_600_000_000_000_000_000
"""Modification time of the file, ns; another one shows that someone changed it."""


def read_core(packed: bytes) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
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


def _hash_ends(path: Path) -> str:
    """Hash the file's size, beginning and end: all of it would take too long at every start."""
    size = path.stat().st_size
    with path.open("rb") as file:
        digest = hashlib.sha256(str(size).encode())
        digest.update(file.read(HASHED_END_BYTES))
        file.seek(max(0, size - HASHED_END_BYTES))
        digest.update(file.read(HASHED_END_BYTES))
    return digest.hexdigest()


def _is_intact(path: Path, record: Path) -> bool:
    try:
        return path.stat().st_mtime_ns == FILE_MTIME_NS and record.read_text() == _hash_ends(path)
    except (OSError, ValueError):
        return False


def ensure(cache: Path, report: Progress = lambda done: None) -> Path:
    """Return the model's GGUF below ``cache``, written now if it is missing or damaged; two callers
    each rename a file of their own. Raises OSError."""
    packed = CORE.read_bytes()
    path = cache / f"tiny-{hashlib.sha256(packed).hexdigest()[:12]}.gguf"
    record = path.with_suffix(".ends")
    if _is_intact(path, record):
        return path
    report(0.0)
    try:
        private_files.make_folder(cache)
        handle, name = tempfile.mkstemp(prefix=path.stem, suffix=".partial", dir=cache)
        os.close(handle)
        partial = Path(name)
        try:
            write_gguf(partial, packed, report)
            report(0.9)
            # One stamp for all: of two callers at once, either's record fits either's file.
            os.utime(partial, ns=(FILE_MTIME_NS, FILE_MTIME_NS))
            ends = _hash_ends(partial)
            partial.replace(path)
            private_files.write_text(record, ends)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(
            error.errno, f"cannot write the embedded model into {cache}: {error.strerror}"
        ) from error
    report(1.0)
    return path


def write_gguf(path: Path, packed: bytes, report: Progress) -> None:
    from agent.tiny import embedding_rows, gguf  # numpy-heavy and slow to import: only when needed

    with ThreadPoolExecutor(1, "expand") as pool:  # unpacking takes another core, and no GIL
        unpacking = pool.submit(read_core, packed)
        signs = embedding_rows.bits()
        report(0.25)
        shape, tensors = unpacking.result()
    gguf.write(path, shape, tensors, report, signs)
