"""The built-in server ``shell``: runs a command in a sandbox (gpt-oss's ``container.exec``)."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import os
import re
import signal
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.builtin.base import ExtraPermission, StructuredText, ToolError, output_listener
from tools.builtin.files.patch import rebase_paths
from tools.builtin.files.server import FilesServer
from tools.builtin.shell.guard import CommandGuard, RootGuard
from tools.config.named_files import NamedFiles
from tools.folder_limits import remove_tree
from tools.policy.audit import AuditLog
from tools.policy.commands import command_requirements, display_line
from tools.policy.rules import Requirement
from tools.sandbox import isolation as sandbox
from tools.sandbox.changes import SNAPSHOT_SECONDS
from tools.sandbox.isolation import Isolation, ResourceLimits
from tools.temporary_folders import make_temporary_folder
from tools.types import Access, OnOutput, Tool

MAX_HEAD_CHARS, MAX_TAIL_CHARS = 1_000_000, 100_000
"""Beginning and end of a command's output that are returned; what is between is dropped."""
MIN_TIMEOUT_SECONDS = 1.0
"""Time that every command has, whatever timeout the model asks for."""
MAX_NAMED_PATHS = 5
"""Read-only paths that the model is told of when a command failed with one."""
EXIT_GRACE_SECONDS = 12.0
"""Time to end all that a command started, before its process group is killed."""


