"""Commands that run after their call, until their conversation ends."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import dataclass, field

from tools.builtin.shell.process import SandboxedCommand
from tools.builtin_server import ToolError
from tools.sandbox.isolation import NetworkAccess

MAX_PER_CONVERSATION, MAX_COMMANDS = 4, 16
"""Commands in the background of one conversation, and of all."""
IDLE_SECONDS = 1800.0
"""Time without a call after which the oldest is replaced by another conversation's."""
MAX_UNREAD_CHARS = 200_000
"""Characters of output that wait to be read; of more, the newest."""
MAX_READ_SECONDS = 60.0


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
        """End a conversation's commands, or transfer them to ``successor``, which continues it."""
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
