"""The key-value part of a GGUF file, read without its tensors."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

from agent.engine.base import EngineError

Value = int | float | bool | str | list["Value"] | list[bytes]

_SCALARS = dict(enumerate("BbHhIif?", start=0)) | {10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


def read(path: Path, last: str | None = None) -> dict[str, Value]:
    """The metadata up to and including the key `last` (all of it by default), by key.

    Arrays of strings stay bytes. Raises EngineError when it is no GGUF or ends too early.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(data).values(last)
    except OSError as error:
        raise EngineError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, LookupError, OverflowError, RecursionError, struct.error):
        raise EngineError(f"{path} is not a GGUF file, or not all of one.") from None


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0

    def values(self, last: str | None) -> dict[str, Value]:
        magic, version, _tensors, count = self._unpack("<4sIQQ")
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError
        found: dict[str, Value] = {}
        for _ in range(count):
            key = self._string().decode()
            found[key] = self._value(self._unpack("<I")[0])
            if key == last:
                break
        return found

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
