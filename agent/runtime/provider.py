"""Decides where the model goes, and makes its engine: another program's, or one that is loaded here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.engine.placement.placement import Placement
from agent.engine.protocol import Engine, EngineError, OutOfMemoryError
from agent.formats.protocol import Format
from agent.models.catalog import Model
from agent.models.loader import ModelLoader
from agent.runtime.idle import TypingPause
from agent.runtime.sharing import EngineSharing

if TYPE_CHECKING:
    from agent.engine.placement.planner import PlacementPlan
    from agent.engine.shared.engine import SharedEngine
    from agent.formats.markup.format import MarkupFormat

log = logging.getLogger(__name__)

MAX_LOAD_ATTEMPTS = 4
"""Loads with ever less on the GPUs and ever shorter contexts, where the memory does not suffice."""


class EngineProvider:
    """Provides the engine of the chosen model; its caller runs one method at a time."""

    def __init__(
        self,
        loader: ModelLoader,
        sharing: EngineSharing,
        typing_pause: TypingPause,
        warm_up: Callable[[], None],
    ) -> None:
        """``warm_up``: prepares what a first tool call needs."""
        self.loader, self.sharing = loader, sharing
        self.typing_pause, self._warm_up = typing_pause, warm_up
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
        self.sharing.search_again()

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

    async def provide(
        self, progress: Callable[[float], None] | None = None, warm_up: bool = False
    ) -> Engine:
        """The engine of another program of this person, or else one that is loaded here.

        Programs that start together do not load the model twice. Raises EngineError.
        """
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
        if self.sharing.own_engine or socket is None:
            return await self._load_and_serve(report, warm_up)
        async with self.sharing.loading_alone(socket):
            if (shared := await self._find_shared()) is not None:
                return shared
            return await self._load_and_serve(report, warm_up)

    async def _find_shared(self) -> SharedEngine | None:
        async def load_own() -> Engine:
            engine = await self.provide()
            self.is_placed = False
            return engine

        loader = self.loader
        engine = await self.sharing.find(loader.shared_socket, loader.context, load_own)
        if engine is not None:
            create = loader.create_engine
            _, create_format = await asyncio.to_thread(create, Placement(), lambda done: None)
            self.format = await asyncio.to_thread(create_format)
        return engine

    async def _load_and_serve(self, report: _ProgressReport, warm_up: bool) -> Engine:
        await self.loader.recover_from_crash()
        if not self.is_placed:
            await self._plan()
        own = await self._load_with_retries(report, warm_up)
        try:
            await self.sharing.serve(own, self.format, self.loader.shared_socket)
        except BaseException:
            await self.sharing.close(own)  # it is not shared yet
            raise
        return own

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

    def __init__(
        self, progress: Callable[[float], None] | None, loop: asyncio.AbstractEventLoop
    ) -> None:
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
