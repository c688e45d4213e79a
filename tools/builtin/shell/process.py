"""Commands in the sandbox, with all that they start; also those that run on after their call."""

import asyncio
import codecs
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.util.folder_limits import remove_tree
from agent.util.temporary_folders import make_temporary_folder
from tools import process_groups
from tools.builtin_server import ToolError
from tools.sandbox import isolation as sandbox
from tools.sandbox.control import OnContact, SupervisorLink
from tools.sandbox.isolation import NetworkAccess
from tools.types import OnOutput

EXIT_GRACE_SECONDS = 12.0
"""Time to end all that a command started, before its process group is killed."""
MAX_REFUSED_HOSTS = 5
PAUSE_SECONDS = 0.01
"""Pause after a large chunk of output, so that an endless flood leaves the event loop to others."""
MAX_PER_CONVERSATION, MAX_COMMANDS = 4, 16
"""Commands in the background of one conversation, and of all."""
IDLE_SECONDS = 1800.0
"""Time without a call after which the oldest is replaced by another conversation's."""
MAX_UNREAD_CHARS = 200_000
"""Characters of output that wait to be read; of more, the newest."""
MAX_READ_SECONDS = 60.0


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
        readers = self._read(process.stdout, "stdout"), self._read(process.stderr, "stderr")
        self._readers = [asyncio.create_task(reader) for reader in readers]

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


@dataclass(slots=True, eq=False)
class BackgroundCommand:
    """A command that runs in the background, or has ended and was not read to its end."""

    id: str
    conversation: str
    line: str
    """As a person types it."""
    network: NetworkAccess
    command: SandboxedCommand | None = None
    unread: str = ""
    dropped: int = 0
    """Characters that were dropped before ``unread``."""
    ended: str = ""
    """Text about its end and the changes undone then; empty: it runs."""
    used_at: float = field(default_factory=time.monotonic)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is output, or its end."""
    ending: asyncio.Task[None] | None = None
    """Waits for its end and cleans up."""
    is_dropped: bool = False
    """Whether its conversation has ended."""

    def add(self, stream: str, text: str) -> None:
        self.dropped += max(len(self.unread) + len(text) - MAX_UNREAD_CHARS, 0)
        self.unread = (self.unread + text)[-MAX_UNREAD_CHARS:]
        if text:
            self.changed.set()

    def take_output(self) -> str:
        """Return what came since the last time, and how it ended."""
        note = f"[... {self.dropped:,} characters dropped ...]\n" if self.dropped else ""
        text, self.unread, self.dropped = f"{note}{self.unread}", "", 0
        self.changed.clear()
        text += "" if not text or text.endswith("\n") else "\n"
        return text + (self.ended or f"[{self.id} is running]")

    @property
    def description(self) -> str:
        reach = f", may reach {', '.join(self.network.hosts)}" if self.network.hosts else ""
        return f"{self.id}: {self.line}{reach}{f'  {self.ended}' if self.ended else ''}"


class BackgroundCommands:
    """The background commands of all conversations."""

    def __init__(self) -> None:
        self._commands: dict[str, BackgroundCommand] = {}
        self._numbers = itertools.count(1)
        self._ending: set[asyncio.Task[None]] = set()

    def listed(self, conversation: str | None = None) -> list[BackgroundCommand]:
        """Return those of a conversation (None: of all), the oldest first."""
        commands = self._commands.values()
        return [c for c in commands if conversation is None or c.conversation == conversation]

    def reserve(self, conversation: str, line: str, network: NetworkAccess) -> BackgroundCommand:
        """Make an entry for a command that is about to start; raises ToolError for one too many."""
        for entry in self.listed(conversation):
            if entry.ended and not entry.unread:
                del self._commands[entry.id]
        if len(self.listed(conversation)) >= MAX_PER_CONVERSATION:
            raise ToolError(
                f"{MAX_PER_CONVERSATION} commands run in the background; stop one of them"
            )
        if len(self._commands) >= MAX_COMMANDS:
            oldest = min(self._commands.values(), key=lambda entry: entry.used_at)
            if not oldest.ended and time.monotonic() - oldest.used_at < IDLE_SECONDS:
                raise ToolError("other conversations run too many commands; try again later")
            self.drop(oldest)
        entry = BackgroundCommand(f"bg{next(self._numbers)}", conversation, line, network)
        self._commands[entry.id] = entry
        return entry

    def follow(self, entry: BackgroundCommand, clean_up: Callable[[], Awaitable[str]]) -> None:
        """Wait for the end of a command that has started; ``clean_up`` returns notes."""
        command = entry.command
        assert command is not None

        async def end() -> None:
            await command.wait()
            await command.end()
            notes = await clean_up()
            entry.ended = "\n".join([command.exit_line, *command.refused, *filter(None, [notes])])
            entry.changed.set()

        # In a context of its own: that of the call would keep its whole turn in memory.
        entry.ending = asyncio.create_task(end(), context=Context())
        self._ending.add(entry.ending)
        entry.ending.add_done_callback(self._ending.discard)
        if entry.is_dropped:
            command.link.close()

    def find(self, id: str, conversation: str) -> BackgroundCommand:
        entry = self._commands.get(id)
        if entry is None or entry.conversation != conversation:
            names = ", ".join(each.id for each in self.listed(conversation))
            raise ToolError(f"no command {id} runs here; there is: {names or 'none'}")
        entry.used_at = time.monotonic()
        return entry

    async def read(self, entry: BackgroundCommand, seconds: float) -> str:
        """Return new output, waiting for it; the end of a command is reported once."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(entry.changed.wait(), min(max(seconds, 0.0), MAX_READ_SECONDS))
        if entry.ended:
            self._commands.pop(entry.id, None)
        return entry.take_output()

    async def stop(self, entry: BackgroundCommand) -> str:
        if entry.command is not None:
            entry.command.link.close()
        if entry.ending is not None:
            await asyncio.wait([entry.ending])
        self._commands.pop(entry.id, None)
        return entry.take_output()

    def drop(self, entry: BackgroundCommand) -> None:
        self._commands.pop(entry.id, None)
        entry.is_dropped = True
        if entry.command is not None:
            entry.command.link.close()

    def end_conversation(self, conversation: str, successor: str | None) -> None:
        for entry in self.listed(conversation):
            if successor is None:
                self.drop(entry)
            else:
                entry.conversation = successor

    async def close(self) -> None:
        for entry in self.listed():
            self.drop(entry)
        if self._ending:
            await asyncio.wait(self._ending)
