"""A program ends, whatever its threads wait for."""

import asyncio
import subprocess
import sys
import threading

from agent.util.daemon_threads import DaemonThreads
from tests.support.program import ROOT
from tests.support.waiting import HANG_SECONDS

HANGS = """
import asyncio, threading
from agent.util.daemon_threads import DaemonThreads

async def main():
    asyncio.get_running_loop().set_default_executor(DaemonThreads())
    for _ in range(50):
        asyncio.create_task(asyncio.to_thread(threading.Event().wait))
    print(await asyncio.to_thread(lambda: 2))

asyncio.run(main())
"""


def test_program_ends_while_its_threads_hang() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", HANGS], stdout=subprocess.PIPE, cwd=ROOT, timeout=HANG_SECONDS
    )
    assert (ran.returncode, ran.stdout) == (0, b"2\n")


async def test_results_and_errors_come_back() -> None:
    threads, loop = DaemonThreads(), asyncio.get_running_loop()
    assert await loop.run_in_executor(threads, threading.current_thread) is not None
    (error,) = await asyncio.gather(loop.run_in_executor(threads, int, "x"), return_exceptions=True)
    assert isinstance(error, ValueError)
    threads.shutdown()
