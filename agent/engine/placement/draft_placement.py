"""Plans where a model goes with its small draft model, which goes first: onto a GPU where the model's
layers there stay the same, else into memory. Its context is as long as the model's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from agent.engine.placement import planner
from agent.engine.placement.memory_estimate import ModelSizes
from agent.engine.placement.placement import Placement

if TYPE_CHECKING:
    from agent.engine.placement.devices import Device


def plan_with_draft(
    names: tuple[str, str],
    sizes: tuple[ModelSizes, ModelSizes],
    memory: int,
    devices: list[Device],
    request: planner.PlacementRequest,
) -> planner.PlacementPlan:
    (name, draft_name), (model_sizes, draft_sizes) = names, sizes
    alone = planner.plan_placement(name, model_sizes, memory, devices, request)
    gpus = planner.usable_gpus(devices)
    context = alone.placement.context
    while True:
        for draft, reason in _draft_placements(draft_sizes, alone.placement, context, gpus):
            use = planner.memory_use(draft_sizes, draft, gpus)
            use = planner.MemoryUse(use.memory - planner.PROGRAM_BYTES, use.devices)
            taken = use.devices or (0,) * len(gpus)
            left = [
                replace(gpu, free=gpu.free - size) for gpu, size in zip(gpus, taken, strict=True)
            ]
            limited = replace(request, context=min(request.context or context, context))
            try:
                plan = planner.plan_placement(name, model_sizes, memory - use.memory, left, limited)
            except planner.ModelTooLargeError:
                continue
            if draft.gpu_layers and _layout(plan) != _layout(alone):
                continue
            draft = replace(draft, context=plan.placement.context)
            on_gpus = zip_longest(plan.memory_use.devices, use.devices, fillvalue=0)
            return planner.PlacementPlan(
                replace(plan.placement, draft=draft),
                planner.MemoryUse(plan.memory_use.memory + use.memory, tuple(map(sum, on_gpus))),
                (*plan.reasons, f"draft model {draft_name} {reason}"),
                plan.weight_types | draft_sizes.weight_types,
            )
        if request.required_context or context // 2 < planner.MIN_CONTEXT_TOKENS:
            raise planner.ModelTooLargeError(
                f"{name} fits, but not with its draft model {draft_name}"
                f" ({planner.format_bytes(draft_sizes.weights)}): remove draft from its entry in"
                " models.toml, name a smaller one, or ask for a shorter context."
            )
        context //= 2


def _layout(plan: planner.PlacementPlan) -> tuple[int, int]:
    return plan.placement.gpu_layers, plan.placement.cpu_experts


def _draft_placements(
    sizes: ModelSizes, model: Placement, context: int, gpus: list[Device]
) -> Iterator[tuple[Placement, str]]:
    """Yield where the draft model may go, the best first, each with a reason."""
    on_cpu = Placement(context, model.sequences, model.ubatch, extra_buffers=model.extra_buffers)
    layers = len(sizes.layers) + 1
    if gpus and model.gpu_layers:
        best = max(range(len(gpus)), key=lambda number: gpus[number].free)
        split = tuple(layers if number == best else 0 for number in range(len(gpus)))
        on_gpu = replace(on_cpu, gpu_layers=layers, tensor_split=split if len(gpus) > 1 else ())
        yield on_gpu, f"on {gpus[best].name}"
    yield on_cpu, "on the CPU"
