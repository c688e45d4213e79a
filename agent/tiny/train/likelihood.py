"""How likely the right text is, part by part: where a model goes wrong before it says anything.

    python -m agent.tiny.train.likelihood CORE_OR_RUN [--split eval] [--misses function]

One forward pass over the right text of new conversations. Of each kind of request: the nats that
its thought, calls and answer cost, and the share of those in which every token is more likely than
all others together. A miss is shown with its first such token in ⟦⟧.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from agent.formats.harmony.token_ids import CHANNEL_ID
from agent.tiny import vocabulary
from agent.tiny.train import data, export, mixture, warm_start
from agent.tiny.train.data import ConversationWriter
from agent.tiny.train.model import Tiny
from agent.tiny.train.train import Loss, add_ends, collate
from agent.tiny.train.words import Split

MAX_TOKENS = 700
"""Of a prefix and of a conversation: longer ones are left out."""
CONVERSATIONS_PER_PREFIX = 14
PARTS = ("thought", "call", "answer")


@dataclass
class Sum:
    """What the same part of several conversations costs."""

    count: int = 0
    nats: float = 0.0
    right: int = 0

    def add(self, losses: list[float]) -> None:
        """Add the losses of one part's tokens."""
        self.count += 1
        self.nats += sum(losses)
        self.right += all(loss < math.log(2) for loss in losses)

    def __str__(self) -> str:
        return f"{self.nats / self.count:6.2f} nats {100 * self.right / self.count:3.0f} %"


def conversations(
    rng: random.Random, split: Split, prefixes: int
) -> Iterator[tuple[list[int], list[tuple[str, ConversationWriter]]]]:
    """Prefixes with conversations that follow them, each with its kind."""
    while prefixes:
        prefix = data.make_prefix(rng, split)
        if len(prefix.ids) > MAX_TOKENS:
            continue
        written = []
        for _ in range(CONVERSATIONS_PER_PREFIX):
            turns = mixture.conversation(
                rng, split, prefix.python, prefix.tools, data.clean, data.encode
            )
            kind = turns[-1].kind + (" after" if len(turns) > 1 else "")
            written.append((kind, data.write_turns(rng, turns)))
        yield prefix.ids, [one for one in written if len(one[1].ids) <= MAX_TOKENS]
        prefixes -= 1


def parts(ids: list[int]) -> Iterator[str]:
    """Which part each token of a conversation belongs to."""
    part = PARTS[0]
    for at, token in enumerate(ids):
        if token == CHANNEL_ID:
            head = text_of(ids[at + 1 : at + 4])
            called = head.startswith(("commentary", "analysis to"))
            part = "answer" if head.startswith("final") else "call" if called else "thought"
        yield part


def text_of(ids: Iterable[int]) -> str:
    """The text of tokens; special ones are bars."""
    texts = vocabulary.tokens()
    return b"".join(texts[i] if i < len(texts) else b"|" for i in ids).decode("utf-8", "replace")


def measure(
    model: Tiny, split: Split, prefixes: int, misses: str = ""
) -> dict[str, dict[str, Sum]]:
    """Sums by kind and part; ``misses``: the kind of which the first wrong tokens are printed."""
    sums: dict[str, dict[str, Sum]] = {}
    loss_of = Loss(model, torch.device("cpu"))
    for prefix, some in conversations(random.Random("likelihood"), split, prefixes):
        shard = data.arrays([(prefix, [one for _, one in some])])
        add_ends(shard)
        with torch.no_grad():
            losses = iter(loss_of.each(collate(shard, [0]), precise=True)[0].tolist())
        for kind, one in some:
            found: dict[str, list[float]] = {"all": []}
            miss = -1
            for at, (part, weight) in enumerate(zip(parts(one.ids), one.weights, strict=True)):
                if weight:
                    loss = next(losses)
                    found["all"].append(loss)
                    found.setdefault(part, []).append(loss)
                    miss = at if miss < 0 and loss >= math.log(2) else miss
            for part, costs in found.items():
                sums.setdefault(kind, {}).setdefault(part, Sum()).add(costs)
            if kind == misses and miss >= 0:
                before, after = text_of(one.ids[:miss])[-250:], text_of(one.ids[miss + 1 :])[:60]
                print(repr(f"{before}⟦{text_of(one.ids[miss : miss + 1])}⟧{after}"))
    return sums


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="a core, or the folder of a run")
    parser.add_argument("--split", choices=("train", "eval"), default="eval")
    parser.add_argument("--prefixes", type=int, default=100)
    parser.add_argument("--misses", default="", metavar="KIND", help="print what goes wrong in it")
    options = parser.parse_args()
    run = options.model.is_dir()
    model = export.load(options.model)[0] if run else warm_start.load(options.model)
    sums = measure(model, options.split, options.prefixes, options.misses)
    for kind, some in sorted(sums.items(), key=lambda pair: -pair[1]["all"].count):
        shown = (f"{part} {some[part]}" for part in ("all", *PARTS) if part in some)
        print(f"{kind:20} {some['all'].count:5}  " + "  ".join(shown))


if __name__ == "__main__":
    main()
