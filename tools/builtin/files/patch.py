"""Patches as gpt-oss writes them: ``*** Begin Patch``, files, chunks of lines with their context.

By hand, since this is gpt-oss's own format and no diff that a library applies. A chunk says where it
goes by the lines that it keeps and removes, not by line numbers; ``@@`` may name a line above it::

    *** Begin Patch
    *** Update File: a.py
    @@ class B:
         def run(self):
    -        return 1
    +        return 2
    *** End Patch
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.builtin_server import ToolError

BEGIN, END, END_OF_FILE = "*** Begin Patch", "*** End Patch", "*** End of File"
ADD, DELETE, UPDATE = "*** Add File: ", "*** Delete File: ", "*** Update File: "
MOVE = "*** Move to: "
_LINES = re.compile(r"[^\n]*\n|[^\n]+")


@dataclass(slots=True)
class PatchChunk:
    """Consecutive lines of a file and what replaces them."""

    after: list[str] = field(default_factory=list)
    """Lines of ``@@``: the chunk is below the last of them, each is below the one before."""
    old: list[str] = field(default_factory=list)
    new: list[str | int] = field(default_factory=list)
    """The lines that it puts there; a number stands for that line of ``old``, which stays."""
    at_end: bool = False
    """Whether ``old`` is at the end of the file."""


@dataclass(slots=True)
class FilePatch:
    """The changes of one file."""

    path: str
    kind: str
    """add, delete or update"""
    lines: list[str] = field(default_factory=list)
    """The lines of a new file."""
    chunks: list[PatchChunk] = field(default_factory=list)
    move_to: str | None = None


def parse_patch(text: str) -> list[FilePatch]:
    """Parse a patch; raises ToolError, which says what is wrong in which line."""
    lines = text.replace("\r\n", "\n").split("\n")
    starts = [number for number, line in enumerate(lines) if line.strip() == BEGIN]
    ends = [number for number, line in enumerate(lines) if line.strip() == END]
    if not starts:
        raise ToolError(f"a patch begins with the line {BEGIN!r}")
    files: list[FilePatch] = []
    stop = ends[-1] if ends else len(lines)
    for number, line in enumerate(lines[starts[0] + 1 : stop], starts[0] + 2):
        if not _parse_header(line.rstrip(), files):
            _parse_line(line, number, files)
    if not files:
        raise ToolError("the patch names no file")
    for file in files:
        file.chunks = [chunk for chunk in file.chunks if chunk.old or chunk.new]
        if file.kind == "update" and not file.chunks and file.move_to is None:
            raise ToolError(f"the patch changes nothing in {file.path}")
    return files


def _parse_header(line: str, files: list[FilePatch]) -> bool:
    """Take a line that begins or moves a file; return whether it was one."""
    for prefix, kind in ((ADD, "add"), (DELETE, "delete"), (UPDATE, "update")):
        if line.startswith(prefix):
            files.append(FilePatch(line.removeprefix(prefix).strip(), kind))
            return True
    if line.startswith(MOVE) and files and files[-1].kind == "update":
        files[-1].move_to = line.removeprefix(MOVE).strip()
        return True
    return False


def _parse_line(line: str, number: int, files: list[FilePatch]) -> None:
    if not files:
        if line.strip():
            raise ToolError(f"line {number} of the patch is before any file: {line}")
        return
    file = files[-1]
    match file.kind:
        case "add" if line.startswith("+"):
            file.lines.append(line[1:])
        case "update" if line.startswith("@@"):
            # With its indentation: a method is not the function of the same name.
            anchor = line[2:].removeprefix(" ").rstrip().removesuffix("@@").rstrip()
            # Several in a row narrow one position down; after lines, another chunk begins.
            if not file.chunks or file.chunks[-1].old or file.chunks[-1].new:
                file.chunks.append(PatchChunk())
            if anchor:
                file.chunks[-1].after.append(anchor)
        case "update" if line.strip() == END_OF_FILE and file.chunks:
            file.chunks[-1].at_end = True
        case "update" if line[:1] in ("", " ", "+", "-"):
            if not file.chunks:
                file.chunks.append(PatchChunk())
            chunk = file.chunks[-1]
            if line[:1] == "+":
                chunk.new.append(line[1:])
            else:
                if line[:1] != "-":
                    chunk.new.append(len(chunk.old))
                chunk.old.append(line[1:])
        case _:
            if line.strip():
                raise ToolError(
                    f"line {number} of the patch must begin with '+', '-' or a space: {line}"
                )


def apply_patch(patch: FilePatch, content: str) -> str:
    """Return the new content, with the file's newlines; raises ToolError if lines are missing."""
    newline = "\r\n" if content.count("\r\n") * 2 > content.count("\n") else "\n"
    raw_lines = _LINES.findall(content)  # each with its own newline
    lines = [line.removesuffix("\n").removesuffix("\r") for line in raw_lines]
    done: list[str] = []
    appended: list[str] = []
    for chunk in patch.chunks:
        if not chunk.old and not (chunk.after and not chunk.at_end):
            # Nothing says where these lines belong, so they are added at the end of the file.
            appended += [line + newline for line in chunk.new if isinstance(line, str)]
            continue
        at, chunk = _locate(chunk, lines, patch.path)
        stop = at + len(chunk.old)
        done += raw_lines[:at]
        # Lines that stay are taken from the file, not from the patch.
        for line in chunk.new:
            done.append(raw_lines[at + line] if isinstance(line, int) else line + newline)
        raw_lines, lines = raw_lines[stop:], lines[stop:]
    done += [*raw_lines, *appended]
    # Only the last line has no newline, if the file had it so.
    done = [line if line.endswith("\n") else line + newline for line in done]
    if content and not content.endswith("\n"):
        done[-1:] = [line.removesuffix("\n").removesuffix("\r") for line in done[-1:]]
    return "".join(done)


