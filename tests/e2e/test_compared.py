"""What docs/compared.md says of this program, made again."""

import asyncio
from pathlib import Path

import pytest

from tests.compare.__main__ import PAGE, SEQUENCES, ToolServer, run_all, running
from tests.compare.cases import CASES
from tests.load.server_process import start_server
from tests.support.waiting import HANG_SECONDS


@pytest.mark.long
async def test_compared_requests_are_done(home: Path) -> None:
    servers = {name: ToolServer(name) for name in ("python", "container")}
    async with running(servers["python"]), running(servers["container"]):
        options = ("--model", "tiny", "--tools", "python", "--allow-private-urls")
        async with start_server(home, *options) as program, asyncio.timeout(HANG_SECONDS):
            cells = await run_all(program.root, servers)
    assert {name: text for name, text in cells.items() if not text.startswith("✓")} == {}
    assert {name: text for name, text in cells.items() if "Stream:" in text} == {}


def test_compared_page_has_all_requests() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    names = [*(case.name for case in CASES), *SEQUENCES]
    assert [row.split(" | ")[0] for row in rows[1:-1]] == [f"| {name}" for name in names]
