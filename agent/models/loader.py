"""From a model's name to what runs it: its file, its place in memory, its vocabulary and format."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent.config.settings import Places
from agent.engine.placement.placement import Placement
from agent.engine.protocol import Engine, EngineError
from agent.engine.remote.endpoint import LOCAL, Address
from agent.formats.protocol import Format
from agent.models.catalog import Model

# Imported where it is needed: none of the rest belongs before the first paint.
if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding

    from agent.engine.placement.planner import Choice

log = logging.getLogger(__name__)

Report = Callable[[float], None]
EMBEDDED_TYPES = frozenset({0, 1, 2, 8})
"""ggml types of the embedded model's matrices: F32, F16, Q4_0, Q8_0."""
SMALLER = 0.8
"""Share of a GPU's free memory that the next try goes by, after one that ran out of memory."""


@dataclass(frozen=True, slots=True)
class Loading:
    """What is to be loaded. Everything here takes its time: call it in a thread."""

    model: Model
    where: Places
    script: Path | None = None
    """Replies come from this file instead of a model."""
    context: int | None = None
    """Tokens that --context asked for."""

    @property
    def engine(self) -> str:
        """The engine's name."""
        if self.script is not None:
            return "script"
        return self.model.address.engine if self.model.address else LOCAL

    @property
    def here(self) -> bool:
        """The model lies in this machine's memory."""
        return self.engine == LOCAL

    def file(self, report: Report) -> Path:
        """The model's GGUF; the embedded one is expanded first. Raises EngineError."""
        if self.model.path is not None:
            return self.model.path
        from agent.tiny import expand

        try:
            return expand.ensure(self.where.cache, lambda done, total: report(done / max(total, 1)))
        except OSError as error:
            raise EngineError(
                f"The embedded model cannot be written to {self.where.cache}"
                f" ({error.strerror or error}); set AGENT_HOME to a folder that can be written."
            ) from error

    def choice(self, failed: int = 0) -> Choice | None:
        """Where the model goes; None for one that fits anywhere or whose header says nothing.

        ``failed``: so many tries ran out of memory. Raises TooLarge.
        """
        if not self.here or self.model.embedded or self.model.path is None:
            return None
        from agent.engine.placement import cpu_probe, memory_estimate, planner
        from agent.engine.placement.devices import devices, free_memory

        try:
            found = memory_estimate.of(self.model.path)
        except EngineError:
            return None  # llama.cpp will say what is wrong with it
        gpus = [replace(each, free=int(each.free * SMALLER**failed)) for each in devices()]
        wanted = replace(self.model.wanted, asked=self.context)
        if wanted.extra_buffers is None:
            wanted = replace(wanted, extra_buffers=cpu_probe.repack(self.where, found.types))
        choice = planner.choose(self.model.name, found, free_memory(), gpus, wanted)
        for _ in range(failed if self.context is None else 0):
            shorter = replace(wanted, context=max(choice.placement.context // 2, planner.LEAST))
            choice = planner.choose(self.model.name, found, free_memory(), gpus, shorter)
        return choice

    async def check(self) -> None:
        """After a process that died while it loaded, see what llama.cpp can do here. Raises EngineError
        when that is nothing."""
        if self.here:
            from agent.engine.placement.crash_marker import after_a_death

            await after_a_death(self.where)

    @contextmanager
    def attempt(self, choice: Choice | None) -> Iterator[None]:
        """A note that it is being loaded, for who comes after a death."""
        if not self.here:
            yield
            return
        from agent.engine.placement.crash_marker import attempt

        types = choice.types if choice else EMBEDDED_TYPES
        with attempt(self.where, types, self.placement(choice).extra_buffers is not False):
            yield

    async def learn(self, choice: Choice | None) -> None:
        """Where repacked weights are off because they may kill: find out if they do."""
        from agent.engine.llama import model as native
        from agent.engine.placement import cpu_probe

        types = choice.types if choice else EMBEDDED_TYPES
        try:
            if not native.repacked(Placement()) and cpu_probe.recall(self.where, types) is None:
                await cpu_probe.run(self.where, types)
        except OSError:
            log.warning("the probe failed", exc_info=True)

    def placement(self, choice: Choice | None) -> Placement:
        """What was chosen; of the embedded model, which fits anywhere, as it is."""
        if choice is not None:
            return choice.placement
        context = self.context or self.model.context
        if not self.here:
            return Placement(context)
        from agent.engine.placement import cpu_probe

        return Placement(context, extra_buffers=cpu_probe.repack(self.where, EMBEDDED_TYPES))

    def prepare(self, placement: Placement, report: Report) -> tuple[Engine, Format]:
        """The engine, not loaded yet, and the format. Raises EngineError."""
        from agent.engine.llama.engine import LlamaEngine
        from agent.engine.scripted import ScriptEngine
        from agent.formats import detect

        if self.script is None and self.model.address is not None:
            return self._remote(self.model.address)
        speaks_harmony = self.model.embedded or self.model.format == detect.HARMONY
        here = self.script is None or self.model.installed
        if speaks_harmony:
            other = None
        elif here:
            other = detect.of_file(self.file(report), self.model.format)
        else:
            other = detect.of_bytes(self.model.format)
        if self.script is not None:
            scripted = other.encoder.markup if other else self._vocabulary(None)
            engine = ScriptEngine(self.script, scripted, context=self.context)
            return engine, other or self._harmony(None)
        path = self.file(report)
        form = other or self._harmony(None if self.model.embedded else path)
        return LlamaEngine(path, placement=placement), form

    def _remote(self, address: Address) -> tuple[Engine, Format]:
        """A server's model: GPT-OSS, or what the GGUF with its vocabulary tells."""
        from agent.engine.remote.engine import RemoteEngine
        from agent.formats import detect

        model, other = self.model, None
        if model.path is not None:
            other = detect.of_file(model.path, model.format)
        elif model.format not in (detect.AUTO, detect.HARMONY):
            raise EngineError(
                f"The entry [{model.name}] of models.toml needs path, a GGUF that has its vocabulary"
                f" and chat template, to speak {model.format}."
            )
        form = other or self._harmony(None)
        key = os.environ.get(address.key_env) if address.key_env else None
        context = self.context or model.wanted.context
        return RemoteEngine(address, form, key=key, context=context), form

    def _harmony(self, path: Path | None) -> Format:
        from agent.formats.harmony.format import HarmonyFormat

        return HarmonyFormat(self._vocabulary(path))

    def _vocabulary(self, path: Path | None) -> HarmonyEncoding:
        """The file's, which must be o200k_harmony; without one the embedded model's."""
        from agent.formats.harmony import encoding
        from agent.tiny import vocabulary as tiny

        ranks = tiny.ranks if path is None else encoding.ranks_from_gguf(path)
        return encoding.encoding(ranks, self.where.cache / "vocabulary")
