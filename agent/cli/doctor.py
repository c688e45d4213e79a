"""`agent doctor`: checks what a turn needs; each line is ok, or says what to do.

First this program and its folders, then llama.cpp, the devices and the placement of one model.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.config.paths import Paths, user_paths
from agent.config.settings import load_settings
from agent.engine.placement import cpu_probe
from agent.engine.placement.cpu_probe import ProbeResult
from agent.engine.placement.crash_marker import REBUILD_COMMAND
from agent.engine.placement.planner import PlacementPlan, format_bytes
from agent.engine.protocol import EngineError
from agent.errors import UserError
from agent.models.catalog import Model
from agent.models.loader import EMBEDDED_TENSOR_TYPES, ModelLoader
from agent.models.resolve import resolve_model
from agent.util.sanitize import echo
from tools import private_files

Check = tuple[str, bool, str]
"""Name, whether it is in order, and the finding or what to do."""


def main(model: str | None = None, *, bench: bool = False) -> int:
    """Print all checks; the exit code, 0 when nothing is wrong.

    ``model``: a name in place of the default model's. ``bench``: measure its speed too.
    """
    paths = user_paths()
    wrong = 0

    def models(paths: Paths) -> Iterator[Check]:
        yield from ModelChecks(paths, model, bench).run()

    for group in (_python, _vocabulary, models, _builtin_tools, _files):
        for name, ok, text in _guarded(group, paths):
            wrong += not ok
            echo(f"{'ok   ' if ok else 'WRONG'}  {name:14} {text}")
    echo("Everything is in order." if not wrong else f"{wrong} to mend.")
    return 1 if wrong else 0


def _guarded(group: Callable[[Paths], Iterator[Check]], paths: Paths) -> Iterator[Check]:
    try:
        yield from group(paths)
    except Exception as error:  # a check that breaks is a finding, not a traceback
        yield group.__name__.strip("_"), False, f"{type(error).__name__}: {error}"


def _python(paths: Paths) -> Iterator[Check]:
    version = platform.python_version()
    yield "python", sys.version_info >= (3, 11), f"{version} at {sys.executable}"


def _vocabulary(paths: Paths) -> Iterator[Check]:
    from agent.formats.harmony.encoding import load_encoding
    from agent.tiny.vocabulary import ranks

    encoding = load_encoding(ranks, paths.cache / "vocabulary")
    yield "vocabulary", True, f"o200k_harmony, {len(encoding.special_tokens_set)} special tokens"


def _builtin_tools(paths: Paths) -> Iterator[Check]:
    from tools.sandbox.isolation import best_isolation

    active = best_isolation()
    yield "python tool", active.ok, f"isolation {active.name}: {active.detail}"
    yield "files tool", True, f"root {Path.cwd()}"
    yield "shell tool", active.ok, "when it is named: --tools all,shell" if active.ok else "none"
    browser = load_settings(paths).browser
    engine = browser and (
        private_files.redact_url(browser.searxng) if browser.searxng else browser.search
    )
    yield (
        "browser tool",
        True,
        f"searches {engine}" if engine else "when it is named, no search",
    )


def _files(paths: Paths) -> Iterator[Check]:
    for name, folder in (("cache", paths.cache), ("state", paths.state)):
        try:
            private_files.make_folder(folder)
            with tempfile.TemporaryFile(dir=folder):
                pass
            yield name, True, str(folder)
        except OSError as error:
            yield name, False, f"{folder} cannot be written ({error.strerror}); set AGENT_HOME"
    servers = paths.mcp_json
    yield "mcp.json", True, str(servers) if servers.exists() else f"none of your own ({servers})"
    yield "approvals", True, f"{paths.approvals}; every decision: {paths.audit_log}"
    for name in ("config.toml", "models.toml"):
        path = paths.config / name
        yield name, True, str(path) if path.exists() else f"none of your own ({path})"
    yield "log file", True, str(paths.log_file)


@dataclass
class ModelChecks:
    """Checks llama.cpp, the devices and one model on this machine."""

    paths: Paths
    name: str | None
    """A model's name; None: the default model."""
    bench: bool = False
    """Whether to measure its speed."""

    def run(self) -> Iterator[Check]:
        """Yield the checks, the processor first: where llama.cpp crashes, no other call is safe."""
        yield from self._listed_models()
        model, problem = self._resolved()
        loader = ModelLoader(model, self.paths) if model else None
        plan, refusal = self._planned(loader) if loader else (None, None)
        result = self._probed(plan)
        yield from _processor(result)
        if result.plain is None:
            return
        yield from _devices()
        if model is None or loader is None:
            yield "chosen model", False, problem
            return
        if model.endpoint is not None:
            yield "chosen model", *asyncio.run(_check_remote(loader))
            return
        yield "chosen model", True, f"{model.name}, {model.path or 'a part of this program'}"
        if refusal is not None:
            yield "placement", False, refusal
            return
        yield "placement", True, _describe_placement(loader, plan)
        if self.bench:
            from agent.models.benchmark import measure

            yield "speed", True, asyncio.run(measure(loader, plan))

    def _listed_models(self) -> Iterator[Check]:
        from agent.models.listing import list_models

        for row in list_models(self.paths):
            if row.source == "wrong":
                yield "model", False, row.description
                continue
            state = f"can be pulled: agent models pull {row.name}"
            if row.size is not None:
                state = f"{row.source}, {format_bytes(row.size)}"
            elif row.runnable:
                state = "a part of this program"
            if row.size is not None and not row.runnable:
                state += f", {row.description}"
            yield "model", True, f"{row.name}: {state}"

    def _resolved(self) -> tuple[Model | None, str]:
        try:
            return resolve_model(self.name, self.paths), ""
        except (EngineError, UserError) as error:
            return None, str(error)

    def _planned(self, loader: ModelLoader) -> tuple[PlacementPlan | None, str | None]:
        """The placement plan, or why the model fits nowhere."""
        try:
            return loader.plan(), None
        except EngineError as error:
            return None, str(error)

    def _probed(self, plan: PlacementPlan | None) -> ProbeResult:
        """The CPU probe for the model's weight types, cached or run now."""
        types = plan.weight_types if plan else EMBEDDED_TENSOR_TYPES
        cached = None if self.bench else cpu_probe.cached_result(self.paths.cache, types)
        return cached or asyncio.run(cpu_probe.probe(self.paths.cache, types))


