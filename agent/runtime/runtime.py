"""The model, its engine and the tools of one process: what every turn of every interface runs on.

A runtime is cheap to make. The model is loaded by the first turn or by ``ready()``, unloaded after
``keep_alive`` seconds without a turn, and loaded again by the next one::

    not loaded --load--> loaded --unload, switch--> asleep --load--> loaded
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.config.paths import Paths
from agent.conversation.summary import SummaryCache
from agent.engine.grammars import ANY_OBJECT
from agent.engine.placement.placement import DEFAULT_SEQUENCES, Placement
from agent.engine.protocol import (
    Constraint,
    Engine,
    EngineError,
    Generation,
    OutOfMemoryError,
    Request,
)
from agent.formats.constraints import ArgumentGaps, ConstrainableFormat, constraint_of
from agent.formats.protocol import Format
from agent.models.catalog import Model
from agent.models.loaded import LoadedModel
from agent.models.loader import ModelLoader
from agent.runtime.hub import Hub
from agent.runtime.idle_timers import PROBE_IDLE_SECONDS, WARM_UP_IDLE_SECONDS, IdleTimers
from agent.runtime.prefetch import Prefetcher
from agent.runtime.typing_pause import TypingPause
from agent.turn.context import RunningTurn
from agent.util import gc_tuning
from tools.mcp.host import Host
from tools.policy.approvals import Policy

if TYPE_CHECKING:
    from agent.engine.placement.planner import PlacementPlan
    from agent.engine.remote.endpoint import ReplicaState
    from agent.engine.remote.engine import RemoteEngine
    from agent.engine.shared.engine import SharedEngine
    from agent.engine.shared.server import EngineServer

log = logging.getLogger(__name__)

MAX_LOAD_ATTEMPTS = 4
"""Loads with ever less on the GPUs and ever shorter contexts, where the memory does not suffice."""
SEARCH_AGAIN_SECONDS = 10.0
"""TTL of a negative result when looking for another process's engine."""
SERVER_WAIT_SECONDS = 5.0
"""Time that an optional MCP server may delay an interactive turn."""

WrapGeneration = Callable[[Generation, Request, Format], Generation]
"""Wraps a generation, to watch what it yields."""