def rebase_paths(text: str, folder: Path) -> str:
    lines = text.split("\n")
    for number, line in enumerate(lines):
        for prefix in (ADD, DELETE, UPDATE, MOVE):
            if line.startswith(prefix):
                path = Path(line.removeprefix(prefix).strip()).expanduser()
                lines[number] = f"{prefix}{folder / path}"
    return "\n".join(lines)


def _locate(chunk: PatchChunk, lines: Sequence[str], path: str) -> tuple[int, PatchChunk]:
    """The index of a chunk's old lines, and the chunk without surplus empty lines. Raises ToolError."""
    start = 0
    for anchor in chunk.after:
        at = _find([anchor], lines, start)
        if at is None:
            raise ToolError(f"{path} has no line {anchor!r} below the last change")
        start = at + 1
    if not chunk.old:
        return start, chunk
    # Models end a chunk with an empty line that is not in the file.
    trimmed = PatchChunk(chunk.after, list(chunk.old), list(chunk.new), chunk.at_end)
    while trimmed.old and trimmed.old[-1] == "" and trimmed.new[-1:] == [len(trimmed.old) - 1]:
        trimmed.old.pop()
        trimmed.new.pop()
    variants = [chunk, trimmed]
    if chunk.old[-1] == "" and chunk.new[-1:] != [len(chunk.old) - 1]:
        # There is no line after the last newline; a patch that removes one means the file's end.
        new = [line for line in chunk.new if line != len(chunk.old) - 1]
        variants.append(PatchChunk(chunk.after, chunk.old[:-1], new, at_end=True))
    for variant in variants:
        if not variant.old:
            continue
        begin = max(start, len(lines) - len(variant.old)) if variant.at_end else start
        for first in dict.fromkeys((begin, start)):
            at = _find(variant.old, lines, first)
            if at is not None and (variant in variants[:2] or at + len(variant.old) == len(lines)):
                return at, variant
    excerpt = "\n".join(chunk.old[:5])
    raise ToolError(f"these lines are not in {path} below the last change:\n{excerpt}")


def _find(wanted: Sequence[str], lines: Sequence[str], start: int) -> int | None:
    """Return where lines occur first: exactly, else but for spaces at their ends, else at both ends."""
    normalisers: tuple[Callable[[str], str], ...] = (str, str.rstrip, str.strip)
    for normalise in normalisers:
        wanted_form = [normalise(line) for line in wanted]
        for at in range(start, len(lines) - len(wanted) + 1):
            if [normalise(line) for line in lines[at : at + len(wanted)]] == wanted_form:
                return at
    return None
