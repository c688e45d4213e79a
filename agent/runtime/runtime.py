"""The model, its engine and the tools of one process: what every turn of every interface runs on.

A runtime is cheap to make. The model is loaded by the first turn or by ``ready()``, unloaded after
``keep_alive`` seconds without a turn, and loaded again by the next one::

    not loaded --load--> loaded --unload, switch--> asleep --load--> loaded
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from agent.conversation.conversation import Conversation
from agent.conversation.summary import SummaryCache
from agent.engine.grammars import ANY_OBJECT
from agent.engine.protocol import Engine, EngineError, Generation, Request
from agent.formats.protocol import Format
from agent.models.catalog import Model
from agent.models.loader import ModelLoader
from agent.runtime.background import IdleTimers, Prefetcher, TypingPause
from agent.runtime.provider import EngineProvider
from agent.util import gc_tuning
from tools.mcp.host import Host
from tools.policy.approvals import Policy

log = logging.getLogger(__name__)

SERVER_WAIT_SECONDS = 5.0
"""Time that an optional MCP server may delay an interactive turn."""

WrapGeneration = Callable[[Generation, Request, Format], Generation]


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A loaded engine, the format of its model family, and whose token ids these are."""

    engine: Engine
    format: Format
    vocabulary: str
    """Name of the vocabulary; conversations of models with the same one can be continued."""
    is_constrainable: bool
    """Whether the engine takes constraints; a script's output is fixed."""


class Hub:
    """Announces every turn that starts (`agent.turn.context.RunningTurn`), in any interface."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[[Any], object]] = []

    def subscribe(self, callback: Callable[[Any], object]) -> Callable[[], None]:
        """Call ``callback`` with every turn that starts from now on; the result unsubscribes it."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    def publish(self, turn: Any) -> None:
        for callback in list(self._subscribers):
            callback(turn)


