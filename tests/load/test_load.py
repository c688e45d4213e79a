"""The program with the embedded model under clients of all kinds; `make load` has more of them."""

from pathlib import Path

import pytest

from tests.load import load


@pytest.mark.long
async def test_load_all_kinds_of_clients_no_fault(home: Path) -> None:
    result = await load.run_load(home, clients=8, requests=60, warm=0, seed=7)
    assert result.counts.keys() >= {"fuzz", "drop_stream", "send_garbage", "call_tool"}
    assert result.stored_statuses["completed"] + result.stored_statuses["incomplete"]
    assert result.stored_statuses["cancelled"]
