"""The prefix cache on disk: the KV state of prompts outlives the process.

A prefix is kept as a chain of segments, files of at most SEGMENT_TOKENS token ids with the state that
llama.cpp's memory has for them (llama_state_seq_get_data_ext). Prompts with a common prefix share the
files of its segments; the last one of a chain may be shorter::

    prompt A   [0, 512) [512, 1024) [1024, 1300)
    prompt B      "         "       [1024, 1190)

    <digest of what is before>-<digest with this segment>.kv

Layers with full attention can be cut off anywhere, so B may use A's last segment as far as both are
equal. Layers with sliding attention need their window at the very length (`agent.engine.llama.
prefix_cache`): a segment also holds the checkpoints that were saved within it.

A file is written under another name and renamed, and has checksums; one that does not fit is logged and
ignored. Nothing here knows llama.cpp: states are bytes.
"""

import hashlib
import json
import logging
import os
import shutil
import time
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.engine.placement import gguf_header
from agent.engine.placement.placement import Placement
from agent.engine.protocol import EngineError
from agent.util import private_files
from agent.util.prefix import common_prefix_length

log = logging.getLogger(__name__)

SEGMENT_TOKENS = 512
"""Token ids of a full segment: a copy of 12 MB for gpt-oss-20b, which takes milliseconds."""
MAX_BYTES = 8_000_000_000
"""Bytes that all files have together, where the person does not say…"""
MAX_FREE_SHARE = 0.1
"""… and no more than this share of the disk's free bytes."""
MAX_PENDING_WRITES = 2
"""Segments that wait in memory to be written."""
HEADER_BYTES = 1 << 20
"""Bytes at a model file's beginning that identify it."""
MAX_CANDIDATES = 64
"""Files that are looked into for the end of a chain, the latest ones."""
_ARCHITECTURE = "general.architecture"
_CLEARED = ".cleared"
"""The file whose time says when all was deleted last."""
_MAGIC = b"agent-kv 1"
_ROOT = "0" * 24
_SUFFIX = ".kv"
_TEMPORARY = ".tmp"


@dataclass(frozen=True, slots=True)
class DiskCacheOptions:
    """Where prefixes are kept, and how many bytes of them."""

    folder: Path
    """The folder of all models' prefixes."""
    max_bytes: int | None = None
    """None: MAX_BYTES or MAX_FREE_SHARE, whichever is less."""


def cache_files(folder: Path) -> list[tuple[Path, os.stat_result]]:
    """The cached segments of all models and what writing left behind, least recently used first."""
    found = []
    for path in folder.glob("*/*"):
        if path.suffix in (_SUFFIX, _TEMPORARY):
            with suppress(OSError):
                found.append((path, path.stat()))
    return sorted(found, key=lambda pair: pair[1].st_mtime)


def clear(folder: Path) -> int:
    """Delete all cached prefixes; return how many bytes they had. Raises OSError."""
    size = 0
    for path, stat in cache_files(folder):
        path.unlink(missing_ok=True)
        size += stat.st_size
    if folder.exists():
        (folder / _CLEARED).touch()
        os.utime(folder / _CLEARED)
    return size


def byte_limit(options: DiskCacheOptions) -> int:
    if options.max_bytes is not None:
        return options.max_bytes
    used = sum(stat.st_size for _, stat in cache_files(options.folder))
    try:
        folders = (options.folder, *options.folder.parents)
        free = shutil.disk_usage(next(one for one in folders if one.exists())).free
    except OSError:
        return 0
    return min(MAX_BYTES, int((free + used) * MAX_FREE_SHARE))


def fingerprint(path: Path, placement: Placement, version: str) -> str:
    """Name the folder of a model's prefixes by file, llama.cpp and memory layout; the length of the
    context matters with longrope only. Raises OSError."""
    stat = path.stat()
    with path.open("rb") as file:
        header = hashlib.blake2b(file.read(HEADER_BYTES), digest_size=12).hexdigest()
    layout = replace(placement, sequences=0, ubatch=0)
    with suppress(EngineError):  # llama.cpp could read it
        if gguf_header.read_metadata(path, last=_ARCHITECTURE).get(_ARCHITECTURE) == "gpt-oss":
            layout = replace(layout, context=0)
    facts = repr((stat.st_size, stat.st_mtime_ns, header, layout, version, SEGMENT_TOKENS))
    digest = hashlib.blake2b(facts.encode(), digest_size=6).hexdigest()
    return f"{path.stem[:40]}-{digest}"


