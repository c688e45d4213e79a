"""Where a model goes: the placement that fits this machine, and what is said where none does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from agent.engine.placement.memory_estimate import Sizes
from agent.engine.placement.placement import KvType, Placement
from agent.engine.protocol import EngineError

if TYPE_CHECKING:
    from agent.engine.placement.devices import Device

RESERVE = 512 << 20
"""Bytes that stay free on every GPU."""
SPARE = 256 << 20
"""Bytes that stay free in the memory."""
PROGRAM = 300 << 20
"""Bytes that the program takes beside the model."""
LEAST, FAIR, AMPLE = 2048, 16_384, 32_768
"""Tokens of context: below the first a model is not loaded; below the second a part of it rather
goes to the CPU; more than the third never sends a part of it there."""
PAD = 256
"""llama.cpp rounds a window's cells up to so many."""
_KV = {"f16": 1.0, "q8_0": 34 / 64, "q4_0": 18 / 64}
"""Share of f16 that a KV cache takes."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What people asked for; None: as it fits."""

    asked: int | None = None
    """Tokens of context that must be: --context."""
    context: int | None = None
    """Tokens of context, fewer where they do not fit: models.toml."""
    gpu_layers: int | None = None
    cpu_experts: int | None = None
    kv_type: KvType | None = None
    flash_attention: bool | None = None
    extra_buffers: bool | None = None
    overcommit: bool = False
    """Load it even if the memory is too small for it: pages are then read again and again."""


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that a placement takes."""

    memory: int
    devices: tuple[int, ...]
    """On each GPU."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen, what it takes, and why, in sentences without a full stop."""

    placement: Placement
    need: Need
    why: tuple[str, ...]
    types: frozenset[int]
    """ggml types of the model's matrices."""


class TooLarge(EngineError):
    """The model does not fit; the message says what would."""


def choose(name: str, sizes: Sizes, memory: int, devices: list[Device], wanted: Wanted) -> Choice:
    """The best placement of the model called `name` in `memory` bytes and on these devices.

    GPUs take the whole model if they can, with a context of FAIR at the least; then all but the
    experts of the first layers; then only the last layers. Raises TooLarge.
    """
    gpus = usable(devices)
    room = _Room(sizes, memory, gpus, wanted.overcommit)
    start = Placement(
        kv_type=wanted.kv_type or "f16",
        flash_attention=True if wanted.kv_type not in (None, "f16") else wanted.flash_attention,
        extra_buffers=wanted.extra_buffers,
    )
    found = _first(room, _candidates(room, start, wanted))
    if found is None and wanted.asked and wanted.kv_type is None:
        small = replace(start, kv_type="q8_0", flash_attention=True)
        found = _first(room, _candidates(room, small, wanted))
    if found is None:
        raise TooLarge(_refusal(name, room, start, wanted))
    why = tuple(_why(sizes, found, gpus, wanted))
    return Choice(found, need(sizes, found, gpus), why, sizes.types)


def usable(devices: list[Device]) -> list[Device]:
    """The GPUs that llama.cpp would take: integrated ones only where there is no other."""
    own = [d for d in devices if d.kind == "gpu" and d.free]
    return own or [d for d in devices if d.kind == "igpu" and d.free][:1]


def need(sizes: Sizes, placement: Placement, gpus: list[Device]) -> Need:
    """What a placement takes in memory and on each GPU."""
    work = _work(sizes, placement)
    loads, rest = _loads(sizes, placement)
    shares = placement.split or ((len(loads),) if loads else ())
    ends = [0, *accumulate(shares)]
    on_gpus = tuple(sum(loads[a:b]) + (work if b > a else 0) for a, b in pairwise(ends))
    memory = PROGRAM + rest + work
    memory += sum(size for gpu, size in zip(gpus, on_gpus, strict=False) if gpu.shared)
    return Need(memory, on_gpus)


def _work(sizes: Sizes, placement: Placement) -> int:
    """Bytes of a chunk's activations and its mask, and of the scores."""
    chunk = placement.step * (sizes.activations + 2 * placement.context)
    return chunk + 4 * sizes.vocabulary * placement.sequences


