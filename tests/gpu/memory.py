"""Stage ``memory``: what the planner says that a model takes, beside what it takes.

Each case is a process of its own. Measured are the buffers that llama.cpp reports, and how much less
is free on a GPU after a full prefill chunk than before the load, which also has the kernels and what
the driver takes. On a CPU only the buffers can be told from what else the machine does.
"""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from agent.engine.llama.model import BatchSpan, LlamaModel
from agent.engine.placement import planner
from agent.engine.placement.devices import free_memory, list_devices
from agent.engine.placement.memory_estimate import read_model_sizes
from agent.engine.placement.placement import KvType
from tests.bench import GPU_LAYERS, progress
from tests.bench.models import endless_model, large_model

_BUFFER = re.compile(r"(\S+) +(?:model|KV|RS|output|compute) buffer size = +([\d.]+) MiB")


@dataclass(frozen=True)
class MemoryCase:
    """What is planned and loaded."""

    path: str
    context: int
    kv_type: KvType = "f16"
    cpu_experts: int | None = None


@dataclass(frozen=True)
class MeasuredDevice:
    """Bytes of one device; ``taken``: what was free before and is not after."""

    name: str
    planned: int
    buffers: int
    taken: int


def cases() -> Iterator[MemoryCase]:
    """Contexts, KV types and experts on the CPU, of both models."""
    for model in (endless_model(), large_model())[: 2 if GPU_LAYERS else 1]:
        path, trained = str(model), read_model_sizes(model).trained_context
        yield MemoryCase(path, 4096)
        yield MemoryCase(path, trained // 2)
        yield MemoryCase(path, trained)
        yield MemoryCase(path, trained, "q8_0")
        if GPU_LAYERS:
            yield MemoryCase(path, 16_384, cpu_experts=2)


def measure(case: MemoryCase) -> list[MeasuredDevice]:
    """Plan and load a case in this process; each device's bytes, the GPUs first."""
    path, buffers = Path(case.path), defaultdict[str, float](float)

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            for device, size in _BUFFER.findall(record.getMessage()):
                buffers[device] += float(size) * (1 << 20)

    log = logging.getLogger("agent.llama.cpp")
    log.addHandler(Collect())
    log.setLevel(logging.DEBUG)
    gpus = planner.usable_gpus(list_devices())
    request = planner.PlacementRequest(
        case.context, kv_type=case.kv_type, cpu_experts=case.cpu_experts
    )
    sizes = read_model_sizes(path)
    plan = planner.plan_placement(path.stem, sizes, free_memory(), gpus, request)
    model = LlamaModel(path, plan.placement, lambda done: True)
    model.decode([BatchSpan(0, list(range(1000, 1000 + model.ubatch)), 0)])
    model.decode([BatchSpan(0, [1000], model.ubatch)])
    model.synchronize()
    after = {device.name: device.free for device in list_devices()}
    model.close()
    found = []
    planned = dict(zip([gpu.name for gpu in gpus], plan.memory_use.devices, strict=False))
    for gpu in gpus:
        size = buffers.pop(gpu.name, 0)
        found.append(
            MeasuredDevice(
                gpu.name, planned.get(gpu.name, 0), int(size), gpu.free - after[gpu.name]
            )
        )
    memory = plan.memory_use.memory - planner.PROGRAM_BYTES  # of this process itself
    return [*found, MeasuredDevice("memory", memory, int(sum(buffers.values())), 0)]


def rows() -> Iterator[str]:
    """The rows of the table."""
    for case in cases():
        progress(f"memory: {case} …")
        command = [sys.executable, "-m", "tests.gpu.memory", json.dumps(asdict(case))]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        name, experts = Path(case.path).stem, case.cpu_experts or 0
        head = f"| {name} | {case.context:,} | {case.kv_type} | {experts} |"
        if done.returncode:
            yield f"{head} | did not load | | | |"
            continue
        for device in (MeasuredDevice(**fields) for fields in json.loads(done.stdout)):
            ratio = f"{device.planned / device.buffers:.2f}" if device.buffers else ""
            taken = f"{device.taken / 1e9:.2f}" if device.taken else ""
            yield (
                f"{head} {device.name} | {device.planned / 1e9:.2f} | {device.buffers / 1e9:.2f} |"
                f" {ratio} | {taken} |"
            )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measured = measure(MemoryCase(**json.loads(sys.argv[1])))
        print(json.dumps([asdict(device) for device in measured]))
    else:
        for row in rows():
            print(row, flush=True)
