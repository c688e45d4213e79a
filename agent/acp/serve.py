"""Runs `agent acp`: the protocol over stdin and stdout."""

import asyncio
import os
import sys
from dataclasses import replace
from typing import Any, cast

from acp.agent.connection import AgentSideConnection

from agent import bootstrap
from agent.acp.agent import AcpAgent
from agent.acp.transport import MessageLines
from agent.config.launch import LaunchOptions
from agent.runtime.runtime import Runtime
from agent.server.http.signals import run_until_signal
from agent.util.process import EXIT_DONE
from agent.util.sanitize import echo

CLOSE_SECONDS = 5.0
"""Time that turns, tools and the engine have to end once the editor is gone."""


def main(launch: LaunchOptions) -> int:
    """Serve until stdin ends, or until SIGTERM or SIGINT; return the exit code. Raises UserError."""
    # The tools are those of each session's folder.
    runtime = bootstrap.create_runtime(replace(launch, tools="none"))
    asyncio.run(_serve(runtime, launch))
    return EXIT_DONE


async def _serve(runtime: Runtime, launch: LaunchOptions) -> None:
    store = await asyncio.to_thread(bootstrap.open_store, runtime)
    agent = AcpAgent(runtime, launch, store)
    connection = AgentSideConnection(
        cast(Any, agent), MessageLines(), listening=False, use_unstable_protocol=True
    )
    await runtime.start()
    await run_until_signal(connection.listen())
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await agent.close()
            await runtime.close()
    except TimeoutError:
        echo("agent: tools or engine did not end in time.", file=sys.stderr)
    if store is not None:
        await asyncio.to_thread(store.close)
    os._exit(EXIT_DONE)  # a thread may still read stdin, and nothing ends that
