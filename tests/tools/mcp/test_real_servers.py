"""The servers that people use: of npm (older protocol) and of PyPI (newest)."""

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.hosts import SERVERS_FOLDER, MakeHost, tool
from tests.support.waiting import wait_until
from tools.config.servers import ServerConfig
from tools.mcp.client_requests import (
    ElicitationRequest,
    ElicitationResult,
    SamplingRequest,
    SamplingResult,
)
from tools.mcp.host import Host

NODE = SERVERS_FOLDER / "node" / "node_modules" / "@modelcontextprotocol"
node = pytest.mark.skipif(
    shutil.which("node") is None or not NODE.is_dir(),
    reason="node is missing, or make env has not installed the servers of npm",
)
pytestmark = pytest.mark.slow


def npm(name: str, *args: str, **env: str) -> ServerConfig:
    script = str(NODE / f"server-{name}" / "dist" / "index.js")
    return ServerConfig(name, command="node", args=(script, *args), env=env)


async def up(make_host: MakeHost, config: ServerConfig, folder: Path) -> Host:
    host = make_host(config, results_folder=folder / "results", roots=[folder])
    await host.start()
    await host.wait_started()
    assert host.server_states()[0].status == "ready", host.server_states()
    return host


@pytest.fixture
async def everything(make_host: MakeHost, tmp_path: Path) -> AsyncIterator[Host]:
    host = await up(make_host, npm("everything"), tmp_path)
    assert host.server_states()[0].protocol == "2025-11-25"
    await wait_until(
        lambda: any("elicitation" in offered.name for offered in host.tools())
    )  # it adds them later
    yield host


@node
async def test_everything_server_result_kinds(everything: Host, tmp_path: Path) -> None:
    host = everything
    structured = await host.call(
        tool(host, "everything__get_structured_content"), {"location": "Chicago"}
    )
    assert set(json.loads(structured.text)) == {"temperature", "conditions", "humidity"}
    image = await host.call(tool(host, "everything__get_tiny_image"), {})
    path = Path(image.text.partition("kept in ")[2].partition("]")[0])
    assert path.parent == tmp_path / "results" and path.read_bytes().startswith(b"\x89PNG")
    blob = await host.call(
        tool(host, "everything__get_resource_reference"), {"resourceType": "Blob", "resourceId": 2}
    )
    # It is declared as text/plain.
    assert "[resource demo://resource/dynamic/blob/2]\nResource 2: This is a base64" in blob.text
    links = await host.call(tool(host, "everything__get_resource_links"), {"count": 2})
    assert links.text.count("[resource link") == 2
    seen: list[float] = []
    long = await host.call(
        tool(host, "everything__trigger_long_running_operation"),
        {"duration": 0.3, "steps": 3},
        on_progress=lambda at, *_: seen.append(at),
    )
    assert "completed" in long.text
    await wait_until(lambda: seen == [1, 2, 3])


@node
async def test_everything_server_client_requests(everything: Host, tmp_path: Path) -> None:
    host, requests = everything, list[object]()

    async def answer(request: ElicitationRequest) -> ElicitationResult:
        requests.append(request)
        return ElicitationResult("accept", None if request.url else {"name": "Ada"})

    async def write(request: SamplingRequest) -> SamplingResult:
        requests.append(request)
        return SamplingResult("written by the model", "tiny")

    form = await host.call(
        tool(host, "everything__trigger_elicitation_request"), {}, on_elicitation=answer
    )
    assert "Ada" in form.text
    page = await host.call(
        tool(host, "everything__trigger_url_elicitation"),
        {"url": "https://example.org/pay"},
        on_elicitation=answer,
    )
    assert "completed" in page.text
    assert (
        isinstance(requests[1], ElicitationRequest) and requests[1].url == "https://example.org/pay"
    )
    sampled = await host.call(
        tool(host, "everything__trigger_sampling_request"), {"prompt": "hi"}, on_sampling=write
    )
    assert "written by the model" in sampled.text
    roots = await host.call(tool(host, "everything__get_roots_list"), {})
    assert tmp_path.as_uri() in roots.text
    declined = await host.call(tool(host, "everything__trigger_elicitation_request"), {})
    assert "so it was declined" in declined.text


@node
async def test_everything_server_resources_and_prompts(everything: Host) -> None:
    listed = await everything.call(tool(everything, "everything__list_resources"), {})
    assert "demo://resource/dynamic/text/{resourceId}" in listed.text
    read = await everything.call(
        tool(everything, "everything__read_resource"), {"uri": "demo://resource/dynamic/text/1"}
    )
    assert read.text.startswith("[resource demo://resource/dynamic/text/1]\n")
    names = [prompt.name for prompt in await everything.prompts("everything")]
    assert "simple-prompt" in names
    ((role, text),) = await everything.get_prompt("everything", "simple-prompt", {})
    assert role == "user" and text


@node
async def test_filesystem_server_reads_below_root(make_host: MakeHost, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    host = await up(make_host, npm("filesystem", str(tmp_path)), tmp_path)
    read = await host.call(
        tool(host, "filesystem__read_text_file"), {"path": str(tmp_path / "a.txt")}
    )
    assert read.text == "hello"
    outside = await host.call(tool(host, "filesystem__read_text_file"), {"path": "/etc/passwd"})
    assert outside.failure == "execution" and "denied" in outside.text


@node
async def test_memory_server_stores_entities(make_host: MakeHost, tmp_path: Path) -> None:
    config = npm("memory", MEMORY_FILE_PATH=str(tmp_path / "memory.jsonl"))
    host = await up(make_host, config, tmp_path)
    ada = {"name": "Ada", "entityType": "person", "observations": ["likes frogs"]}
    await host.call(tool(host, "memory__create_entities"), {"entities": [ada]})
    result = await host.call(tool(host, "memory__search_nodes"), {"query": "frogs"})
    assert "Ada" in result.text
    assert (tmp_path / "memory.jsonl").exists()


async def test_git_server_status(make_host: MakeHost, tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is missing")
    git = await asyncio.create_subprocess_exec("git", "init", "-q", str(tmp_path))
    assert await git.wait() == 0
    (tmp_path / "new.txt").write_text("hello")
    config = ServerConfig("git", command=sys.executable, args=("-m", "mcp_server_git"))
    host = await up(make_host, config, tmp_path)
    assert host.server_states()[0].protocol == "2025-11-25"
    status = await host.call(tool(host, "git__git_status"), {"repo_path": str(tmp_path)})
    assert "new.txt" in status.text
