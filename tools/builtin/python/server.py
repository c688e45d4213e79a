"""The ``python`` tool: a stateful worker for each conversation, confined."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from contextvars import Context
from pathlib import Path
from typing import Any

from tools.builtin.base import HandError, conversation, folder_of, prune, used
from tools.builtin.python.session import Session
from tools.sandbox import isolation as sandbox
from tools.sandbox.isolation import Isolation, Limits
from tools.types import Tool

FOLDERS = 100
"""Conversations whose working folders are kept; the oldest go first."""


class Python:
    """A hand: server ``code_interpreter``, tool ``python``. Each conversation has its own variables
    and its own working folder."""

    name = "code_interpreter"
    short = "python"
    default: Sequence[str] = ("python",)
    tools: Sequence[Tool] = (
        Tool(
            server="code_interpreter",
            name="python",
            description="Run Python code.",
            parameters={
                "type": "object",
                "properties": {"code": {"type": "string"}},
                "required": ["code"],
            },
            model_name="python",
        ),
    )

    def __init__(
        self,
        *,
        timeout: float = 120.0,
        allow_unsandboxed: bool = False,
        work: Path | None = None,
        limits: Limits | None = None,
        isolation: Isolation | None = None,
        sessions: int = 8,
        idle: float = 1800.0,
    ) -> None:
        """``timeout``: seconds per call. ``work``: below it every conversation has its folder (None:
        a temporary one, removed at the end). ``isolation``: None picks the best that works here.
        ``sessions``: workers that live at a time. ``idle``: seconds after which one is ended."""
        self._timeout = timeout
        self._allow_unsandboxed = allow_unsandboxed
        self._work = work
        self._temporary: Path | None = None
        self._limits = limits or Limits()
        self._isolation = isolation
        self._most, self._idle = sessions, idle
        self._sessions: dict[str, Session] = {}
        """By conversation, the one used last at the end."""
        self._clocks: dict[str, asyncio.TimerHandle] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    def isolation(self) -> Isolation:
        """What stands between the code and this machine; the first time it is tried out, and blocks."""
        if self._isolation is None:
            self._isolation = sandbox.isolation()
        return self._isolation

    def contained(self, name: str) -> bool:
        return self.isolation().ok

    def problem(self) -> str | None:
        way = self._isolation
        if way is None or way.ok or self._allow_unsandboxed:
            return None
        return f"is not available: {way.detail}"

    def preview(self, name: str, arguments: dict[str, Any]) -> str | None:
        return None

    async def start(self) -> None:
        await asyncio.to_thread(self.isolation)

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        await self.start()
        if self._closed:
            raise HandError("Error: python is closed")
        if problem := self.problem():
            raise HandError(f"Error: python {problem}")
        key = conversation.get()
        session = await self._session(key)
        try:
            return await session.run(arguments["code"])
        finally:
            self._wind(key, session)

    async def close(self) -> None:
        self._closed = True
        for clock in self._clocks.values():
            clock.cancel()
        await asyncio.gather(*self._ending, *(one.close() for one in self._sessions.values()))
        if self._temporary is not None:
            await asyncio.to_thread(shutil.rmtree, self._temporary, ignore_errors=True)

    async def _session(self, key: str) -> Session:
        """The conversation's, now the last used; where too many live, the longest idle one ends."""
        if key in self._clocks:
            self._clocks.pop(key).cancel()
        session = self._sessions.pop(key, None)
        if session is None:
            self._forget()
            folder = self._folder(key)
            session = Session(folder, self.isolation, self._limits, self._timeout)
        self._sessions[key] = session
        used(session.work)
        if not session.alive:
            others = [one for one in self._sessions.values() if one.alive and not one.busy]
            living = sum(one.alive or one.busy for one in self._sessions.values())
            if living >= self._most and not others:
                raise HandError("Error: too many other conversations use python now; try again")
            if living >= self._most:
                await others[0].end("was ended to make room for other conversations")
        return session

    def _forget(self) -> None:
        """Those whose folders are not kept either."""
        for key in list(self._sessions)[: 1 - FOLDERS]:
            if not (self._sessions[key].alive or self._sessions[key].busy):
                del self._sessions[key]
                if key in self._clocks:
                    self._clocks.pop(key).cancel()

    def _wind(self, key: str, session: Session) -> None:
        """Start the session's idle time."""
        if self._closed or self._sessions.get(key) is not session:
            return
        if key in self._clocks:
            self._clocks.pop(key).cancel()
        later = asyncio.get_running_loop().call_later
        # In a context of its own: that of the call would keep its whole turn in memory until then.
        self._clocks[key] = later(self._idle, self._expire, key, context=Context())

    def _expire(self, key: str) -> None:
        self._clocks.pop(key, None)
        session = self._sessions[key]
        if session.busy:
            return  # its call winds the clock again
        ending = asyncio.create_task(session.end(f"was idle for {self._idle:g} s and was ended"))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    def _folder(self, key: str) -> Path:
        if self._work is None:
            self._temporary = self._work = Path(tempfile.mkdtemp(prefix="agent-python-")).resolve()
        folder = folder_of(self._work.resolve(), key)
        live = [one.work for one in self._sessions.values() if one.alive or one.busy]
        prune(self._work, FOLDERS - 1, [folder, *live])
        return folder
