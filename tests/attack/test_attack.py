"""A part of ``make attack``: whatever is slow on a busy machine is not asked here, only what holds."""

import importlib
import math
import os
import sys

import pytest

from tests.attack import GROUPS, measure
from tests.attack.measure import Attempt, markdown_table

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="what Linux offers"),
]
SHARES = {
    "rules": 100,
    "exhaustion": 240,
    "repositories": 200,
    "later": 6,
    "network": 6,
    "mcp_servers": 300,
    "http_clients": 92,
}
"""Of these groups every so many attacks are tried."""
LONG = ("repositories", "http_clients")


@pytest.mark.parametrize(
    "group", [pytest.param(g, marks=pytest.mark.long if g in LONG else ()) for g in GROUPS]
)
async def test_attacks_are_repelled(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())
    module = importlib.import_module(f"tests.attack.{group}")
    if group == "rules":
        monkeypatch.setattr(module, "BATCH", 100)
    if group == "swaps":
        monkeypatch.setattr(module, "ROUNDS", 300)
    if group in ("exhaustion", "network", "mcp_servers", "http_clients"):
        # How long others wait depends on the machine: `make attack` asks for it.
        monkeypatch.setattr(module, "MAX_LATENESS_MS", math.inf)
        monkeypatch.setattr(module, "MAX_LATENESS_MANY_MS", math.inf, raising=False)
        monkeypatch.setattr(module, "MAX_MEMORY_MIB", 3 * measure.MAX_MEMORY_MIB)
    names = module.NAMES[:: SHARES.get(group, 1)]
    tried = [attempt async for attempt in module.attempts(names)]
    missed = [f"{attempt.name}: {attempt.detail}" for attempt in tried if not attempt.repelled]
    assert len(tried) >= 2 and not missed


def test_markdown_table_counts_and_names_what_missed() -> None:
    attempts = [Attempt("a", "one", True), Attempt("a", "two", False, "it got out")]
    table = markdown_table(attempts)
    assert "| a | 2 | 1 | – | – |" in table and table.endswith("- a: two: it got out")
