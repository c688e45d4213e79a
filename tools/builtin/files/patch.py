"""Patches as gpt-oss writes them: ``*** Begin Patch``, files, chunks of lines with their context.

A chunk says where it goes by the lines that it keeps and removes, not by numbers; ``@@`` may name a
line that stands before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.builtin.base import HandError

BEGIN, END, LAST = "*** Begin Patch", "*** End Patch", "*** End of File"
ADD, DELETE, UPDATE, MOVE = (
    "*** Add File: ",
    "*** Delete File: ",
    "*** Update File: ",
    "*** Move to: ",
)


@dataclass(slots=True)
class Chunk:
    """Lines that follow each other in the file, and what they become."""

    after: list[str] = field(default_factory=list)
    """Lines that stand before it, each below the one before."""
    old: list[str] = field(default_factory=list)
    new: list[str | int] = field(default_factory=list)
    """A number: that line of ``old`` stays."""
    last: bool = False
    """It ends the file."""


@dataclass(slots=True)
class FilePatch:
    """What becomes of one file."""

    path: str
    kind: str
    """add, delete or update"""
    lines: list[str] = field(default_factory=list)
    """Of a new file."""
    chunks: list[Chunk] = field(default_factory=list)
    move_to: str | None = None


def parse(text: str) -> list[FilePatch]:
    """Raises HandError, which tells the model what is wrong in which line."""
    lines = text.replace("\r\n", "\n").split("\n")
    starts = [number for number, line in enumerate(lines) if line.strip() == BEGIN]
    ends = [number for number, line in enumerate(lines) if line.strip() == END]
    if not starts:
        raise HandError(f"Error: a patch begins with the line {BEGIN!r}")
    found: list[FilePatch] = []
    stop = ends[-1] if ends else len(lines)
    for number, line in enumerate(lines[starts[0] + 1 : stop], starts[0] + 2):
        if not _header(line.rstrip(), found):
            _body(line, number, found)
    if not found:
        raise HandError("Error: the patch names no file")
    for one in found:
        one.chunks = [chunk for chunk in one.chunks if chunk.old or chunk.new]
        if one.kind == "update" and not one.chunks and one.move_to is None:
            raise HandError(f"Error: the patch changes nothing in {one.path}")
    return found


def _header(line: str, found: list[FilePatch]) -> bool:
    for prefix, kind in ((ADD, "add"), (DELETE, "delete"), (UPDATE, "update")):
        if line.startswith(prefix):
            found.append(FilePatch(line.removeprefix(prefix).strip(), kind))
            return True
    if line.startswith(MOVE) and found and found[-1].kind == "update":
        found[-1].move_to = line.removeprefix(MOVE).strip()
        return True
    return False


def _body(line: str, number: int, found: list[FilePatch]) -> None:
    if not found:
        if line.strip():
            raise HandError(f"Error: line {number} of the patch stands before any file: {line}")
        return
    file = found[-1]
    match file.kind:
        case "add" if line.startswith("+"):
            file.lines.append(line[1:])
        case "update" if line.startswith("@@"):
            place = line[2:].strip().removesuffix("@@").strip()
            # Several in a row narrow one place down; after lines, another chunk begins.
            if not file.chunks or file.chunks[-1].old or file.chunks[-1].new:
                file.chunks.append(Chunk())
            if place:
                file.chunks[-1].after.append(place)
        case "update" if line.strip() == LAST and file.chunks:
            file.chunks[-1].last = True
        case "update" if line[:1] in ("", " ", "+", "-"):
            if not file.chunks:
                file.chunks.append(Chunk())
            chunk = file.chunks[-1]
            if line[:1] == "+":
                chunk.new.append(line[1:])
            else:
                if line[:1] != "-":
                    chunk.new.append(len(chunk.old))
                chunk.old.append(line[1:])
        case _:
            if line.strip():
                raise HandError(
                    f"Error: line {number} of the patch must begin with '+', '-' or a space: {line}"
                )


def apply(patch: FilePatch, content: str) -> str:
    """The file's new content. Raises HandError where a chunk's lines are not found."""
    newline = "\r\n" if content.count("\r\n") * 2 > content.count("\n") else "\n"
    whole = _LINES.findall(content)  # each with its own end
    lines = [line.removesuffix("\n").removesuffix("\r") for line in whole]
    done: list[str] = []
    for chunk in patch.chunks:
        at, chunk = _place(chunk, lines, patch.path)
        stop = at + len(chunk.old)
        done += whole[:at]
        # What is kept stays as it stands in the file, not as the patch has it.
        for line in chunk.new:
            done.append(whole[at + line] if isinstance(line, int) else line + newline)
        whole, lines = whole[stop:], lines[stop:]
    done += whole
    # Only the last line has no end, where the file had it so.
    done = [line if line.endswith("\n") else line + newline for line in done]
    if content and not content.endswith("\n"):
        done[-1:] = [line.removesuffix("\n").removesuffix("\r") for line in done[-1:]]
    return "".join(done)


_LINES = re.compile(r"[^\n]*\n|[^\n]+")


def moved(text: str, folder: Path) -> str:
    """The patch, its paths taken from this folder."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        for prefix in (ADD, DELETE, UPDATE, MOVE):
            if line.startswith(prefix):
                path = Path(line.removeprefix(prefix).strip()).expanduser()
                lines[number] = f"{prefix}{folder / path}"
    return "\n".join(lines)


def _place(chunk: Chunk, lines: Sequence[str], path: str) -> tuple[int, Chunk]:
    """Where its old lines stand in the rest of the file."""
    start = 0
    for place in chunk.after:
        found = _find([place], lines, start)
        if found is None:
            raise HandError(f"Error: {path} has no line {place!r} below the last change")
        start = found + 1
    if not chunk.old:
        return (start if chunk.after and not chunk.last else len(lines)), chunk
    # Models end a chunk with an empty line that is none of the file's.
    trimmed = Chunk(chunk.after, list(chunk.old), list(chunk.new), chunk.last)
    while trimmed.old and trimmed.old[-1] == "" and trimmed.new[-1:] == [len(trimmed.old) - 1]:
        trimmed.old.pop()
        trimmed.new.pop()
    for one in (chunk, trimmed):
        if not one.old:
            continue
        begin = max(start, len(lines) - len(one.old)) if one.last else start
        for first in dict.fromkeys((begin, start)):
            if (found := _find(one.old, lines, first)) is not None:
                return found, one
    shown = "\n".join(chunk.old[:5])
    raise HandError(f"Error: these lines do not stand in {path} below the last change:\n{shown}")


def _find(wanted: Sequence[str], lines: Sequence[str], start: int) -> int | None:
    """The first place: exactly, then without regard to spaces at the end, then at both ends."""
    same: tuple[Callable[[str], str], ...] = (str, str.rstrip, str.strip)
    for form in same:
        wanted_form = [form(line) for line in wanted]
        for at in range(start, len(lines) - len(wanted) + 1):
            if [form(line) for line in lines[at : at + len(wanted)]] == wanted_form:
                return at
    return None
