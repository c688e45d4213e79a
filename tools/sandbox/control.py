"""The link to the process that supervises a command: it ends with us, and says what was reached."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable
from typing import Any

OnContact = Callable[[dict[str, Any]], None]
"""Receives the first contact with a host: ``host``, ``port``, and ``refused``, why, if it was."""


class SupervisorLink:
    """A pair of sockets: ``descriptor`` is for ``supervise.py``, which ends all when ours closes."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self.descriptor = self._theirs.fileno()
        self._reading: asyncio.Task[None] | None = None

    def follow(self, on_contact: OnContact) -> None:
        """Read what the supervisor reports, once it has been started."""
        self._theirs.close()
        self._reading = asyncio.create_task(self._read(on_contact))

    async def _read(self, on_contact: OnContact) -> None:
        reader, writer = await asyncio.open_connection(sock=self._ours)
        with contextlib.closing(writer), contextlib.suppress(OSError):  # it was killed
            while line := await reader.readline():
                on_contact(json.loads(line))

    def close(self) -> None:
        self._theirs.close()
        if self._reading is None:
            self._ours.close()
        else:
            with contextlib.suppress(OSError):  # it has ended
                self._ours.shutdown(socket.SHUT_WR)

    async def drain(self) -> None:
        """Read what the supervisor has reported until its end."""
        if self._reading is not None:
            await self._reading
