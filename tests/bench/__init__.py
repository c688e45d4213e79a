"""``python -m tests.bench [group …]``: one table, each row a ratio to a peer measured beside it.

A group is a module of this package with ``rows()``, named in GROUPS; the other modules are the peers,
models and clients that groups share. A row alternates between our side and the peer, so that what else
the machine does affects both. What is downloaded, built or written once is cached below CACHE; a group
that cannot be measured on this machine raises BenchmarkSkippedError.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

GROUPS = (
    "decode",
    "speculation",
    "constrain",
    "path",
    "followup",
    "prefixes",
    "busy",
    "streams",
    "serve",
    "remote",
    "batch",
    "startup",
    "parser",
    "program",
    "tui",
)
CACHE = Path(os.environ.get("AGENT_BENCH", "~/.cache/agent-bench")).expanduser()
"""Folder of built programs and written models; AGENT_BENCH names another."""

GPU_LAYERS = int(os.environ.get("AGENT_BENCH_GPU_LAYERS", 0))
"""Layers on GPUs, of all sides (`make gpu`); 0: everything is measured on the CPU."""

COLUMNS = ("what", "unit", "ours", "peer", "peer's", "n", "ratio", "quartiles", "goal")

_STARTED_AT = time.monotonic()


def progress(message: str) -> None:
    """Write a message to stderr, after the seconds since the program began."""
    print(f"{time.monotonic() - _STARTED_AT:5.0f} s: {message}", file=sys.stderr, flush=True)


class BenchmarkSkippedError(Exception):
    """A group cannot be measured on this machine; the message is a sentence that says why."""


@dataclass(frozen=True)
class BenchmarkRow:
    """Repeated measurements of our side and of the peer, in pairs: ``ours[n]`` and ``theirs[n]``."""

    name: str
    unit: str
    """Of rates (``…/s``) more is better, of times and counts less."""
    peer: str
    ours: list[float]
    theirs: list[float] = field(default_factory=list)
    """Empty for a number that has no peer."""
    goal: str = ""
    """The bound that the ratio (without a peer, our number) ought to keep, as text for the table."""

    def __post_init__(self) -> None:
        progress(self.line())

    @property
    def ratios(self) -> list[float]:
        """Ours divided by theirs, for each pair."""
        return [a / b for a, b in zip(self.ours, self.theirs, strict=True)] if self.theirs else []

    def line(self) -> str:
        """The table's row: both medians, and the ratio's quartiles (without a peer, our number's)."""
        values = self.ratios or self.ours
        low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
        theirs = f"{statistics.median(self.theirs):,.4g}" if self.theirs else ""
        cells = (
            self.name,
            self.unit,
            f"{statistics.median(self.ours):,.4g}",
            self.peer,
            theirs,
            str(len(self.ours)),
            f"{middle:.3f}" if self.theirs else "",
            f"{low:.3g} … {high:.3g}",
            self.goal,
        )
        return f"| {' | '.join(cells)} |"


def compare(
    name: str,
    unit: str,
    ours: Callable[[], float],
    peer: str,
    theirs: Callable[[], float],
    n: int = 9,
    goal: str = "",
) -> BenchmarkRow:
    """Measure both sides `n` times alternately, after one warm-up run of each."""
    progress(f"{name} …")
    ours(), theirs()
    pairs = [(ours(), theirs()) for _ in range(n)]
    return BenchmarkRow(name, unit, peer, [a for a, _ in pairs], [b for _, b in pairs], goal)


def markdown_table(rows: list[BenchmarkRow]) -> str:
    """Format the rows as a Markdown table."""
    head = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    return "\n".join(head + [row.line() for row in rows])
