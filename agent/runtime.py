"""One process's engine, format and tools: what every turn of every face runs on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from agent.config import Places
from agent.engine.base import Engine, EngineError, Generation, Request
from agent.formats.base import Format
from agent.hub import Hub
from agent.models import Model
from agent.summary import Summaries
from tools.approvals import Policy
from tools.host import Host

log = logging.getLogger(__name__)


class Runtime:
    """Made cheap; ``ready()`` loads. One per process."""

    def __init__(
        self,
        model: Model,
        host: Host,
        policy: Policy,
        where: Places,
        *,
        script: Path | None = None,
        context: int | None = None,
    ) -> None:
        """``script``: replies come from this file instead of a model (interfaces: scripted engine)."""
        self.model, self.host, self.policy, self.where = model, host, policy, where
        self.script = script
        self.hub = Hub()
        self.asked_context = context
        self.context_length = context or model.context
        self.engine_name = "script" if script else "llama.cpp"
        self.engine: Engine
        self.format: Format
        self.loaded = False
        self.summaries = Summaries()
        self.running = 0
        """Turns that have not ended."""
        self._laying: Generation | None = None
        self._background: asyncio.Task[None] | None = None
        self._loading = asyncio.Lock()

    async def start(self) -> None:
        """Begin connecting the tools; the model waits for the first turn or ``ready()``."""
        await self.host.start()

    async def ready(self, progress: Callable[[float], None] | None = None) -> None:
        """Model loaded and tools settled. Raises EngineError."""
        await asyncio.gather(self._load(progress), self.host.settled())

    async def close(self) -> None:
        await self.host.close()
        if self.loaded:
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
            self._laying = self.engine.generate(Request(ids, max_tokens=0, idle=True))
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
        return self.engine.generate(request)

    def _stop_laying(self) -> None:
        if self._laying is not None:
            self._laying.cancel()
            self._laying = None

    # --- the model ---

    async def _load(self, progress: Callable[[float], None] | None) -> None:
        async with self._loading:
            if self.loaded:
                return
            loop = asyncio.get_running_loop()

            def report(fraction: float) -> None:
                if progress is not None:
                    loop.call_soon_threadsafe(progress, fraction)

            self.engine, self.format = await asyncio.to_thread(self._prepare, report)
            await self.engine.load(lambda f: report(0.5 + f / 2))
            self.context_length = self.engine.context_length
            self.loaded = True

    def _prepare(self, report: Callable[[float], None]) -> tuple[Engine, Format]:
        """Model file and vocabulary, in a thread: both take seconds the first time."""
        # Imported here: none of this belongs before the first paint.
        from agent import vocabulary
        from agent.engine.llama import LlamaEngine
        from agent.engine.placement import Placement
        from agent.engine.script import ScriptEngine
        from agent.formats.harmony.format import HarmonyFormat
        from agent.tiny import vocabulary as tiny_vocabulary

        if (other := self._other_family(report)) is not None:
            return other
        folder = self.where.cache / "vocabulary"
        if self.script is not None:
            encoding = vocabulary.encoding(tiny_vocabulary.ranks, folder)
            engine = ScriptEngine(self.script, encoding, context=self.asked_context)
            return engine, HarmonyFormat(encoding)
        path = self.file(report)
        if self.model.embedded:
            encoding = vocabulary.encoding(tiny_vocabulary.ranks, folder)
        else:
            encoding = vocabulary.encoding(vocabulary.ranks_from_gguf(path), folder)
        return (
            LlamaEngine(path, placement=Placement(self.context_length)),
            HarmonyFormat(encoding),
        )

    def _other_family(self, report: Callable[[float], None]) -> tuple[Engine, Format] | None:
        """For a model that does not speak Harmony. Raises EngineError."""
        if self.model.embedded or self.model.format == "harmony":
            return None
        from agent.engine.llama import LlamaEngine
        from agent.engine.placement import Placement
        from agent.engine.script import ScriptEngine
        from agent.formats import choose

        if self.script is not None and not self.model.installed:
            form = choose.of_bytes(self.model.format)
        else:
            form = choose.of_file(self.file(report), self.model.format)
        if form is None:
            return None
        if self.script is not None:
            encode = form.encoder.markup
            return ScriptEngine(self.script, encode, context=self.asked_context), form
        placement = Placement(self.context_length)
        return LlamaEngine(self.file(report), placement=placement), form

    def file(self, report: Callable[[float], None]) -> Path:
        if self.model.path is not None:
            return self.model.path
        from agent.tiny import expand

        try:
            return expand.ensure(
                self.where.cache, lambda done, total: report(0.5 * done / max(total, 1))
            )
        except OSError as error:
            raise EngineError(
                f"The embedded model cannot be written to {self.where.cache}"
                f" ({error.strerror or error}); set AGENT_HOME to a folder that can be written."
            ) from error


async def _drain(generation: Generation) -> None:
    try:
        async for _ in generation:
            pass
    except EngineError:
        log.exception("laying ahead failed")
