"""Writes large payloads from short patterns, and reads tables of them.

In a pattern ``«UNIT×COUNT»`` repeats a unit (``%d`` in it counts; a comma at its end is left out of
the last one), ``«UNIT~SIZE»`` repeats it until the whole pattern has about that size, ``\\xHH`` is a
byte, and ``$NAME`` a part that the reader of the table gives.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

CHUNK_BYTES = 64 << 10
_REPEAT = re.compile(rb"\xc2\xab(.*?)(\xc3\x97|~)(\d+)\xc2\xbb", re.DOTALL)


def read_tables(name: str) -> dict[str, dict[str, list[str]]]:
    """Return the sections of a file beside this one: ``NAME | PATTERN | …`` by the names."""
    tables: dict[str, dict[str, list[str]]] = {}
    for line in Path(__file__).with_name(name).read_text().split("\n"):
        if line.startswith("["):
            rows = tables[line[1:-1]] = {}
        elif line and not line.startswith("## "):
            key, *patterns = line.split(" | ")
            rows[key] = patterns
    return tables


def read_lists(name: str) -> dict[str, list[str]]:
    """Return the sections of a file beside this one: lines by the words in brackets above them."""
    lists: dict[str, list[str]] = {}
    for line in Path(__file__).with_name(name).read_text().split("\n"):
        if line.startswith("[") and line.endswith("]") and " | " in line:
            lines = lists[line[1:-1]] = []
        elif line and not line.startswith("## "):
            lines.append(line)
    return lists


def payload(
    pattern: str = "", parts: Mapping[str, bytes] | None = None
) -> Callable[[], Iterator[bytes]]:
    """Return what writes the payload of a pattern, in chunks."""
    raw = re.sub(rb"\\x([0-9a-f]{2})", lambda m: bytes.fromhex(m[1].decode()), pattern.encode())
    if parts:
        names = re.compile(rb"\$(%s)" % "|".join(parts).encode())
        raw = names.sub(lambda m: parts[m[1].decode()], raw)
    literal = len(_REPEAT.sub(b"", raw))

    def write() -> Iterator[bytes]:
        end = 0
        for match in _REPEAT.finditer(raw):
            yield raw[end : match.start()]
            unit, count, end = match[1], int(match[3]), match.end()
            if match[2] == b"~":
                count = max(0, (count - literal) // len(unit))
            yield from _repeated(unit, count, match[2] != b"~" and unit.endswith(b","))
        yield raw[end:]

    return write


def _repeated(unit: bytes, count: int, is_list: bool) -> Iterator[bytes]:
    each = max(1, CHUNK_BYTES // len(unit))
    for start in range(0, count, each):
        numbers = range(start, min(start + each, count))
        if b"%d" in unit:
            chunk = b"".join(unit.replace(b"%d", b"%d" % number) for number in numbers)
        else:
            chunk = unit * len(numbers)
        yield chunk[:-1] if is_list and numbers[-1] == count - 1 else chunk
