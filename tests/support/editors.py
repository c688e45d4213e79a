"""An editor that speaks ACP with the program, for tests."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp.schema as S
from acp.client.connection import ClientSideConnection
from acp.stdio import spawn_agent_process

from tests.support import forks
from tests.support.waiting import HANG_SECONDS

UNSET = S.FileSystemCapabilities()


class Editor:
    """Records what it is told, and answers every question with ``choice``."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.questions: list[tuple[S.ToolCallUpdate, list[S.PermissionOption]]] = []
        self.choice: str | None = "once"
        self.files: dict[str, str] = {}
        self.changed = asyncio.Event()
        """Set at each update and question."""

    def on_connect(self, agent: Any) -> None:
        """Nothing: the test has the connection."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        self.changed.set()

    async def request_permission(
        self,
        session_id: str,
        tool_call: S.ToolCallUpdate,
        options: list[S.PermissionOption],
        **_: Any,
    ) -> S.RequestPermissionResponse:
        self.questions.append((tool_call, options))
        self.changed.set()
        if self.choice is None:
            await asyncio.Event().wait()
        assert self.choice is not None
        if self.choice == "cancelled":
            return S.RequestPermissionResponse(outcome=S.DeniedOutcome(outcome="cancelled"))
        chosen = S.AllowedOutcome(outcome="selected", option_id=self.choice)
        return S.RequestPermissionResponse(outcome=chosen)

    async def read_text_file(self, session_id: str, path: str, **_: Any) -> S.ReadTextFileResponse:
        return S.ReadTextFileResponse(content=self.files[path])

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> None:
        self.files[path] = content

    def text(self, kind: str = "agent_message_chunk") -> str:
        """The joined text of all chunks of a kind."""
        chunks = (u for u in self.updates if u.session_update == kind)
        return "".join(getattr(chunk.content, "text", "") for chunk in chunks)

    def modes(self) -> list[str]:
        """The mode in each update that has one."""
        modes = []
        for update in self.updates:
            if update.session_update == "current_mode_update":
                modes.append(update.current_mode_id)
            elif update.session_update == "config_option_update":
                modes += [o.current_value for o in update.config_options if o.id == "mode"]
        return modes

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds, which an update or a question can make true."""
        async with asyncio.timeout(HANG_SECONDS):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def open_editor(
    home: Path, *arguments: str, files: S.FileSystemCapabilities = UNSET
) -> AsyncIterator[tuple[Editor, ClientSideConnection, asyncio.subprocess.Process]]:
    """Start the program for an editor that has introduced itself."""
    editor = Editor()
    async with spawn_agent_process(
        editor,  # type: ignore[arg-type]
        *forks.relay(), "acp", *arguments,
        env={**os.environ, "AGENT_HOME": str(home)},
        use_unstable_protocol=True,
    ) as (agent, process):  # fmt: skip
        capabilities = S.ClientCapabilities(fs=files)
        await agent.initialize(protocol_version=1, client_capabilities=capabilities)
        yield editor, agent, process


def script_option(folder: Path, *replies: str | dict[str, Any]) -> tuple[str, str]:
    """Write a script of replies; return the options that run it."""
    file = folder / "replies.jsonl"
    lines = [each if isinstance(each, dict) else {"markup": each} for each in replies]
    file.write_text("\n".join(map(json.dumps, lines)))
    return "--engine", f"script:{file}"
