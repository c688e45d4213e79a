"""Reads JSON before it is parsed (a byte can become hundreds of objects), and names its types."""

import json


class StringSkipper:
    """Takes the content of strings out of JSON that comes in pieces."""

    def __init__(self) -> None:
        self._in_string = False
        self._backslash = b""
        """One that belongs to the first byte of the next piece."""

    def skip(self, piece: bytes | bytearray) -> bytes:
        """Return what of the next piece is outside of strings, without quotation marks."""
        text = (self._backslash + piece).replace(rb"\\", b"")
        self._backslash = b"\\" if text.endswith(b"\\") else b""
        parts = text.removesuffix(b"\\").replace(rb"\"", b"").split(b'"')
        outside = b"".join(parts[self._in_string :: 2])
        self._in_string ^= len(parts) % 2 == 0
        return outside


def as_text(value: object) -> str:
    """Return a text as it is, null as an empty one, and any other value as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def json_type(value: object) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return "null" if value is None else names.get(type(value), "object")
