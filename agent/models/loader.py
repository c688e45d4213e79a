"""Finds a model's file and its placement in memory, and creates its engine and output format."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent.config.paths import Paths
from agent.engine.placement import gguf_header
from agent.engine.placement.placement import DEFAULT_SEQUENCES, Placement, ThreadCounts
from agent.engine.protocol import Engine, EngineError
from agent.engine.remote.endpoint import LOCAL_ENGINE
from agent.engine.shared import wire
from agent.formats.protocol import Format
from agent.models.catalog import Model
from agent.models.resolve import resolve_model

# Imported where it is needed: none of the rest belongs before the first paint.
if TYPE_CHECKING:
    from agent.engine.placement.planner import PlacementPlan, PlacementRequest
    from agent.formats.markup.format import MarkupFormat

log = logging.getLogger(__name__)

LoadProgress = Callable[[float], None]
"""Called with the share that is done, 0 to 1."""
EMBEDDED_TENSOR_TYPES = frozenset({0, 1, 2, 8})
"""ggml types of the embedded model's matrices: F32, F16, Q4_0, Q8_0."""
EMBEDDED_THREADS = ThreadCounts(1, 1)
"""One thread decodes hundreds of its tokens a second; measuring more would take too long."""
RETRY_MEMORY_SHARE = 0.8
"""Factor on the GPUs' free memory for each load that ran out of memory."""

NORMAL_TOKEN = 1
"""LLAMA_TOKEN_TYPE_NORMAL of llama.h: a token of ordinary text."""


