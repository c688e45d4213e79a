"""Runs the person's own shell commands (``!command``), in their shell and without a sandbox. Their
output goes with the next prompt as an attached block, which the taint rule counts as read."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

from agent.util.programs import require_program
from tools import process_groups
from tui.state.shell_run import ShellRun

if TYPE_CHECKING:
    from tui.app_context import AppContext
    from tui.widgets.shell_output import ShellEntries

READ_BYTES, READ_PAUSE_SECONDS = 1 << 20, 0.04
"""Bytes per read, and the pause after it: endless output leaves the app its processor time."""
INTERRUPT_SECONDS = 1.5
DRAIN_SECONDS = 1.0
ENVIRONMENT = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat"}
"""The command has no terminal: programs that want one should do without, or fail at once."""


class ShellCommands:
    """Runs one command at a time; those that ended wait to go with the next prompt."""

    def __init__(self, app: AppContext) -> None:
        self._app = app
        self._running: ShellEntries | None = None
        self._waiting: list[ShellEntries] = []
        self._group: int | None = None
        self._interrupted = False
        self.notes: list[str] = []
        """Sentences for the model that go with the next prompt too."""

    @property
    def running(self) -> bool:
        return self._running is not None

    def start(self, command: str) -> None:
        """Run a command and show it in the transcript; none may be running."""
        from tui.widgets.shell_output import ShellEntries

        self._running = entries = ShellEntries(ShellRun(command))
        self._interrupted = False
        self._app.transcript.anchor()
        self._app.transcript.add_section(entries)
        self._app.run_worker(self._run(entries))

    def interrupt(self) -> None:
        """Send SIGINT to the command and all that it started; soon, or if called again, SIGKILL."""
        self._signal(signal.SIGKILL if self._interrupted else signal.SIGINT)
        self._interrupted = True
        self._app.set_timer(INTERRUPT_SECONDS, self._kill_interrupted)

    def _kill_interrupted(self) -> None:
        if self._interrupted:
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        try:
            if self._group is not None:
                os.killpg(self._group, number)
        except ProcessLookupError:
            pass
        except PermissionError:
            self._app.notify("It cannot be stopped: it runs as another user.", severity="warning")

    def take_outputs(self) -> str:
        """Return the blocks that go with the prompt that is sent now."""
        waiting, self._waiting = self._waiting, []
        notes, self.notes = self.notes, []
        for entries in waiting:
            entries.run.delivery = "sent"
            entries.follow()
        blocks = "".join(entries.run.attachment for entries in waiting)
        return "".join(f"\n\n[{note}]" for note in notes) + blocks

    def remove_output(self) -> bool:
        """Leave the latest output out of the next prompt; return whether there was one."""
        if not self._waiting:
            return False
        entries = self._waiting.pop()
        entries.run.delivery = "removed"
        entries.follow()
        return True

    def clear(self) -> None:
        """End the command that runs and drop the outputs: another conversation is opened."""
        self._signal(signal.SIGKILL)
        self._running = None
        self._waiting.clear()
        self.notes.clear()

    async def _run(self, entries: ShellEntries) -> None:
        run = entries.run
        try:
            run.outcome = await self._run_process(entries)
        except OSError as error:
            run.outcome = f"could not be started: {error.strerror}"
        if self._running is entries:
            self._running = None
            self._waiting.append(entries)
        entries.follow()

    async def _run_process(self, entries: ShellEntries) -> str:
        """Run the command until it ends, and return how it did. Raises OSError."""
        readable, writable = os.pipe()
        reader = asyncio.StreamReader(limit=READ_BYTES)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(readable, "rb", 0)
        )
        try:
            process = await asyncio.create_subprocess_exec(
                require_program(os.environ.get("SHELL") or "/bin/sh"), "-c", entries.run.command,
                stdin=asyncio.subprocess.DEVNULL, stdout=writable, stderr=writable,
                cwd=self._app.session.launch.root.expanduser(), env={**os.environ, **ENVIRONMENT},
                start_new_session=True,
            )  # fmt: skip
        except BaseException:
            transport.close()
            raise
        finally:
            os.close(writable)
        self._group = process.pid
        process_groups.active_groups.add(process.pid)
        reading = asyncio.create_task(self._read(reader, entries))
        try:
            code = await process.wait()
            process_groups.kill(process.pid)  # what it left in the background
            await asyncio.wait([reading], timeout=DRAIN_SECONDS)
        finally:
            process_groups.kill(process.pid)
            process_groups.active_groups.discard(process.pid)
            if self._group == process.pid:
                self._group = None
            reading.cancel()
            transport.close()
        if self._interrupted:
            return "interrupted"
        return f"exit code {code}" if code >= 0 else f"ended by {signal.Signals(-code).name}"

    async def _read(self, reader: asyncio.StreamReader, entries: ShellEntries) -> None:
        while data := await reader.read(READ_BYTES):
            entries.run.add(data)
            entries.follow()
            await asyncio.sleep(READ_PAUSE_SECONDS)
