"""A short soak; `make soak` runs one for an hour."""

from pathlib import Path

import pytest

from tests.load.soak import soak


@pytest.mark.long
async def test_soak_short_run_no_fault(home: Path) -> None:
    row = await soak(home, seconds=3, warm=2, settled=False, least=1)
    assert row.turns and row.tools and row.cancels
