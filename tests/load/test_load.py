"""The whole program, with the embedded model, under clients of all kinds; `make load` has more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.load import load


@pytest.mark.slow
async def test_a_crowd(home: Path) -> None:
    found = await load.run(home, clients=8, requests=90, warm=0, seed=7)
    assert found.seen["fuzzes"] and found.seen["leaves"] and found.seen["babbles"]
    assert found.stored["completed"] + found.stored["incomplete"] > 15
    assert found.stored["cancelled"] > 5
