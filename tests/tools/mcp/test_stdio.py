"""Servers as child processes: what is seen of them while they start."""

import sys
from pathlib import Path

import pytest

from tests.support.waiting import wait_until
from tools.config.servers import ServerConfig
from tools.mcp.stdio import StdioTransport

pytestmark = pytest.mark.slow
COMPUTES = "while True: sum(range(100_000))"
UNPACKS = """
import sys, time
with open(sys.argv[1], "wb", buffering=0) as file:
    while True:
        file.write(bytes(1 << 20)); file.seek(0); time.sleep(0.1)
"""


@pytest.mark.parametrize("code", [COMPUTES, UNPACKS], ids=["computes", "unpacks"])
async def test_activity_of_server_that_prepares_itself_is_work(tmp_path: Path, code: str) -> None:
    """It sends nothing at all, as one that is downloaded for its first start."""
    args = ("-c", code, str(tmp_path / "package"))
    transport = StdioTransport(ServerConfig("new", command=sys.executable, args=args))
    async with transport.connect():
        for _ in range(3):
            before = transport.activity()
            await wait_until(lambda before=before: transport.activity().work != before.work)
            assert transport.activity().signs == before.signs
