"""The ``python`` tool: a stateful worker for each conversation, confined."""

import asyncio
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from tools.builtin.conversation_folders import MAX_CONVERSATION_FOLDERS, ConversationFolders
from tools.builtin.python.call_limits import CallLimits
from tools.builtin.python.session import PythonSession
from tools.builtin_server import BuiltinServer, ToolError, conversation_id, object_schema
from tools.sandbox import isolation as sandbox
from tools.sandbox.isolation import Isolation
from tools.types import Access, Tool

_PARAMETERS = object_schema(["code"], code="string")


class PythonServer(BuiltinServer):
    """The tool ``python``; each conversation has variables and a working folder of its own."""

    name = "code_interpreter"
    alias = "python"
    default_tools: Sequence[str] = ("python",)
    tools: Sequence[Tool] = (Tool(name, "python", "Run Python code.", _PARAMETERS, "python"),)

    def __init__(
        self,
        *,
        allow_unsandboxed: bool = False,
        work_folder: Path | None = None,
        limits: CallLimits = CallLimits(),
        isolation: Isolation | None = None,
        max_workers: int = 8,
        max_folders: int = MAX_CONVERSATION_FOLDERS,
    ) -> None:
        """``work_folder``: of conversations' folders (None: a temporary one). ``isolation``: None: the
        best that works. ``max_workers``: processes. ``max_folders``: that stay on disk."""
        self._allow_unsandboxed = allow_unsandboxed
        self._folders = ConversationFolders(work_folder, max_folders)
        self._limits, self._max_workers = limits, max_workers
        self._isolation = isolation
        self.sessions: dict[str, PythonSession] = {}
        """By conversation id, the most recently used one at the end."""
        self._closed = False

    def isolation(self) -> Isolation:
        """Return the isolation that code runs in; the first time it is tried out, which blocks."""
        self._isolation = self._isolation or sandbox.best_isolation()
        return self._isolation

    def is_safe(self, name: str) -> bool:
        return self.isolation().ok

    def access(self, offered: Collection[str]) -> Access:
        isolation = self.isolation()
        if isolation.ok:
            run = f"Python code in a sandbox ({isolation.name}) with a folder of its own"
            return Access(run=run)
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
        session = await self._session(conversation_id.get())
        return await session.run(arguments["code"])

    async def close(self) -> None:
        self._closed = True
        await asyncio.gather(*(session.close() for session in self.sessions.values()))

    async def _session(self, key: str) -> PythonSession:
        """The conversation's session, now the most recently used one; for a new worker, the longest
        idle one is ended. Raises ToolError if too many are busy."""
        session, folder = self.sessions.pop(key, None), self._folders.find(key)
        if session is None:
            in_use = {name: s for name, s in self.sessions.items() if s.alive or s.busy}
            self._folders.prune([folder, *(s.work_folder for s in in_use.values())])
            for old in [*self.sessions][: 1 - self._folders.count]:
                if old not in in_use:  # its folder goes too
                    del self.sessions[old]
            session = PythonSession(folder, self.isolation, self._limits)
        self.sessions[key] = session
        if not session.alive:
            idle = [other for other in self.sessions.values() if other.alive and not other.busy]
            alive = sum(other.alive or other.busy for other in self.sessions.values())
            if alive >= self._max_workers and not idle:
                raise ToolError("too many other conversations use python now; try again")
            if alive >= self._max_workers:
                await idle[0].end("was ended to make room for other conversations")
        return session
