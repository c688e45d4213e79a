"""A command in the sandbox: started, read, written to and ended with all that it has started."""

import asyncio
import codecs
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.util.folder_limits import remove_tree
from agent.util.temporary_folders import make_temporary_folder
from tools import process_groups
from tools.sandbox import isolation as sandbox
from tools.sandbox.control import OnContact, SupervisorLink
from tools.types import OnOutput

EXIT_GRACE_SECONDS = 12.0
"""Time to end all that a command started, before its process group is killed."""
MAX_REFUSED_HOSTS = 5
PAUSE_SECONDS = 0.01
"""Pause after a large chunk of output, so that an endless flood leaves the event loop to others."""


class SandboxedCommand:
    """One command with a home of its own, which goes with it."""

    def __init__(self, words: Sequence[str], on_output: OnOutput, on_contact: OnContact) -> None:
        self.words = words
        self.home = make_temporary_folder("agent-shell-")
        self.link = SupervisorLink()
        self.refused: list[str] = []
        """A line for each of the first hosts that it tried in vain."""
        self._on_output, self._on_contact = on_output, on_contact
        self._process: asyncio.subprocess.Process | None = None
        self._readers: list[asyncio.Task[None]] = []
        self._pauses = False

    async def start(self, line: Sequence[str], folder: Path, *, takes_input: bool = False) -> None:
        """Start ``line``, which `isolation.shell_command` has made for this link and home.
        ``takes_input``: it has a stdin, and may run for long: its output is read with pauses."""
        self._pauses = takes_input
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        self._process = process = await asyncio.create_subprocess_exec(
            *line,
            stdin=pipe if takes_input else null,
            stdout=pipe,
            stderr=pipe,
            env=sandbox.environment(self.home, programs=True),
            cwd=folder,
            start_new_session=True,
            pass_fds=[self.link.descriptor],
        )
        self.link.follow(self._note_contact)
        assert process.stdout is not None and process.stderr is not None
        self._readers = [
            asyncio.create_task(self._read(process.stdout, "stdout")),
            asyncio.create_task(self._read(process.stderr, "stderr")),
        ]

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait until it has ended and all of its output was read; False: not within ``seconds``."""
        assert self._process is not None
        # Nothing outlives the command, so the pipes end with it.
        ended = asyncio.create_task(self._process.wait())
        _, unfinished = await asyncio.wait([*self._readers, ended], timeout=seconds)
        return not unfinished

    @property
    def exit_line(self) -> str:
        return f"[exit code {self._process and self._process.returncode}]"

    async def write(self, text: str) -> None:
        """Write to its stdin; raises OSError if it takes no more."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(text.encode("utf-8", "replace"))
        await self._process.stdin.drain()

    async def end(self) -> None:
        """Wait until no process of the command is left: the supervisor ends all when its link ends."""
        self.link.close()
        if (process := self._process) is not None:
            try:
                await asyncio.wait_for(process.wait(), EXIT_GRACE_SECONDS)
            except TimeoutError:
                process_groups.kill(process.pid)
                await process.wait()
            await self.link.drain()
            if self._readers:
                await asyncio.wait(self._readers, timeout=1)
            for task in self._readers:
                task.cancel()
        await asyncio.to_thread(remove_tree, self.home)

    def _note_contact(self, contact: dict[str, Any]) -> None:
        self._on_contact(contact)
        if (why := contact.get("refused")) and len(self.refused) < MAX_REFUSED_HOSTS:
            self.refused.append(f"[network: {contact['host']}:{contact['port']}: {why}]")

    async def _read(self, stream: asyncio.StreamReader, name: str) -> None:
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        while chunk := await stream.read(1 << 16):
            self._on_output(name, decode(chunk))
            if self._pauses and len(chunk) > 1 << 14:
                await asyncio.sleep(PAUSE_SECONDS)
        self._on_output(name, decode(b"", True))
