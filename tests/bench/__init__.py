"""``python -m tests.bench [group …]``: one table, each row a ratio to a peer measured beside it.

A group is a module of this package with ``rows()``, named in GROUPS. Each row alternates between us
and the peer, so that what else the machine does meets both. What has to be fetched, built or written
once lies below CACHE; a group that cannot be measured here raises Skipped.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

GROUPS = (
    "decode",
    "constrain",
    "path",
    "followup",
    "streams",
    "serve",
    "startup",
    "parser",
    "program",
    "tui",
)
CACHE = Path(os.environ.get("AGENT_BENCH", "~/.cache/agent-bench")).expanduser()


_BEGAN = time.monotonic()


def progress(what: str) -> None:
    """Tell on stderr what is done now, and since how many seconds anything is."""
    print(f"{time.monotonic() - _BEGAN:5.0f} s: {what}", file=sys.stderr, flush=True)


class Skipped(Exception):
    """A group cannot be measured on this machine; the message is a sentence that says why."""


@dataclass(frozen=True)
class Row:
    """What was measured, how often, and beside what. The n-th of ours belongs to the n-th of theirs."""

    name: str
    unit: str
    """Of rates more is better, of times and counts less."""
    peer: str
    ours: list[float]
    theirs: list[float] = field(default_factory=list)
    """Nothing: a number of ours alone."""
    goal: str = ""
    """What the ratio ought to be."""

    def __post_init__(self) -> None:
        progress(self.line())

    @property
    def ratios(self) -> list[float]:
        """Of each pair, ours to theirs."""
        return [a / b for a, b in zip(self.ours, self.theirs, strict=True)] if self.theirs else []

    def line(self) -> str:
        """Medians, and the ratio's median with its quartiles (of a number alone: its own)."""
        of = self.ratios or self.ours
        low, middle, high = statistics.quantiles(of, n=4) if len(of) > 1 else of * 3
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


def beside(
    name: str,
    unit: str,
    ours: Callable[[], float],
    peer: str,
    theirs: Callable[[], float],
    n: int = 9,
    goal: str = "",
) -> Row:
    """Measure both `n` times in turn, after once each to warm up."""
    progress(f"{name} …")
    ours(), theirs()
    pairs = [(ours(), theirs()) for _ in range(n)]
    return Row(name, unit, peer, [a for a, _ in pairs], [b for _, b in pairs], goal)


def table(rows: list[Row]) -> str:
    """The rows as Markdown."""
    columns = ("what", "unit", "ours", "peer", "peer's", "n", "ratio", "quartiles", "goal")
    head = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    return "\n".join(head + [row.line() for row in rows])
