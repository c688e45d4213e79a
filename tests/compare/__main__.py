"""Runs all requests against three servers and writes docs/compared.md: ``make compare``.

The servers run one after the other, on one thread, with the embedded model: `agent serve`, vLLM (its
weights as the exported checkpoint) and llama-server (the same GGUF).
"""

import asyncio
import importlib.metadata
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path

import httpx2

from agent.engine.placement.placement import ThreadCounts
from tests.bench import build_vllm, progress
from tests.bench.build_llama import llama_source
from tests.bench.llama_server import LlamaServer
from tests.bench.models import embedded_model
from tests.bench.peer_server import PeerServer
from tests.bench.vllm_server import VllmServer
from tests.compare.calling_checkpoint import calling_checkpoint
from tests.compare.cases import CASES, WEATHER, Answer, Case, Json, describe, short
from tests.load.server_process import start_server

PAGE = Path(__file__).parents[2] / "docs" / "compared.md"
CONTEXT_TOKENS = 4096
SHARED: Json = {"model": "tiny", "temperature": 0, "max_output_tokens": 400}
"""Fields of all requests, unless they have others."""


class ToolServer(PeerServer):
    """An MCP server of `tests.compare.tool_servers`."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__()

    def command(self) -> list[str]:
        """Its command line."""
        return [sys.executable, "-m", "tests.compare.tool_servers", self.name, str(self.port)]


async def ask(http: httpx2.AsyncClient, body: Json) -> Answer:
    """Stream a request."""
    answer = await http.post("/v1/responses", json={**SHARED, **body, "stream": True})
    answer_text = answer.text
    if answer.status_code != 200:
        return Answer(answer.status_code, answer_text)
    lines = [line[6:] for line in answer_text.splitlines() if line.startswith("data: {")]
    return Answer(200, "", [json.loads(line) for line in lines])


async def follow_up(http: httpx2.AsyncClient) -> tuple[bool, str]:
    """A function's result, after `previous_response_id`."""
    first = await ask(http, {"input": "Use get_weather for Oslo.", "tools": [WEATHER]})
    if not (calls := first.items("function_call")):
        return False, f"no call to follow ({first.summary()})"
    output = {"type": "function_call_output", "call_id": calls[0]["call_id"], "output": "3 degrees"}
    body = {"previous_response_id": first.response["id"], "input": [output], "tools": [WEATHER]}
    second = await ask(http, body)
    return "3 degrees" in second.text, second.summary()


async def cancel(http: httpx2.AsyncClient) -> tuple[bool, str]:
    """A response in the background, cancelled while it runs."""
    body = {**SHARED, "input": "Tell me about yourself.", "background": True}
    begun = await http.post("/v1/responses", json=body)
    if begun.status_code != 200:
        return False, f"HTTP {begun.status_code}: {short(begun.text)}"
    path = f"/v1/responses/{begun.json()['id']}"
    ended = await http.post(f"{path}/cancel")
    if ended.status_code != 200:
        return False, f"cancel: HTTP {ended.status_code}: {short(ended.text)}"
    status = (await http.get(path)).json().get("status")
    return status == "cancelled", f"afterwards: {status}"


async def stored(http: httpx2.AsyncClient) -> tuple[bool, str]:
    """GET, its input items, DELETE."""
    answer = await http.post("/v1/responses", json={**SHARED, "input": "hello"})
    if answer.status_code != 200:
        return False, f"HTTP {answer.status_code}: {short(answer.text)}"
    path = f"/v1/responses/{answer.json()['id']}"
    replies = [
        await http.get(path),
        await http.get(f"{path}/input_items"),
        await http.delete(path),
        await http.get(path),
    ]
    codes = [reply.status_code for reply in replies]
    return codes == [200, 200, 200, 404], "HTTP " + ", ".join(map(str, codes))


SEQUENCES: dict[str, Callable[[httpx2.AsyncClient], Awaitable[tuple[bool, str]]]] = {
    "a follow-up with the function's result": follow_up,
    "cancelling in the background": cancel,
    "GET, input items, DELETE, GET": stored,
}
Cells = dict[str, str]
"""What one server did, by the name of the request."""


async def run_all(url: str, tools: dict[str, ToolServer]) -> Cells:
    """Make all requests of one server."""
    cells = {}
    progress(f"asking {url} …")
    async with httpx2.AsyncClient(base_url=url, timeout=120) as http:
        for case in CASES:
            answer = await ask(http, with_address(case, tools))
            cells[case.name] = cell(case.is_done(answer), answer)
        for name, sequence in SEQUENCES.items():
            done, what = await sequence(http)
            cells[name] = f"{'✓' if done else '✗'} {what}"
    return cells


