"""The models that a server answers with: the one that it was started with and, where it may load
others, all that can run here, each loaded by the first request that names it.

Loads happen one at a time, in the order of the requests. A model is loaded next to those in memory if
the planner finds room for it; else it replaces the one that was used least recently, once nothing uses
that. Requests for a model that is about to be replaced wait behind that load.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace

from agent.engine.protocol import EngineError
from agent.errors import UserError
from agent.models.catalog import Model
from agent.models.resolve import runnable_models
from agent.runtime.runtime import ENDING, LoadedModel, Runtime
from agent.server.http.errors import ApiError, invalid
from agent.turn.options import TurnOptions

CreateModel = Callable[[Model], tuple[Runtime, TurnOptions]]
"""Makes the runtime of a further model and the options of its turns. Raises UserError."""
LOOK_AGAIN_SECONDS = 1.0
"""TTL of the list of models on this machine."""
MAX_NAMED_MODELS = 5
"""Models that an error names."""


@dataclass(slots=True, eq=False)
class ServedModel:
    """A model that requests may name."""

    runtime: Runtime
    defaults: TurnOptions
    """The operator's settings of its turns."""
    is_first: bool = False
    """Whether it is meant where no model is named."""
    is_kept: bool = False
    """Whether it stays loaded: --models."""
    is_loading: bool = False
    is_leaving: bool = False
    """Whether it is unloaded as soon as nothing uses it."""
    has_failed: bool = False
    """Whether the last load failed."""
    used_at: float = 0.0

    @property
    def name(self) -> str:
        return self.runtime.model.name

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.runtime.model.aliases, *self.runtime.aliases)


