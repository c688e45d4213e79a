"""MCP servers that a request brings, and calls that wait for the client's approval."""

import asyncio
import contextlib
import http.server
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from agent.server.http.options import ServerOptions
from agent.server.serve import base_url, listen, serve_in
from agent.turn.options import TurnOptions
from tests.support.endpoint import API_KEY, Serve, Served, api_error, engine_markup
from tests.support.invariants import check
from tests.support.requests import CODE_INTERPRETER, plain_option
from tests.support.scripts import HELLO, LONG, call, final, thought

PRIVATE_URLS = {"private_urls": True}
ECHO_CALL = call("far__echo", text="hi")


@pytest.fixture(scope="module")
def plain_server() -> Iterator[str]:
    """The URL of a real MCP server, over streamable HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    path = plain_option().split()[-1]
    process = subprocess.Popen([sys.executable, "-I", path, "http", str(port)])
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            break
    yield f"http://127.0.0.1:{port}/mcp"
    process.kill()
    process.wait()


def mcp_tool(url: str, **fields: Any) -> dict[str, Any]:
    """A tool that brings a server."""
    return {"type": "mcp", "server_label": "far", "server_url": url, **fields}


@pytest.mark.long
async def test_client_server_tools_run(serve: Serve, plain_server: str) -> None:
    served = await serve(ECHO_CALL, final("done"), server=PRIVATE_URLS)
    tool = mcp_tool(plain_server, require_approval="never", allowed_tools=["echo"])
    response = check(await served.stream(input="x", tools=[tool]))
    listed, run, message = response["output"]
    assert [tool_entry["name"] for tool_entry in listed["tools"]] == ["echo"] and listed[
        "error"
    ] is None
    assert (run["server_label"], run["name"], run["output"]) == ("far", "echo", "hi")
    assert message["content"][0]["text"] == "done"
    assert [state.name for state in served.runtime.host.server_states()] == []
    followed = await served.client().responses.create(
        model="default", input="x", tools=[tool], previous_response_id=response["id"]
    )
    assert [item.type for item in followed.output] == ["mcp_call", "message"]


async def test_client_server_requests_count_against_capacity(
    serve: Serve, plain_server: str
) -> None:
    served = await serve(LONG, LONG, server=PRIVATE_URLS)
    served.service.max_running = 2
    body = {"input": "x", "background": True, "tools": [mcp_tool(plain_server)]}
    answers = await asyncio.gather(*(served.post(body) for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 429, 429]
    served.service.stop_all()
    await served.service.wait_idle()


async def test_client_server_private_address_is_refused(serve: Serve, plain_server: str) -> None:
    served = await serve(ECHO_CALL, final("no"))
    for url in (
        plain_server,
        plain_server.replace("127.0.0.1", "localhost"),
        "http://10.0.0.1/mcp",
    ):
        response = check(await served.stream(input="x", tools=[mcp_tool(url)]))
        listed, run = response["output"][:2]
        assert listed["tools"] == [] and "public" in listed["error"]
        assert run["status"] == "failed"
    for url in ("IGNORED", None):
        refused = await served.post({"input": "x", "tools": [mcp_tool(url)]})  # type: ignore[arg-type]
        assert refused.json()["error"]["code"] == "mcp_server_not_found"


@pytest.mark.parametrize("allowed", [False, True])
async def test_client_server_beyond_loopback_needs_option(
    serve: Serve, plain_server: str, allowed: bool
) -> None:
    served = await serve(HELLO)
    listener = listen("0.0.0.0", 0, API_KEY)
    options = ServerOptions(api_keys=(API_KEY,), client_servers=allowed, private_urls=True)
    beside = asyncio.create_task(serve_in(served.runtime, TurnOptions(), listener, options))
    answer = await served.post(
        {"input": "x", "tools": [mcp_tool(plain_server)]},
        url=f"{base_url(listener)}/responses",
        headers={"authorization": f"Bearer {API_KEY}"},
    )
    beside.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await beside
    if allowed:
        assert answer.json()["status"] == "completed"
    else:
        error = api_error(answer, 400)
        assert error["code"] == "client_servers_not_allowed"
        assert "--client-servers" in error["message"]


async def test_client_server_secrets_only_reach_the_server(serve: Serve) -> None:
    received: list[dict[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append({name.lower(): text for name, text in self.headers.items()})
            self.send_error(403)

        do_GET = do_POST

        def log_message(self, *arguments: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        served = await serve(HELLO, server=PRIVATE_URLS, log_level="debug")
        url = f"http://127.0.0.1:{site.server_address[1]}/mcp?key=SESAME"
        tool = mcp_tool(url, headers={"X-Key": "SESAME-1"}, authorization="SESAME-2")
        answer = await served.post({"input": "x", "tools": [tool], "stream": True})
        site.shutdown()
    assert received[0]["x-key"] == "SESAME-1" and received[0]["authorization"] == "Bearer SESAME-2"
    assert "mcp_list_tools.failed" in answer.text and "403" in answer.text
    paths = served.runtime.paths
    files = b"".join(path.read_bytes() for path in paths.state.rglob("*") if path.is_file())
    assert "SESAME" not in answer.text and b"SESAME" not in files
    assert "SESAME" not in repr([turn.log.events for turn in served.turns])
    for bad_fields in ({"headers": "SESAME"}, {"headers": {"a": 1}}, {"authorization": 1}):
        refused = await served.post({"input": "x", "tools": [mcp_tool(url, **bad_fields)]})
        assert refused.status_code == 400 and "SESAME" not in refused.text


async def request_approval(
    served: Served, tool: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    response = check(await served.stream(input="x", tools=[tool]))
    item = response["output"][-1]
    assert response["status"] == "completed" and item["type"] == "mcp_approval_request"
    return response, item


def approval_response(item: dict[str, Any], approve: bool, **fields: Any) -> dict[str, Any]:
    """The input item that answers an approval request."""
    kind = "mcp_approval_response"
    return {"type": kind, "approval_request_id": item["id"], "approve": approve, **fields}


@pytest.mark.long
@pytest.mark.parametrize("resent", ["", "everything", "all but the list"])
async def test_approval_call_runs_once_approved(
    serve: Serve, plain_server: str, resent: str
) -> None:
    served = await serve(
        thought("Ask.") + ECHO_CALL, final("done"), final("bye"), server=PRIVATE_URLS
    )
    tool = mcp_tool(plain_server, require_approval="always")
    first, item = await request_approval(served, tool)
    assert (item["server_label"], item["name"]) == ("far", "echo")
    before = list(served.runtime.loaded.engine.answered_ids)  # type: ignore[attr-defined]
    body: dict[str, Any] = {
        "input": [approval_response(item, True)],
        "previous_response_id": first["id"],
    }
    history = [{"role": "user", "content": "x"}, *first["output"], approval_response(item, True)]
    if resent == "all but the list":
        history = [item for item in history if item.get("type") != "mcp_list_tools"]
    if resent:
        body = {"input": history, "store": False}
    second = check(await served.stream(tools=[tool], **body))
    run, message = second["output"]
    assert (run["approval_request_id"], run["output"]) == (item["id"], "hi")
    assert message["content"][0]["text"] == "done"
    after = list(served.runtime.loaded.engine.answered_ids)  # type: ignore[attr-defined]
    assert after[: len(before)] == before, "the call is what the model wrote"
    everything = [*history, *second["output"], {"role": "user", "content": "y"}]
    check(await served.stream(input=everything, tools=[tool], store=False))
    assert engine_markup(served).count('{"text": "hi"}<|call|>') == 1, (
        "it is one call in the history"
    )
    again = {"input": [approval_response(item, True)], "previous_response_id": second.get("id")}
    refused = await served.post({**again, "tools": [tool]})
    assert refused.status_code == 400


async def test_approval_in_a_conversation_lists_no_tools_again(
    serve: Serve, plain_server: str
) -> None:
    served = await serve(ECHO_CALL, final("done"), server=PRIVATE_URLS)
    body = {"tools": [mcp_tool(plain_server, require_approval="always")]}
    body["conversation"] = (await served.post({}, url=f"{served.url}/conversations")).json()["id"]
    first = check(await served.stream(input="x", **body))
    assert [item["type"] for item in first["output"]] == ["mcp_list_tools", "mcp_approval_request"]
    answer = approval_response(first["output"][1], True)
    second = check(await served.stream(input=[answer], **body))
    assert [item["type"] for item in second["output"]] == ["mcp_call", "message"]


async def test_approval_refused_reason_reaches_model(serve: Serve, plain_server: str) -> None:
    served = await serve(ECHO_CALL, final("As you like."), server=PRIVATE_URLS)
    tool = mcp_tool(plain_server, require_approval="always")
    first, item = await request_approval(served, tool)
    await served.end()
    served = await serve(
        final("As you like."), server=PRIVATE_URLS
    )  # the request outlives a restart
    second = check(
        await served.stream(
            input=[approval_response(item, False, reason="not now")],
            tools=[tool],
            previous_response_id=first["id"],
        )
    )
    assert [item["type"] for item in second["output"]] == ["message"]
    assert "the user refused the call: not now" in engine_markup(served)


@pytest.mark.parametrize("resent", [False, True])
async def test_approval_unanswered_call_is_not_run(
    serve: Serve, plain_server: str, resent: bool
) -> None:
    """The client goes on with something else: the call has not run, and the model is told so."""
    served = await serve(ECHO_CALL, final("Well."), final("Bye."), server=PRIVATE_URLS)
    tool = mcp_tool(plain_server, require_approval="always")
    first, item = await request_approval(served, tool)
    user = {"role": "user", "content": "never mind"}
    body: dict[str, Any] = {"input": [user], "previous_response_id": first["id"]}
    if resent:
        body = {"input": [{"role": "user", "content": "x"}, *first["output"], user]}
    second = check(await served.stream(tools=[tool], **body))
    call_and_result = (
        '{"text": "hi"}<|call|><|start|>functions.far__echo to=assistant<|channel|>commentary'
        "<|message|>Error: the call was not run: it was not approved<|end|>"
        "<|start|>user<|message|>never mind<|end|>"
    )
    assert call_and_result in engine_markup(served)
    late_approval = {
        "input": [approval_response(item, True)],
        "previous_response_id": second["id"],
        "tools": [tool],
    }
    refused = await served.post(late_approval)
    assert refused.status_code == 400 and "approval request" in refused.text
    check(await served.stream(input="bye", tools=[tool], previous_response_id=second["id"]))
    assert (
        call_and_result in engine_markup(served)
        and engine_markup(served).count("it was not approved") == 1
    )


async def test_approval_filters_select_calls(serve: Serve, plain_server: str) -> None:
    served = await serve(ECHO_CALL, final("done"), server=PRIVATE_URLS)
    for approval in ({"never": {"tool_names": ["echo"]}}, {"always": {"tool_names": ["big"]}}):
        response = check(
            await served.stream(
                input="x", tools=[mcp_tool(plain_server, require_approval=approval)]
            )
        )
        assert response["output"][1]["type"] == "mcp_call"
    for approval in ({"always": {"read_only": True}}, {"never": {"tool_names": ["big"]}}):
        asking_server = await serve(ECHO_CALL, final("done"), server=PRIVATE_URLS)
        await request_approval(asking_server, mcp_tool(plain_server, require_approval=approval))


async def test_approval_applies_to_operator_tools(serve: Serve) -> None:
    from tests.support.scripts import python

    served = await serve(python("print(6*7)"), final("42"), tools="python")
    tool = {**CODE_INTERPRETER, "require_approval": "always"}
    first, item = await request_approval(served, tool)
    second = check(
        await served.stream(
            input=[approval_response(item, True)], tools=[tool], previous_response_id=first["id"]
        )
    )
    assert second["output"][0]["output"] == "42"
    wrong = await served.post(
        {"input": "x", "tools": [{**CODE_INTERPRETER, "require_approval": "maybe"}]}
    )
    assert wrong.status_code == 400


@pytest.mark.long
async def test_approval_invalid_call_fails_without_request(serve: Serve, plain_server: str) -> None:
    bad = call("far__echo", wrong=1)
    served = await serve(bad, final("Sorry."), server=PRIVATE_URLS)
    response = check(
        await served.stream(input="x", tools=[mcp_tool(plain_server, require_approval="always")])
    )
    assert response["output"][1]["type"] == "mcp_call"
    assert response["output"][1]["status"] == "failed"
    await served.service.wait_idle()
    assert not [task for task in asyncio.all_tasks() if (task.get_name() or "") == "mcp far"]
