"""A part of ``make attack``: whatever is slow on a busy machine is not asked here, only what holds."""

import importlib
import sys

import pytest

from tests.attack import GROUPS
from tests.attack.measure import MAX_MEMORY_MIB, Attempt, markdown_table

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
FEWER = {"rules": {"batch": 100}, "swaps": {"rounds": 300}}
LONG = ("repositories", "http_clients")


@pytest.mark.parametrize(
    "group", [pytest.param(g, marks=pytest.mark.long if g in LONG else ()) for g in GROUPS]
)
async def test_attacks_are_repelled(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long others wait depends on the machine: ``make attack`` asks for it."""
    monkeypatch.setenv("AGENT_ATTACK_SECRET", "")  # an attack sets it
    module = importlib.import_module(f"tests.attack.{group}")
    names = module.NAMES[:: SHARES.get(group, 1)]
    tried = [attempt async for attempt in module.attempts(names, **FEWER.get(group, {}))]
    missed = [
        f"{attempt.name}: {attempt.detail}"
        for attempt in tried
        if not attempt.repelled or attempt.load.memory_mib > 3 * MAX_MEMORY_MIB
    ]
    assert len(tried) >= min(2, len(names)) and not missed


def test_markdown_table_counts_and_names_what_missed() -> None:
    attempts = [Attempt("a", "one", True), Attempt("a", "two", False, "it got out")]
    table = markdown_table(attempts)
    assert "| a | 2 | 1 | – | – |" in table and table.endswith("- a: two: it got out")