class ServedModels:
    """Finds a model by name, and keeps it loaded while it is in use."""

    def __init__(
        self,
        runtime: Runtime,
        defaults: TurnOptions,
        create: CreateModel | None = None,
        kept: Sequence[Model] = (),
    ) -> None:
        """``create``: None: there is only the model of ``runtime``. ``kept``: stay loaded. Raises
        UserError."""
        self.first = ServedModel(runtime, defaults, is_first=True)
        self.known = [self.first]
        """Those that were named or listed before."""
        self._create = create
        self._look_again_at, self._looking = 0.0, asyncio.Lock()
        self._lock = asyncio.Lock()
        """Held by the one request that loads or unloads a model."""
        self._waiting: set[asyncio.Timeout] = set()
        self._is_ending = False
        for model in kept:
            served = self._add(model)
            served.is_kept, served.runtime.keep_alive = True, None

    # --- names ---

    async def list_all(self) -> list[ServedModel]:
        """All models that can run now."""
        async with self._looking:
            if self._create is not None and time.monotonic() >= self._look_again_at:
                with suppress(EngineError):  # models.toml is being edited
                    paths = self.first.runtime.paths
                    for model in await asyncio.to_thread(runnable_models, paths):
                        with suppress(UserError):
                            self._add(model)
                self._look_again_at = time.monotonic() + LOOK_AGAIN_SECONDS
        return [m for m in self.known if m.is_first or m.runtime.model.installed]

    def _add(self, model: Model) -> ServedModel:
        """The served model of this name, or of another program's file. Raises UserError."""
        for served in self.known:
            own = served.runtime.model
            is_same_file = own.path and model.path and own.path.resolve() == model.path.resolve()
            if own.name == model.name or (is_same_file and model.program):
                return served
        if self._create is None:
            raise UserError("A script (--engine) stands for one model.")
        self.known.append(served := ServedModel(*self._create(model)))
        return served

    async def find(self, name: str | None) -> ServedModel:
        """The model with this name or alias; None: the first one. Raises ApiError: 404."""
        if name is None or name == "default":
            return self.first
        known = self.known
        if not any(name in served.names for served in known):
            known = await self.list_all()
        if (found := next((served for served in known if name in served.names), None)) is not None:
            return found
        names = [f"'{served.name}'" for served in known]
        has = f"has {', '.join(names[:MAX_NAMED_MODELS])}" if names[1:] else f"runs {names[0]}"
        more = ", …" if names[MAX_NAMED_MODELS:] else ""
        message = f"The model '{name[:100]}' does not exist; this server {has}{more}."
        raise ApiError(404, message, code="model_not_found", param="model")

    async def name_of_vocabulary(self, vocabulary: str | None) -> str | None:
        """The name of a model with this vocabulary; None: the first one has it, or none is known."""
        for served in await self.list_all() if vocabulary is not None else ():
            current = served.runtime.loaded or served.runtime.asleep
            if vocabulary in (served.name, current and current.vocabulary):
                return served.name
        return None

    # --- use ---

    async def ready(self) -> None:
        """Load the first model and those that are kept loaded. Raises EngineError."""
        for served in self.known:
            if served.is_first or served.is_kept:
                async with self._held(served):
                    await served.runtime.ready()

    @asynccontextmanager
    async def in_use(self, name: str | None) -> AsyncIterator[tuple[ServedModel, LoadedModel]]:
        """Load a model if need be, and keep it loaded for the block. Raises ApiError."""
        served = await self.find(name)
        async with AsyncExitStack() as stack:
            with _unavailable():
                async with self._held(served):
                    loaded = await stack.enter_async_context(served.runtime.in_use())
            await self.find(name)  # the app may have chosen another meanwhile
            yield served, loaded

    async def unload(self, served: ServedModel) -> None:
        """Unload a model once nothing uses it. Raises ApiError."""
        if served.is_kept:
            raise invalid("model", f"The model '{served.name}' is kept loaded, by --models.")
        with _unavailable():
            async with self._alone():
                await _retire(served)

    def stop_waiting(self) -> None:
        """Let no request wait for a model any longer: the server is about to end."""
        self._is_ending = True
        for waiting in self._waiting:
            waiting.reschedule(0)
        for served in self.known:
            if served.runtime.loaded is None:
                served.runtime.stop_waiting()

    @asynccontextmanager
    async def _held(self, served: ServedModel) -> AsyncIterator[None]:
        """Keep a model in memory for the block, once it is there. Raises EngineError."""
        runtime = served.runtime
        if self._create is None:
            yield
            return
        if runtime.loaded is None or served.is_leaving:
            async with self._alone():
                await self._load(served)
                runtime.begin_turn()
        else:
            runtime.begin_turn()
        try:
            yield
        finally:
            served.used_at = time.monotonic()
            runtime.end_turn()

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Be the one that loads or unloads. Raises EngineError when the server ends."""
        limit = asyncio.timeout(0 if self._is_ending else None)
        self._waiting.add(limit)
        try:
            async with limit, self._lock:
                yield
        except TimeoutError as error:
            raise EngineError(ENDING) from error
        finally:
            self._waiting.discard(limit)

    async def _load(self, served: ServedModel) -> None:
        served.is_loading, provider = True, served.runtime.provider
        try:
            while served.runtime.loaded is None:
                others = [m for m in self.known if m is not served and m.runtime.occupies_memory]
                replaceable = [m for m in others if not m.is_kept]
                plans = [m.runtime.provider.placement_plan for m in others]
                on_gpus = any(plan is not None and plan.placement.gpu_layers for plan in plans)
                fits = provider.loader.fits_beside_others
                if replaceable and not await asyncio.to_thread(fits, on_gpus=on_gpus):
                    await _retire(min(replaceable, key=lambda m: (m.runtime.is_used, m.used_at)))
                    continue
                provider.loader = replace(provider.loader, beside_others=bool(others))
                await served.runtime.ready()
            served.has_failed = False
        except EngineError:
            served.has_failed = True
            raise
        finally:
            served.is_loading = False


async def _retire(served: ServedModel) -> None:
    served.is_leaving = True
    try:
        await served.runtime.unload_when_idle()
    finally:
        served.is_leaving = False


@contextmanager
def _unavailable() -> Iterator[None]:
    try:
        yield
    except EngineError as error:
        raise ApiError(503, str(error), code="model_not_available") from error
