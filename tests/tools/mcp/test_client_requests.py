"""What servers ask back, change and offer beside tools, in both eras of the protocol."""

import asyncio
import importlib.metadata
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.hosts import MakeHost, server, tool
from tests.support.waiting import wait_until
from tools.builtin_server import conversation_id
from tools.mcp.call_scope import MAX_ELICITATIONS, CallScope
from tools.mcp.client_requests import (
    CallHandlers,
    ElicitationRequest,
    ElicitationResult,
    SamplingRequest,
    SamplingResult,
)
from tools.mcp.host import Host
from tools.results import ResultBuilder
from tools.types import ToolResult

ERAS = ["2025-11-25", "2026-07-28"]
shares_server = pytest.mark.asyncio(loop_scope="module")
"""Marks tests that leave the server as it was."""


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=ERAS)
async def shared(request: pytest.FixtureRequest, shared_folder: Path) -> AsyncIterator[Host]:
    """A host whose server is started once for the tests that share it."""
    config = server("plain", protocol=request.param)
    host = Host([config], results_folder=shared_folder / "results", roots=[shared_folder])
    await host.start()
    await host.wait_started()
    assert host.server_states()[0].protocol == request.param
    yield host
    await host.close()


@pytest.fixture(params=ERAS)
async def plain(request: pytest.FixtureRequest, make_host: MakeHost, tmp_path: Path) -> Host:
    config = server("plain", protocol=request.param)
    host = make_host(config, results_folder=tmp_path / "results", roots=[tmp_path])
    await host.start()
    await host.wait_started()
    assert host.server_states()[0].protocol == request.param
    return host


@shares_server
async def test_elicitation_answered_by_caller(shared: Host) -> None:
    requests: list[ElicitationRequest] = []

    async def answer(request: ElicitationRequest) -> ElicitationResult:
        requests.append(request)
        return ElicitationResult("accept", {"name": "Ada"})

    result = await shared.call(tool(shared, "plain__ask"), {}, on_elicitation=answer)
    assert result.text == "accept Ada"
    assert (requests[0].server, requests[0].message, requests[0].url) == (
        "plain",
        "Who are you?",
        None,
    )
    assert requests[0].schema is not None and "name" in requests[0].schema["properties"]


@shares_server
async def test_client_info_has_name_and_version(shared: Host) -> None:
    result = await shared.call(tool(shared, "plain__whom"), {})
    assert result.text == f"agent {importlib.metadata.version('agent-local')}"


@shares_server
async def test_elicitation_without_handler_declined_with_note(shared: Host) -> None:
    result = await shared.call(tool(shared, "plain__ask"), {})
    assert result.text.startswith("decline -\n[The server asked the user: 'Who are you?'; there")


@pytest.mark.parametrize("other", ["a", "b"])
async def test_elicitation_stays_in_its_conversation(plain: Host, other: str) -> None:
    async def answer(request: ElicitationRequest) -> ElicitationResult:
        return ElicitationResult("accept", {"name": "Ada"})

    async def call(name: str, whose: str) -> str:
        conversation_id.set(whose)
        result = await plain.call(tool(plain, f"plain__{name}"), {}, on_elicitation=answer)
        return result.text

    waiting = asyncio.create_task(call("meet", "a"))
    connection = plain._servers["plain"]._connection
    assert connection is not None
    await wait_until(lambda: connection._scopes)
    result = await asyncio.create_task(call("ask", other))
    known = other == "a" or plain.server_states()[0].protocol > "2026"
    assert result == ("accept Ada" if known else "decline -")
    waiting.cancel()


@pytest.mark.slow
async def test_elicitation_suspends_timeout(make_host: MakeHost) -> None:
    host = make_host(server("plain", tool_timeout_sec=4))
    await host.start()
    await host.wait_started()
    clock = asyncio.get_running_loop().time

    async def answer(request: ElicitationRequest) -> ElicitationResult:
        start = clock()
        await wait_until(lambda: clock() > start + 4.1)
        return ElicitationResult("accept", {"name": "Ada"})

    result = await host.call(tool(host, "plain__ask"), {}, on_elicitation=answer)
    assert result.text == "accept Ada"


@shares_server
async def test_elicitation_closed_with_cancelled_call(shared: Host) -> None:
    started, closed = asyncio.Event(), asyncio.Event()

    async def answer(request: ElicitationRequest) -> ElicitationResult:
        started.set()
        try:
            await asyncio.sleep(600)
        finally:
            closed.set()
        return ElicitationResult("cancel")

    call = asyncio.create_task(shared.call(tool(shared, "plain__ask"), {}, on_elicitation=answer))
    await started.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.wait_for(closed.wait(), 60)
    assert (await shared.call(tool(shared, "plain__echo"), {"text": "on"})).text == "on"


@shares_server
async def test_sampling_answered_or_refused_by_caller(shared: Host) -> None:
    requests: list[SamplingRequest] = []

    async def write(request: SamplingRequest) -> SamplingResult:
        requests.append(request)
        return SamplingResult("An old silent pond", "tiny")

    result = await shared.call(tool(shared, "plain__write"), {}, on_sampling=write)
    assert result.text == "tiny: An old silent pond"
    assert (
        requests[0].messages == (("user", "Write about frogs."),) and requests[0].max_tokens == 20
    )
    refused = await shared.call(tool(shared, "plain__write"), {})
    assert refused.failure != "none" and "refused" in refused.text
    picture = await shared.call(tool(shared, "plain__describe"), {}, on_sampling=write)
    assert picture.failure != "none" and "takes text alone" in picture.text
    assert len(requests) == 1, "an image is not left out"


@shares_server
async def test_roots_listed_for_server(shared: Host, shared_folder: Path) -> None:
    assert (await shared.call(tool(shared, "plain__where"), {})).text == shared_folder.as_uri()


