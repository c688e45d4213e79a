"""The ``exec`` tool, which gpt-oss calls ``container.exec``: a command in a sandbox."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import re
import shlex
import shutil
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.builtin.base import HandError, emit
from tools.builtin.files.patch import moved
from tools.builtin.files.server import Files
from tools.sandbox import isolation as sandbox
from tools.sandbox.isolation import Isolation, Limits
from tools.types import OnOutput, Tool

HEAD, TAIL = 1_000_000, 100_000
"""Characters of a command's output that are kept; what lies between is counted and dropped."""
SHORTEST = 1.0
"""Seconds that every command has."""
GRACE = 12.0
"""Seconds for ending all that a command started; then its process group is killed."""


class Shell:
    """A hand: it may write the root folder, reaches no network, and leaves nothing running."""

    name = "shell"
    short = "shell"
    default: Sequence[str] = ()
    tools: Sequence[Tool] = (
        Tool(
            server="shell",
            name="exec",
            description="Run a command and give its output. It can write the working folder,"
            " has no network, and nothing that it starts goes on after it.",
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
        limits: Limits | None = None,
        isolation: Isolation | None = None,
        files: Files | None = None,
    ) -> None:
        """``root``: None is the current directory. ``timeout``: the most seconds of a command.
        ``isolation``: None picks the best that works here. ``files``: applies patches."""
        self.root = (root or Path.cwd()).resolve()
        self._timeout = timeout
        self._limits = limits or Limits()
        self._isolation = isolation
        self._files = files

    def contained(self, name: str) -> bool:
        return False

    def problem(self) -> str | None:
        if self.root == Path(self.root.anchor) or not self.root.is_dir():
            return f"needs a folder as its root, not {self.root}; choose one with --root"
        if self._isolation is not None and not self._isolation.ok:
            return f"is not available: {self._isolation.detail}"
        return None

    def preview(self, name: str, arguments: dict[str, Any]) -> str | None:
        if self._files and (patch := _patch(arguments["cmd"])):
            return self._files.preview("apply_patch", self._patching(patch, arguments))
        line = shlex.join(str(word) for word in arguments["cmd"])
        return f"{self._folder(arguments.get('workdir') or '.')}$ {line}"

    async def start(self) -> None:
        if self._isolation is None:
            self._isolation = await asyncio.to_thread(sandbox.isolation)

    async def close(self) -> None:
        pass  # a command ends with its call

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        if self._files and (patch := _patch(arguments["cmd"])):
            return await self._files.call("apply_patch", self._patching(patch, arguments))
        await self.start()
        assert self._isolation is not None
        problem = self.problem() or sandbox.unguarded(self._isolation.name, self.root)
        if problem:
            raise HandError(f"Error: shell {problem}")
        words = arguments["cmd"]
        if not words or any("\0" in word for word in words):
            raise HandError("Error: cmd must name a program")
        seconds = min(arguments.get("timeout", self._timeout * 1000) / 1000, self._timeout)
        folder = self._folder(arguments.get("workdir") or ".")
        home = Path(tempfile.mkdtemp(prefix="agent-shell-")).resolve()
        try:
            line = sandbox.shell(
                self._isolation.name,
                _without_login(words),
                root=self.root,
                start=folder,
                work=home,
                limits=self._limits,
            )
            return await _run(line, folder, home, max(seconds, SHORTEST))
        finally:
            await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)

    def _patching(self, patch: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """For the files hand, whose paths are taken from its own root."""
        assert self._files is not None
        folder = self._folder(arguments.get("workdir") or ".")
        return {"input": moved(patch, folder) if folder != self._files.root.path else patch}

    def _folder(self, path: str) -> Path:
        folder = (self.root / path).resolve()
        if not folder.is_relative_to(self.root):
            raise HandError(f"Error: outside the root folder: {path}")
        if not folder.is_dir():
            raise HandError(f"Error: no such folder: {path}")
        return folder


def _patch(words: Sequence[str]) -> str | None:
    """The patch, where the command is gpt-oss's ``apply_patch``, which is no program."""
    match words:
        case ["apply_patch" | "applypatch", text]:
            return text
        case ["bash" | "sh", "-lc" | "-c", line] if found := _HERE_PATCH.fullmatch(line.strip()):
            return found["patch"]
        case _:
            return None


def _without_login(words: list[str]) -> list[str]:
    """A login shell, as gpt-oss asks for, first reads what is out of reach here; where Landlock is what
    keeps it out, the shell complains of that in each result."""
    match words:
        case [program, "-lc", *rest] if Path(program).name in ("bash", "sh"):
            return [program, "-c", *rest]
        case _:
            return words


_HERE_PATCH = re.compile(
    r"""apply_?patch\s*<<-?\s*(['"]?)(?P<end>\w+)\1\s*\n(?P<patch>.*)\n(?P=end)""", re.DOTALL
)


async def _run(line: list[str], folder: Path, home: Path, seconds: float) -> str:
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
    output = Output(emit.get())
    reading = [
        asyncio.create_task(_read(process.stdout, "stdout", output)),
        asyncio.create_task(_read(process.stderr, "stderr", output)),
    ]
    try:
        # Nothing outlives the command, so the pipes end with it.
        _, late = await asyncio.wait(
            [*reading, asyncio.create_task(process.wait())], timeout=seconds
        )
    finally:
        await asyncio.shield(_end(process, reading))
    if late:
        raise HandError(f"{output.text()}Error: stopped after {seconds:g} s")
    return f"{output.text()}[exit code {process.returncode}]"


async def _end(process: asyncio.subprocess.Process, reading: list[asyncio.Task[None]]) -> None:
    """Until nothing of the command is left; the supervisor ends all when its stdin does."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), GRACE)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    await asyncio.wait(reading, timeout=1)
    for task in reading:
        task.cancel()


async def _read(stream: asyncio.StreamReader, name: str, output: Output) -> None:
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    while chunk := await stream.read(1 << 16):
        output.add(name, decode(chunk))
    output.add(name, decode(b"", True))


class Output:
    """What a command said, as it comes: the beginning and the end of it."""

    def __init__(self, listener: OnOutput | None) -> None:
        self._listener = listener
        self._head: list[str] = []
        self._room = HEAD
        self._tail = ""
        self._dropped = 0

    def add(self, stream: str, text: str) -> None:
        head, rest = text[: self._room], text[self._room :]
        self._room -= len(head)
        if head:
            self._head.append(head)
            if self._listener is not None:
                self._listener(stream, head)
        if rest:
            tail = self._tail + rest
            self._tail = tail[-TAIL:]
            self._dropped += len(tail) - len(self._tail)

    def text(self) -> str:
        """All of it, ending with a line's end where there is any."""
        note = f"\n[... {self._dropped:,} characters dropped ...]\n" if self._dropped else ""
        text = "".join([*self._head, note, self._tail])
        return text if not text or text.endswith("\n") else f"{text}\n"