class Runtime:
    """Loads and unloads the model, and starts generations on it. One per process."""

    def __init__(
        self,
        model: Model,
        host: Host,
        policy: Policy,
        paths: Paths,
        *,
        script: Path | None = None,
        context: int | None = None,
        keep_alive: float | None = None,
        prefix_cache_bytes: int | None = None,
        sequences: int = DEFAULT_SEQUENCES,
        serves_engine: bool = False,
        own_engine: bool = False,
        wrap_generation: WrapGeneration | None = None,
        warm_up_seconds: float = WARM_UP_IDLE_SECONDS,
        probe_seconds: float = PROBE_IDLE_SECONDS,
    ) -> None:
        """``script``: replies come from this file instead of a model (`agent.engine.scripted`).

        ``context``: the wanted context length in tokens; None: as much as is reasonable.
        ``keep_alive``: seconds without a turn after which the model is unloaded; None: never.
        ``serves_engine``: other programs of this person may use the loaded model. ``own_engine``: load
        the model also where another program has done so.
        ``prefix_cache_bytes``: of the prefix cache on disk; 0: none; None: as many as are reasonable.
        ``sequences``: generations that run side by side, where the model is loaded here.
        ``warm_up_seconds``, ``probe_seconds``: idle times, see `agent.runtime.idle_timers`.
        """
        self.host, self.policy, self.paths = host, policy, paths
        self.loader = ModelLoader(model, paths, script, context, prefix_cache_bytes, sequences)
        self.hub = Hub()
        self.summaries = SummaryCache()
        self.context_length = context or model.context
        """Tokens of prompt and output together; exact once the model is placed or loaded."""
        self._context_known = context is not None
        self.placement_plan: PlacementPlan | None = None
        """Where the model's weights go and why; None before that is planned, or without a choice."""
        self.aliases: tuple[str, ...] = ()
        """Names by which clients of a server may call the model, whichever it is."""
        self.keep_alive, self.server_wait_seconds = keep_alive, SERVER_WAIT_SECONDS
        self.token_events = False
        """Whether turns that start from now on emit ``agent.prompt`` and ``agent.tokens``; set by an
        interface that shows or writes tokens."""
        self.loaded: LoadedModel | None = None
        """The model that is in memory."""
        self.asleep: LoadedModel | None = None
        """The model that was unloaded after idle time; the next turn loads one again."""
        self.format: Format | None = None
        """The format of the model that was loaded last, or is being loaded; None before the first."""
        self.running_turns = 0
        """Turns that have not ended, and other uses of the model (`in_use`)."""
        self._ending = asyncio.Event()
        self._serves_engine, self._own_engine = serves_engine, own_engine
        self._engine_server: EngineServer | None = None
        self._served = 0
        """Generations that run for other programs."""
        self._searched_at = -math.inf
        """When no other program had the model, by the monotonic clock."""
        self._wrap_generation = wrap_generation
        self._close_callbacks: list[Callable[[], Awaitable[None]]] = []
        self.prefetcher = Prefetcher(self._generate)
        self.idle_timers = IdleTimers(
            unload=self.unload,
            warm_up=self._warm_up,
            probe=lambda: self.loader.probe_repacking(self.placement_plan),
            warm_up_seconds=warm_up_seconds,
            probe_seconds=probe_seconds,
        )
        self._typing_pause = TypingPause()
        self._lock = asyncio.Lock()
        """Held while the model is placed, loaded or unloaded."""
        self._placed = False

    @property
    def model(self) -> Model:
        """The chosen model; it may not be loaded yet."""
        return self.loader.model

    @property
    def engine_name(self) -> str:
        """The engine of the model: ``llama.cpp``, ``script``, or the kind of its server."""
        return self.loader.engine_name

    @property
    def script(self) -> Path | None:
        """The file of the scripted engine's replies; None where a model runs."""
        return self.loader.script

    async def start(self) -> None:
        """Begin to connect the MCP servers; the model waits for the first turn or `ready`."""
        await self.host.start()

    async def ready(self, progress: Callable[[float], None] | None = None) -> None:
        """Load the model and wait for the MCP servers, for slow ones not long. Raises EngineError."""
        servers = self.host.wait_for_turn(timeout=self.server_wait_seconds)
        await asyncio.gather(self.load(progress), servers)

    def stop_waiting(self) -> None:
        """Let `in_use` wait for the model no longer: the program is about to end."""
        self._ending.set()

    async def _ready_unless_ending(self) -> None:
        """`ready`, up to `stop_waiting`. Raises EngineError."""
        ready = asyncio.ensure_future(self.ready())
        ending = asyncio.ensure_future(self._ending.wait())
        try:
            await asyncio.wait({ready, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                raise EngineError("This program is ending: it does not wait for the model.")
            ready.result()
        finally:
            ready.cancel()
            ending.cancel()

    @asynccontextmanager
    async def in_use(self) -> AsyncIterator[LoadedModel]:
        """Make `ready` and keep the model loaded until the context ends. Raises EngineError."""
        self._typing_pause.hurry()
        try:
            await self._ready_unless_ending()
            while (loaded := self.loaded) is None:  # another was chosen in that moment
                await self.load()
            self.begin_turn()
        finally:
            self._typing_pause.relax()
        try:
            yield loaded
        finally:
            self.end_turn()

    def on_close(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Await ``callback`` when the runtime is closed, after the tools and before the engine."""
        self._close_callbacks.append(callback)

    async def close(self) -> None:
        """End the MCP servers and the engine."""
        await self.idle_timers.close()
        await self.host.close()
        for callback in self._close_callbacks:
            await callback()
        if (loaded := self.loaded) is not None:
            self.loaded = None
            await self._close_engine(loaded.engine)

    async def _close_engine(self, engine: Engine) -> None:
        server, self._engine_server = self._engine_server, None
        if server is not None:
            server.stop()
        await engine.close()
        if server is not None:
            await server.close()

    # --- generations ---

    def generate(self, request: Request) -> Generation:
        """Start a generation on the loaded model. Raises EngineError."""
        if request.auxiliary:
            self.restart_idle_timers()  # someone looks at tokens
        elif self.running_turns <= 1:
            # With several turns, the prefetched prompt may be another conversation's.
            self.prefetcher.cancel()
        return self._generate(request)

    def _generate(self, request: Request) -> Generation:
        if (loaded := self.loaded) is None:
            raise EngineError("The model is not loaded.")
        generation = loaded.engine.generate(request)
        if self._wrap_generation is None:
            return generation
        return self._wrap_generation(generation, request, loaded.format)

    def prefetch(
        self,
        ids: list[int],
        *,
        head_tokens: int = 0,
        affinity_tokens: int = 0,
        private: bool = False,
    ) -> None:
        """Put the beginning of the next prompt into the engine's memory, in the background.

        It takes the place of what was prefetched before; nothing happens while no model is loaded.
        ``head_tokens``, ``affinity_tokens``, ``private``: as in `agent.engine.protocol.Request`.
        """
        if self.loaded is not None and ids:
            request = Request(
                ids,
                max_tokens=0,
                background=True,
                head_tokens=head_tokens,
                affinity_tokens=affinity_tokens,
                private=private,
            )
            self.prefetcher.start(request)

    # --- turns ---

    def publish(self, turn: RunningTurn) -> None:
        """Notify the hub's subscribers of a turn that has started."""
        self.hub.publish(turn)

    def begin_turn(self) -> None:
        """Keep the model loaded until `end_turn`."""
        self.running_turns += 1
        self.idle_timers.cancel()
        self._typing_pause.hurry()

    def end_turn(self) -> None:
        """Undo one `begin_turn`."""
        self.running_turns -= 1
        self._typing_pause.relax()
        self.restart_idle_timers()

    def on_keystroke(self) -> None:
        """Postpone idle work, which would delay the echo of the keys being typed."""
        self._typing_pause.on_keystroke()
        self.restart_idle_timers()

    def restart_idle_timers(self) -> None:
        """Begin to wait for idle time, where a model is loaded and no turn runs."""
        if self.running_turns or self._served or self.loaded is None:
            return
        self.idle_timers.restart(
            keep_alive=self.keep_alive,
            warm_up=self.script is None,
            probe=self.loader.is_local,
        )

    def _warm_up(self) -> None:
        """Prepare in the background what the first tool call would wait for."""
        self.host.connect_builtins()
        if self.script is None and isinstance(self.format, ConstrainableFormat):
            self.format.grammars.submit(ANY_OBJECT)

    # --- the model ---

    async def plan_placement(self) -> None:
        """Decide where the model goes, so that the context length is known.

        Never fails: `load` says what does not fit. A model of a server or of another program is loaded,
        for only those know.
        """
        if self._placed or self.loaded is not None or self._lock.locked():
            return
        if self.loader.model.endpoint and not self.script:
            with suppress(EngineError, TimeoutError):
                async with asyncio.timeout(self.server_wait_seconds):
                    await self.load()
            return
        async with self._lock:
            with suppress(EngineError):
                if (shared := await self._find_shared_engine()) is not None:
                    self._adopt(shared)
                else:
                    await self._plan_placement()

    def _remote_engine(self) -> RemoteEngine | None:
        current = self.loaded or self.asleep
        if self.loader.is_local or self.script is not None or current is None:
            return None
        # Only a remote model's program imports the HTTP client.
        from agent.engine.remote.engine import RemoteEngine

        engine = current.engine
        return engine if isinstance(engine, RemoteEngine) else None  # another may be chosen

    def replica_states(self) -> list[ReplicaState]:
        """Return the state of the servers that run the model; empty: it runs here."""
        engine = self._remote_engine()
        return engine.replicas.states() if engine is not None else []

    async def health_problem(self) -> str | None:
        """Why the loaded model cannot answer now, in a sentence; None: it can, as far as is known.

        A remote model's server is asked, at most once a second.
        """
        if (engine := self._remote_engine()) is None:
            return None
        problem = await engine.cached_health()
        # Its address is not disclosed to all clients.
        return None if problem is None else f"The {self.engine_name} that runs the model {problem}."

    async def unload(self) -> None:
        """Free the model's memory until the next turn; does nothing while a turn runs."""
        async with self._lock:
            loaded = self.loaded
            if self.running_turns or self._served or loaded is None:
                return
            self.loaded, self.asleep = None, loaded
            self.prefetcher.cancel()
            await self._close_engine(loaded.engine)
            log.info("%s was unloaded", self.model.name)

    async def switch(self, model: Model, *, context: int | None = None) -> None:
        """Run another model; the old one's memory is free then. Raises EngineError in a turn."""
        if not self.running_turns:
            await self.unload()  # a turn may begin while this waits for a load
        if self.running_turns:
            raise EngineError("A turn is running: stop it before you change the model.")
        if self.loaded is not None:
            raise EngineError(
                "Another program of yours uses the model: change it when that has its answer."
            )
        self.loader = replace(self.loader, model=model, context=context)
        self.context_length, self._context_known = context or model.context, context is not None
        self.placement_plan, self._placed, self._searched_at = None, False, -math.inf

    @property
    def known_context_length(self) -> int | None:
        """`context_length`, unless that is an assumption so far."""
        return self.context_length if self._context_known else None

    async def load(
        self, progress: Callable[[float], None] | None = None, *, warm_up: bool = False
    ) -> LoadedModel:
        """Load the model unless it is in memory. Raises EngineError.

        ``progress`` gets 0…1. ``warm_up``: prepare meanwhile what a first tool call needs.
        """
        async with self._lock:
            if self.loaded is not None:
                return self.loaded
            report = _ProgressReport(progress, asyncio.get_running_loop())
            try:
                engine = await self._share_or_load(report, warm_up)
            except BaseException:
                report.abandoned = True
                self._placed = False
                raise
            loaded = self._adopt(engine)
        gc_tuning.resume(gc_tuning.HEADLESS_THRESHOLDS)  # does nothing in the app, which did before
        self.restart_idle_timers()
        return loaded

    def _adopt(self, engine: Engine) -> LoadedModel:
        """Take a loaded engine as this program's."""
        form = self.format
        assert form is not None
        self.context_length, self._context_known = engine.context_length, True
        # All models of GPT-OSS have the same vocabulary.
        vocabulary = "o200k_harmony" if form.name == "harmony" else self.model.name
        scripted = self.script is not None
        self.loaded = loaded = LoadedModel(engine, form, vocabulary, not scripted)
        self.asleep, self._placed = None, False
        return loaded

    async def _find_shared_engine(self) -> SharedEngine | None:
        """The engine of another program of this person that has loaded the model."""
        socket = self.loader.shared_socket
        # Not `Path.exists`: the folder may be another user's, whose environment was kept by sudo.
        if self._own_engine or socket is None or not os.path.exists(socket):  # noqa: PTH110
            return None
        if time.monotonic() < self._searched_at + SEARCH_AGAIN_SECONDS:
            return None
        # Most programs load a model themselves.
        from agent.engine.shared.engine import find_shared_engine

        async def load_own() -> Engine:
            try:
                report = _ProgressReport(None, asyncio.get_running_loop())
                return await self._share_or_load(report)
            finally:
                self._placed = False

        engine = await find_shared_engine(socket, self.loader.context, load_own)
        if engine is None:
            self._searched_at = time.monotonic()
        else:
            create = self.loader.create_engine
            _, create_format = await asyncio.to_thread(create, Placement(), lambda done: None)
            self.format = await asyncio.to_thread(create_format)
        return engine

    async def _serve_engine(self, engine: Engine) -> None:
        """Let other programs of this person use the engine, where this program is to do so."""
        socket, form = self.loader.shared_socket, self.format
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
            self._served += 1 if begins else -1
            if begins:
                self.idle_timers.cancel()
            else:
                self.restart_idle_timers()

        self._engine_server = EngineServer(engine, make_constraint, on_use, watch_gaps)
        if not await self._engine_server.start(socket):
            self._engine_server = None

    async def _share_or_load(self, report: _ProgressReport, warm_up: bool = False) -> Engine:
        """The engine of another program of this person, or else one that is loaded here.

        Programs that start together do not load the model twice. Raises EngineError.
        """
        if (shared := await self._find_shared_engine()) is not None:
            return shared
        socket = self.loader.shared_socket
        if self._own_engine or socket is None:
            return await self._load_and_serve(report, warm_up)
        from agent.engine.shared.load_lock import load_lock

        async with load_lock(socket, self._serves_engine):
            self._searched_at = -math.inf
            if (shared := await self._find_shared_engine()) is not None:
                return shared
            return await self._load_and_serve(report, warm_up)

    async def _load_and_serve(self, report: _ProgressReport, warm_up: bool) -> Engine:
        own = await self._load_own_engine(report, warm_up)
        try:
            await self._serve_engine(own)
        except BaseException:
            await self._close_engine(own)  # it is not shared yet
            raise
        return own

    async def _load_own_engine(self, report: _ProgressReport, warm_up: bool) -> Engine:
        await self.loader.recover_from_crash()
        if not self._placed:
            await self._plan_placement()
        return await self._load_with_retries(report, warm_up)

    async def _load_with_retries(self, report: _ProgressReport, warm_up: bool) -> Engine:
        """Load the engine; where the memory does not suffice after all, with less on the GPUs."""
        for attempt in range(1, MAX_LOAD_ATTEMPTS + 1):
            plan = self.placement_plan
            placement = self.loader.placement(plan)
            create = self.loader.create_engine
            engine, create_format = await asyncio.to_thread(create, placement, report.from_thread)
            try:
                with self.loader.crash_marker(plan):
                    loading = asyncio.create_task(engine.load(report.from_loop))
                    try:  # while llama.cpp reads the file
                        await self._typing_pause.wait(loading)
                        self.format = await asyncio.to_thread(create_format)
                        if warm_up and not self.model.embedded:  # which would be loaded before
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
                await self._plan_placement(attempt)
                if self.placement_plan and self.placement_plan.placement == plan.placement:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _plan_placement(self, failed_attempts: int = 0) -> None:
        self.placement_plan = await asyncio.to_thread(self.loader.plan, failed_attempts)
        self._placed = True
        if self.loader.is_local:
            self.context_length = self.loader.placement(self.placement_plan).context
            self._context_known = True


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
        """Report the second half."""
        if self._progress is not None:
            self._progress(0.5 + fraction / 2)
