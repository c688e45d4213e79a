"""CPU time of a turn's events and of HTTP, per token: ``python -m tests.bench.http_overhead``."""

import asyncio
import json
import os
import resource
import tempfile
from pathlib import Path

from agent import bootstrap
from agent.config.launch import LaunchOptions
from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.server.http.options import ServerOptions
from agent.server.responses.models import ServedModels
from agent.server.serve import HttpServer, base_url, listen
from agent.turn.loop import Turn
from agent.turn.options import TurnOptions
from agent.util import gc_tuning

TOKENS = 20_000


def cpu_seconds() -> float:
    """CPU seconds that this process has used."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def measure(script: Path) -> dict[str, float]:
    """CPU µs per token: of a turn without readers, and what reading it over HTTP adds.

    ``script``: replies of the scripted engine, which takes the model's place.
    """
    gc_tuning.defer()  # as the program does; loading the model ends that
    shared = LaunchOptions(engine=f"script:{script}")
    runtime = bootstrap.create_runtime(shared, tools="none")
    await runtime.ready()
    began = cpu_seconds()
    await Turn(runtime, Conversation("c"), [User("x")], TurnOptions(tools=())).start().done()
    alone = (cpu_seconds() - began) / TOKENS * 1e6
    listener = listen("127.0.0.1", 0, None)
    models = ServedModels(runtime, TurnOptions())
    server = HttpServer(models, listener, ServerOptions(store=False), None)
    serving = asyncio.create_task(server.serve())
    began = cpu_seconds()
    # The client is a process of its own, so that its CPU time is not counted.
    client = await asyncio.create_subprocess_exec(
        "curl", "-sN", f"{base_url(listener)}/responses", "-d", '{"input":"x","stream":true}',
        "-o", os.devnull,
    )  # fmt: skip
    await client.wait()
    over_http = (cpu_seconds() - began) / TOKENS * 1e6
    server.drain()
    await serving
    await runtime.close()
    return {"turn_us_per_token": alone, "http_us_per_token": over_http - alone}


def write_script(folder: Path) -> Path:
    """Write a scripted reply with an answer of TOKENS tokens."""
    script = folder / "script.jsonl"
    markup = "<|channel|>final<|message|>" + " word" * TOKENS + "<|return|>"
    script.write_text(json.dumps({"markup": markup}) + "\n")
    return script


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["AGENT_HOME"] = folder
        for name, value in asyncio.run(measure(write_script(Path(folder)))).items():
            print(f"{name}: {value:.1f}")


if __name__ == "__main__":
    main()
