"""The ``files`` hand: reading below one folder, and changing what is there when it is allowed."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tools.builtin.base import HandError, conversation, flat_schema, folder_of, prune, used
from tools.builtin.files import changes
from tools.builtin.files.changes import Change, Journal
from tools.builtin.files.reading import Reading, Stop
from tools.builtin.files.root_folder import Root
from tools.types import Tool

FOLDERS = 100
"""Conversations whose changes can be taken back; the oldest go first."""


def _tool(name: str, description: str, required: list[str], **properties: str) -> Tool:
    schema = flat_schema(required, **properties)
    return Tool("files", name, description, schema, read_only=name in READING)


READING = ("read", "list", "search", "glob")


class Files:
    """A hand. What it changes it can take back, change by change, conversation by conversation."""

    name = "files"
    short = "files"
    tools: Sequence[Tool] = (
        _tool(
            "read",
            "Read a text file.",
            ["path"],
            path="string",
            first_line="integer",
            last_line="integer",
        ),
        _tool("list", "List a folder.", [], path="string"),
        _tool("search", "Search files for a text.", ["query"], query="string", path="string"),
        _tool(
            "glob",
            "Find files by their names, e.g. src/**/*.py.",
            ["pattern"],
            pattern="string",
            path="string",
        ),
        _tool("write", "Write a whole file.", ["path", "content"], path="string", content="string"),
        _tool(
            "apply_patch",
            "Change files. The input is a patch: *** Begin Patch, then for each file *** Update File:"
            " PATH (or Add, Delete), @@ and lines that begin with a space, - or +; *** End Patch.",
            ["input"],
            input="string",
        ),
        _tool("undo", "Take back the last change of files in this conversation.", []),
    )
    default: Sequence[str] = ("read", "list", "search")

    def __init__(self, root: Path | None = None, *, work: Path | None = None) -> None:
        """``root``: None is the current directory. ``work``: where what was changed is kept (None: a
        temporary folder, removed at the end)."""
        self.root = Root(root or Path.cwd())
        self._reading = Reading(self.root)
        self._work = work
        self._temporary: Path | None = None
        self._changing = threading.Lock()

    def contained(self, name: str) -> bool:
        return name in READING

    def problem(self) -> str | None:
        root = self.root.path
        return None if root.is_dir() else f"has no such folder as its root: {root}"

    def preview(self, name: str, arguments: dict[str, Any]) -> str | None:
        """The diff."""
        if name in READING:
            return None
        return changes.diff(self.root, self._planned(name, arguments))

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        if self._temporary is not None:
            await asyncio.to_thread(shutil.rmtree, self._temporary, ignore_errors=True)

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        try:
            if name in READING:
                return await self._read(name, arguments)
            # A thread goes on where its caller is cancelled: files are not left half changed.
            return await asyncio.to_thread(self._change, name, arguments)
        except OSError as error:
            raise HandError(f"Error: {(error.strerror or str(error)).lower()}") from None

    async def _read(self, name: str, arguments: dict[str, Any]) -> str:
        work: Callable[..., str] = getattr(self._reading, name)
        stop = Stop()
        if name in ("search", "glob"):
            arguments = {**arguments, "stop": stop}
        try:
            return await asyncio.to_thread(work, **arguments)
        finally:
            stop.set()  # where the caller was cancelled, the thread is still walking

    def _planned(self, name: str, arguments: dict[str, Any]) -> list[Change]:
        match name:
            case "write":
                return changes.written(self.root, arguments["path"], arguments["content"])
            case "apply_patch":
                return changes.patched(self.root, arguments["input"])
            case _:
                return self._journal().last()

    def _change(self, name: str, arguments: dict[str, Any]) -> str:
        with self._changing:
            if name == "undo":
                return changes.summary(self.root, self._journal().undo())
            planned = self._planned(name, arguments)
            self._journal().make(planned)
            return changes.summary(self.root, planned)

    def _journal(self) -> Journal:
        if self._work is None:
            self._work = self._temporary = Path(tempfile.mkdtemp(prefix="agent-files-"))
        folder = folder_of(self._work, conversation.get())
        used(folder)
        prune(self._work, FOLDERS - 1, [folder])
        return Journal(folder, self.root)