def _digest(before: str, ids: Sequence[int]) -> str:
    packed = before.encode() + array("I", ids).tobytes()
    return hashlib.blake2b(packed, digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """The header of a segment's file."""

    path: Path
    start: int
    ids: list[int]
    state_bytes: int
    window_bytes: dict[int, int]
    """For each length that has a checkpoint, the checkpoint's bytes; they follow the state."""
    checksum: int
    """CRC-32 of the state and the checkpoints."""
    body_offset: int

    @property
    def end(self) -> int:
        return self.start + len(self.ids)

    def read(self) -> tuple[bytearray, dict[int, memoryview]] | None:
        """The state and the checkpoints by length; None if the file is damaged or gone."""
        body = bytearray(self.state_bytes + sum(self.window_bytes.values()))
        try:
            with self.path.open("rb") as file:
                file.seek(self.body_offset)
                whole = file.readinto(body) == len(body) and not file.read(1)
        except OSError:
            return None
        if not whole or zlib.crc32(body) != self.checksum:
            if _read_header(self.path, self.start) == self:  # else another was written meanwhile
                _ignore(self.path)
            return None
        view, at, windows = memoryview(body), self.state_bytes, {}
        for length, size in self.window_bytes.items():
            windows[length] = view[at : at + size]
            at += size
        return body, windows


@dataclass(frozen=True, slots=True)
class StoredPrefix:
    """The part of a prompt that can be read from disk."""

    length: int
    """Tokens; the last segment may reach further."""
    segments: list[StoredSegment]


@dataclass(frozen=True, slots=True)
class MissingSegment:
    """Ids that are in memory and not on disk."""

    start: int
    ids: list[int]
    path: Path


@dataclass(slots=True)
class DiskCache:
    """The stored prefixes of one model, for one engine."""

    folder: Path
    max_bytes: int
    """Bytes of all models' prefixes."""
    _pending: dict[Path, Future[None]] = field(default_factory=dict)
    _writer: ThreadPoolExecutor | None = None

    # --- reading ---

    def find(self, ids: Sequence[int], *, windows: bool, longer_than: int) -> StoredPrefix | None:
        """The longest stored prefix of ``ids`` that leaves one to compute. ``windows``: only lengths
        with a checkpoint will do. ``longer_than``: tokens."""
        names: dict[str, list[str]] = {}
        for path in self.folder.glob(f"*{_SUFFIX}"):
            names.setdefault(path.name[: len(_ROOT)], []).append(path.name)
        chain: list[StoredSegment] = []
        digest, best = _ROOT, StoredPrefix(longer_than, [])
        limit = len(ids) - 1
        while (start := sum(len(one.ids) for one in chain)) < limit:
            following, full = names.get(digest, []), ids[start : start + SEGMENT_TOKENS]
            after = _digest(digest, full)
            whole = None
            if len(full) == SEGMENT_TOKENS and f"{digest}-{after}{_SUFFIX}" in following:
                whole = _read_header(self.folder / f"{digest}-{after}{_SUFFIX}", start)
            candidates = [whole] if whole else self._candidates(following, start)
            for segment in candidates:
                common = start + common_prefix_length(segment.ids, ids[start:])
                lengths = [at for at in segment.window_bytes if at <= common]
                lengths = lengths if windows else [min(common, limit)]
                length = max((at for at in lengths if at <= limit), default=0)
                if length > best.length:
                    best = StoredPrefix(length, [*chain, segment])
            if whole is None:
                break
            chain.append(whole)
            digest = after
        for segment in best.segments:
            _touch(segment.path, segment.start)
        return best if best.segments else None

    def _candidates(self, names: list[str], start: int) -> Iterator[StoredSegment]:
        paths = [self.folder / name for name in names]
        if len(paths) > MAX_CANDIDATES:
            dated = sorted(((_modified(path), path) for path in paths), reverse=True)
            paths = [path for _, path in dated[:MAX_CANDIDATES]]
        for path in paths:
            if header := _read_header(path, start):
                yield header

    # --- writing ---

    @property
    def busy(self) -> bool:
        return sum(not one.done() for one in self._pending.values()) >= MAX_PENDING_WRITES

    def missing(self, ids: Sequence[int]) -> Iterator[MissingSegment]:
        """The segments of a prefix that are not on disk yet, in order."""
        self._pending = {path: one for path, one in self._pending.items() if not one.done()}
        digest = _ROOT
        for start in range(0, len(ids), SEGMENT_TOKENS):
            part = list(ids[start : start + SEGMENT_TOKENS])
            before, digest = digest, _digest(digest, part)
            path = self.folder / f"{before}-{digest}{_SUFFIX}"
            if path not in self._pending and not _touch(path, start):
                yield MissingSegment(start, part, path)

    def cleared_at(self) -> float:
        """The clock's time when all was deleted last; 0: never."""
        return _modified(self.folder.parent / _CLEARED)

    def write(
        self, segment: MissingSegment, state: memoryview, windows: Mapping[int, memoryview]
    ) -> None:
        """Write a segment in a thread of its own; a failure is logged."""
        self._writer = self._writer or ThreadPoolExecutor(1, thread_name_prefix="prefix cache")
        with suppress(RuntimeError):  # Python ends
            work = self._writer.submit(self._write, segment, state, dict(windows))
            self._pending[segment.path] = work

    def flush(self, seconds: float) -> None:
        wait(self._pending.values(), max(0, seconds))

    def _write(
        self, segment: MissingSegment, state: memoryview, windows: dict[int, memoryview]
    ) -> None:
        parts = [state, *windows.values()]
        checksum = 0
        for part in parts:
            checksum = zlib.crc32(part, checksum)
        header = {
            "start": segment.start,
            "ids": segment.ids,
            "state": len(state),
            "windows": [[length, len(window)] for length, window in windows.items()],
            "checksum": checksum,
        }
        text = json.dumps(header, separators=(",", ":")).encode()
        temporary = segment.path.with_suffix(f".{os.getpid()}{_TEMPORARY}")
        try:
            private_files.make_folder(self.folder)
            with open(temporary, "wb", opener=private_files.opener) as file:
                file.write(b"%s %08x %d\n%s" % (_MAGIC, zlib.crc32(text), len(text), text))
                file.writelines(parts)
            temporary.replace(segment.path)
            self._remove_shorter(segment)
            self._trim()
        except OSError as error:
            log.warning("a prefix could not be written to %s: %s", self.folder, error)
            with suppress(OSError):
                temporary.unlink()

    def _remove_shorter(self, segment: MissingSegment) -> None:
        before = segment.path.name[: len(_ROOT)]
        for path in list(self.folder.glob(f"{before}-*{_SUFFIX}")):
            other = None if path == segment.path else _read_header(path, segment.start)
            if other is not None and other.ids == segment.ids[: len(other.ids)]:
                path.unlink(missing_ok=True)

    def _trim(self) -> None:
        files = cache_files(self.folder.parent)
        excess = sum(stat.st_size for _, stat in files) - self.max_bytes
        for path, stat in files:
            if excess <= 0:
                break
            path.unlink(missing_ok=True)
            excess -= stat.st_size


def _touch(path: Path, start: int) -> bool:
    """Make a file the most recently used one but for those before it in its chain; False: no file."""
    try:
        os.utime(path, times=(time.time() - start * 1e-6,) * 2)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass
    return True


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _read_header(path: Path, start: int) -> StoredSegment | None:
    """The header of a segment that begins at ``start``; None if it is damaged or gone."""
    try:
        with path.open("rb") as file:
            line = file.readline(64)
            magic, checksum, size = line.rsplit(maxsplit=2)
            if int(size) > HEADER_BYTES:
                raise ValueError("size")
            text = file.read(int(size))
            if magic != _MAGIC or zlib.crc32(text) != int(checksum, 16):
                raise ValueError("checksum")
            header = json.loads(text)
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        _ignore(path)
        return None
    if header["start"] != start:
        return None
    ids, state, windows, checksum = (header[key] for key in ("ids", "state", "windows", "checksum"))
    return StoredSegment(path, start, ids, state, dict(windows), checksum, len(line) + len(text))


def _ignore(path: Path) -> None:
    log.warning("the cached prefix %s is damaged: it is removed", path)
    with suppress(OSError):
        path.unlink()
