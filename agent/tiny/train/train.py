"""Training, one schedule by the clock.

    python -m agent.tiny.train.train DATA RUN --minutes 90            (two processes on a CPU)
    python -m agent.tiny.train.train DATA RUN --minutes 20 --device cuda --processes 1

The learning rate falls linearly to 0 over `--minutes` of training time, however fast the machine
is; a stopped run goes on from RUN/checkpoint.pt with the time it had left. On a CPU every
process has one thread: two threads in one process were several times slower.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from agent.tiny import embedding_rows, vocabulary
from agent.tiny.train import model as model_module
from agent.tiny.train import warm_start
from agent.tiny.train.model import Pack, Shape, Tiny

NEGATIVE_SAMPLES = (1024, 768)
"""Of the trained rows that the batch lacks, and of all other ordinary tokens."""
TRIM_STEPS = 50
"""Steps after which a process gives freed memory back: batches of all sizes fragment it."""
TRAINED_ROWS = 12000
"""Tokens with rows of their own."""


def trained_rows(
    data: Path, always: np.ndarray[Any, Any]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The most frequent tokens of the first shards, and which of them train all dimensions.

    ``always``: ids that are among them in any case, those of a core to start from. Words keep their
    identity dimensions, so that they can still be copied as arguments; markup and punctuation may
    change altogether.
    """
    counts = np.zeros(vocabulary.VOCABULARY_SIZE, dtype=np.int64)
    for path in sorted(data.glob("shard*.npz"))[:6]:
        with np.load(path) as shard:
            for key in ("prefix", "segment"):
                counts += np.bincount(shard[key], minlength=vocabulary.VOCABULARY_SIZE)
    for index, text in enumerate(vocabulary.tokens()):
        if text.isdigit():
            counts[index] = 0
    counts[always] = np.iinfo(counts.dtype).max
    order = np.argsort(-counts, kind="stable")[:TRAINED_ROWS]
    chosen = np.sort(order[counts[order] >= 20])
    return chosen, warm_start.markup(chosen)


def variants() -> tuple[Tensor, Tensor]:
    """For every token the id of its group (same letters), and the groups as a padded table."""
    core = np.packbits(embedding_rows.bits()[:, : embedding_rows.LETTER_DIMS], axis=1)
    _, group = np.unique(core, axis=0, return_inverse=True)
    group = group.reshape(-1)
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(group.max() + 2))
    table = np.full((len(starts) - 1, 8), -1, dtype=np.int64)
    for spot in range(8):
        has = starts[:-1] + spot < starts[1:]
        table[has, spot] = order[starts[:-1][has] + spot]
    return torch.from_numpy(group), torch.from_numpy(table)


def add_ends(shard: dict[str, Any]) -> None:
    """Add where each prefix and each conversation of a shard ends, as `collate` wants it."""
    shard["prefix_end"] = shard["prefix_length"].cumsum()
    shard["segment_end"] = shard["segment_length"].cumsum()


