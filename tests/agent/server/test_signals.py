"""Signals end a server, whatever runs."""

import asyncio
import signal
import subprocess
import sys

import pytest

from agent.engine.protocol import EngineError
from agent.util.process import EXIT_CANCELLED
from tests.support.program import ROOT
from tests.support.runtimes import MakeRuntime

STUCK = """
import asyncio, sys, time
from agent.server.http.signals import stop_on_signals

def stop(_):
    print("stops", flush=True)
    time.sleep(1000)

async def main():
    stop_on_signals(stop)
    print("runs", flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


def test_further_signal_ends_a_server_whose_end_is_stuck() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STUCK], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "runs\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "stops\n"
        process.send_signal(signal.SIGINT)
        assert process.wait() == EXIT_CANCELLED


async def test_nobody_waits_for_the_model_of_a_program_that_ends(
    make_runtime: MakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make_runtime()
    loads = asyncio.Event()

    async def load_for_ever(*_: object, **__: object) -> None:
        loads.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(runtime, "load", load_for_ever)

    async def use() -> None:
        async with runtime.in_use():
            raise AssertionError("it is not loaded")

    using = asyncio.create_task(use())
    await loads.wait()
    runtime.stop_waiting()
    with pytest.raises(EngineError, match="is ending"):
        await using
