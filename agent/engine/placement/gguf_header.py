"""Reads the header of a GGUF file: its metadata, and a description of its tensors.

The format is that of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3,
little-endian::

    "GGUF"  version u32  tensors u64  pairs u64
    pairs  x  key string  type u32  value
    tensors x  name string  dimensions u32  shape u64[]  type u32  offset u64
    (padding to general.alignment)  the tensors' data

    string: length u64, bytes       array: type u32, length u64, values

It is read by hand because that is done at every start, of every model in a listing: of Llama 3's
128,256 tokens and 280,147 merges `read_metadata` takes 65 ms, GGUFReader of the package ``gguf``
(0.19.0) 8.9 s, and its import 0.2 s more (two cores of a shared server).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from agent.engine.protocol import EngineError

MetadataValue = int | float | bool | str | list["MetadataValue"] | list[bytes]
"""A value of the metadata; arrays of strings stay bytes."""

_SCALAR_FORMATS = dict(enumerate("BbHhIif?", start=0)) | {10: "Q", 11: "q", 12: "d"}
"""Format characters of `struct` by the specification's gguf_metadata_value_type."""
_TYPE_STRING, _TYPE_ARRAY = 8, 9
MAX_OUTLINE_ENTRIES = 1024
"""Length of an array from which an outline leaves it out."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Describes one tensor of a file."""

    name: str
    shape: tuple[int, ...]
    """In ggml's order: the length of a row first."""
    ggml_type: int
    size: int
    """Bytes in the file, with the padding after it."""


@dataclass(frozen=True, slots=True)
class GgufOutline:
    """A file's metadata without its long arrays (the vocabulary), and its tensors."""

    metadata: dict[str, MetadataValue]
    tensors: tuple[TensorInfo, ...]


def read_metadata(
    path: Path, last: str | None = None, until: str | None = None
) -> dict[str, MetadataValue]:
    """Read the metadata up to the key `last`, inclusive, or the first that begins with `until`. Raises
    EngineError when the file is not a GGUF or ends too early."""
    with _open(path) as reader:
        return reader.metadata(last, until)


def read_outline(path: Path) -> GgufOutline:
    """Read the metadata without long arrays, and the tensors. Raises like `read_metadata`."""
    with _open(path) as reader:
        return reader.outline()


def read_vocabulary_size(path: Path) -> tuple[str, int]:
    """Read the architecture and the number of tokens. Raises like `read_metadata`."""
    with _open(path) as reader:
        return reader.vocabulary_size()


def read_array_start(path: Path, key: str, size: int) -> bytes:
    """Read an array's first ``size`` bytes; none: there is no such key. Raises like `read_metadata`."""
    with _open(path) as reader:
        return reader.array_start(key, size)


@contextmanager
def _open(path: Path) -> Iterator[_HeaderReader]:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield _HeaderReader(data)
    except OSError as error:
        raise EngineError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, LookupError, OverflowError, RecursionError, struct.error):
        raise EngineError(f"{path} is not a GGUF file, or not all of one.") from None


class _HeaderReader:
    """Reads a mapped file from its beginning; errors of any kind mean that it is not a GGUF."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._offset = 0
        magic, version, self._tensor_count, self._pair_count = self._unpack("<4sIQQ")
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError

    def _pairs(self) -> Iterator[tuple[str, int]]:
        """Yield each key with the type of its value, which has to be read before the next one."""
        for _ in range(self._pair_count):
            yield self._string().decode(), self._unpack("<I")[0]

    def metadata(self, last: str | None, until: str | None) -> dict[str, MetadataValue]:
        metadata: dict[str, MetadataValue] = {}
        for key, kind in self._pairs():
            if until and key.startswith(until):
                break
            metadata[key] = self._value(kind)
            if key == last:
                break
        return metadata

    def vocabulary_size(self) -> tuple[str, int]:
        architecture: MetadataValue = ""
        for key, kind in self._pairs():
            if architecture and key == "tokenizer.ggml.tokens":
                return str(architecture), self._unpack("<IQ")[1]
            value = self._value(kind)
            if key == "general.architecture":
                architecture = value
        raise LookupError

    def array_start(self, wanted: str, size: int) -> bytes:
        for key, kind in self._pairs():
            if key == wanted and kind == _TYPE_ARRAY:
                self._unpack("<IQ")
                return self._data[self._offset : self._offset + size]
            self._value(kind)
        return b""

    def outline(self) -> GgufOutline:
        metadata: dict[str, MetadataValue] = {}
        for key, kind in self._pairs():
            array, length_at = kind == _TYPE_ARRAY, self._offset + 4
            if array and struct.unpack_from("<Q", self._data, length_at)[0] >= MAX_OUTLINE_ENTRIES:
                self._skip_array()
            else:
                metadata[key] = self._value(kind)
        tensors = [self._tensor() for _ in range(self._tensor_count)]
        alignment = metadata.get("general.alignment")
        unit = alignment if isinstance(alignment, int) and alignment > 0 else 32
        data_size = len(self._data) - (self._offset + unit - 1) // unit * unit
        # The file has no sizes: a tensor ends where the next one begins.
        ends = dict(pairwise(sorted({*(start for *_, start in tensors), data_size})))
        sized = (TensorInfo(name, shape, kind, ends[at] - at) for name, shape, kind, at in tensors)
        return GgufOutline(metadata, tuple(sized))

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string().decode("utf-8", "replace")
        shape = self._unpack(f"<{self._unpack('<I')[0]}Q")
        kind, start = self._unpack("<IQ")
        return name, shape, kind, start

    def _skip_array(self) -> None:
        kind, count = self._unpack("<IQ")
        if kind != _TYPE_STRING:
            self._offset += count * struct.calcsize("<" + _SCALAR_FORMATS[kind])
            return
        data, offset, length_of = self._data, self._offset, struct.Struct("<Q").unpack_from
        for _ in range(count):
            offset += 8 + length_of(data, offset)[0]
        self._offset = offset

    def _unpack(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(form, self._data, self._offset)
        self._offset += struct.calcsize(form)
        return values

    def _string(self) -> bytes:
        (length,) = self._unpack("<Q")
        text = self._data[self._offset : self._offset + length]
        if len(text) != length:
            raise IndexError
        self._offset += length
        return text

    def _value(self, kind: int) -> MetadataValue:
        if kind == _TYPE_STRING:
            return self._string().decode("utf-8", "replace")
        if kind != _TYPE_ARRAY:
            scalar: MetadataValue = self._unpack("<" + _SCALAR_FORMATS[kind])[0]
            return scalar
        kind, count = self._unpack("<IQ")
        if kind == _TYPE_STRING:
            return self._strings(count)
        if kind == _TYPE_ARRAY:
            return [self._value(kind) for _ in range(count)]
        return list(self._unpack(f"<{count}{_SCALAR_FORMATS[kind]}"))

    def _strings(self, count: int) -> list[bytes]:
        """Read an array of strings in one loop, without a Python call for each."""
        data, offset, length_of = self._data, self._offset, struct.Struct("<Q").unpack_from
        strings = []
        for _ in range(count):
            start = offset + 8
            offset = start + length_of(data, offset)[0]
            strings.append(data[start:offset])
        if offset > len(data):
            raise IndexError
        self._offset = offset
        return strings