def collate(shard: dict[str, Any], picks: list[int]) -> Pack:
    """The packs `picks` of a shard as one batch."""
    per = int(shard["per_pack"])
    prefix_end = shard["prefix_end"]
    segment_end = shard["segment_end"]
    prefixes = [
        shard["prefix"][prefix_end[i] - shard["prefix_length"][i] : prefix_end[i]] for i in picks
    ]
    plen = -(-max(map(len, prefixes)) // 16) * 16
    plen = max(plen, 128)
    prefix = np.zeros((len(picks), plen), dtype=np.int64)
    for index, ids in enumerate(prefixes):
        prefix[index, plen - len(ids) :] = ids
    lengths = np.stack([shard["segment_length"][i * per : (i + 1) * per] for i in picks])
    slen = -(-int(lengths.max()) // 8) * 8
    segments = np.zeros((len(picks), per, slen), dtype=np.int64)
    weights = np.zeros((len(picks), per, slen), dtype=np.float32)
    for b, i in enumerate(picks):
        for n in range(per):
            end, length = segment_end[i * per + n], lengths[b, n]
            segments[b, n, :length] = shard["segment"][end - length : end]
            weights[b, n, :length] = shard["weight"][end - length : end]
    most = int((weights > 0).sum(axis=2).max())
    loss_at = np.zeros((len(picks), per, most), dtype=np.int64)
    weight = np.zeros((len(picks), per, most), dtype=np.float32)
    target = np.zeros((len(picks), per, most), dtype=np.int64)
    for b in range(len(picks)):
        for n in range(per):
            at = np.flatnonzero(weights[b, n])
            loss_at[b, n, : len(at)] = at - 1
            target[b, n, : len(at)] = segments[b, n, at]
            weight[b, n, : len(at)] = weights[b, n, at]
    tensors = map(
        torch.from_numpy,
        (prefix, np.array([len(p) for p in prefixes]), segments, loss_at, target, weight),
    )
    return Pack(*tensors)


def batches(data: Path, first: int, stride: int, size: int) -> Iterator[tuple[int, Pack]]:
    """(shard number, batch) without end, of every `stride`th shard, in rounds over what exists."""
    number = first
    while True:
        path = data / f"shard{number:04}.npz"
        if not path.exists():
            existing = len(list(data.glob("shard????.npz")))
            path = data / f"shard{number % max(1, existing):04}.npz"
        with np.load(path) as file:
            shard = {key: file[key] for key in file.files}
        add_ends(shard)
        total = len(shard["prefix_length"])
        groups = [list(range(at, at + size)) for at in range(0, total - size + 1, size)]
        for at in np.random.default_rng(number).permutation(len(groups)):
            yield number, collate(shard, groups[at])
        number += stride


def orthogonal(x: Tensor) -> Tensor:
    """Newton-Schulz iteration of Muon on a batch of matrices, (M, r, c)."""
    y = x.to(torch.bfloat16)
    tall = y.shape[-2] > y.shape[-1]
    y = y.mT if tall else y
    y = y / (y.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = y @ y.mT
        y = 3.4445 * y + (-4.7750 * a + 2.0315 * (a @ a)) @ y
    return (y.mT if tall else y).float()


class Optimiser:
    """Muon for the layers' matrices, Adam for the rest."""

    def __init__(self, model: Tiny) -> None:
        names = dict(model.named_parameters())
        big = {"q", "k", "v", "o", "gate", "up", "down"}
        self.matrices = [p for n, p in names.items() if n.split(".")[-1] in big]
        self.momentum = [torch.zeros_like(p) for p in self.matrices]
        rest = [(n, p) for n, p in names.items() if n.split(".")[-1] not in big]
        rates = {"delta_in": 1e-2, "delta_out": 2e-2}
        self.adam = torch.optim.AdamW(
            [
                {"params": [p], "lr": rates.get(n, 3e-3), "base": rates.get(n, 3e-3)}
                for n, p in rest
            ],
            betas=(0.9, 0.97),
            weight_decay=0.0,
        )
        self.all = [*self.matrices, *(p for _, p in rest)]

    def step(self, rate: float) -> None:
        """One step at `rate` (1 … 0) of the full learning rates."""
        grads = [p.grad for p in self.all if p.grad is not None]
        size = float(torch.stack([g.norm() for g in grads]).norm())
        torch._foreach_mul_(grads, min(1.0, 1.0 / (size + 1e-6)))
        shapes: dict[tuple[int, ...], list[int]] = {}
        for index, p in enumerate(self.matrices):
            assert p.grad is not None
            self.momentum[index].lerp_(p.grad, 0.05)
            shapes.setdefault(tuple(p.shape), []).append(index)
        for shape, indices in shapes.items():
            nesterov = [torch.lerp(self.matrices[i].grad, self.momentum[i], 0.95) for i in indices]
            gain = 0.02 * rate * max(1.0, shape[0] / shape[1]) ** 0.5
            with torch.no_grad():
                for i, update in zip(indices, orthogonal(torch.stack(nesterov)), strict=True):
                    self.matrices[i].add_(update, alpha=-gain)
        for group in self.adam.param_groups:
            group["lr"] = group["base"] * rate
        self.adam.step()
        for p in self.all:
            p.grad = None

    def tensors(self) -> list[Tensor]:
        """Everything that training changes: parameters and both optimisers' moments."""
        moments = [v for s in self.adam.state.values() for k, v in s.items() if k != "step"]
        return [*(p.data for p in self.all), *self.momentum, *moments]

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs of it."""
        return {"momentum": self.momentum, "adam": self.adam.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        for mine, saved in zip(self.momentum, state["momentum"], strict=True):
            mine.copy_(saved)
        self.adam.load_state_dict(state["adam"])


class WeightExchange:
    """Processes train by themselves and now and then go on from the mean of what they have.

    Gradients are not exchanged: who is pre-empted would make the others wait at every step. The
    mean is weighted by the steps done since the last one.
    """

    def __init__(self, every: float, world: int) -> None:
        """`every` is in seconds; one process alone only looks at the clock."""
        self.every, self.world, self.due, self.steps = every, world, every, 0

    def after_step(self, optimiser: Optimiser, clock: float, rank: int) -> float | None:
        """The first process's `clock` (seconds of the schedule) when there was an exchange."""
        self.steps += 1
        if self.world == 1:
            return clock
        if clock < self.due:
            return None
        tensors = optimiser.tensors()
        flat = torch.cat([t.flatten() for t in tensors]) * self.steps
        said = torch.tensor([float(self.steps), clock if rank == 0 else 0.0], dtype=torch.float64)
        dist.all_reduce(flat)
        dist.all_reduce(said)
        flat /= float(said[0])
        for mine, mean in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            mine.copy_(mean.view_as(mine))
        self.steps, self.due = 0, float(said[1]) + self.every
        return float(said[1])


def token_losses(hidden: Tensor, rows: Tensor, correction: Tensor, target: Tensor) -> Tensor:
    """Cross entropy of every hidden state, (M, 256), where the right row of (C, 256) is `target`."""
    return F.cross_entropy((hidden @ rows.T).float() + correction, target, reduction="none")


class Loss:
    """Softmax over the batch's tokens with their variants and a sample of all others."""

    def __init__(self, model: Tiny, device: torch.device) -> None:
        self.model, self.device = model, device
        group, table = variants()
        self.group, self.table = group.to(device), table.to(device)

    def candidates(self, pack: Pack, target: Tensor) -> tuple[Tensor, Tensor, int]:
        """Ids to choose from, what to add to their logits, and how many are no sample (sorted)."""
        near = self.table[self.group[target.unique()]].flatten()
        base = torch.cat((near[near >= 0], pack.prefix.flatten(), pack.segments.flatten())).unique()
        trained = self.model.trained[~torch.isin(self.model.trained, base)]
        known = trained[torch.randperm(len(trained), device=self.device)[: NEGATIVE_SAMPLES[0]]]
        other = torch.randint(
            0, vocabulary.ORDINARY_TOKENS, (NEGATIVE_SAMPLES[1],), device=self.device
        )
        other = other[~torch.isin(other, torch.cat((base, self.model.trained)))]
        rest = vocabulary.ORDINARY_TOKENS - len(base) - len(trained)
        corrections = [
            torch.full((len(some),), float(np.log(of / max(1, len(some)))), device=self.device)
            for some, of in ((base, len(base)), (known, len(trained)), (other, rest))
        ]
        return torch.cat((base, known, other)), torch.cat(corrections), len(base)

    def each(self, pack: Pack, precise: bool) -> tuple[Tensor, Tensor]:
        """The loss of every token that is learned, and its weight."""
        keep = pack.weight.flatten() > 0
        hidden = self.model(pack).flatten(0, 2)[keep]
        target, weight = pack.target.flatten()[keep], pack.weight.flatten()[keep]
        wanted, correction, own = self.candidates(pack, target)
        rows = self.model.logit_rows(wanted)
        target_index = torch.searchsorted(wanted[:own], target)
        kind = torch.float32 if precise else hidden.dtype
        # In pieces below 32 MB: larger blocks are mapped and zeroed anew at every step.
        losses = [
            token_losses(some.to(kind), rows.to(kind), correction, want)
            for some, want in zip(hidden.split(1024), target_index.split(1024), strict=True)
        ]
        return torch.cat(losses), weight

    def __call__(self, pack: Pack, precise: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Weighted mean loss; its plain mean; right and all of (tokens, decisions)."""
        losses, weight = self.each(pack, precise)
        with torch.no_grad():
            # More probable than not: nearly always the most probable one.
            right = (losses < math.log(2)).float()
            hard = (weight >= 2.5).float()
            stats = torch.stack(
                (right.sum(), right.new_tensor(len(right)), (right * hard).sum(), hard.sum())
            )
        return (losses * weight).sum() / weight.sum(), losses.detach().mean(), stats


def save(path: Path, **content: Any) -> None:
    """Write a checkpoint."""
    torch.save(content, path.with_suffix(".partial"))
    path.with_suffix(".partial").replace(path)


class Report:
    """What the first process says every 25 steps."""

    def __init__(self, world: int, clock: float) -> None:
        self.world, self.clock = world, clock
        self.steps = 0
        self.sums = np.zeros(6)

    def add(self, stats: Tensor, plain: Tensor, pack: Pack) -> None:
        """Add the losses of a step."""
        self.steps += 1
        self.sums += [*stats.tolist(), float(plain), pack.prefix.numel() + pack.segments.numel()]

    def tell(self, step: int, shard: int, clock: float, total: float) -> None:
        """Print the means since the last time."""
        right, count, decided, decisions, loss, tokens = self.sums
        print(
            f"step {step} shard {shard} time {clock / total:.3f} loss {loss / self.steps:.4f} "
            f"right {right / count:.4f} decisions {decided / decisions:.4f} "
            f"tok/s {tokens * self.world / (clock - self.clock):.0f}",
            flush=True,
        )
        self.steps, self.clock = 0, clock
        self.sums[:] = 0


def compile_parts() -> None:
    """Compile what moves memory more than it computes: 1.4 times the tokens a second on a CPU.

    In parts and for any shape: compiling the whole model would begin anew with every batch's shape.
    """
    # 0 and 1 are shapes of their own, dtypes and ranks too; beyond the limit it is eager again.
    torch._dynamo.config.recompile_limit = 64
    owners = ((model_module, ("attend", "attend_prefix")), (Tiny, ("experts", "norm", "turn")))
    for owner, names in owners:
        for name in names:
            setattr(owner, name, torch.compile(getattr(owner, name), dynamic=True))
    globals()["token_losses"] = torch.compile(token_losses, dynamic=True)


def work(rank: int, options: argparse.Namespace) -> None:
    """Train in one process."""
    world = options.processes
    device = torch.device(options.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    if options.compile:
        compile_parts()
    if world > 1:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29611")
        dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(0)
    with np.load(options.run / "rows.npz") as chosen:
        model = Tiny(
            Shape(layers=options.layers, expert_dim=options.expert_dim),
            chosen["trained"],
            chosen["full"],
        )
    if options.init:
        warm_start.fill(model, options.init)
    model = model.to(device)
    optimiser = Optimiser(model)
    checkpoint = options.run / "checkpoint.pt"
    step, spent, first = 0, 0.0, 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(saved["model"])
        optimiser.load(saved["optimiser"])
        step, spent, first = saved["step"], saved["spent"], saved["shard"] + world
    torch.manual_seed(1000 * rank + step)
    loss_of = Loss(model, device)
    total = options.minutes * 60.0
    begun = time.monotonic() - spent
    written = spent
    exchange = WeightExchange(options.exchange, world)
    exchange.due += spent
    report = Report(world, spent)
    for shard, batch in batches(options.data, first + rank, world, options.batch):
        left = max(0.0, 1.0 - (time.monotonic() - begun) / total)
        pack = batch.to(device)
        loss, plain, stats = loss_of(pack, precise=left < 0.1)
        loss.backward()
        optimiser.step(options.peak * left * min(1.0, (step + 1) / 30))
        step += 1
        if device.type == "cpu" and step % TRIM_STEPS == 0:
            ctypes.CDLL(None).malloc_trim(0)
        agreed = exchange.after_step(optimiser, time.monotonic() - begun, rank)
        report.add(stats, plain, pack)
        over = agreed is not None and agreed >= total
        if rank == 0 and (report.steps == 25 or over):
            report.tell(step, shard, time.monotonic() - begun, total)
        if rank == 0 and agreed is not None and (agreed - written > options.every or over):
            save(
                checkpoint,
                model=model.state_dict(),
                optimiser=optimiser.state(),
                step=step,
                shard=shard,
                spent=agreed,
            )
            written = agreed
        if over:
            break
    if world > 1:
        dist.destroy_process_group()


def main() -> None:
    """Start the processes that train."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder of shards, see data.py")
    parser.add_argument("run", type=Path, help="folder of the checkpoint")
    parser.add_argument("--minutes", type=float, default=90.0, help="of the whole schedule")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4, help="packs a step and process")
    parser.add_argument("--every", type=float, default=180.0, help="seconds between checkpoints")
    parser.add_argument("--exchange", type=float, default=15.0, help="seconds between exchanges")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--init", type=Path, help="a core to start from, such as core.xz")
    parser.add_argument("--layers", type=int, default=Shape.layers)
    parser.add_argument("--expert-dim", type=int, default=Shape.expert_dim)
    parser.add_argument("--peak", type=float, default=1.0, help="of the learning rates")
    options = parser.parse_args()
    options.run.mkdir(parents=True, exist_ok=True)
    # The children's allocator keeps freed blocks instead of mapping new ones every step.
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(32 << 20))
    os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", str(8 << 30))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if not (options.run / "rows.npz").exists():
        always = warm_start.core_rows(options.init) if options.init else np.empty(0, np.int64)
        trained, full = trained_rows(options.data, always)
        np.savez(options.run / "rows.npz", trained=trained, full=full)
    if options.processes == 1:
        work(0, options)
    else:
        torch.multiprocessing.spawn(work, args=(options,), nprocs=options.processes)


if __name__ == "__main__":
    main()
