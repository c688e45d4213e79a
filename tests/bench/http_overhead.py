"""What events and HTTP cost per token, beside the tokens: ``python -m tests.bench.http_overhead``."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import tempfile
from pathlib import Path

from agent import bootstrap
from agent.cli.shared import Shared
from agent.conversation.conversation import Conversation, User
from agent.server.serve import Face, Server, address, listen
from agent.turn.loop import Turn
from agent.turn.options import Options

TOKENS = 20_000


def cpu() -> float:
    """Seconds that this process has worked."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure(script: Path) -> dict[str, float]:
    """CPU time in µs per token: of a turn with nobody reading, and of one read over HTTP."""
    shared = Shared(engine=f"script:{script}")
    runtime = bootstrap.runtime(shared, tools="none")
    await runtime.ready()
    began = cpu()
    await Turn(runtime, Conversation("c"), [User("x")], Options(tools=())).start().done()
    alone = (cpu() - began) / TOKENS * 1e6
    listener = listen("127.0.0.1", 0, None)
    server = Server(runtime, Options(), listener, Face(store=False))
    serving = asyncio.create_task(server.run())
    began = cpu()
    # A client in a process of its own: what it does is not our cost.
    client = await asyncio.create_subprocess_exec(
        "curl", "-sN", f"{address(listener)}/responses", "-d", '{"input":"x","stream":true}',
        "-o", os.devnull,
    )  # fmt: skip
    await client.wait()
    over_http = (cpu() - began) / TOKENS * 1e6
    server.end()
    await serving
    await runtime.close()
    return {"turn_us_per_token": alone, "http_us_per_token": over_http - alone}


def write_script(folder: Path) -> Path:
    """An answer of TOKENS tokens."""
    script = folder / "script.jsonl"
    markup = "<|channel|>final<|message|>" + " word" * TOKENS + "<|return|>"
    script.write_text(json.dumps({"markup": markup}) + "\n")
    return script


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["AGENT_HOME"] = folder
        for name, value in asyncio.run(measure(write_script(Path(folder)))).items():
            print(f"{name}: {value:.1f}")


if __name__ == "__main__":
    main()
