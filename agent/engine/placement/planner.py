"""Plans where a model goes: the best placement that fits this machine, or what to do if none fits.

Candidates are listed in order of preference, and the first one that fits is taken; sizes come from
the file's header (`memory_estimate`), so nothing is loaded to find out. With GPUs the order is

1. all layers on the GPUs, for contexts from the longest down to PREFERRED_CONTEXT_TOKENS;
2. for each context from MAX_OFFLOAD_CONTEXT_TOKENS down: all layers there, but ever more of the first
   layers' experts on the CPU; then only the last layers there, ever fewer;
3. everything on the CPU, as without GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise, zip_longest
from typing import TYPE_CHECKING

from agent.engine.placement.memory_estimate import LayerSizes, ModelSizes
from agent.engine.placement.placement import DEFAULT_SEQUENCES, KvType, Placement, Speculation
from agent.engine.protocol import EngineError

if TYPE_CHECKING:
    from agent.engine.placement.devices import Device

GPU_RESERVE_BYTES = 512 << 20
MEMORY_RESERVE_BYTES = 256 << 20
PROGRAM_BYTES = 300 << 20
"""Bytes that the program takes in addition to the model."""
MIN_CONTEXT_TOKENS, PREFERRED_CONTEXT_TOKENS, MAX_OFFLOAD_CONTEXT_TOKENS = 2048, 16_384, 32_768
"""Tokens of context. Below the first a model is not loaded; below the second a part of the model
goes to the CPU instead; a context above the third never pushes a part of the model there."""
KV_PAD_CELLS = 256
"""llama.cpp rounds the cells of a sliding window up to a multiple of this (llama_kv_cache_iswa in
https://github.com/ggml-org/llama.cpp/blob/master/src/llama-kv-cache-iswa.cpp)."""
_KV_SIZE_RATIO = {"f16": 1.0, "q8_0": 34 / 64, "q4_0": 18 / 64, "f8": 32 / 64}
"""Size of a KV cache relative to f16, which has 64 bytes for each block of 32 values."""


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """The user's settings; None: the planner decides."""

    required_context: int | None = None
    """Tokens of context that are a must: --context."""
    context: int | None = None
    """Tokens of context, fewer where they do not fit: models.toml."""
    gpu_layers: int | None = None
    cpu_experts: int | None = None
    expert_cache: int = 0
    kv_type: KvType | None = None
    flash_attention: bool | None = None
    extra_buffers: bool | None = None
    overcommit: bool = False
    """Load the model even into too little memory: its pages are then read again and again."""
    speculation: Speculation = "off"
    sequences: int = DEFAULT_SEQUENCES

    def placement(self, kv_type: KvType) -> Placement:
        """A placement with these settings, but for what the planner finds out."""
        return Placement(
            kv_type=kv_type,
            flash_attention=True if kv_type != "f16" else self.flash_attention,
            extra_buffers=self.extra_buffers,
            expert_cache=self.expert_cache,
            speculation=self.speculation,
            sequences=self.sequences,
        )


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes that a placement takes."""

    memory: int
    devices: tuple[int, ...]
    """On each GPU."""


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """A placement, the memory that it takes, and the reasons for it."""

    placement: Placement
    memory_use: MemoryUse
    reasons: tuple[str, ...]
    """Sentences without a full stop."""
    weight_types: frozenset[int]


class ModelTooLargeError(EngineError):
    """The model does not fit; the message says what would."""


def plan_placement(
    name: str, sizes: ModelSizes, memory: int, devices: list[Device], request: PlacementRequest
) -> PlacementPlan:
    """The best placement in `memory` bytes and on these devices, with a q8_0 cache if a required
    context does not fit in f16. Raises ModelTooLargeError."""
    gpus = usable_gpus(devices)
    budget = _Budget(sizes, memory, gpus, request.overcommit)
    start = request.placement(request.kv_type or "f16")
    placement = _first_fitting(budget, _candidates(budget, start, request))
    if placement is None and request.required_context and request.kv_type is None:
        placement = _first_fitting(budget, _candidates(budget, request.placement("q8_0"), request))
    if placement is None:
        raise ModelTooLargeError(_refusal(name, budget, start, request))
    reasons = tuple(_reasons(sizes, placement, gpus, request))
    return PlacementPlan(placement, memory_use(sizes, placement, gpus), reasons, sizes.weight_types)


def usable_gpus(devices: list[Device]) -> list[Device]:
    """Return the GPUs that llama.cpp would take: an integrated one only where there is no other."""
    own = [d for d in devices if d.kind == "gpu"]
    if not any(d.free for d in own):
        return [d for d in devices if d.kind == "igpu" and d.free][:1]
    return own  # also one without free memory, for llama.cpp counts it in the split


def memory_use(sizes: ModelSizes, placement: Placement, gpus: list[Device]) -> MemoryUse:
    work = work_bytes(sizes, placement)
    loads, rest = _layer_loads(sizes, placement)
    counts = placement.tensor_split or ((len(loads),) if loads else ())
    ends = [0, *accumulate(counts)]
    extra = work + placement.expert_cache
    on_gpus = tuple(sum(loads[a:b]) + (extra if b > a else 0) for a, b in pairwise(ends))
    memory = PROGRAM_BYTES + rest + work
    memory += sum(size for gpu, size in zip(gpus, on_gpus, strict=False) if gpu.shares_memory)
    return MemoryUse(memory, on_gpus)


def work_bytes(sizes: ModelSizes, placement: Placement) -> int:
    """Estimate llama.cpp's compute buffer: one chunk's activations and its mask, and the logits."""
    chunk = placement.ubatch * (sizes.activation_bytes + 2 * placement.context)
    return chunk + 4 * sizes.vocabulary_size * placement.outputs


def kv_cache_bytes(sizes: ModelSizes, placement: Placement) -> int:
    return sum(_kv_bytes(layer, placement) for layer in sizes.layers)


def _layer_loads(sizes: ModelSizes, placement: Placement) -> tuple[list[int], int]:
    """Return the bytes of each layer on a GPU, the output last, and of all that stays in memory."""
    count = len(sizes.layers)
    first = max(0, count + 1 - placement.gpu_layers)
    loads, rest = [], sizes.embedding
    for number, layer in enumerate(sizes.layers):
        experts_stay = number < placement.cpu_experts
        dense = layer.weights + _kv_bytes(layer, placement)
        if number >= first:
            loads.append(dense + (0 if experts_stay else layer.experts))
            rest += layer.experts if experts_stay else 0
        else:
            rest += dense + layer.experts
    if placement.gpu_layers:
        loads.append(sizes.output + (sizes.embedding if sizes.tied_output else 0))
    else:
        rest += sizes.output
    return loads, rest


def _kv_bytes(layer: LayerSizes, placement: Placement) -> int:
    cells = placement.context
    if layer.sliding_window:
        sliding = layer.sliding_window * placement.kv_sequences + placement.ubatch
        cells = min(cells, (sliding + KV_PAD_CELLS - 1) // KV_PAD_CELLS * KV_PAD_CELLS)
    return int(cells * layer.kv_bytes_per_token * _KV_SIZE_RATIO[placement.kv_type])


@dataclass(frozen=True, slots=True)
class _Budget:
    sizes: ModelSizes
    memory: int
    gpus: list[Device]
    overcommit: bool

    def fit(self, placement: Placement) -> Placement | None:
        if placement.gpu_layers:
            loads, _ = _layer_loads(self.sizes, placement)
            reserved = work_bytes(self.sizes, placement) + GPU_RESERVE_BYTES
            reserved += placement.expert_cache
            split = split_layers(loads, [gpu.free - reserved for gpu in self.gpus])
            if split is None:
                return None
            placement = replace(placement, tensor_split=split if len(self.gpus) > 1 else ())
        needed = memory_use(self.sizes, placement, self.gpus).memory
        fits = self.overcommit or needed + MEMORY_RESERVE_BYTES <= self.memory
        return placement if fits else None


def split_layers(loads: list[int], budgets: list[int]) -> tuple[int, ...] | None:
    """Return how many consecutive layers go to each GPU; None if they do not fit. Sizes in bytes. The
    split is proportional; where that leaves a layer over, each GPU is filled up in turn."""
    total, free = sum(loads), sum(max(budget, 0) for budget in budgets)
    for share in (total / free if free else 2.0, 1.0):
        counts, layer = [], 0
        for number, budget in enumerate(budgets):
            count = used = 0
            last = number == len(budgets) - 1
            limit = budget if last else budget * share
            while layer < len(loads) and used + loads[layer] <= limit:
                used, layer, count = used + loads[layer], layer + 1, count + 1
            counts.append(count)
        if layer == len(loads):
            return tuple(counts)
    return None


def _candidates(
    budget: _Budget, start: Placement, request: PlacementRequest
) -> Iterator[Placement]:
    count = len(budget.sizes.layers)
    contexts = _context_candidates(budget, start, request)
    all_layers = count + 1
    if request.gpu_layers is not None or request.cpu_experts is not None:
        layers = all_layers if request.gpu_layers is None else min(request.gpu_layers, all_layers)
        experts = min(request.cpu_experts or 0, count)
        for context in contexts:
            fixed = replace(start, context=context)
            yield replace(fixed, gpu_layers=layers, cpu_experts=experts) if budget.gpus else fixed
        return
    if budget.gpus:
        for context in contexts:
            if context >= min(PREFERRED_CONTEXT_TOKENS, contexts[0]):
                yield replace(start, context=context, gpu_layers=all_layers)
        is_free_choice = request.required_context is None and request.context is None
        for context in contexts:
            if is_free_choice and context > max(MAX_OFFLOAD_CONTEXT_TOKENS, contexts[-1]):
                continue
            offloaded = replace(start, context=context)
            if any(layer.experts for layer in budget.sizes.layers):
                for experts in range(1, count + 1):
                    yield replace(offloaded, gpu_layers=all_layers, cpu_experts=experts)
            for layers in range(count, 0, -1):
                yield replace(offloaded, gpu_layers=layers)
    for context in contexts:
        yield replace(start, context=context)


def _first_fitting(budget: _Budget, candidates: Iterator[Placement]) -> Placement | None:
    return next((fit for each in candidates if (fit := budget.fit(each)) is not None), None)


def _context_candidates(budget: _Budget, start: Placement, request: PlacementRequest) -> list[int]:
    """The contexts to try: halved down to MIN_CONTEXT_TOKENS, or only the required one."""
    sizes, trained = budget.sizes, budget.sizes.trained_context
    if request.required_context:
        return [min(request.required_context, trained)]
    contexts = [min(request.context or trained, trained)]
    while contexts[-1] // 2 >= MIN_CONTEXT_TOKENS:
        contexts.append(contexts[-1] // 2)
    if request.context is None:
        # Half of what the weights leave is for the KV cache; the rest is the user's.
        free = budget.memory + sum(gpu.free for gpu in budget.gpus if not gpu.shares_memory)
        limit = (free - sizes.weights) / 2
        fitting = [c for c in contexts if kv_cache_bytes(sizes, replace(start, context=c)) <= limit]
        contexts = fitting or contexts[-1:]
    return contexts


def _refusal(name: str, budget: _Budget, start: Placement, request: PlacementRequest) -> str:
    memory = f"{format_bytes(budget.memory)} of memory is free"
    if budget.gpus:
        free = ", ".join(f"{format_bytes(gpu.free)} on {gpu.name}" for gpu in budget.gpus)
        memory += f" ({free})"
    least = min(MIN_CONTEXT_TOKENS, budget.sizes.trained_context)
    if request.required_context and request.required_context > least:
        longest = longest_context(budget.sizes, budget.memory, budget.gpus, request)
        if longest is not None:
            tokens, kv_type = longest
            how = "" if kv_type == (request.kv_type or "f16") else f' with kv_type = "{kv_type}"'
            return (
                f"A context of {request.required_context:,} tokens does not fit together with {name}:"
                f" {memory}; --context {tokens}{how} would fit."
            )
    on_cpu = memory_use(budget.sizes, replace(start, context=least), []).memory
    layers = ""
    if request.gpu_layers or request.cpu_experts is not None:
        layers = " or fewer layers on the GPU (gpu_layers, cpu_experts in models.toml)"
    return (
        f"{name} needs {format_bytes(on_cpu + MEMORY_RESERVE_BYTES)} and {memory}: close other"
        f" programs, choose a smaller model{layers}, or set overcommit = true in models.toml, which is"
        " very slow."
    )


def longest_context(
    sizes: ModelSizes, memory: int, devices: list[Device], request: PlacementRequest
) -> tuple[int, KvType] | None:
    """The longest context that fits, in steps of 1024 tokens, and its KV type; None: none."""
    kinds: tuple[KvType, ...] = (request.kv_type,) if request.kv_type else ("f16", "q8_0")
    trained, required = sizes.trained_context, request.required_context
    top = trained if required is None else min(required, trained)
    budget = _Budget(sizes, memory, usable_gpus(devices), request.overcommit)
    best: tuple[int, KvType] | None = None
    for kind in kinds:
        low, high = 0, top // 1024 + 1
        while high - low > 1:
            middle = (low + high) // 2
            required_request = replace(request, required_context=middle * 1024)
            candidates = _candidates(budget, request.placement(kind), required_request)
            fit = _first_fitting(budget, candidates)
            low, high = (middle, high) if fit is not None else (low, middle)
        if low * 1024 >= MIN_CONTEXT_TOKENS and (best is None or low * 1024 > best[0]):
            best = low * 1024, kind
    return best


def _reasons(
    sizes: ModelSizes, placement: Placement, gpus: list[Device], request: PlacementRequest
) -> Iterator[str]:
    all_layers = len(sizes.layers) + 1
    names = " + ".join(gpu.name for gpu in gpus)
    if placement.tensor_split:
        names += " (" + " + ".join(map(str, placement.tensor_split)) + " layers)"
    if not gpus:
        yield "on the CPU: llama.cpp reports no GPU"
    elif not placement.gpu_layers:
        yield f"on the CPU: {names} has no room for a layer"
    elif placement.cpu_experts:
        yield (
            f"all layers on {names}, but the experts of the first {placement.cpu_experts} of"
            f" {all_layers - 1} in memory"
        )
    elif placement.gpu_layers < all_layers:
        yield (
            f"the last {placement.gpu_layers} of {all_layers} layers on {names}, the others on the CPU"
        )
    else:
        yield f"all {all_layers} layers on {names}"
    trained = sizes.trained_context
    wanted = min(request.required_context or request.context or trained, trained)
    if placement.context < wanted:
        yield f"{placement.context:,} of {wanted:,} tokens of context, by the memory that is free"
    elif (request.required_context or 0) > trained:
        yield f"{placement.context:,} tokens of context: the model was trained for no more"
    if placement.kv_type != "f16" and request.kv_type is None:
        yield f"KV cache {placement.kv_type}, because f16 does not fit"


# --- with a draft model ---


def plan_with_draft(
    names: tuple[str, str],
    sizes: tuple[ModelSizes, ModelSizes],
    memory: int,
    devices: list[Device],
    request: PlacementRequest,
) -> PlacementPlan:
    """As `plan_placement`, of a model and its small draft model, which goes first: onto a GPU where the
    model's layers there stay the same, else into memory. Its context is as long as the model's."""
    (name, draft_name), (model_sizes, draft_sizes) = names, sizes
    alone = plan_placement(name, model_sizes, memory, devices, request)
    gpus = usable_gpus(devices)
    context = alone.placement.context
    while True:
        for draft, reason in _draft_placements(draft_sizes, alone.placement, context, gpus):
            use = memory_use(draft_sizes, draft, gpus)
            use = MemoryUse(use.memory - PROGRAM_BYTES, use.devices)
            taken = use.devices or (0,) * len(gpus)
            pairs = zip(gpus, taken, strict=True)
            left = [replace(gpu, free=gpu.free - size) for gpu, size in pairs]
            limited = replace(request, context=min(request.context or context, context))
            try:
                plan = plan_placement(name, model_sizes, memory - use.memory, left, limited)
            except ModelTooLargeError:
                continue
            if draft.gpu_layers and _layout(plan) != _layout(alone):
                continue
            draft = replace(draft, context=plan.placement.context)
            on_gpus = zip_longest(plan.memory_use.devices, use.devices, fillvalue=0)
            return PlacementPlan(
                replace(plan.placement, draft=draft),
                MemoryUse(plan.memory_use.memory + use.memory, tuple(map(sum, on_gpus))),
                (*plan.reasons, f"draft model {draft_name} {reason}"),
                plan.weight_types | draft_sizes.weight_types,
            )
        if request.required_context or context // 2 < MIN_CONTEXT_TOKENS:
            raise ModelTooLargeError(
                f"{name} fits, but not with its draft model {draft_name}"
                f" ({format_bytes(draft_sizes.weights)}): remove draft from its entry in"
                " models.toml, name a smaller one, or ask for a shorter context."
            )
        context //= 2


def _layout(plan: PlacementPlan) -> tuple[int, int]:
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


def format_bytes(size: int) -> str:
    """Format bytes for people: GB, or MB below 0.1 GB."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.0f} MB"
