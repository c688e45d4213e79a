"""The models that a server answers with: the one that it was started with and, where it may load
others, all that can run here, each loaded by the first request that names it.

Loads happen one at a time, in the order of the requests. A model goes next to those in memory if the
planner finds room, else it replaces the one that was used least recently, once nothing uses that;
requests for a model that is about to be replaced wait behind that load."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace

from agent.engine.protocol import EngineError
from agent.errors import UserError
from agent.models.catalog import Model
from agent.models.resolve import runnable_models
from agent.runtime.runtime import LoadedModel, Runtime
from agent.server.http.errors import ApiError, invalid
from agent.turn.options import TurnOptions

MAX_NAMED_MODELS = 5
"""Models that an error names."""


@dataclass(slots=True, eq=False)
class ServedModel:
    """A model that requests may name."""

    runtime: Runtime
    defaults: TurnOptions
    """The operator's settings of its turns."""
    is_first: bool = False
    is_pinned: bool = False
    """Whether it stays loaded: --models."""
    is_leaving: bool = False
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
        create: Callable[[Model], tuple[Runtime, TurnOptions]] | None = None,
        pinned: Sequence[Model] = (),
    ) -> None:
        """``create``: makes the runtime of a further model and its turns' options, or raises UserError;
        None: there is only the model of ``runtime``. ``pinned``: stay loaded. Raises UserError."""
        self.first = ServedModel(runtime, defaults, is_first=True)
        self.known = [self.first]
        """Those that were named or listed before."""
        self._create, self._lock = create, asyncio.Lock()
        """The lock is held by the one request that loads or unloads a model."""
        for model in pinned:
            served = self._add(model)
            served.is_pinned, served.runtime.keep_alive = True, None

    async def list_all(self) -> list[ServedModel]:
        """All models that can run now."""
        with suppress(EngineError, UserError):  # a file is being edited
            if self._create is not None:
                for model in await asyncio.to_thread(runnable_models, self.first.runtime.paths):
                    self._add(model)
        return [m for m in self.known if m.is_first or m.runtime.model.installed]

    def _add(self, model: Model) -> ServedModel:
        """The served model of this name. Raises UserError."""
        if (known := next((m for m in self.known if m.name == model.name), None)) is not None:
            return known
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
        names = "', '".join(served.name for served in known[:MAX_NAMED_MODELS])
        message = f"The model '{name[:100]}' does not exist; this server runs '{names}'."
        raise ApiError(404, message, code="model_not_found", param="model")

    async def ready(self) -> None:
        """Load the first model and those that are kept loaded. Raises EngineError."""
        for served in self.known:
            if served.is_first or served.is_pinned:
                async with self._reserved(served):
                    await served.runtime.ready()
        await self.list_all()  # those whose conversations are in the store

    @asynccontextmanager
    async def in_use(self, name: str | None) -> AsyncIterator[tuple[ServedModel, LoadedModel]]:
        """Load a model if need be, and keep it loaded for the block. Raises ApiError."""
        served = await self.find(name)
        async with AsyncExitStack() as stack:
            try:
                async with self._reserved(served):
                    loaded = await stack.enter_async_context(served.runtime.in_use())
            except EngineError as error:
                raise ApiError(503, str(error), code="model_not_available") from error
            await self.find(name)  # the app may have chosen another meanwhile
            yield served, loaded

    async def unload(self, served: ServedModel) -> None:
        """Unload a model once nothing uses it. Raises ApiError."""
        if served.is_pinned:
            raise invalid("model", f"The model '{served.name}' is kept loaded, by --models.")
        try:
            async with served.runtime.waiting(), self._lock:
                await _retire(served)
        except EngineError as error:
            raise ApiError(503, str(error), code="server_error") from error

    def stop_waiting(self) -> None:
        """Let no request wait for a model any longer: the server is about to end."""
        for served in self.known:
            if served.runtime.loaded is None or served.is_leaving:
                served.runtime.stop_waiting()

    @asynccontextmanager
    async def _reserved(self, served: ServedModel) -> AsyncIterator[None]:
        """Keep a model in memory for the block, or else the room for it. Raises EngineError."""
        runtime, served.used_at = served.runtime, time.monotonic()
        if runtime.loaded is not None and not served.is_leaving:
            runtime.begin_turn()
            try:
                yield
            finally:
                runtime.end_turn()
        elif self._create is None:
            yield
        else:
            async with runtime.waiting(), self._lock:
                if runtime.loaded is None:
                    await self._make_room(served)
                yield

    async def _make_room(self, served: ServedModel) -> None:
        provider = served.runtime.provider
        here = [m for m in self.known if m.runtime.provider.loader.is_local]
        while others := [m for m in here if m.runtime.loaded is not None]:
            replaceable = [m for m in others if not m.is_pinned]
            if not replaceable or await asyncio.to_thread(provider.loader.fits_beside_loaded):
                break
            await _retire(min(replaceable, key=lambda m: (m.runtime.is_used, m.used_at)))
        provider.loader = replace(provider.loader, beside_loaded=bool(others))


async def _retire(served: ServedModel) -> None:
    served.is_leaving = True
    try:
        await served.runtime.unload_when_idle()
    finally:
        served.is_leaving = False