class Runtime:
    """Loads and unloads one model, and starts generations on it."""

    def __init__(
        self,
        loader: ModelLoader,
        host: Host,
        policy: Policy,
        *,
        keep_alive: float | None = None,
        serves_engine: bool = False,
        own_engine: bool = False,
        wrap_generation: WrapGeneration | None = None,
    ) -> None:
        """``keep_alive``: seconds without a turn until the model is unloaded; None: never.
        ``serves_engine``: others of this person may use it. ``own_engine``: load what others have."""
        self.host, self.policy, self.paths = host, policy, loader.paths
        self.hub = Hub()
        self.summaries = SummaryCache()
        self.aliases: tuple[str, ...] = ()
        """Names by which clients of a server may call the model, whichever it is."""
        self.keep_alive, self.server_wait_seconds = keep_alive, SERVER_WAIT_SECONDS
        self.script = loader.script
        """The file of the scripted engine's replies; None where a model runs."""
        self.token_events = False
        """Whether new turns emit ``agent.prompt`` and ``agent.tokens``, where interfaces use tokens."""
        self.loaded: LoadedModel | None = None
        self.asleep: LoadedModel | None = None
        """The model that was unloaded after idle time; the next turn loads one again."""
        self.running_turns = 0
        """Turns that have not ended, and other uses of the model (`in_use`)."""
        self.on_close: list[Callable[[], Awaitable[None]]] = []
        """Awaited when the runtime is closed, after the tools and before the engine."""
        self._waits: set[asyncio.Timeout] = set()
        self._is_ending = False
        self._wrap_generation = wrap_generation
        self.prefetcher = Prefetcher(self._generate)
        self.typing_pause = TypingPause()
        self.provider = EngineProvider(
            loader,
            self.typing_pause,
            serves_engine=serves_engine,
            own_engine=own_engine,
            warm_up=self._warm_up,
            on_use=self.restart_idle_timers,
        )
        self.idle_timers = IdleTimers(
            unload=self.unload,
            warm_up=self._warm_up,
            probe=lambda: self.provider.loader.probe_repacking(self.provider.placement_plan),
        )
        self._lock = asyncio.Lock()
        """Held while the model is placed, loaded or unloaded."""
        self._idle = asyncio.Event()
        """Set when neither a turn nor another program uses the model any more."""

    def beside(self, model: Model, keep_alive: float | None) -> Runtime:
        """The runtime of another model, with the tools and the hub of this one, which closes it."""
        provider = self.provider
        other = Runtime(
            replace(provider.loader, model=model, context=None),
            self.host.with_client_servers(()),  # one model gets tools where another does not
            self.policy,
            keep_alive=keep_alive,
            serves_engine=provider.serves_engine,
            own_engine=provider.own_engine,
            wrap_generation=self._wrap_generation,
        )
        other.hub, other.server_wait_seconds = self.hub, self.server_wait_seconds
        self.on_close.append(other.close)
        return other

    @property
    def model(self) -> Model:
        return self.provider.loader.model

    @property
    def format(self) -> Format | None:
        return self.provider.format

    @property
    def context_length(self) -> int:
        return self.provider.context_length

    @property
    def state(self) -> str:
        """``loaded``, ``loading`` or ``unloaded``."""
        if self.loaded is not None:
            return "loaded"
        return "loading" if self._lock.locked() else "unloaded"

    @property
    def is_used(self) -> bool:
        """Whether a turn, or another program, uses the model."""
        return bool(self.running_turns or self.provider.served_generations)

    async def start(self) -> None:
        """Begin to connect the MCP servers; the model waits for the first turn or `ready`."""
        await self.host.start()

    async def ready(self, progress: Callable[[float], None] | None = None) -> None:
        """Load the model and wait for the MCP servers, for slow ones not long. Raises EngineError."""
        servers = self.host.wait_for_turn(timeout=self.server_wait_seconds)
        await asyncio.gather(self.load(progress), servers)

    def stop_waiting(self) -> None:
        """End all waits for the model: the program is about to end."""
        self._is_ending = True
        for wait in self._waits:
            wait.reschedule(0)

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """A block that `stop_waiting` ends. Raises EngineError then."""
        wait = asyncio.timeout(0 if self._is_ending else None)
        self._waits.add(wait)
        try:
            async with wait:
                yield
        except TimeoutError as error:
            if not wait.expired():
                raise
            raise EngineError("This program is ending: it does not wait for the model.") from error
        finally:
            self._waits.discard(wait)

    @asynccontextmanager
    async def in_use(self) -> AsyncIterator[LoadedModel]:
        """Make `ready` and keep the model loaded until the context ends. Raises EngineError."""
        self.typing_pause.hurry()
        try:
            async with self.waiting():
                await self.ready()
                while (loaded := self.loaded) is None:  # another was chosen in that moment
                    await self.load()
                self.begin_turn()
        finally:
            self.typing_pause.relax()
        try:
            yield loaded
        finally:
            self.end_turn()

    async def close(self) -> None:
        await self.idle_timers.close()
        await self.host.close()
        for callback in self.on_close:
            await callback()
        if (loaded := self.loaded) is not None:
            self.loaded = None
            await self.provider.close(loaded.engine)

    # --- generations ---

    def generate(self, request: Request) -> Generation:
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

    def prefetch(self, conversation: Conversation, *, private: bool = False) -> None:
        """Put the beginning of a conversation's next prompt into the engine's memory, in place of what
        was prefetched before, if a model is loaded. ``private``: as in `Request`."""
        ids = conversation.ids()
        if self.loaded is not None and ids:
            request = Request(
                ids,
                max_tokens=0,
                background=True,
                head_tokens=len(conversation.header_ids),
                affinity_tokens=conversation.affinity_tokens,
                private=private,
            )
            self.prefetcher.start(request)

    # --- turns ---

    def begin_turn(self) -> None:
        """Keep the model loaded until `end_turn`."""
        self.running_turns += 1
        self.idle_timers.cancel()
        self.typing_pause.hurry()

    def end_turn(self) -> None:
        self.running_turns -= 1
        self.typing_pause.relax()
        self.restart_idle_timers()

    def on_keystroke(self) -> None:
        """Postpone idle work, which would delay the echo of the keys being typed."""
        self.typing_pause.on_keystroke()
        self.restart_idle_timers()

    def restart_idle_timers(self) -> None:
        """Begin to wait for idle time, where a model is loaded and no turn runs."""
        if self.provider.served_generations:
            self.idle_timers.cancel()
        if self.is_used or self.loaded is None:
            return
        self._idle.set()
        self.idle_timers.restart(
            keep_alive=self.keep_alive,
            warm_up=self.script is None,
            probe=self.provider.loader.is_local,
        )

    def _warm_up(self) -> None:
        """Prepare in the background what the first tool call would wait for."""
        for builtin in self.host.builtins:
            self.host.connect(builtin.name)
        if self.script is None and self.format is not None:
            self.format.grammars.submit(ANY_OBJECT)

    # --- the model ---

    async def plan_placement(self) -> None:
        """Decide where the model goes, which gives the context's length, and whether it gets tools. A
        server's or another program's is loaded, for its data. Never fails: `load` says why."""
        if self.provider.is_placed or self.loaded is not None or self._lock.locked():
            return
        if self.model.endpoint and not self.script:
            with suppress(EngineError, TimeoutError):
                async with asyncio.timeout(self.server_wait_seconds):
                    await self.load()
            return
        async with self._lock:
            with suppress(EngineError):
                if (shared := await self.provider.find_or_plan()) is not None:
                    self._adopt(shared)
                else:
                    self._withhold_tools(self.provider.other_format)

    async def unload(self) -> None:
        """Free the model's memory until the next turn; does nothing while a turn runs."""
        async with self._lock:
            loaded = self.loaded
            if self.is_used or loaded is None:
                return
            self.loaded, self.asleep = None, loaded
            self.prefetcher.cancel()
            await self.provider.close(loaded.engine)
            log.info("%s was unloaded", self.model.name)

    async def unload_when_idle(self) -> None:
        """Unload the model as soon as nothing uses it."""
        while self.loaded is not None:
            self._idle.clear()
            await self.unload()
            if self.loaded is not None:
                await self._idle.wait()

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
        self.provider.choose(model, context)

    async def load(
        self, progress: Callable[[float], None] | None = None, *, warm_up: bool = False
    ) -> LoadedModel:
        """Load the model unless it is in memory. Raises EngineError. ``progress`` gets 0…1.
        ``warm_up``: prepare meanwhile what a first tool call needs."""
        async with self._lock:
            if self.loaded is not None:
                return self.loaded
            loaded = self._adopt(await self.provider.provide(progress, warm_up))
        gc_tuning.resume(gc_tuning.HEADLESS_THRESHOLDS)  # does nothing in the app, which did before
        self.restart_idle_timers()
        return loaded

    def _adopt(self, engine: Engine) -> LoadedModel:
        form = self.format
        assert form is not None
        self.provider.note_loaded(engine)
        self._withhold_tools(form)
        # All models of GPT-OSS have the same vocabulary.
        vocabulary = "o200k_harmony" if form.name == "harmony" else self.model.name
        self.loaded = loaded = LoadedModel(engine, form, vocabulary, self.script is None)
        self.asleep = None
        return loaded

    def _withhold_tools(self, form: Format | None) -> None:
        why = f"Tools are off: this program cannot parse the calls of {self.model.name}."
        self.host.withheld = "" if form is None or form.parses_calls else why
