"""MCP servers that a request brings, and calls that wait for the client's word."""

from __future__ import annotations

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

from agent.server import app
from tests.agent.server.test_tool_selection import CODE, PLAIN, seen
from tests.support.endpoint import Serve, Served
from tests.support.invariants import check
from tests.support.scripts import HELLO, LONG, call, final, thought

PRIVATE = {"private_urls": True}
ECHO = call("far__echo", text="hi")


@pytest.fixture(scope="module")
def plain() -> Iterator[str]:
    """The address of a real server, over streamable HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    path = PLAIN.split()[-1]
    process = subprocess.Popen([sys.executable, "-I", path, "http", str(port)])
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            break
    yield f"http://127.0.0.1:{port}/mcp"
    process.kill()
    process.wait()


def far(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "mcp", "server_label": "far", "server_url": url, **more}


async def test_a_server_of_the_request(serve: Serve, plain: str) -> None:
    served = await serve(ECHO, final("done"), face=PRIVATE)
    tool = far(plain, require_approval="never", allowed_tools=["echo"])
    response = check(await served.stream(input="x", tools=[tool]))
    listed, run, message = response["output"]
    assert [one["name"] for one in listed["tools"]] == ["echo"] and listed["error"] is None
    assert (run["server_label"], run["name"], run["output"]) == ("far", "echo", "hi")
    assert message["content"][0]["text"] == "done"
    assert [state.name for state in served.runtime.host.servers()] == []
    made = await served.client().responses.create(
        model="default", input="x", tools=[tool], previous_response_id=response["id"]
    )
    assert [item.type for item in made.output] == ["mcp_call", "message"]


async def test_what_waits_for_its_servers_counts_when_it_begins(
    serve: Serve, plain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "MAX_RUNNING", 2)
    served = await serve(LONG, LONG, face=PRIVATE)
    body = {"input": "x", "background": True, "tools": [far(plain)]}
    answers = await asyncio.gather(*(served.post(body) for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 429, 429]
    served.endpoint.stop_all()
    await served.endpoint.drained()


async def test_addresses_that_are_not_public(serve: Serve, plain: str) -> None:
    served = await serve(ECHO, final("no"))
    for url in (plain, plain.replace("127.0.0.1", "localhost"), "http://10.0.0.1/mcp"):
        response = check(await served.stream(input="x", tools=[far(url)]))
        listed, run = response["output"][:2]
        assert listed["tools"] == [] and "public" in listed["error"]
        assert run["status"] == "failed"
    for url in ("file:///etc/passwd", "http://", "IGNORED", None, "http://[::"):
        refused = await served.post({"input": "x", "tools": [far(url)]})  # type: ignore[arg-type]
        assert refused.json()["error"]["code"] == "mcp_server_not_found"


async def test_its_secrets_arrive_and_are_nowhere_else(serve: Serve) -> None:
    got: list[dict[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append({name.lower(): text for name, text in self.headers.items()})
            self.send_error(403)

        do_GET = do_POST

        def log_message(self, *arguments: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        served = await serve(HELLO, face=PRIVATE, log_level="debug")
        url = f"http://127.0.0.1:{site.server_address[1]}/mcp?key=SESAME"
        tool = far(url, headers={"X-Key": "SESAME-1"}, authorization="SESAME-2")
        answer = await served.post({"input": "x", "tools": [tool], "stream": True})
        site.shutdown()
    assert got[0]["x-key"] == "SESAME-1" and got[0]["authorization"] == "Bearer SESAME-2"
    assert "mcp_list_tools.failed" in answer.text and "403" in answer.text
    where = served.runtime.where
    kept = b"".join(path.read_bytes() for path in where.state.rglob("*") if path.is_file())
    assert "SESAME" not in answer.text and b"SESAME" not in kept
    assert "SESAME" not in repr([turn.log.events for turn in served.turns])
    for wrong in ({"headers": "SESAME"}, {"headers": {"a": 1}}, {"authorization": 1}):
        refused = await served.post({"input": "x", "tools": [far(url, **wrong)]})
        assert refused.status_code == 400 and "SESAME" not in refused.text


async def asked(served: Served, tool: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    response = check(await served.stream(input="x", tools=[tool]))
    item = response["output"][-1]
    assert response["status"] == "completed" and item["type"] == "mcp_approval_request"
    return response, item


def answer(item: dict[str, Any], approve: bool, **more: Any) -> dict[str, Any]:
    kind = "mcp_approval_response"
    return {"type": kind, "approval_request_id": item["id"], "approve": approve, **more}


@pytest.mark.parametrize("resent", [False, True])
async def test_a_call_waits_for_its_client(serve: Serve, plain: str, resent: bool) -> None:
    served = await serve(thought("Ask.") + ECHO, final("done"), final("bye"), face=PRIVATE)
    tool = far(plain, require_approval="always")
    first, item = await asked(served, tool)
    assert (item["server_label"], item["name"]) == ("far", "echo")
    before = list(served.runtime.engine.spoken)  # type: ignore[attr-defined]
    body: dict[str, Any] = {"input": [answer(item, True)], "previous_response_id": first["id"]}
    history = [{"role": "user", "content": "x"}, *first["output"], answer(item, True)]
    if resent:
        body = {"input": history, "store": False}
    second = check(await served.stream(tools=[tool], **body))
    run, message = second["output"]
    assert (run["approval_request_id"], run["output"]) == (item["id"], "hi")
    assert message["content"][0]["text"] == "done"
    after = list(served.runtime.engine.spoken)  # type: ignore[attr-defined]
    assert after[: len(before)] == before, "the call is what the model wrote"
    everything = [*history, *second["output"], {"role": "user", "content": "y"}]
    check(await served.stream(input=everything, tools=[tool], store=False))
    assert seen(served).count('{"text": "hi"}<|call|>') == 1, "it is one call in the history"
    again = {"input": [answer(item, True)], "previous_response_id": second.get("id")}
    refused = await served.post({**again, "tools": [tool]})
    assert refused.status_code == 400


async def test_a_refusal_is_told_to_the_model(serve: Serve, plain: str) -> None:
    served = await serve(ECHO, final("As you like."), face=PRIVATE)
    tool = far(plain, require_approval="always")
    first, item = await asked(served, tool)
    await served.end()
    served = await serve(final("As you like."), face=PRIVATE)  # it is asked still
    second = check(
        await served.stream(
            input=[answer(item, False, reason="not now")],
            tools=[tool],
            previous_response_id=first["id"],
        )
    )
    assert [one["type"] for one in second["output"]] == ["message"]
    assert "the user refused the call: not now" in seen(served)


@pytest.mark.parametrize("resent", [False, True])
async def test_a_question_that_nobody_answers(serve: Serve, plain: str, resent: bool) -> None:
    """The client goes on with something else: the call has not run, and the model is told so."""
    served = await serve(ECHO, final("Well."), final("Bye."), face=PRIVATE)
    tool = far(plain, require_approval="always")
    first, item = await asked(served, tool)
    user = {"role": "user", "content": "never mind"}
    body: dict[str, Any] = {"input": [user], "previous_response_id": first["id"]}
    if resent:
        body = {"input": [{"role": "user", "content": "x"}, *first["output"], user]}
    second = check(await served.stream(tools=[tool], **body))
    told = (
        '{"text": "hi"}<|call|><|start|>functions.far__echo to=assistant<|channel|>commentary'
        "<|message|>Error: the call was not run: nobody said that it may<|end|>"
        "<|start|>user<|message|>never mind<|end|>"
    )
    assert told in seen(served)
    late = {"input": [answer(item, True)], "previous_response_id": second["id"], "tools": [tool]}
    refused = await served.post(late)
    assert refused.status_code == 400 and "approval request" in refused.text
    check(await served.stream(input="bye", tools=[tool], previous_response_id=second["id"]))
    assert told in seen(served) and seen(served).count("nobody said") == 1


async def test_filters_choose_what_waits(serve: Serve, plain: str) -> None:
    served = await serve(ECHO, final("done"), face=PRIVATE)
    for approval in ({"never": {"tool_names": ["echo"]}}, {"always": {"tool_names": ["big"]}}):
        response = check(
            await served.stream(input="x", tools=[far(plain, require_approval=approval)])
        )
        assert response["output"][1]["type"] == "mcp_call"
    for approval in ({"always": {"read_only": True}}, {"never": {"tool_names": ["big"]}}):
        again = await serve(ECHO, final("done"), face=PRIVATE)
        await asked(again, far(plain, require_approval=approval))


async def test_an_operators_hand_may_wait_too(serve: Serve) -> None:
    from tests.support.scripts import python

    served = await serve(python("print(6*7)"), final("42"), tools="python")
    tool = {**CODE, "require_approval": "always"}
    first, item = await asked(served, tool)
    second = check(
        await served.stream(
            input=[answer(item, True)], tools=[tool], previous_response_id=first["id"]
        )
    )
    assert second["output"][0]["output"] == "42"
    wrong = await served.post({"input": "x", "tools": [{**CODE, "require_approval": "maybe"}]})
    assert wrong.status_code == 400


async def test_a_call_that_cannot_run_is_not_asked_for(serve: Serve, plain: str) -> None:
    bad = call("far__echo", wrong=1)
    served = await serve(bad, final("Sorry."), face=PRIVATE)
    response = check(await served.stream(input="x", tools=[far(plain, require_approval="always")]))
    assert response["output"][1]["type"] == "mcp_call"
    assert response["output"][1]["status"] == "failed"
    await served.endpoint.drained()
    assert not [task for task in asyncio.all_tasks() if (task.get_name() or "") == "mcp far"]
