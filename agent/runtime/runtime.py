"""One process's engine, format and tools: what every turn of every face runs on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent.config.settings import Places
from agent.conversation.summary import Summaries
from agent.engine.grammars import ANY_OBJECT
from agent.engine.protocol import Engine, EngineError, Generation, OutOfMemory, Request
from agent.formats.constraints import Guided
from agent.formats.protocol import Format
from agent.models.catalog import Model
from agent.models.loader import Loading
from agent.runtime.hub import Hub
from agent.util import gc_tuning
from tools.mcp.host import Host
from tools.policy.approvals import Policy

if TYPE_CHECKING:
    from agent.engine.placement.planner import Choice
    from agent.observability.trace import Trace

log = logging.getLogger(__name__)

TRIES = 4
"""Loads with ever less on the GPUs and shorter contexts, where the memory does not suffice."""
QUIET = 20.0
"""Seconds without a turn after which what is not known of this machine is found out."""
PAUSE = 2.0
"""Seconds without a turn and without a key after which what a call may need is made: some of it
lets nothing else run meanwhile."""
PATIENCE = 5.0
"""Seconds that a server may hold up somebody who sits there, as long as it can be done without."""


class Runtime:
    """Made cheap; ``ready()`` loads, also again after the model was unloaded. One per process."""

    def __init__(
        self,
        model: Model,
        host: Host,
        policy: Policy,
        where: Places,
        *,
        script: Path | None = None,
        context: int | None = None,
        keep_alive: float | None = None,
        trace: Trace | None = None,
    ) -> None:
        """``script``: replies come from this file instead of a model (interfaces: scripted engine).

        ``context``: tokens, as asked for. ``keep_alive``: seconds without a turn after which the model
        is unloaded until the next one; None: never.
        """
        self.host, self.policy, self.where = host, policy, where
        self.loading = Loading(model, where, script, context)
        self.hub = Hub()
        self._trace = trace
        if trace is not None:
            self.hub.listen(trace.follow)
        self.context_length = context or model.context
        """Exact once the model is placed or loaded."""
        self.choice: Choice | None = None
        """Where the model lies and why; None before that, and where there was nothing to choose."""
        self.keep_alive = keep_alive
        self.engine: Engine
        self.format: Format
        self.loaded = False
        self.summaries = Summaries()
        self.asleep = False
        """It was unloaded because nobody needed it; the next turn loads it again."""
        self.running = 0
        """Turns that have not ended."""
        self._laying: Generation | None = None
        self._background: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        """Held while the model comes or goes."""
        self._placed = False
        self._timers: list[asyncio.TimerHandle] = []
        self._learning: asyncio.Task[None] | None = None
        self._unloading: asyncio.Task[None] | None = None

    @property
    def model(self) -> Model:
        return self.loading.model

    @property
    def engine_name(self) -> str:
        return self.loading.engine

    @property
    def script(self) -> Path | None:
        return self.loading.script

    async def start(self) -> None:
        """Begin connecting the tools; the model waits for the first turn or ``ready()``."""
        await self.host.start()

    async def ready(self, progress: Callable[[float], None] | None = None) -> None:
        """Model loaded and tools settled, but for a server that takes its time. Raises EngineError."""
        await asyncio.gather(self.load(progress), self.host.settled(patience=PATIENCE))

    @asynccontextmanager
    async def in_use(self) -> AsyncIterator[None]:
        """Ready, and the model stays as it is. Raises EngineError."""
        await self.ready()
        while not self.loaded:  # another was chosen in that moment
            await self.load()
        self.begin_turn()
        try:
            yield
        finally:
            self.end_turn()

    async def close(self) -> None:
        self._wake()
        if chores := {task for task in (self._learning, self._unloading) if task is not None}:
            await asyncio.wait(chores)
        await self.host.close()
        if self._trace is not None:
            await self._trace.close()
        if self.loaded:
            self.loaded = False
            await self.engine.close()

    @property
    def vocabulary(self) -> str:
        """Whose token ids a conversation is kept in; all of GPT-OSS share theirs."""
        return "o200k_harmony" if self.format.name == "harmony" else self.model.name

    # --- working ahead ---

    def lay_ahead(self, ids: list[int]) -> None:
        """While the person reads: put these ids into the engine's memory, so that what is asked next
        costs only its own tokens. It gives way to everything else."""
        self._stop_laying()
        try:
            self._laying = self._generate(Request(ids, max_tokens=0, idle=True))
        except EngineError:
            return  # too long to go on with; the next turn will say so
        self._background = asyncio.create_task(_drain(self._laying))

    def prepare(self, ids: list[int]) -> None:
        """While the person types: the prompt as it would be by now. Takes the place of the one
        before; nothing happens as long as the model is not loaded."""
        if self.loaded and ids:
            self.lay_ahead(ids)

    def generate(self, request: Request) -> Generation:
        """What the engine generates. Raises EngineError."""
        if self.running <= 1:  # else it may be for another conversation
            self._stop_laying()
        return self._generate(request)

    def _generate(self, request: Request) -> Generation:
        generation = self.engine.generate(request)
        if self._trace is None:
            return generation
        return self._trace.generation(generation, request, self.format)

    def _stop_laying(self) -> None:
        if self._laying is not None:
            self._laying.cancel()
            self._laying = None

    # --- turns ---

    def begin_turn(self) -> None:
        """From now on the model is in use."""
        self.running += 1
        self._wake()

    def end_turn(self) -> None:
        """The other side of `begin_turn`."""
        self.running -= 1
        self.rest()

    def _wake(self) -> None:
        """Nothing that waits for quiet happens now."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self._learning is not None:
            self._learning.cancel()

    def rest(self) -> None:
        """Where no turn runs, what waits for quiet begins to wait: after a turn, a load, a key."""
        if self.running or not self.loaded:
            return
        self._wake()
        later = asyncio.get_running_loop().call_later
        if self.keep_alive is not None:
            self._timers.append(later(self.keep_alive, self._go))
        if self.script is None:
            self._timers.append(later(PAUSE, self._get_ready))
        if self.loading.here:
            self._timers.append(later(QUIET, self._learn))

    def _go(self) -> None:
        self._unloading = asyncio.create_task(self.unload())

    def _get_ready(self) -> None:
        """Make in the background what the first call would wait for."""
        self.host.begin_hands()
        if self.script is None and isinstance(self.format, Guided):
            self.format.grammars.compile(ANY_OBJECT)

    def _learn(self) -> None:
        """Find out whether repacked weights are faster here; the next load goes by it."""
        self._learning = asyncio.create_task(self.loading.learn(self.choice))

    # --- the model ---

    async def place(self) -> None:
        """Choose where the model goes: then its context's length is known. Never fails: `ready` says
        what does not fit."""
        if self._placed or self.loaded or self._lock.locked():
            return
        if self.loading.model.address and not self.script:
            with suppress(EngineError, TimeoutError):  # only its server knows
                async with asyncio.timeout(PATIENCE):
                    await self.load()
            return
        async with self._lock:
            with suppress(EngineError):
                await self._choose()

    async def trouble(self) -> str | None:
        """Why the model that was loaded cannot answer now, in one sentence. Cheap: where it runs
        elsewhere its server is asked, at most once a second."""
        if self.loading.here or self.script is not None or not (self.loaded or self.asleep):
            return None
        from agent.engine.remote.engine import RemoteEngine

        if not isinstance(self.engine, RemoteEngine):
            return None  # another was chosen, and is not loaded yet
        found = await self.engine.health()
        # Where it is need not be known to all who may ask.
        return None if found is None else f"The {self.engine_name} that runs the model {found}."

    async def unload(self) -> None:
        """Free the model's memory until it is wanted again; nothing while a turn runs."""
        async with self._lock:
            if self.running or not self.loaded:
                return
            self.loaded, self.asleep = False, True
            self._stop_laying()
            await self.engine.close()
            log.info("%s was unloaded", self.model.name)

    async def switch(self, model: Model, *, context: int | None = None) -> None:
        """Run another model from now on; the old one's memory is free when this returns.

        Raises EngineError while a turn runs.
        """
        if not self.running:
            await self.unload()  # a turn may begin while this waits for a load
        if self.running:
            raise EngineError("A turn is running: stop it before the model is changed.")
        self.loading = replace(self.loading, model=model, context=context)
        self.context_length = context or model.context
        self.choice, self._placed = None, False

    async def _choose(self, failed: int = 0) -> None:
        self.choice = await asyncio.to_thread(self.loading.choice, failed)
        self._placed = True
        if self.loading.here:
            self.context_length = self.loading.placement(self.choice).context

    async def load(
        self, progress: Callable[[float], None] | None = None, *, guided: bool = False
    ) -> None:
        """The model only. ``guided``: its output will be constrained. Raises EngineError."""
        async with self._lock:
            if self.loaded:
                return
            report = _Report(progress, asyncio.get_running_loop())
            try:
                await self.loading.check()
                if not self._placed:
                    await self._choose()
                await self._try(report, guided)
            except BaseException:
                report.abandoned = True
                self._placed = False
                raise
            self.context_length = self.engine.context_length
            self.loaded, self.asleep, self._placed = True, False, False
        gc_tuning.started(gc_tuning.UNSEEN)  # in the app it has started already
        self.rest()

    async def _try(self, report: _Report, guided: bool) -> None:
        """Load; where the memory does not suffice after all, with less of it."""
        for failed in range(1, TRIES + 1):
            placement = self.loading.placement(self.choice)
            prepare = self.loading.prepare
            self.engine, self.format = await asyncio.to_thread(prepare, placement, report.first)
            if guided and not self.model.embedded:  # which is there before they would be
                self._get_ready()  # while llama.cpp reads the file
            try:
                with self.loading.attempt(self.choice):
                    await self.engine.load(report.second)
                return
            except OutOfMemory as error:
                if self.choice is None or failed == TRIES:
                    raise
                log.warning("%s Trying with less.", error)
                before = self.choice
                await self._choose(failed)
                if self.choice.placement == before.placement:
                    raise


class _Report:
    """Passes progress on: a load's first half is its file and vocabulary."""

    def __init__(
        self, progress: Callable[[float], None] | None, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._progress, self._loop = progress, loop
        self.abandoned = False

    def first(self, fraction: float) -> None:
        """From a thread, which ends by it when nobody waits any more. Raises EngineError then."""
        if self.abandoned:
            raise EngineError("The load was stopped.")
        if self._progress is not None:
            self._loop.call_soon_threadsafe(self._progress, fraction / 2)

    def second(self, fraction: float) -> None:
        if self._progress is not None:
            self._progress(0.5 + fraction / 2)


async def _drain(generation: Generation) -> None:
    try:
        async for _ in generation:
            pass
    except EngineError:
        log.exception("laying ahead failed")
