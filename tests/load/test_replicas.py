"""Many clients of one `agent serve` over two real servers, one of which is killed in the middle."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.engine.placement.placement import ThreadCounts
from tests.bench import build_llama
from tests.bench.llama_server import LlamaServer
from tests.load.server_process import ServerProcess, start_server
from tests.support.endpoint import events_of
from tests.support.invariants import check
from tests.support.waiting import HANG_SECONDS

CLIENTS = 24
ENDED = {"completed", "incomplete"}
"""How an answer ends that may have only so many tokens."""


async def metrics(http: httpx2.AsyncClient, program: ServerProcess) -> dict[tuple[str, str], float]:
    """The values of /metrics that are those of one server, by name and address."""
    page = (await http.get(f"{program.root}/metrics")).text
    return {
        (sample.name, sample.labels["server"]): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if "server" in sample.labels and sample.name.startswith("agent_server_")
    }


async def ask(
    http: httpx2.AsyncClient, program: ServerProcess, number: int, tokens: int = 16
) -> dict[str, Any]:
    """The response to one client, whose events were checked."""
    body = {"input": f"{number}: who are you?", "stream": True, "max_output_tokens": tokens}
    answer = await http.post(f"{program.url}/responses", json=body)
    assert answer.status_code == 200, answer.text
    return check(events_of(answer.text))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(not build_llama.is_built(), reason="llama-server is not built: make peer")
async def test_killed_server_loses_nothing(home: Path, tiny_gguf: Path) -> None:
    threads = ThreadCounts(1, 1)
    servers = [LlamaServer(tiny_gguf, context=1024, streams=4, threads=threads) for _ in range(2)]
    try:
        await asyncio.gather(*(asyncio.to_thread(server.start) for server in servers))
        await kill_under_load(servers, home)
    finally:
        for server in servers:
            server.kill()


async def kill_under_load(servers: list[LlamaServer], home: Path) -> None:
    (home / "config").mkdir()
    urls = [server.url for server in servers]
    (home / "config" / "models.toml").write_text(
        f'[far]\nengine = "llama-server"\nurl = ["{urls[0]}", "{urls[1]}"]\n'
    )
    limits = httpx2.Limits(max_connections=None)
    async with (
        start_server(home, "--model", "far") as program,
        httpx2.AsyncClient(timeout=HANG_SECONDS, limits=limits) as http,
    ):
        first = [asyncio.create_task(ask(http, program, n, 16 + n)) for n in range(CLIENTS)]
        running = 0.0
        while sum(task.done() for task in first) < 8 or running < 4:
            assert not all(task.done() for task in first), "no server can be killed at work"
            values = await metrics(http, program)
            running = values.get(("agent_server_running", urls[0]), 0)
        servers[0].kill()
        responses = await asyncio.gather(*first)
        failed = [response for response in responses if response["status"] == "failed"]
        for response in failed:
            assert "went away after" in response["error"]["message"]
        assert len(failed) <= running, "what had no token yet was done on the other server"
        assert {each["status"] for each in responses} <= {"failed", *ENDED}
        again = await asyncio.gather(*(ask(http, program, n) for n in range(CLIENTS)))
        assert {response["status"] for response in again} <= ENDED
        values = await metrics(http, program)
        assert [values["agent_server_up", url] for url in urls] == [0, 1]
        while sum(values["agent_server_running", url] for url in urls):  # what is read ahead
            values = await metrics(http, program)
        statuses = program.stored_statuses()
        assert len(statuses) == 2 * CLIENTS
        assert set(statuses.values()) <= {"failed", *ENDED}
        await asyncio.to_thread(servers[0].start)
        while (await metrics(http, program))["agent_server_up", urls[0]] == 0:
            pass
        assert (await ask(http, program, 1))["status"] in ENDED