def with_address(case: Case, tools: dict[str, ToolServer]) -> Json:
    """A case's body, with the addresses of the MCP servers that it names."""
    body: Json = json.loads(json.dumps(case.body))
    for tool in body.get("tools", ()):
        if tool.get("server_label") in tools:
            tool["server_url"] = f"{tools[tool['server_label']].url}/mcp"
    return body


def cell(is_done: bool, answer: Answer) -> str:
    """What the table has of an answer."""
    text = f"{'✓' if is_done else '✗'} {answer.summary()}"
    if answer.status == 200 and (problem := answer.problem()):
        text += f". Stream: {problem}"
    return text.replace("|", "\\|").replace("\n", " ")


@asynccontextmanager
async def running(server: PeerServer) -> AsyncIterator[PeerServer]:
    """A server for the block."""
    await asyncio.to_thread(server.start)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.stop)


def vllm(tools: dict[str, ToolServer], model: Path | None = None) -> VllmServer:
    """vLLM with the MCP servers, and with its store on."""
    addresses = ",".join(f"127.0.0.1:{server.port}" for server in tools.values())
    return VllmServer(
        context=CONTEXT_TOKENS,
        options=["--tool-server", addresses],
        model=model,
        variables={
            "VLLM_GPT_OSS_SYSTEM_TOOL_MCP_LABELS": "container,code_interpreter",
            "VLLM_ENABLE_RESPONSES_API_STORE": "1",
        },
    )


async def compare() -> tuple[dict[str, Cells], list[str]]:
    """Run all servers; what each did, and the events of vLLM's streamed `mcp_call`."""
    results: dict[str, Cells] = {}
    servers = {name: ToolServer(name) for name in ("python", "container")}
    async with running(servers["python"]), running(servers["container"]):
        with tempfile.TemporaryDirectory() as folder:
            options = ("--model", "tiny", "--tools", "python", "--allow-private-urls")
            async with start_server(Path(folder), *options) as ours:
                results["agent"] = await run_all(ours.root, servers)
        threads = ThreadCounts(1, 1)
        template = llama_source() / "models" / "templates" / "openai-gpt-oss-120b.jinja"
        llama = LlamaServer(
            embedded_model(),
            context=CONTEXT_TOKENS,
            threads=threads,
            options=["--jinja", "--alias", "tiny", "--chat-template-file", str(template)],
        )
        async with running(llama):
            results["llama-server"] = await run_all(llama.url, servers)
        async with running(vllm(servers)) as server:
            results["vLLM"] = await run_all(server.url, servers)
        async with (
            running(vllm(servers, calling_checkpoint())) as server,
            httpx2.AsyncClient(base_url=server.url, timeout=120) as http,
        ):
            mcp = next(case for case in CASES if case.name == "an MCP server's tool")
            called = await ask(http, with_address(mcp, servers))
    events = [
        event["type"] + (f" ({describe(event['item'])})" if "item" in event else "")
        for event in called.events
        if not event["type"].endswith(".delta")
    ]
    problem = called.problem()
    return results, [*events, *([f"The invariants say: {problem}"] if problem else [])]


def page(results: dict[str, Cells], events: list[str]) -> str:
    """docs/compared.md."""
    names = list(results)
    rows = [
        f"| {case} | " + " | ".join(results[name][case] for name in names) + " |"
        for case in next(iter(results.values()))
    ]
    counts = [sum(text.startswith("✓") for text in results[name].values()) for name in names]
    versions = {
        "agent": importlib.metadata.version("agent-local"),
        "llama-server": f"of llama-cpp-python {importlib.metadata.version('llama-cpp-python')}",
        "vLLM": build_vllm.VERSION,
    }
    requests = "\n".join(json.dumps(case.body) for case in CASES)
    template = (Path(__file__).parent / "page.md").read_text(encoding="utf-8")
    return template.format(
        date=date.today().isoformat(),
        heads=" | ".join(f"{name} {versions[name]}" for name in names),
        line="---|" * len(names),
        rows="\n".join(rows),
        counts=" | ".join(f"{count} of {len(rows)}" for count in counts),
        events="\n".join(events),
        requests=requests,
    )


def main() -> None:
    """Run, and write the page."""
    began = time.monotonic()
    build_vllm.install()
    results, events = asyncio.run(compare())
    PAGE.write_text(page(results, events), encoding="utf-8")
    done = subprocess.run(
        ["git", "diff", "--stat", "--", str(PAGE)], capture_output=True, text=True
    )
    print(done.stdout or f"{PAGE} is as it was.", f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
