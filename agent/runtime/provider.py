"""Decides where the model goes, and makes its engine: another program's, or one that it may share."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.engine.protocol import Engine, EngineError, OutOfMemoryError
from agent.formats.constraints import ArgumentGaps, constraint_of
from agent.formats.protocol import Format
from agent.models.catalog import Model
from agent.models.loader import LoadProgress, ModelLoader
from agent.runtime.background import TypingPause

if TYPE_CHECKING:
    from agent.engine.placement.planner import PlacementPlan
    from agent.engine.shared.engine import SharedEngine
    from agent.engine.shared.server import EngineServer
    from agent.formats.markup.format import MarkupFormat

log = logging.getLogger(__name__)

MAX_LOAD_ATTEMPTS = 4
"""Loads with ever less on the GPUs and ever shorter contexts, where the memory does not suffice."""
SEARCH_AGAIN_SECONDS = 10.0
"""TTL of a negative result when looking for another process's engine."""


class EngineProvider:
    """Provides the engine of the chosen model; its caller runs one method at a time."""

    def __init__(
        self,
        loader: ModelLoader,
        typing_pause: TypingPause,
        *,
        serves_engine: bool,
        own_engine: bool,
        warm_up: Callable[[], None],
        on_use: Callable[[], None],
    ) -> None:
        """``warm_up``: prepares what a first tool call needs. ``on_use``: called when a generation for
        another program begins or ends."""
        self.loader, self.typing_pause, self._warm_up = loader, typing_pause, warm_up
        self.serves_engine, self.own_engine, self._on_use = serves_engine, own_engine, on_use
        self._server: EngineServer | None = None
        self.served_generations = 0
        """Generations that run for other programs."""
        self._searched_at = -math.inf
        """When no other program had the model, by the monotonic clock."""
        self.format: Format | None = None
        """The format of the model that was loaded last, or is being loaded; None before the first."""
        self.placement_plan: PlacementPlan | None = None
        """Where the model's weights go and why; None before that is planned, or without a choice."""
        self.context_length = loader.context or loader.model.context
        """Tokens of prompt and output together; exact once the model is placed or loaded."""
        self.knows_context = loader.context is not None
        self.is_placed = False
        """Whether a plan waits for its load."""
        self.other_format: MarkupFormat | None = None
        """The format of the chosen model, once that is known not to be Harmony."""

    def choose(self, model: Model, context: int | None) -> None:
        self.loader = replace(self.loader, model=model, context=context)
        self.context_length, self.knows_context = context or model.context, context is not None
        self.placement_plan, self.is_placed, self.other_format = None, False, None
        self._searched_at = -math.inf

    def note_loaded(self, engine: Engine) -> None:
        self.context_length, self.knows_context = engine.context_length, True
        self.is_placed = False

    async def find_or_plan(self) -> SharedEngine | None:
        """The engine of another program; None: there is none, and the own one's place is planned and
        ``other_format`` is set. Raises EngineError."""
        shared = await self._find_shared()
        if shared is None:
            await asyncio.gather(self._plan(), self._read_other_format())
        return shared

    async def _read_other_format(self) -> None:
        loader = self.loader
        with suppress(EngineError):  # the load says what is wrong
            form = self.other_format or await asyncio.to_thread(loader.other_format)
            if form is not None and loader is self.loader:  # else another was chosen meanwhile
                self.format = self.other_format = form

    async def provide(self, progress: LoadProgress | None = None, warm_up: bool = False) -> Engine:
        """The engine of another program of this person, or else one that is loaded here. Programs that
        start together do not load the model twice. Raises EngineError."""
        report = _ProgressReport(progress, asyncio.get_running_loop())
        try:
            return await self._provide(report, warm_up)
        except BaseException:
            report.abandoned = True
            self.is_placed = False
            raise

    async def _provide(self, report: _ProgressReport, warm_up: bool) -> Engine:
        if (shared := await self._find_shared()) is not None:
            return shared
        socket = self.loader.shared_socket
        if self.own_engine or socket is None:
            return await self._load_and_serve(report, warm_up)
        from agent.engine.shared.engine import load_lock

        async with load_lock(socket, self.serves_engine):  # no other program loads it meanwhile
            self._searched_at = -math.inf
            if (shared := await self._find_shared()) is not None:
                return shared
            return await self._load_and_serve(report, warm_up)

    async def _find_shared(self) -> SharedEngine | None:
        """The engine of another program of this person that has loaded the model."""
        loader = self.loader
        socket = loader.shared_socket
        # Not `Path.exists`: the folder may be another user's, whose environment was kept by sudo.
        if self.own_engine or socket is None or not os.path.exists(socket):  # noqa: PTH110
            return None
        if time.monotonic() < self._searched_at + SEARCH_AGAIN_SECONDS:
            return None
        # Most programs load a model themselves.
        from agent.engine.shared.engine import find_shared_engine

        async def load_own() -> Engine:  # once the other program is gone
            engine = await self.provide()
            self.is_placed = False
            return engine

        engine = await find_shared_engine(socket, loader.context, load_own)
        if engine is None:
            self._searched_at = time.monotonic()
            return None
        self.format = await asyncio.to_thread(loader.create_format)
        return engine

    async def _load_and_serve(self, report: _ProgressReport, warm_up: bool) -> Engine:
        await self.loader.recover_from_crash()
        if not self.is_placed:
            await self._plan()
        own = await self._load_with_retries(report, warm_up)
        try:
            if self.serves_engine and (socket := self.loader.shared_socket) is not None:
                await self._serve(own, socket)
        except BaseException:
            await self.close(own)  # it is not shared yet
            raise
        return own

    async def _serve(self, engine: Engine, socket: Path) -> None:
        """Let other programs of this person use the engine."""
        from agent.engine.forced_tokens import SPEC_FIELD, ForcedTokens
        from agent.engine.shared.server import EngineServer, WatchedConstraint

        form = self.format

        def make_constraint(spec: Mapping[str, Any]) -> WatchedConstraint:
            if SPEC_FIELD in spec:
                return ForcedTokens([*map(index, spec[SPEC_FIELD])]), dict
            assert form is not None
            return constraint_of(form, spec), ArgumentGaps(form, spec).new

        def on_use(begins: bool) -> None:
            self.served_generations += 1 if begins else -1
            self._on_use()

        self._server = EngineServer(engine, make_constraint, on_use)
        if not await self._server.start(socket):
            self._server = None

    async def close(self, engine: Engine) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.stop()
        await engine.close()
        if server is not None:
            await server.close()

    async def _load_with_retries(self, report: _ProgressReport, warm_up: bool) -> Engine:
        for attempt in range(1, MAX_LOAD_ATTEMPTS + 1):
            plan = self.placement_plan
            placement = self.loader.placement(plan)
            create = self.loader.create_engine
            engine, create_format = await asyncio.to_thread(create, placement, report.from_thread)
            try:
                with self.loader.crash_marker(plan):
                    loading = asyncio.create_task(engine.load(report.from_loop))
                    try:  # while llama.cpp reads the file
                        await self.typing_pause.wait(loading)
                        self.format = self.other_format or await asyncio.to_thread(create_format)
                        # The embedded model is loaded sooner than the tools are warm.
                        if warm_up and not self.loader.model.embedded:
                            self._warm_up()
                        await loading
                    except BaseException:
                        loading.cancel()
                        await asyncio.wait([loading])
                        await engine.close()
                        raise
                return engine
            except OutOfMemoryError as error:
                if plan is None or attempt == MAX_LOAD_ATTEMPTS:
                    raise
                log.warning("%s Trying with less.", error)
                await self._plan(attempt)
                if self.placement_plan and self.placement_plan.placement == plan.placement:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _plan(self, failed_attempts: int = 0) -> None:
        self.placement_plan = await asyncio.to_thread(self.loader.plan, failed_attempts)
        self.is_placed = True
        if self.loader.is_local:
            self.context_length = self.loader.placement(self.placement_plan).context
            self.knows_context = True


class _ProgressReport:
    """Passes progress on: the first half of a load is the file and its vocabulary."""

    def __init__(self, progress: LoadProgress | None, loop: asyncio.AbstractEventLoop) -> None:
        self._progress, self._loop = progress, loop
        self.abandoned = False
        """Whether the load is no longer waited for."""

    def from_thread(self, fraction: float) -> None:
        """Report the first half; ends the thread by an EngineError once the load is abandoned."""
        if self.abandoned:
            raise EngineError("The load was stopped.")
        if self._progress is not None:
            self._loop.call_soon_threadsafe(self._progress, fraction / 2)

    def from_loop(self, fraction: float) -> None:
        if self._progress is not None:
            self._progress(0.5 + fraction / 2)
