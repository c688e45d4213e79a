"""What of `agent doctor` is about models: llama.cpp, the devices, and where the chosen model goes."""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import Iterator
from dataclasses import dataclass

from agent.config.settings import Places
from agent.engine.placement import cpu_probe
from agent.engine.placement.cpu_probe import Result
from agent.engine.placement.crash_marker import REBUILD
from agent.engine.placement.planner import Choice, gigabytes
from agent.engine.protocol import EngineError
from agent.errors import UserError
from agent.models.catalog import Model, choose
from agent.models.loader import EMBEDDED_TYPES, Loading

Check = tuple[str, bool, str]
"""What, whether it is all right, what was found or what to do."""


@dataclass
class Machine:
    """The checks of one model on this machine."""

    where: Places
    name: str | None
    """Of the model; None: the default."""
    bench: bool = False
    """Measure its speed."""

    def checks(self) -> Iterator[Check]:
        """Processor first: where llama.cpp dies nothing else of it can be asked."""
        yield from self._known()
        model, problem = self._chosen()
        loading = Loading(model, self.where) if model else None
        choice, refused = self._placed(loading) if loading else (None, None)
        result = self._probed(choice)
        yield from _processor(result)
        if result.plain is None:
            return
        yield from _devices()
        if model is None or loading is None:
            yield "chosen model", False, problem
            return
        if model.address is not None:
            yield "chosen model", *asyncio.run(_asked(loading))
            return
        yield "chosen model", True, f"{model.name}, {model.path or 'a part of this program'}"
        if refused is not None:
            yield "placement", False, refused
            return
        yield "placement", True, _described(loading, choice)
        if self.bench:
            from agent.models.benchmark import measure

            yield "speed", True, asyncio.run(measure(loading, choice))

    def _known(self) -> Iterator[Check]:
        from agent.cli.models import listed

        for row in listed(self.where):
            if row.source == "wrong":
                yield "model", False, row.description
                continue
            state = f"can be pulled: agent models pull {row.name}"
            if row.size is not None:
                state = f"{row.source}, {gigabytes(row.size)}"
            elif row.usable:
                state = "a part of this program"
            if row.size is not None and not row.usable:
                state += f", {row.description}"
            yield "model", True, f"{row.name}: {state}"

    def _chosen(self) -> tuple[Model | None, str]:
        try:
            return choose(self.name, self.where), ""
        except (EngineError, UserError) as error:
            return None, str(error)

    def _placed(self, loading: Loading) -> tuple[Choice | None, str | None]:
        """The choice, or why there is none."""
        try:
            return loading.choice(), None
        except EngineError as error:
            return None, str(error)

    def _probed(self, choice: Choice | None) -> Result:
        """Of the weights of the model, as remembered or found out now."""
        types = choice.types if choice else EMBEDDED_TYPES
        found = None if self.bench else cpu_probe.recall(self.where, types)
        return found or asyncio.run(cpu_probe.run(self.where, types))


async def _asked(loading: Loading) -> tuple[bool, str]:
    """What the server says that runs the model."""
    from agent.engine.remote.engine import RemoteEngine

    address = loading.model.address
    assert address is not None
    try:
        engine, _ = loading.prepare(loading.placement(None), lambda done: None)
        if isinstance(engine, RemoteEngine):
            trouble = await engine.trouble()
            if trouble is not None and trouble.loading:  # a load would wait for it
                return False, f"{address.engine} at {address} {trouble}: ask again later"
        await engine.load()
    except EngineError as error:
        return False, str(error)
    await engine.close()
    text = f"{loading.model.name}, {address.engine} at {address}"
    return True, f"{text}: {engine.context_length:,} tokens of context, its vocabulary is ours"


def _processor(result: Result) -> Iterator[Check]:
    if result.plain is None:
        yield "processor", False, f"llama.cpp dies on it ({result.died}): {REBUILD}"
        return
    if result.repacked is None:
        why = result.died or "wrong results"
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

    from agent.engine.placement.devices import devices, free_memory

    version = importlib.metadata.version("llama-cpp-python")
    system = llama_cpp.llama_print_system_info().decode(errors="replace")
    gpu = "GPU offload" if llama_cpp.llama_supports_gpu_offload() else "CPU only"
    yield "llama.cpp", True, f"llama-cpp-python {version}; {gpu}; {system.strip()}"
    for device in devices():
        sizes = f", {gigabytes(device.free)} of {gigabytes(device.total)} free"
        room = sizes if device.total and device.kind != "cpu" else ""
        yield "device", True, f"{device.name} ({device.kind}): {device.description.strip()}{room}"
    total = psutil.virtual_memory().total
    yield "memory", True, f"{gigabytes(free_memory())} of {gigabytes(total)} free"


def _described(loading: Loading, choice: Choice | None) -> str:
    """Where it goes and why, in one line."""
    from agent.engine.llama.model import repacked

    placement = loading.placement(choice)
    parts = [f"{placement.context:,} tokens of context", f"KV cache {placement.kv_type}"]
    parts.append("repacked weights" if repacked(placement) else "weights as they are")
    if choice is None:
        return f"{', '.join(parts)}; on the CPU: it fits anywhere"
    parts.append(f"{gigabytes(choice.need.memory)} of memory")
    parts += [f"{gigabytes(size)} on GPU {i}" for i, size in enumerate(choice.need.devices)]
    return f"{', '.join(parts)}; {'; '.join(choice.why)}"