def _loads(sizes: Sizes, placement: Placement) -> tuple[list[int], int]:
    """Bytes of each layer that lies on a GPU, the output last; and of what stays in memory."""
    count = len(sizes.layers)
    first = max(0, count + 1 - placement.gpu_layers)
    loads, rest = [], sizes.embedding
    for number, layer in enumerate(sizes.layers):
        experts_stay = number < placement.cpu_experts
        kept = layer.weights + _kv(layer.cell, layer.window, placement)
        if number >= first:
            loads.append(kept + (0 if experts_stay else layer.experts))
            rest += layer.experts if experts_stay else 0
        else:
            rest += kept + layer.experts
    if placement.gpu_layers:
        loads.append(sizes.output + (sizes.embedding if sizes.tied else 0))
    else:
        rest += sizes.output
    return loads, rest


def _kv(cell: int, window: int, placement: Placement) -> int:
    cells = placement.context
    if window:
        slid = window * placement.sequences + placement.step
        cells = min(cells, (slid + PAD - 1) // PAD * PAD)
    return int(cells * cell * _KV[placement.kv_type])


@dataclass(frozen=True, slots=True)
class _Room:
    """A model and what there is for it."""

    sizes: Sizes
    memory: int
    gpus: list[Device]
    overcommit: bool

    def fit(self, placement: Placement) -> Placement | None:
        """The same with its split over the GPUs; None where it does not fit."""
        if placement.gpu_layers:
            loads, _ = _loads(self.sizes, placement)
            work = _work(self.sizes, placement) + RESERVE
            split = divide(loads, [gpu.free - work for gpu in self.gpus])
            if split is None:
                return None
            placement = replace(placement, split=split if len(self.gpus) > 1 else ())
        taken = need(self.sizes, placement, self.gpus).memory
        return placement if self.overcommit or taken + SPARE <= self.memory else None


def divide(loads: list[int], rooms: list[int]) -> tuple[int, ...] | None:
    """How many layers in a row go to each GPU, by what it has free; None if they do not fit."""
    total, free = sum(loads), sum(max(room, 0) for room in rooms)
    for share in (total / free if free else 2.0, 1.0):  # evenly, or each as full as can be
        counts, at = [], 0
        for number, room in enumerate(rooms):
            count = taken = 0
            last = number == len(rooms) - 1
            while at < len(loads) and taken + loads[at] <= (room if last else room * share):
                taken, at, count = taken + loads[at], at + 1, count + 1
            counts.append(count)
        if at == len(loads):
            return tuple(counts)
    return None


def _candidates(room: _Room, start: Placement, wanted: Wanted) -> Iterator[Placement]:
    """Placements in order of preference; the first that fits is taken."""
    count = len(room.sizes.layers)
    contexts = _contexts(room, start, wanted)
    whole = count + 1
    if wanted.gpu_layers is not None or wanted.cpu_experts is not None:
        layers = whole if wanted.gpu_layers is None else min(wanted.gpu_layers, whole)
        for context in contexts:
            yield replace(
                start,
                context=context,
                gpu_layers=layers if room.gpus else 0,
                cpu_experts=min(wanted.cpu_experts or 0, count) if room.gpus else 0,
            )
        return
    if room.gpus:
        for context in contexts:
            if context >= min(FAIR, contexts[0]):
                yield replace(start, context=context, gpu_layers=whole)
        chosen_freely = wanted.asked is None and wanted.context is None
        for context in contexts:
            if chosen_freely and context > max(AMPLE, contexts[-1]):
                continue
            at = replace(start, context=context)
            if any(layer.experts for layer in room.sizes.layers):
                for experts in range(1, count + 1):
                    yield replace(at, gpu_layers=whole, cpu_experts=experts)
            for layers in range(count, 0, -1):
                yield replace(at, gpu_layers=layers)
    for context in contexts:
        yield replace(start, context=context)


def _first(room: _Room, candidates: Iterator[Placement]) -> Placement | None:
    return next((fit for each in candidates if (fit := room.fit(each)) is not None), None)


def _contexts(room: _Room, start: Placement, wanted: Wanted) -> list[int]:
    """Contexts to try, the longest first: halved down to LEAST, or only the one that must be."""
    trained = room.sizes.trained
    if wanted.asked:
        return [min(wanted.asked, trained)]
    context = min(wanted.context or trained, trained)
    found = [context]
    while context // 2 >= LEAST:
        context //= 2
        found.append(context)
    if wanted.context is None:
        # Half of what the weights leave is for the KV cache; the rest is the person's.
        free = room.memory + sum(gpu.free for gpu in room.gpus if not gpu.shared)
        spare = (free - room.sizes.weights) / 2
        fitting = [c for c in found if _cache(room.sizes, replace(start, context=c)) <= spare]
        found = fitting or found[-1:]
    return found


def _cache(sizes: Sizes, placement: Placement) -> int:
    return sum(_kv(layer.cell, layer.window, placement) for layer in sizes.layers)


def _refusal(name: str, room: _Room, start: Placement, wanted: Wanted) -> str:
    """What does not fit, and what would."""
    memory = f"{gigabytes(room.memory)} of memory are free"
    if room.gpus:
        free = ", ".join(f"{gigabytes(gpu.free)} on {gpu.name}" for gpu in room.gpus)
        memory += f" ({free})"
    least = min(LEAST, room.sizes.trained)
    if wanted.asked and wanted.asked > least:
        longest = longest_context(room.sizes, room.memory, room.gpus, wanted)
        if longest is not None:
            tokens, kv_type = longest
            how = "" if kv_type == (wanted.kv_type or "f16") else f' with kv_type = "{kv_type}"'
            return (
                f"A context of {wanted.asked:,} tokens does not fit beside {name}: {memory};"
                f" --context {tokens}{how} would fit."
            )
    alone = need(room.sizes, replace(start, context=least), []).memory
    layers = ""
    if wanted.gpu_layers or wanted.cpu_experts is not None:
        layers = " or fewer layers on the GPU (gpu_layers, cpu_experts in models.toml)"
    return (
        f"{name} needs {gigabytes(alone + SPARE)} and {memory}: close other programs, choose a"
        f" smaller model{layers}, or set overcommit = true in models.toml, which is very slow."
    )


def longest_context(
    sizes: Sizes, memory: int, devices: list[Device], wanted: Wanted
) -> tuple[int, KvType] | None:
    """The longest context that fits, in steps of 1024, and its KV type; None where none does."""
    kinds: tuple[KvType, ...] = (wanted.kv_type,) if wanted.kv_type else ("f16", "q8_0")
    top = sizes.trained if wanted.asked is None else min(wanted.asked, sizes.trained)
    room = _Room(sizes, memory, usable(devices), wanted.overcommit)
    best: tuple[int, KvType] | None = None
    for kind in kinds:
        low, high = 0, top // 1024 + 1
        while high - low > 1:
            middle = (low + high) // 2
            one = replace(wanted, asked=middle * 1024)
            start = Placement(kv_type=kind, flash_attention=True if kind != "f16" else None)
            fits = _first(room, _candidates(room, start, one)) is not None
            low, high = (middle, high) if fits else (low, middle)
        if low * 1024 >= LEAST and (best is None or low * 1024 > best[0]):
            best = low * 1024, kind
    return best


def _why(sizes: Sizes, chosen: Placement, gpus: list[Device], wanted: Wanted) -> Iterator[str]:
    whole = len(sizes.layers) + 1
    names = " + ".join(gpu.name for gpu in gpus)
    if chosen.split:
        names += " (" + " + ".join(map(str, chosen.split)) + " layers)"
    if not gpus:
        yield "on the CPU: llama.cpp reports no GPU"
    elif not chosen.gpu_layers:
        yield f"on the CPU: {names} has no room for a layer"
    elif chosen.cpu_experts:
        yield (
            f"all layers on {names}, but the experts of the first {chosen.cpu_experts} of"
            f" {whole - 1} in memory"
        )
    elif chosen.gpu_layers < whole:
        yield f"the last {chosen.gpu_layers} of {whole} layers on {names}, the others on the CPU"
    else:
        yield f"all {whole} layers on {names}"
    before = min(wanted.asked or wanted.context or sizes.trained, sizes.trained)
    if chosen.context < before:
        yield f"{chosen.context:,} of {before:,} tokens of context, by the memory that is free"
    elif (wanted.asked or 0) > sizes.trained:
        yield f"{chosen.context:,} tokens of context: the model was trained for no more"
    if chosen.kv_type != "f16" and wanted.kv_type is None:
        yield f"KV cache {chosen.kv_type}, because f16 does not fit"


def gigabytes(size: int) -> str:
    """Bytes for people."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.0f} MB"
