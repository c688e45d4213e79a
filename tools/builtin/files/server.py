"""The built-in server ``files``: reads below one folder, and changes files there."""

import asyncio
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from tools import builtin_server
from tools.builtin.files import changes
from tools.builtin.files.changes import FileChange
from tools.builtin.files.journal import DEFAULT_UNDO_BYTES, ChangeJournal
from tools.builtin.files.reading import FileReader, SearchCancellation
from tools.builtin.files.root_folder import RootFolder
from tools.builtin_server import ExtraPermission
from tools.config.named_files import NamedFiles
from tools.policy.rules import write_requirements
from tools.run_later import names_run_later, root_paths
from tools.sandbox.repositories import configured_files
from tools.types import UNKNOWN_LABELS, Access, Label, Requirement, Tool

READ_TOOLS = ("read", "list", "search", "glob")


def _tool(name: str, description: str, required: list[str], **properties: str) -> Tool:
    schema = builtin_server.object_schema(required, **properties)
    reads = name in READ_TOOLS
    labels = UNKNOWN_LABELS if reads else frozenset[Label]()
    return Tool("files", name, description, schema, read_only=reads, labels=labels)


class FilesServer(builtin_server.BuiltinServer):
    """The server ``files``. It can undo what it changed, call by call in each conversation."""

    name = "files"
    alias = "files"
    tools: Sequence[Tool] = (
        _tool("read", "Read a text file.", ["path"],
              path="string", first_line="integer", last_line="integer"),
        _tool("list", "List a folder.", [], path="string"),
        _tool("search", "Search files for a text.", ["query"], query="string", path="string"),
        _tool("glob", "Find files by their names, e.g. src/**/*.py.", ["pattern"],
              pattern="string", path="string"),
        _tool("write", "Write a whole file.", ["path", "content"], path="string", content="string"),
        _tool("apply_patch",
              "Change files. The input is a patch: *** Begin Patch, then for each file *** Update File:"
              " PATH (or Add, Delete), @@ and lines that begin with a space, - or +; *** End Patch.",
              ["input"], input="string"),
        _tool("undo", "Take back the last change of files in this conversation.", []),
    )  # fmt: skip
    default_tools: Sequence[str] = ("read", "list", "search")

    def __init__(
        self,
        root: Path | None = None,
        *,
        undo_folder: Path | None = None,
        own_folders: Sequence[Path] = (),
        undo_bytes: int = DEFAULT_UNDO_BYTES,
    ) -> None:
        """``undo_folder``: of journals (None: a temporary one). ``own_folders``: unchanged."""
        self.root = RootFolder(root or Path.cwd(), own_folders=own_folders)
        self._reader = FileReader(self.root)
        self.journal = ChangeJournal(self.root, undo_folder, undo_bytes)
        self.named_files: Callable[[], NamedFiles] = NamedFiles
        """Files each change of which needs a permission of its own."""
        self.on_change: Callable[[str, dict[str, Any], list[FileChange]], None] | None = None
        """Called in a thread with a call that has changed files, and the changes."""

    def is_safe(self, name: str) -> bool:
        return name in READ_TOOLS

    def access(self, offered: Collection[str]) -> Access:
        files = f"files below {self.root.path}"
        return Access(read=files, change="" if set(offered) <= set(READ_TOOLS) else files)

    def problem(self) -> str | None:
        root = self.root.path
        return None if root.is_dir() else f"has no such folder as its root: {root}"

    def preview(self, name: str, arguments: dict[str, Any]) -> str | None:
        if name in READ_TOOLS:
            return None
        return changes.diff(self.root, self.plan(name, arguments))

    def requirements(self, name: str, arguments: dict[str, Any]) -> list[Requirement] | None:
        if name in READ_TOOLS:
            return None
        changed = [change.path for change in self.plan(name, arguments)]
        return write_requirements(changed, self.root.path)

    def rule_verbs(self, tool: Tool) -> Sequence[str]:
        return () if tool.read_only else ("write",)

    def extra_permissions(self, name: str, arguments: dict[str, Any]) -> list[ExtraPermission]:
        if name in READ_TOOLS:
            return []
        try:
            changed = [change.path for change in self.plan(name, arguments)]
        except (builtin_server.ToolError, OSError):
            return []  # the call fails with it
        root, named = self.root.path, self.named_files().paths
        repositories = {folder / ".git" for path in changed for folder in path.parents}
        found = filter(os.path.lexists, repositories)
        hooks = [path for repository in found for path in configured_files(repository)]
        later = [*named, *root_paths(root), *hooks]
        forms = {form for path in later for form in (path, Path(os.path.realpath(path)))}
        folders = {path for path in forms if path != root and path.is_relative_to(root)}
        for path in changed:
            relative = path.relative_to(root)
            if names_run_later(relative) or not folders.isdisjoint((path, *path.parents)):
                reason = f"other programs run what {relative} says"
                return [ExtraPermission("changes_run_later", reason)]
        return []

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        try:
            if name in READ_TOOLS:
                return await self._read(name, arguments)
            # A thread continues when its caller is cancelled: files are not left half changed.
            return await asyncio.to_thread(self._change, name, arguments)
        except OSError as error:
            raise builtin_server.ToolError(f"{(error.strerror or str(error)).lower()}") from None

    async def _read(self, name: str, arguments: dict[str, Any]) -> str:
        cancellation = SearchCancellation()
        if name in ("search", "glob"):
            arguments = {**arguments, "cancel": cancellation}
        try:
            text: str = await asyncio.to_thread(getattr(self._reader, name), **arguments)
            return text
        finally:
            cancellation.set()  # if the caller was cancelled, the thread is still searching

    def plan(self, name: str, arguments: dict[str, Any]) -> list[FileChange]:
        """The changes that a call would make. May block. Raises ToolError, OSError."""
        match name:
            case "write":
                plan = changes.plan_write(self.root, arguments["path"], arguments["content"])
            case "apply_patch":
                plan = changes.plan_patch(self.root, arguments["input"])
            case _:
                return self._plan_undo()
        changes.refuse_repositories(self.root, plan)
        return plan

    def _plan_undo(self) -> list[FileChange]:
        conversation, content = builtin_server.conversation_id.get(), self.journal.content
        step = self.journal.undo_call(conversation, dry_run=True)
        return [
            FileChange(self.root.path / each.path, content(each.after), content(each.before))
            for each in step.changes
            if "folder" not in {state.kind for state in (each.before, each.after) if state}
        ]

    def _change(self, name: str, arguments: dict[str, Any]) -> str:
        with self.journal.lock:
            plan = self.plan(name, arguments)
            if name == "undo":
                self.journal.undo_call(builtin_server.conversation_id.get())
            else:
                self.journal.make({change.path: change.after for change in plan})
            if self.on_change is not None:
                self.on_change(name, arguments, plan)
            return changes.summary(self.root, plan)