@dataclass(frozen=True, slots=True)
class ModelLoader:
    """Loads one model. Methods that are not ``async`` block for long: call them in a thread."""

    model: Model
    paths: Paths
    script: Path | None = None
    """Scripted replies come from this file instead of a model."""
    context: int | None = None
    """Tokens of context that --context demands."""
    prefix_cache_bytes: int | None = None
    """Bytes of the prefix cache on disk; 0: none; None: as many as are reasonable."""
    sequences: int = DEFAULT_SEQUENCES
    beside_loaded: bool = False
    """Whether other models of this process stay in memory."""

    @property
    def engine_name(self) -> str:
        """``script``, ``llama.cpp`` or the name of a remote engine."""
        if self.script is not None:
            return "script"
        return self.model.endpoint.engine if self.model.endpoint else LOCAL_ENGINE

    @property
    def is_local(self) -> bool:
        return self.engine_name == LOCAL_ENGINE

    @property
    def shared_socket(self) -> Path | None:
        """Socket of a program with this model; None: it is not shared, as the embedded one."""
        if not self.is_local or self.model.embedded or self.model.path is None:
            return None
        if not hasattr(socket, "AF_UNIX"):
            return None
        try:
            stat = self.model.path.stat()
        except OSError:
            return None  # the load will say so
        facts = [str(self.model.path.resolve()), stat.st_size, stat.st_mtime_ns, self.model.format]
        if self.model.response_template is not None:
            facts.append(repr(self.model.response_template))
        return wire.socket_path(self.paths.sockets, repr(tuple(facts)))

    def gguf_path(self, on_progress: LoadProgress) -> Path:
        """The model's GGUF; the embedded model is expanded first. Raises EngineError."""
        if self.model.path is not None:
            return self.model.path
        from agent.tiny import expand

        try:
            return expand.ensure(self.paths.cache, on_progress)
        except OSError as error:
            raise EngineError(
                f"The embedded model cannot be written to {self.paths.cache}"
                f" ({error.strerror or error}); set AGENT_HOME to a folder that can be written."
            ) from error

    def plan(self, failed_loads: int = 0) -> PlacementPlan | None:
        """Plan the placement; None: it fits anywhere, or its header cannot be read. ``failed_loads``:
        how many ran out of memory. Raises EngineError where it cannot fit."""
        if not self.is_local or self.model.embedded or self.model.path is None:
            return None
        import psutil

        from agent.engine.placement import cpu_probe, memory_estimate, planner
        from agent.engine.placement.devices import free_memory, list_devices

        draft, draft_sizes = resolve_draft(self.model, self.paths), None
        try:
            sizes = memory_estimate.read_model_sizes(self.model.path)
            types = sizes.weight_types
            if draft is not None:
                path = replace(self, model=draft).gguf_path(lambda done: None)
                draft_sizes = memory_estimate.read_model_sizes(path)
                types |= draft_sizes.weight_types
        except EngineError:
            return None  # llama.cpp will say what is wrong with it
        share = RETRY_MEMORY_SHARE**failed_loads
        gpus = [replace(gpu, free=int(gpu.free * share)) for gpu in list_devices()]
        request = replace(
            self.model.placement_request, required_context=self.context, sequences=self.sequences
        )
        if request.extra_buffers is None:
            repack = cpu_probe.should_repack(self.paths.cache, types)
            request = replace(request, extra_buffers=repack)

        def plan_for(request: PlacementRequest) -> PlacementPlan:
            if draft is None or draft_sizes is None:
                return planner.plan_placement(name, sizes, memory, gpus, request)
            names, both = (name, draft.name), (sizes, draft_sizes)
            return planner.plan_with_draft(names, both, memory, gpus, request)

        name = self.model.name
        memory = free_memory()
        if self.beside_loaded:  # the files in this process's memory, their weights, count as free
            memory -= getattr(psutil.Process().memory_info(), "shared", 0)
        plan = plan_for(request)
        for _ in range(failed_loads if self.context is None else 0):
            context = max(plan.placement.context // 2, planner.MIN_CONTEXT_TOKENS)
            plan = plan_for(replace(request, context=context))
        return plan

    def fits_beside_loaded(self) -> bool:
        """Whether the model fits next to those in memory with a context of `PREFERRED_CONTEXT_TOKENS`
        and, where there are GPUs, all layers there. True also where the load will say what is wrong."""
        from agent.engine.placement import planner

        own, preferred = self.model.placement_request, planner.PREFERRED_CONTEXT_TOKENS
        request = replace(own, kv_type=own.kv_type or "f16", overcommit=False)
        if own.gpu_layers is None and own.cpu_experts is None:
            request = replace(request, gpu_layers=10**6)  # all that it has
        context = self.context or min(own.context or preferred, preferred)
        model = replace(self.model, placement_request=request)
        try:
            replace(self, model=model, context=context, beside_loaded=True).plan()
        except EngineError as error:
            return not isinstance(error, planner.ModelTooLargeError)
        return True

    async def recover_from_crash(self) -> None:
        """After a crash while loading, find out what llama.cpp can do here. Raises EngineError."""
        if self.is_local:
            from agent.engine.placement.cpu_probe import recover_from_crash

            await recover_from_crash(self.paths.cache)

    def crash_marker(self, plan: PlacementPlan | None) -> AbstractContextManager[None]:
        """Leave a file that the next process finds if this one dies while it loads."""
        if not self.is_local:
            return nullcontext()
        from agent.engine.placement.cpu_probe import crash_marker

        types = plan.weight_types if plan else EMBEDDED_TENSOR_TYPES
        repacked = self.placement(plan).extra_buffers is not False
        return crash_marker(self.paths.cache, types, repacked)

    async def probe_repacking(self, plan: PlacementPlan | None) -> None:
        """Find out whether repacked weights work here, where they are off because they might crash."""
        from agent.engine.llama import model as native
        from agent.engine.placement import cpu_probe

        types, cache = plan.weight_types if plan else EMBEDDED_TENSOR_TYPES, self.paths.cache
        try:
            repacks = native.uses_repacked_weights(Placement())
            if not repacks and cpu_probe.cached_result(cache, types) is None:
                await cpu_probe.probe(cache, types)
        except OSError:
            log.warning("the probe failed", exc_info=True)

    def placement(self, plan: PlacementPlan | None) -> Placement:
        """The planned placement; without a plan, of a model that fits anywhere, the default one."""
        if plan is not None:
            return plan.placement
        context = self.context or self.model.context
        if not self.is_local:
            return Placement(context)
        from agent.engine.placement import cpu_probe

        repack = cpu_probe.should_repack(self.paths.cache, EMBEDDED_TENSOR_TYPES)
        placement = Placement(context, self.sequences, extra_buffers=repack)
        draft = None if self.model.draft is None else placement
        return replace(placement, speculation=self.model.placement_request.speculation, draft=draft)

    def draft_path(self) -> Path | None:
        """The draft model's GGUF; None: there is none. Raises EngineError if it cannot draft."""
        if (draft := resolve_draft(self.model, self.paths)) is None:
            return None
        path = replace(self, model=draft).gguf_path(lambda done: None)
        check_vocabulary(self.model, self.gguf_path(lambda done: None), path)
        return path

    def create_engine(
        self, placement: Placement, on_progress: LoadProgress
    ) -> tuple[Engine, Callable[[], Format]]:
        """The engine, not loaded yet, and a function that makes its format; both raise EngineError."""
        from agent.engine.llama.disk_cache import DiskCacheOptions
        from agent.engine.llama.engine import LlamaEngine
        from agent.engine.scripted import ScriptEngine

        form: Format
        if self.script is not None:
            form = self.other_format() or self._harmony_format(None)
            return ScriptEngine(self.script, form.encode_markup, context=self.context), lambda: form
        if (endpoint := self.model.endpoint) is not None:
            from agent.engine.remote.engine import RemoteEngine

            form = self.create_format()
            key = os.environ.get(endpoint.key_env) if endpoint.key_env else None
            context = self.context or self.model.placement_request.context
            return RemoteEngine(endpoint, form, api_key=key, context=context), lambda: form
        path = self.gguf_path(on_progress)
        disk_cache = DiskCacheOptions(self.paths.prefix_cache, self.prefix_cache_bytes)
        threads = EMBEDDED_THREADS if self.model.embedded else None
        draft = self.draft_path() if placement.draft is not None else None
        engine = LlamaEngine(
            path, placement=placement, threads=threads, disk_cache=disk_cache, draft=draft
        )
        return engine, self.create_format

    def create_format(self) -> Format:
        path = None if self.model.endpoint is not None else self.model.path
        return self.other_format() or self._harmony_format(path, keep_calls=self.model.keep_calls)

    def other_format(self) -> MarkupFormat | None:
        """The format of a model of another family; None: it is Harmony. Raises EngineError."""
        from agent.formats import detect

        model = self.model
        if model.embedded or model.format == detect.HARMONY:
            return None
        if self.script is not None and (model.path is None or not model.installed):
            return detect.byte_format(model.format)
        if model.path is not None:
            return detect.load_format(model.path, model.format, model.response_template)
        if model.format == detect.AUTO:
            return None
        raise EngineError(
            f"The entry [{model.name}] of models.toml needs path, a GGUF that has its vocabulary"
            f" and chat template, to speak {model.format}."
        )

    def _harmony_format(self, path: Path | None, *, keep_calls: bool = False) -> Format:
        """The format with the vocabulary of a GGUF, o200k_harmony only; None: the embedded one's."""
        from agent.formats.harmony import encoding
        from agent.formats.harmony.format import HarmonyFormat
        from agent.tiny import vocabulary as tiny

        if path is None or encoding.has_known_tokens(path):
            ranks: bytes | Callable[[], bytes] = tiny.ranks
        else:
            ranks = encoding.ranks_from_gguf(path)
        loaded = encoding.load_encoding(ranks, self.paths.cache / "vocabulary")
        return HarmonyFormat(loaded, keep_calls=keep_calls)


def resolve_draft(model: Model, paths: Paths) -> Model | None:
    """The draft model of a model's entry; None: it has none. Raises EngineError."""
    if model.draft is None:
        return None
    try:
        draft = resolve_model(model.draft, paths)
    except EngineError as error:
        raise EngineError(_cannot_draft(model, str(error))) from error
    if draft.endpoint is not None:
        raise EngineError(_cannot_draft(model, "It runs on a server."))
    return draft


def check_vocabulary(model: Model, path: Path, draft_path: Path) -> None:
    """Compare the tokens of two GGUFs. Raises EngineError unless the same ids have the same texts."""
    if path != draft_path and _tokens(path) != _tokens(draft_path):
        raise EngineError(
            _cannot_draft(model, "It has another vocabulary: name a smaller model of its family.")
        )


def _cannot_draft(model: Model, reason: str) -> str:
    return f"{model.draft} cannot be the draft model of {model.name}. {reason}"


def _tokens(path: Path) -> list[object]:
    """The text of each id, without the names of special tokens, which are spelled variously."""
    metadata = gguf_header.read_metadata(path, until="tokenizer.ggml.merges")
    tokens = metadata.get("tokenizer.ggml.tokens")
    types = metadata.get("tokenizer.ggml.token_type")
    if not isinstance(tokens, list):
        return []
    if not isinstance(types, list):
        return [*tokens]
    pairs = zip(tokens, types, strict=False)
    return [token if kind == NORMAL_TOKEN else None for token, kind in pairs]
