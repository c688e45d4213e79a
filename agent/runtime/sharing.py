"""One loaded model for several programs of a person: finds an engine that another program has, and lets
others use this program's."""

from __future__ import annotations

import math
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.engine.protocol import Constraint, Engine
from agent.formats.constraints import ArgumentGaps, ConstrainableFormat, constraint_of
from agent.formats.protocol import Format

if TYPE_CHECKING:
    from agent.engine.shared.engine import SharedEngine
    from agent.engine.shared.server import EngineServer

SEARCH_AGAIN_SECONDS = 10.0
"""TTL of a negative result when looking for another process's engine."""


class EngineSharing:
    """The search for another program's engine, and the server of this one's."""

    def __init__(
        self, *, serves_engine: bool, own_engine: bool, on_use: Callable[[], None]
    ) -> None:
        """``on_use``: called when a generation for another program begins or ends."""
        self._serves_engine, self.own_engine = serves_engine, own_engine
        self._on_use = on_use
        self._server: EngineServer | None = None
        self.running = 0
        """Generations that run for other programs."""
        self._searched_at = -math.inf
        """When no other program had the model, by the monotonic clock."""

    def search_again(self) -> None:
        self._searched_at = -math.inf

    async def find(
        self,
        socket: Path | None,
        context: int | None,
        load_own: Callable[[], Coroutine[Any, Any, Engine]],
    ) -> SharedEngine | None:
        """The engine of another program of this person that has loaded the model. ``load_own``: loads
        one here once that is gone."""
        # Not `Path.exists`: the folder may be another user's, whose environment was kept by sudo.
        if self.own_engine or socket is None or not os.path.exists(socket):  # noqa: PTH110
            return None
        if time.monotonic() < self._searched_at + SEARCH_AGAIN_SECONDS:
            return None
        # Most programs load a model themselves.
        from agent.engine.shared.engine import find_shared_engine

        engine = await find_shared_engine(socket, context, load_own)
        if engine is None:
            self._searched_at = time.monotonic()
        return engine

    @asynccontextmanager
    async def loading_alone(self, socket: Path) -> AsyncIterator[None]:
        """Let no other program of this person load the model meanwhile; search for it again within."""
        from agent.engine.shared.load_lock import load_lock

        async with load_lock(socket, self._serves_engine):
            self.search_again()
            yield

    async def serve(self, engine: Engine, form: Format | None, socket: Path | None) -> None:
        """Let other programs of this person use the engine, where this program is to do so."""
        if not self._serves_engine or socket is None:
            return
        from agent.engine.forced_tokens import SPEC_FIELD, ForcedTokens
        from agent.engine.shared.server import EngineServer

        def make_constraint(spec: Mapping[str, Any]) -> Constraint:
            if SPEC_FIELD in spec:
                return ForcedTokens([*map(index, spec[SPEC_FIELD])])
            assert isinstance(form, ConstrainableFormat)
            return constraint_of(form, spec)

        def watch_gaps(spec: Mapping[str, Any]) -> Callable[[], dict[str, str]]:
            if SPEC_FIELD in spec:
                return dict
            assert isinstance(form, ConstrainableFormat)
            return ArgumentGaps(form, spec).new

        def on_use(begins: bool) -> None:
            self.running += 1 if begins else -1
            self._on_use()

        self._server = EngineServer(engine, make_constraint, on_use, watch_gaps)
        if not await self._server.start(socket):
            self._server = None

    async def close(self, engine: Engine) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.stop()
        await engine.close()
        if server is not None:
            await server.close()
