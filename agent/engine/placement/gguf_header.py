"""What stands before the weights of a GGUF file: its key-value part, and what tensors follow."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from agent.engine.protocol import EngineError

Value = int | float | bool | str | list["Value"] | list[bytes]

_SCALARS = dict(enumerate("BbHhIif?", start=0)) | {10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


T = TypeVar("T")
LARGE = 1024
"""Entries of an array above which an outline leaves it out."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a file."""

    name: str
    shape: tuple[int, ...]
    """As ggml has it: the length of a row first."""
    kind: int
    """ggml's number for the type."""
    size: int
    """Bytes in the file."""


@dataclass(frozen=True, slots=True)
class Outline:
    """A file without its weights and its vocabulary."""

    values: dict[str, Value]
    tensors: tuple[Tensor, ...]


def read(path: Path, last: str | None = None, until: str | None = None) -> dict[str, Value]:
    """The metadata up to and including the key `last` (all of it by default), by key; or up to the
    first key that begins with `until`.

    Arrays of strings stay bytes. Raises EngineError when it is no GGUF or ends too early.
    """
    return _with(path, lambda reader: reader.values(last, until))


def outline(path: Path) -> Outline:
    """The metadata without long arrays, and the tensors. Raises EngineError like `read`."""
    return _with(path, lambda reader: reader.outline())


def vocabulary(path: Path) -> tuple[str, int]:
    """The architecture, and the number of tokens. Raises EngineError like `read`."""
    return _with(path, lambda reader: reader.vocabulary())


def _with(path: Path, work: Callable[[_Reader], T]) -> T:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return work(_Reader(data))
    except OSError as error:
        raise EngineError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, LookupError, OverflowError, RecursionError, struct.error):
        raise EngineError(f"{path} is not a GGUF file, or not all of one.") from None


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0

    def values(self, last: str | None, until: str | None) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for _ in range(self._counts()[1]):
            key = self._string().decode()
            if until and key.startswith(until):
                break
            found[key] = self._value(self._unpack("<I")[0])
            if key == last:
                break
        return found

    def vocabulary(self) -> tuple[str, int]:
        architecture: Value = ""
        for _ in range(self._counts()[1]):
            key, kind = self._string().decode(), self._unpack("<I")[0]
            if architecture and key == "tokenizer.ggml.tokens":
                return str(architecture), self._unpack("<IQ")[1]
            value = self._value(kind)
            if key == "general.architecture":
                architecture = value
        raise LookupError

    def outline(self) -> Outline:
        tensors, count = self._counts()
        values: dict[str, Value] = {}
        for _ in range(count):
            key = self._string().decode()
            kind = self._unpack("<I")[0]
            if kind != _ARRAY or struct.unpack_from("<Q", self._data, self._at + 4)[0] < LARGE:
                values[key] = self._value(kind)
            else:
                self._pass_array()
        found = [self._tensor() for _ in range(tensors)]
        alignment = values.get("general.alignment")
        unit = alignment if isinstance(alignment, int) and alignment > 0 else 32
        whole = len(self._data) - (self._at + unit - 1) // unit * unit
        ends = dict(pairwise(sorted({*(at for *_, at in found), whole})))
        return Outline(
            values,
            tuple(Tensor(name, shape, kind, ends[at] - at) for name, shape, kind, at in found),
        )

    def _counts(self) -> tuple[int, int]:
        """Tensors and values, from the file's beginning."""
        magic, version, tensors, count = self._unpack("<4sIQQ")
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError
        return tensors, count

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """Name, shape, type and where it begins after the header."""
        name = self._string().decode("utf-8", "replace")
        shape = self._unpack(f"<{self._unpack('<I')[0]}Q")
        kind, at = self._unpack("<IQ")
        return name, shape, kind, at

    def _pass_array(self) -> None:
        """Go past a long array without keeping it."""
        kind, count = self._unpack("<IQ")
        if kind != _STRING:
            self._at += count * struct.calcsize("<" + _SCALARS[kind])
            return
        data, at, length_of = self._data, self._at, struct.Struct("<Q").unpack_from
        for _ in range(count):
            at += 8 + length_of(data, at)[0]
        self._at = at

    def _unpack(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return values

    def _string(self) -> bytes:
        (length,) = self._unpack("<Q")
        text = self._data[self._at : self._at + length]
        if len(text) != length:
            raise IndexError
        self._at += length
        return text

    def _value(self, kind: int) -> Value:
        if kind == _STRING:
            return self._string().decode("utf-8", "replace")
        if kind != _ARRAY:
            scalar: Value = self._unpack("<" + _SCALARS[kind])[0]
            return scalar
        kind, count = self._unpack("<IQ")
        if kind == _STRING:
            return self._strings(count)
        if kind == _ARRAY:
            return [self._value(kind) for _ in range(count)]
        return list(self._unpack(f"<{count}{_SCALARS[kind]}"))

    def _strings(self, count: int) -> list[bytes]:
        """A long array, read in one loop without calls of ours."""
        data, at, length_of = self._data, self._at, struct.Struct("<Q").unpack_from
        found = []
        for _ in range(count):
            start = at + 8
            at = start + length_of(data, at)[0]
            found.append(data[start:at])
        if at > len(data):
            raise IndexError
        self._at = at
        return found