async def test_tool_added_at_runtime_callable(plain: Host) -> None:
    result = await plain.call(tool(plain, "plain__grow"), {})
    assert result.text.startswith("grown\n[The server has new tools, with these arguments: grown {")
    await wait_until(lambda: any(offered.name == "grown" for offered in plain.tools()))
    assert (await plain.call(tool(plain, "plain__grown"), {})).text == "odd"


async def test_prompt_added_at_runtime_notifies(plain: Host) -> None:
    changed = list[str]()
    plain.subscribe(changed.append)
    assert (await plain.call(tool(plain, "plain__teach"), {})).text == "taught"
    await wait_until(lambda: changed)
    assert [prompt.name for prompt in await plain.prompts(changed[0])] == ["greet", "taught"]
    changed.clear()
    plain.reconnect("plain")
    await wait_until(lambda: changed)
    assert [prompt.name for prompt in await plain.prompts("plain")] == ["greet"]


async def test_server_without_tools_has_prompts(make_host: MakeHost) -> None:
    host = make_host(server("prompts"))
    changed = list[str]()
    host.subscribe(changed.append)
    await host.start()
    await host.wait_started()
    (state,) = host.server_states()
    assert (state.status, state.tools, changed) == ("ready", [], ["prompts"])
    assert [prompt.name for prompt in await host.prompts("prompts")] == ["first"]
    await wait_until(lambda: len(changed) > 1)
    assert [prompt.name for prompt in await host.prompts("prompts")] == ["first", "second"]


@shares_server
async def test_resources_and_prompts_readable(shared: Host) -> None:
    listed = await shared.call(tool(shared, "plain__list_resources"), {})
    assert listed.text.splitlines()[0] == "note://one  (note, text/plain, The first note.)"
    assert "note://{name}/picture" in listed.text
    read = await shared.call(tool(shared, "plain__read_resource"), {"uri": "note://one"})
    assert read.text == "[resource note://one]\nremember the milk"
    uri = {"uri": "note://ada/picture"}
    picture = await shared.call(tool(shared, "plain__read_resource"), uri)
    assert picture.text.startswith("[resource note://ada/picture image/png, 3 B, kept in ")
    kept = Path(picture.text.rpartition("kept in ")[2].rstrip("]"))
    assert kept.read_bytes() == b"ada" and kept.suffix == ".png"
    missing = await shared.call(tool(shared, "plain__read_resource"), {"uri": "note://x/y"})
    assert missing.failure == "protocol" and "note://x/y" in missing.text
    nameless = await shared.call(tool(shared, "plain__read_resource"), {})
    assert nameless.text.endswith("refused the call of read_resource: uri is required")
    assert (await shared.resources("plain"))[0].uri == "note://one"
    (prompt,) = await shared.prompts("plain")
    assert (prompt.name, prompt.arguments) == ("greet", (("name", True),))
    assert await shared.get_prompt("plain", "greet", {"name": "Ada"}) == [
        ("user", "Say hello to Ada")
    ]
    with pytest.raises(ValueError, match="the server nowhere is not known"):
        await shared.prompts("nowhere")


async def test_call_that_needs_page_asks_person(make_host: MakeHost) -> None:
    host = make_host(server("booking"))
    await host.start()
    await host.wait_started()
    requests: list[ElicitationRequest] = []

    async def answer(request: ElicitationRequest) -> ElicitationResult:
        requests.append(request)
        return ElicitationResult("accept" if len(requests) == 1 else "decline")

    log_in = tool(host, "booking__log_in")
    shown = await host.call(log_in, {}, on_elicitation=answer)
    page = "https://example.org/login?next=tables"
    assert requests == [ElicitationRequest("booking", "Log in first.", url=page)]
    assert shown.text == (
        "the server booking has shown the user a page; call it again once they are done"
        f" there: Log in first. {page}"
    )
    declined = await host.call(log_in, {}, on_elicitation=answer)
    assert "wants the user to visit a page first" in declined.text and len(requests) == 2
    await host.call(log_in, {"url": "file:///etc/passwd"}, on_elicitation=answer)
    assert len(requests) == 2


async def test_elicitations_beyond_limit_cancelled_and_person_hears_of_it(
    make_host: MakeHost,
) -> None:
    host = make_host(server("booking"))
    await host.start()
    await host.wait_started()
    output: list[str] = []

    async def answer(request: ElicitationRequest) -> ElicitationResult:
        return ElicitationResult("accept", {"name": "Ada"})

    result = await host.call(
        tool(host, "booking__invite"),
        {"people": MAX_ELICITATIONS + 2},
        on_output=lambda stream, text: output.append(text),
        on_elicitation=answer,
    )
    assert result.text.startswith("accept " * MAX_ELICITATIONS + "cancel cancel\n[The server asked")
    (line,) = output
    assert line.startswith(f"The server asked more than {MAX_ELICITATIONS} questions")


async def test_call_scope_bounds_elicitations() -> None:
    messages: list[str] = []

    async def answer(request: ElicitationRequest) -> ElicitationResult:
        messages.append(request.message)
        return ElicitationResult("decline")

    async with CallScope(CallHandlers(on_elicitation=answer), None) as scope:
        for number in range(3000):
            result = await scope.elicit(ElicitationRequest("x", f"{number} {'y' * 9999}"))
            assert result.action == ("decline" if number < MAX_ELICITATIONS else "cancel")
    assert len(messages) == MAX_ELICITATIONS and len(scope.notes) == MAX_ELICITATIONS + 1
    noted = ResultBuilder(1000, None).with_notes(ToolResult("z" * 1000), scope.notes)
    assert len(noted.text) <= 1000 and "declined" in noted.text