class ShellServer:
    """The server ``shell``: commands write the root only, reach no network and leave no process."""

    name = "shell"
    alias = "shell"
    default_tools: Sequence[str] = ()
    keeps_tool_approvals = False
    tools: Sequence[Tool] = (
        Tool(
            server="shell",
            name="exec",
            description="Run a command and give its output. It can write the working folder,"
            " has no network, and nothing that it starts goes on after it. It cannot write .git.",
            parameters={
                "type": "object",
                "properties": {
                    "cmd": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": 'The program and its arguments, e.g. ["bash", "-lc", "ls"]',
                    },
                    "workdir": {"type": "string", "description": "Where to run it"},
                    "timeout": {"type": "integer", "description": "In milliseconds"},
                    "changes_git": {
                        "type": "boolean",
                        "description": "Whether it may write .git, e.g. to commit: asks the user",
                    },
                },
                "required": ["cmd"],
            },
            model_name="container.exec",
        ),
    )

    def __init__(
        self,
        root: Path | None = None,
        *,
        timeout: float = 120.0,
        limits: ResourceLimits | None = None,
        isolation: Isolation | None = None,
        files: FilesServer | None = None,
        min_timeout: float = MIN_TIMEOUT_SECONDS,
        audit: AuditLog | None = None,
        snapshot_seconds: float = SNAPSHOT_SECONDS,
    ) -> None:
        """``root``: None: the working folder. ``timeout``, ``min_timeout``: seconds of a command.
        ``isolation``: None: the best that works. ``files``: applies patches. ``audit``: logs changes.
        ``snapshot_seconds``: for each of the two looks at all files."""
        self.root = (root or Path.cwd()).resolve()
        self._timeout, self._min_timeout = timeout, min_timeout
        self._limits = limits or ResourceLimits()
        self._isolation = isolation
        self._files = files
        self._audit = audit or AuditLog(None)
        self._guard = RootGuard(self.root, sandbox.own_paths(), snapshot_seconds)

    def protect_files(self, named_files: Callable[[], NamedFiles]) -> None:
        """Keep commands from changing these files, which are asked for before each command."""
        self._guard.named_files = named_files

    def is_safe(self, name: str) -> bool:
        """Return False: a command can change the root folder."""
        return False

    def access(self, offered: Collection[str]) -> Access:
        """Return what a command finds in the sandbox; trying the isolations out blocks."""
        self._isolation = self._isolation or sandbox.best_isolation()
        if self.problem() is not None:
            return Access()
        return Access(
            read=f"files below {self.root} and the system's programs, by commands",
            change=f"files below {self.root}, by commands",
            run=f"commands in a sandbox ({self._isolation.name}) without network",
        )

    def problem(self) -> str | None:
        if self.root == Path(self.root.anchor) or not self.root.is_dir():
            return f"needs a folder as its root, not {self.root}; choose one with --root"
        if self._isolation is not None and not self._isolation.ok:
            return f"is not available: {self._isolation.detail}"
        return None

    def extra_permission(self, name: str, arguments: dict[str, Any]) -> ExtraPermission | None:
        """Return that a command is to change git's data, or a patch what runs later."""
        if self._files and (patch := _patch_in(arguments["cmd"])):
            patch_arguments = self._patch_arguments(patch, arguments)
            return self._files.extra_permission("apply_patch", patch_arguments)
        if arguments.get("changes_git") is not True:
            return None
        return ExtraPermission(
            "changes_git", "this command may change git's data, also what git runs later"
        )

    def preview(self, name: str, arguments: dict[str, Any]) -> str | None:
        """Return the command line with its folder, or the diff of a patch."""
        if self._files and (patch := _patch_in(arguments["cmd"])):
            return self._files.preview("apply_patch", self._patch_arguments(patch, arguments))
        line = display_line([str(word) for word in arguments["cmd"]])
        return f"{self._folder(arguments.get('workdir') or '.')}$ {line}"

    def requirements(self, name: str, arguments: dict[str, Any]) -> list[Requirement] | None:
        """Return which commands run and which folders are written. Raises ToolError, OnceOnlyError."""
        if self._files and (patch := _patch_in(arguments["cmd"])):
            return self._files.requirements("apply_patch", self._patch_arguments(patch, arguments))
        folder = self._folder(arguments.get("workdir") or ".")
        return command_requirements(arguments["cmd"], folder, self.root)

    async def start(self) -> None:
        if self._isolation is None:
            self._isolation = await asyncio.to_thread(sandbox.best_isolation)

    async def close(self) -> None:
        """Do nothing: a command ends with its call."""

    async def call(self, name: str, arguments: dict[str, Any]) -> str | StructuredText:
        """Run a command, or apply a patch; raises ToolError."""
        if self._files and (patch := _patch_in(arguments["cmd"])):
            return await self._files.call("apply_patch", self._patch_arguments(patch, arguments))
        await self.start()
        if problem := self.problem():
            raise ToolError(f"Error: shell {problem}")
        words = arguments["cmd"]
        if not words or any("\0" in word for word in words):
            raise ToolError("Error: cmd must name a program")
        folder = self._folder(arguments.get("workdir") or ".")
        changes_git = arguments.get("changes_git") is True
        guard = await asyncio.to_thread(self._guard.begin, changes_git=changes_git)
        output, ended = CommandOutput(output_listener.get()), ""
        try:
            ended = await self._run_confined(words, folder, guard, output, arguments)
        finally:
            await asyncio.shield(asyncio.to_thread(guard.end))
            details = {"changes": guard.changes, "notes": guard.notes}
            self._audit.record(self.name, name, json.dumps(arguments), **details)
            if not ended:  # interrupted: there will be no result to say it in
                output.notify([*_listed_changes(guard.changes), *guard.notes])
        notes = guard.notes
        notes = [*notes, *self._explain_refusal(guard, output.text())]
        text = "\n".join([f"{output.text()}{ended}", *notes])
        structured = {"changes": guard.changes}
        if not ended.startswith("["):
            error = ToolError(text)
            error.structured = structured
            raise error
        return StructuredText(text, structured)

    async def _run_confined(
        self,
        words: list[str],
        folder: Path,
        guard: CommandGuard,
        output: CommandOutput,
        arguments: dict[str, Any],
    ) -> str:
        """Run a command with a home of its own; return how it ended."""
        assert self._isolation is not None
        limit = self._timeout * 1000
        seconds = min(arguments.get("timeout", limit), limit) / 1000
        home = make_temporary_folder("agent-shell-")
        try:
            line = sandbox.shell_command(
                self._isolation.name,
                _without_login(words),
                root=self.root,
                start=folder,
                work_folder=home,
                limits=self._limits,
                protection=guard.protection,
            )
            return await _run(line, folder, home, max(seconds, self._min_timeout), output)
        finally:
            await asyncio.shield(asyncio.to_thread(remove_tree, home))

    def _explain_refusal(self, guard: CommandGuard, output: str) -> list[str]:
        """Say what is read-only, if a command seems to have failed with it."""
        paths = guard.protection.read_only
        error = ("Read-only file system", "Permission denied")
        if not paths or not any(text in output for text in error):
            return []
        names = [str(Path(path).relative_to(self.root)) for path in paths[:MAX_NAMED_PATHS]]
        more = ", …" if len(paths) > len(names) else ""
        note = f"Commands cannot change {', '.join(map(json.dumps, names))}{more}; the files tools can,"
        note += " but for files of git (changes_git) and of this program."
        assert self._isolation is not None
        if self._isolation.name == "landlock":
            note += " Without bubblewrap, nothing can be created, renamed or deleted in the folders"
            note += " that hold these, only below their other folders; changes_git, which asks,"
            note += " allows it where these are git's."
        return [f"[{note}]"]

    def _patch_arguments(self, patch: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of the files server's tool, which takes paths from its own root."""
        assert self._files is not None
        folder = self._folder(arguments.get("workdir") or ".")
        return {"input": rebase_paths(patch, folder) if folder != self._files.root.path else patch}

    def _folder(self, path: str) -> Path:
        """Resolve the folder to run a command in; raises ToolError."""
        try:
            folder = (self.root / path).resolve()
        except (OSError, ValueError, RuntimeError):  # a NUL, a loop of links
            raise ToolError(f"Error: not a path: {path!r}") from None
        if not folder.is_relative_to(self.root):
            raise ToolError(f"Error: outside the root folder: {path}")
        if not folder.is_dir():
            raise ToolError(f"Error: no such folder: {path}")
        return folder


def _patch_in(words: Sequence[str]) -> str | None:
    """Return the patch if the command is gpt-oss's ``apply_patch``, which is no program."""
    match words:
        case ["apply_patch" | "applypatch", text]:
            return text
        case ["bash" | "sh", "-lc" | "-c", line] if match := _HERE_PATCH.fullmatch(line.strip()):
            return match["patch"]
        case _:
            return None


def _without_login(words: list[str]) -> list[str]:
    """Replace ``-lc`` by ``-c``: a login shell first reads files that it cannot reach here."""
    match words:
        case [program, "-lc", *rest] if Path(program).name in ("bash", "sh"):
            return [program, "-c", *rest]
        case _:
            return words


_HERE_PATCH = re.compile(
    r"""apply_?patch\s*<<-?\s*(['"]?)(?P<end>\w+)\1\s*\n(?P<patch>.*)\n(?P=end)""", re.DOTALL
)


async def _run(
    line: list[str], folder: Path, home: Path, seconds: float, output: CommandOutput
) -> str:
    """Run a command line; return ``[exit code N]``, or the error of the timeout."""
    process = await asyncio.create_subprocess_exec(
        *line,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=sandbox.environment(home, programs=True),
        cwd=folder,
        start_new_session=True,
    )
    assert process.stdout is not None and process.stderr is not None
    readers = [
        asyncio.create_task(_read(process.stdout, "stdout", output)),
        asyncio.create_task(_read(process.stderr, "stderr", output)),
    ]
    try:
        # Nothing outlives the command, so the pipes end with it.
        _, unfinished = await asyncio.wait(
            [*readers, asyncio.create_task(process.wait())], timeout=seconds
        )
    finally:
        await asyncio.shield(_end(process, readers))
    if unfinished:
        return f"Error: stopped after {seconds:g} s"
    return f"[exit code {process.returncode}]"


async def _end(process: asyncio.subprocess.Process, readers: list[asyncio.Task[None]]) -> None:
    """Wait until no process of the command is left: the supervisor ends all when its stdin ends."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), EXIT_GRACE_SECONDS)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    await asyncio.wait(readers, timeout=1)
    for task in readers:
        task.cancel()


async def _read(stream: asyncio.StreamReader, name: str, output: CommandOutput) -> None:
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    while chunk := await stream.read(1 << 16):
        output.add(name, decode(chunk))
    output.add(name, decode(b"", True))


def _listed_changes(changes: Mapping[str, Any]) -> list[str]:
    """Say which files an interrupted command has changed, in one line; none if it changed none."""
    kinds = [kind for kind in ("created", "modified", "deleted") if kind in changes]
    listed = [f"{kind} {', '.join(map(json.dumps, changes[kind]))}" for kind in kinds]
    if unknown := changes.get("unknown"):
        listed = [f"changed files are not known: {unknown}"]
    return [f"[until it was interrupted: {'; '.join(listed)}]"] if listed else []


class CommandOutput:
    """Collects a command's output and passes it on as it comes, but drops the middle of a long one."""

    def __init__(self, listener: OnOutput | None) -> None:
        self._listener = listener
        self._head: list[str] = []
        self._head_room = MAX_HEAD_CHARS
        self._tail = ""
        self._dropped = 0

    def add(self, stream: str, text: str) -> None:
        head, rest = text[: self._head_room], text[self._head_room :]
        self._head_room -= len(head)
        if head:
            self._head.append(head)
            if self._listener is not None:
                self._listener(stream, head)
        if rest:
            tail = self._tail + rest
            self._tail = tail[-MAX_TAIL_CHARS:]
            self._dropped += len(tail) - len(self._tail)

    def notify(self, notes: Iterable[str]) -> None:
        """Pass lines on that are not the command's."""
        if self._listener is not None:
            for note in notes:
                self._listener("stderr", f"\n{note}")

    def text(self) -> str:
        """Return the output, ending with a newline unless it is empty."""
        note = f"\n[... {self._dropped:,} characters dropped ...]\n" if self._dropped else ""
        text = "".join([*self._head, note, self._tail])
        return text if not text or text.endswith("\n") else f"{text}\n"
