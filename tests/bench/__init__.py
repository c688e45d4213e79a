"""``python -m tests.bench [group …]``: one table, each row a ratio to a peer measured beside it.

A group is a module of this package with ``rows()``, named in GROUPS. Each row alternates between us
and the peer, so that what else the machine does meets both.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

GROUPS = ("decode", "startup", "parser", "program")


@dataclass(frozen=True)
class Row:
    """What was measured, how often, and beside what; higher is better."""

    name: str
    unit: str
    peer: str
    ours: list[float]
    theirs: list[float]

    @property
    def ratios(self) -> list[float]:
        """Of each pair, ours to theirs."""
        return [a / b for a, b in zip(self.ours, self.theirs, strict=True)]


def beside(
    name: str,
    unit: str,
    ours: Callable[[], float],
    peer: str,
    theirs: Callable[[], float],
    n: int = 9,
) -> Row:
    """Measure both `n` times in turn, after once each to warm up."""
    ours(), theirs()
    pairs = [(ours(), theirs()) for _ in range(n)]
    return Row(name, unit, peer, [a for a, _ in pairs], [b for _, b in pairs])


def table(rows: list[Row]) -> str:
    """The rows as Markdown: medians, and the ratio's median with its quartiles."""
    lines = ["| what | unit | ours | peer | peer's | n | ratio | quartiles |", "|" + "---|" * 8]
    for row in rows:
        low, middle, high = statistics.quantiles(row.ratios, n=4)
        ours, theirs = statistics.median(row.ours), statistics.median(row.theirs)
        lines.append(
            f"| {row.name} | {row.unit} | {ours:,.4g} | {row.peer} | {theirs:,.4g} |"
            f" {len(row.ours)} | {middle:.3f} | {low:.3f} … {high:.3f} |"
        )
    return "\n".join(lines)
