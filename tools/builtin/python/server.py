"""The ``python`` tool: a stateful worker for each conversation, confined."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Sequence
from contextvars import Context
from pathlib import Path
from typing import Any

from agent.util.folder_limits import remove_tree
from agent.util.temporary_folders import make_temporary_folder
from tools.builtin.conversation_folders import (
    MAX_CONVERSATION_FOLDERS,
    conversation_folder,
    mark_used,
    take_old_folders,
)
from tools.builtin.python.call_limits import CallLimits
from tools.builtin.python.session import PythonSession
from tools.builtin.python.worker_process import INTERRUPT_GRACE_SECONDS
from tools.builtin_server import BuiltinServer, ToolError, conversation_id, object_schema
from tools.sandbox import isolation as sandbox
from tools.sandbox.isolation import Isolation, ResourceLimits
from tools.types import Access, Tool


class PythonServer(BuiltinServer):
    """The tool ``python``; each conversation has variables and a working folder of its own."""

    name = "code_interpreter"
    alias = "python"
    default_tools: Sequence[str] = ("python",)
    tools: Sequence[Tool] = (
        Tool(
            server="code_interpreter",
            name="python",
            description="Run Python code.",
            parameters=object_schema(["code"], code="string"),
            model_name="python",
        ),
    )

    def __init__(
        self,
        *,
        timeout: float = 120.0,
        allow_unsandboxed: bool = False,
        work_folder: Path | None = None,
        limits: ResourceLimits | None = None,
        call_limits: CallLimits = CallLimits(),
        isolation: Isolation | None = None,
        max_workers: int = 8,
        idle_seconds: float = 1800.0,
        interrupt_grace: Sequence[float] = INTERRUPT_GRACE_SECONDS,
        max_folders: int = MAX_CONVERSATION_FOLDERS,
    ) -> None:
        """``timeout``: seconds per call. ``work_folder``: of conversations' folders (None: a temporary
        one). ``isolation``: None: the best that works. ``max_workers``: processes. ``idle_seconds``:
        until one is ended. ``interrupt_grace``: seconds after each interrupt, before a worker is
        killed. ``max_folders``: that stay on disk."""
        self._timeout = timeout
        self._allow_unsandboxed = allow_unsandboxed
        self._work_folder = work_folder
        self._temporary: Path | None = None
        self._limits, self._call_limits = limits or ResourceLimits(), call_limits
        self._isolation = isolation
        self._max_workers, self._idle_seconds = max_workers, idle_seconds
        self._interrupt_grace = interrupt_grace
        self._max_folders = max_folders
        self.sessions: dict[str, PythonSession] = {}
        """By conversation id, the most recently used one at the end."""
        self._idle_timers: dict[str, asyncio.TimerHandle] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    def isolation(self) -> Isolation:
        """Return the isolation that code runs in; the first time it is tried out, which blocks."""
        if self._isolation is None:
            self._isolation = sandbox.best_isolation()
        return self._isolation

    def is_safe(self, name: str) -> bool:
        return self.isolation().ok

    def access(self, offered: Collection[str]) -> Access:
        """Return what the code finds in the sandbox, or that there is none."""
        isolation = self.isolation()
        if isolation.ok:
            return Access(
                run=f"Python code in a sandbox ({isolation.name}) with a folder of its own"
            )
        if not self._allow_unsandboxed:
            return Access()
        everything = "everything that you can, by Python code without a sandbox"
        return Access(everything, everything, everything, everything)

    def problem(self) -> str | None:
        isolation = self._isolation
        if isolation is None or isolation.ok or self._allow_unsandboxed:
            return None
        return f"is not available: {isolation.detail}"

    def runs_unconfined(self) -> bool:
        return not self.isolation().ok

    async def start(self) -> None:
        await asyncio.to_thread(self.isolation)

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        await self.start()
        if self._closed:
            raise ToolError("python is closed")
        if problem := self.problem():
            raise ToolError(f"python {problem}")
        key = conversation_id.get()
        session = await self._session(key)
        try:
            return await session.run(arguments["code"])
        finally:
            self._start_idle_timer(key, session)

    async def close(self) -> None:
        self._closed = True
        for timer in self._idle_timers.values():
            timer.cancel()
        await asyncio.gather(
            *self._ending, *(session.close() for session in self.sessions.values())
        )
        if self._temporary is not None:
            await asyncio.to_thread(remove_tree, self._temporary)

    async def _session(self, key: str) -> PythonSession:
        """The conversation's session, now the most recently used one; for a new worker, the longest
        idle one is ended. Raises ToolError if too many are busy."""
        if key in self._idle_timers:
            self._idle_timers.pop(key).cancel()
        session = self.sessions.pop(key, None)
        if session is None:
            self._drop_sessions()
            folder = self._folder(key)
            session = PythonSession(
                folder,
                self.isolation,
                self._limits,
                self._timeout,
                self._interrupt_grace,
                self._call_limits,
            )
        self.sessions[key] = session
        mark_used(session.work_folder)
        if not session.alive:
            idle = [other for other in self.sessions.values() if other.alive and not other.busy]
            alive = sum(other.alive or other.busy for other in self.sessions.values())
            if alive >= self._max_workers and not idle:
                raise ToolError("too many other conversations use python now; try again")
            if alive >= self._max_workers:
                await idle[0].end("was ended to make room for other conversations")
        return session

    def _drop_sessions(self) -> None:
        """Drop the sessions of conversations that are so old that their folders go too."""
        for key in list(self.sessions)[: 1 - self._max_folders]:
            if not (self.sessions[key].alive or self.sessions[key].busy):
                del self.sessions[key]
                if key in self._idle_timers:
                    self._idle_timers.pop(key).cancel()

    def _start_idle_timer(self, key: str, session: PythonSession) -> None:
        if self._closed or self.sessions.get(key) is not session:
            return
        if key in self._idle_timers:
            self._idle_timers.pop(key).cancel()
        call_later = asyncio.get_running_loop().call_later
        # In a context of its own: that of the call would keep its whole turn in memory until then.
        self._idle_timers[key] = call_later(
            self._idle_seconds, self._expire, key, context=Context()
        )

    def _expire(self, key: str) -> None:
        self._idle_timers.pop(key, None)
        session = self.sessions[key]
        if session.busy:
            return  # its call starts the timer again
        ending = asyncio.create_task(
            session.end(f"was idle for {self._idle_seconds:g} s and was ended")
        )
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    def _folder(self, key: str) -> Path:
        if self._work_folder is None:
            self._temporary = self._work_folder = make_temporary_folder("agent-python-")
        folder = conversation_folder(self._work_folder.resolve(), key)
        in_use = [s.work_folder for s in self.sessions.values() if s.alive or s.busy]
        if old := take_old_folders(self._work_folder, self._max_folders - 1, [folder, *in_use]):
            # Deleting one may take minutes; the next process continues where this one ends.
            threading.Thread(target=lambda: [*map(remove_tree, old)], daemon=True).start()
        return folder