async def _check_remote(loader: ModelLoader) -> tuple[bool, str]:
    """Ask the server that runs the model for its health, context and vocabulary."""
    from agent.engine.remote.engine import RemoteEngine

    endpoint = loader.model.endpoint
    assert endpoint is not None
    try:
        engine, _ = loader.create_engine(loader.placement(None), lambda done: None)
        if isinstance(engine, RemoteEngine):
            problem = await engine.check_health()
            if problem is not None and problem.loading:  # a load would wait for it
                return False, f"{endpoint.engine} at {endpoint} {problem}: ask again later"
        await engine.load()
    except EngineError as error:
        return False, str(error)
    await engine.close()
    text = f"{loader.model.name}, {endpoint.engine} at {endpoint}"
    return True, f"{text}: {engine.context_length:,} tokens of context, its vocabulary is ours"


def _processor(result: ProbeResult) -> Iterator[Check]:
    if result.plain is None:
        yield (
            "processor",
            False,
            f"llama.cpp dies on it ({result.cause_of_death}): {REBUILD_COMMAND}",
        )
        return
    if result.repacked is None:
        why = result.cause_of_death or "wrong results"
        yield "processor", True, f"runs llama.cpp; weights are not repacked ({why} with that)"
        return
    prefill = result.repacked.prefill / result.plain.prefill
    decode = result.repacked.decode / result.plain.decode
    yield (
        "processor",
        True,
        f"runs llama.cpp; repacked weights: prefill × {prefill:.1f}, decode × {decode:.1f}"
        " (of a little model on one thread)",
    )


def _devices() -> Iterator[Check]:
    import llama_cpp
    import psutil

    from agent.engine.placement.devices import free_memory, list_devices

    version = importlib.metadata.version("llama-cpp-python")
    system = llama_cpp.llama_print_system_info().decode(errors="replace")
    gpu = "GPU offload" if llama_cpp.llama_supports_gpu_offload() else "CPU only"
    yield "llama.cpp", True, f"llama-cpp-python {version}; {gpu}; {system.strip()}"
    for device in list_devices():
        sizes = f", {format_bytes(device.free)} of {format_bytes(device.total)} free"
        free = sizes if device.total and device.kind != "cpu" else ""
        yield "device", True, f"{device.name} ({device.kind}): {device.description.strip()}{free}"
    total = psutil.virtual_memory().total
    yield "memory", True, f"{format_bytes(free_memory())} of {format_bytes(total)} free"


def _describe_placement(loader: ModelLoader, plan: PlacementPlan | None) -> str:
    """Where the model goes in memory and why, in one line."""
    from agent.engine.llama.model import uses_repacked_weights

    placement = loader.placement(plan)
    parts = [f"{placement.context:,} tokens of context", f"KV cache {placement.kv_type}"]
    parts.append("repacked weights" if uses_repacked_weights(placement) else "weights as they are")
    if plan is None:
        return f"{', '.join(parts)}; on the CPU: it fits anywhere"
    parts.append(f"{format_bytes(plan.memory_use.memory)} of memory")
    parts += [f"{format_bytes(size)} on GPU {i}" for i, size in enumerate(plan.memory_use.devices)]
    return f"{', '.join(parts)}; {'; '.join(plan.reasons)}"
