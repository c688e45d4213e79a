"""Training, one schedule by the clock.

    python -m agent.tiny.train DATA RUN --minutes 90            (two processes on a CPU)
    python -m agent.tiny.train DATA RUN --minutes 20 --device cuda --processes 1

The learning rate falls linearly to 0 over `--minutes` of training time, however fast the machine
is; a stopped run goes on from RUN/checkpoint.pt with the time it had left. On a CPU every
process has one thread: two threads in one process were several times slower.
"""

from __future__ import annotations

import argparse
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

from agent.tiny import rows, vocabulary
from agent.tiny.model import Pack, Shape, Tiny

NEGATIVES = 768
TRAINED_ROWS = 3000


def trained_rows(data: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The most frequent tokens of the first shards, and which of them train all dimensions.

    Words keep their identity dimensions, so that they can still be copied as arguments; markup
    and punctuation may change altogether.
    """
    counts = np.zeros(vocabulary.SIZE, dtype=np.int64)
    for path in sorted(data.glob("shard*.npz"))[:3]:
        with np.load(path) as shard:
            for key in ("prefix", "segment"):
                counts += np.bincount(shard[key], minlength=vocabulary.SIZE)
    texts = vocabulary.tokens()
    for index, text in enumerate(texts):
        if text.isdigit():
            counts[index] = 0
    order = np.argsort(-counts, kind="stable")[:TRAINED_ROWS]
    chosen = np.sort(order[counts[order] >= 20])
    full = np.array(
        [
            i >= vocabulary.ORDINARY or not any(c > 127 or chr(c).isalnum() for c in texts[i])
            for i in chosen
        ]
    )
    return chosen, full


def variants() -> tuple[Tensor, Tensor]:
    """For every token the id of its group (same letters), and the groups as a padded table."""
    core = np.packbits(rows.bits()[:, : rows.CORE], axis=1)
    _, group = np.unique(core, axis=0, return_inverse=True)
    group = group.reshape(-1)
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(group.max() + 2))
    table = np.full((len(starts) - 1, 8), -1, dtype=np.int64)
    for spot in range(8):
        has = starts[:-1] + spot < starts[1:]
        table[has, spot] = order[starts[:-1][has] + spot]
    return torch.from_numpy(group), torch.from_numpy(table)


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


def batches(data: Path, rank: int, world: int, start: int, size: int) -> Iterator[tuple[int, Pack]]:
    """(shard number, batch) without end; waits for shards that are still being written."""
    number = start
    while True:
        path = data / f"shard{number:04}.npz"
        if not path.exists():
            existing = len(list(data.glob("shard????.npz")))
            path = data / f"shard{number % max(1, existing):04}.npz"
        with np.load(path) as file:
            shard = {key: file[key] for key in file.files}
        shard["prefix_end"] = shard["prefix_length"].cumsum()
        shard["segment_end"] = shard["segment_length"].cumsum()
        total = len(shard["prefix_length"])
        groups = [list(range(at, at + size)) for at in range(0, total - size + 1, size)]
        # Neighbours have like shapes: the processes take neighbours, so that none waits long.
        rounds = np.arange(len(groups) // world)
        np.random.default_rng(number).shuffle(rounds)
        for at in rounds:
            yield number, collate(shard, groups[at * world + rank])
        number += 1


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
    """Muon for the layers' matrices, Adam for the rest; each process does its share of Muon."""

    def __init__(self, model: Tiny, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
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

    def step(self, rate: float, control: float) -> float:
        """One step at `rate` (1 … 0); returns rank 0's `control`, the same everywhere."""
        flat = torch.cat(
            [
                p.grad.flatten() if p.grad is not None else torch.zeros_like(p).flatten()
                for p in self.all
            ]
            + [self.all[0].new_tensor([control if self.rank == 0 else 0.0])]
        )
        if self.world > 1:
            dist.all_reduce(flat)
        control = float(flat[-1])
        flat = flat[:-1] / self.world
        flat *= min(1.0, 1.0 / (float(flat.norm()) + 1e-6))
        at = 0
        for p in self.all:
            p.grad = flat[at : at + p.numel()].view_as(p)
            at += p.numel()
        shapes: dict[tuple[int, ...], list[int]] = {}
        for index, p in enumerate(self.matrices):
            grad = p.grad
            assert grad is not None
            self.momentum[index].lerp_(grad, 0.05)
            if index % self.world == self.rank:
                shapes.setdefault(tuple(p.shape), []).append(index)
        updates = (
            [torch.zeros_like(p) for p in self.matrices] if self.world > 1 else list(self.momentum)
        )
        for indices in shapes.values():
            nesterov = [torch.lerp(self.matrices[i].grad, self.momentum[i], 0.95) for i in indices]
            for i, update in zip(indices, orthogonal(torch.stack(nesterov)), strict=True):
                updates[i] = update
        if self.world > 1:
            flat = torch.cat([u.flatten() for u in updates])
            dist.all_reduce(flat)
            at = 0
            for i, p in enumerate(self.matrices):
                updates[i] = flat[at : at + p.numel()].view_as(p)
                at += p.numel()
        with torch.no_grad():
            for p, update in zip(self.matrices, updates, strict=True):
                p.add_(update, alpha=-0.02 * rate * max(1.0, p.shape[0] / p.shape[1]) ** 0.5)
        for group in self.adam.param_groups:
            group["lr"] = group["base"] * rate
        self.adam.step()
        for p in self.all:
            p.grad = None
        return control

    def state(self) -> dict[str, Any]:
        return {"momentum": self.momentum, "adam": self.adam.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        for mine, saved in zip(self.momentum, state["momentum"], strict=True):
            mine.copy_(saved)
        self.adam.load_state_dict(state["adam"])


class Loss:
    """Softmax over the trained rows, the batch's tokens with their variants, and a sample."""

    def __init__(self, model: Tiny, device: torch.device) -> None:
        self.model, self.device = model, device
        group, table = variants()
        self.group, self.table = group.to(device), table.to(device)

    def __call__(self, pack: Pack, precise: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Weighted mean loss; correct and total weights of (all tokens, decisions)."""
        model = self.model
        keep = pack.weight.flatten() > 0
        hidden = model(pack).flatten(0, 2)[keep]
        target, weight = pack.target.flatten()[keep], pack.weight.flatten()[keep]
        near = self.table[self.group[target.unique()]].flatten()
        base = torch.cat(
            (model.trained, near[near >= 0], pack.prefix.flatten(), pack.segments.flatten())
        )
        base = base.unique()
        sample = torch.randint(0, vocabulary.ORDINARY, (NEGATIVES,), device=self.device)
        sample = sample[~torch.isin(sample, base)]
        wanted = torch.cat((base, sample))
        logit_rows = model.logit_rows(wanted)
        correction = logit_rows.new_zeros(len(wanted))
        correction[len(base) :] = float(
            np.log((vocabulary.ORDINARY - len(base)) / max(1, len(sample)))
        )
        place = torch.searchsorted(base, target)
        parts: list[Tensor] = []
        rights: list[Tensor] = []
        # In pieces below 32 MB: larger blocks are mapped and zeroed anew at every step.
        for some, want in zip(hidden.split(1024), place.split(1024), strict=True):
            if precise:
                logits = some.float() @ logit_rows.T
            else:
                logits = (some @ logit_rows.to(some.dtype).T).float()
            logits = logits + correction
            parts.append(F.cross_entropy(logits, want, reduction="none"))
            rights.append((logits.detach().argmax(dim=1) == want).float())
        losses = torch.cat(parts)
        with torch.no_grad():
            right = torch.cat(rights)
            hard = (weight >= 2.5).float()
            stats = torch.stack(
                (right.sum(), right.new_tensor(len(right)), (right * hard).sum(), hard.sum())
            )
        return (losses * weight).sum() / weight.sum(), losses.detach().mean(), stats


def save(path: Path, **content: Any) -> None:
    torch.save(content, path.with_suffix(".partial"))
    path.with_suffix(".partial").replace(path)


def work(rank: int, options: argparse.Namespace) -> None:
    world = options.processes
    device = torch.device(options.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    if world > 1:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29611")
        dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(0)
    rows_file = options.run / "rows.npz"
    with np.load(rows_file) as chosen:
        model = Tiny(Shape(), chosen["trained"], chosen["full"]).to(device)
    optimiser = Optimiser(model, rank, world)
    checkpoint = options.run / "checkpoint.pt"
    step, spent, first = 0, 0.0, 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(saved["model"])
        optimiser.load(saved["optimiser"])
        step, spent, first = saved["step"], saved["spent"], saved["shard"] + 1
    torch.manual_seed(1000 * rank + step)
    loss_of = Loss(model, device)
    begun = written = time.monotonic()
    total = options.minutes * 60.0
    rate = 1.0
    seen = np.zeros(8)
    for shard, batch in batches(options.data, rank, world, first, options.batch):
        pack = batch.to(device)
        loss, plain, stats = loss_of(pack, precise=rate < 0.3)
        loss.backward()
        warm = min(1.0, (step + 1) / 30)
        elapsed = optimiser.step(rate * warm, (spent + time.monotonic() - begun) / total)
        rate = max(0.0, 1.0 - elapsed)
        step += 1
        seen += [*stats.tolist(), float(plain), pack.prefix.numel() + pack.segments.numel(), 1, 0]
        if rank == 0 and (step % 25 == 0 or rate == 0):
            now = time.monotonic()
            speed = seen[5] * world / (now - begun - seen[7]) if seen[7] else 0.0
            print(
                f"step {step} shard {shard} time {elapsed:.3f} loss {seen[4] / seen[6]:.4f} "
                f"right {seen[0] / seen[1]:.4f} decisions {seen[2] / seen[3]:.4f} tok/s {speed:.0f}",
                flush=True,
            )
            seen[:] = 0
            seen[7] = now - begun
            if now - written > options.every or rate == 0:
                save(
                    checkpoint,
                    model=model.state_dict(),
                    optimiser=optimiser.state(),
                    step=step,
                    shard=shard,
                    spent=spent + now - begun,
                )
                written = now
        if rate == 0:
            break
    if world > 1:
        dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder of shards, see data.py")
    parser.add_argument("run", type=Path, help="folder of the checkpoint")
    parser.add_argument("--minutes", type=float, default=90.0, help="of the whole schedule")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--batch", type=int, default=2, help="packs a step and process")
    parser.add_argument("--every", type=float, default=180.0, help="seconds between checkpoints")
    options = parser.parse_args()
    options.run.mkdir(parents=True, exist_ok=True)
    # The children's allocator keeps freed blocks instead of mapping new ones every step.
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(32 << 20))
    os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", str(8 << 30))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    rows_file = options.run / "rows.npz"
    if not rows_file.exists():
        trained, full = trained_rows(options.data)
        np.savez(rows_file, trained=trained, full=full)
    if options.processes == 1:
        work(0, options)
    else:
        torch.multiprocessing.spawn(work, args=(options,), nprocs=options.processes)


if __name__ == "__main__":
    main()
