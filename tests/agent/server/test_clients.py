"""What one API key has made does not exist for another one."""

import asyncio
import contextlib
import json
import re
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect

from agent.server.http.clients import BLOCK_TOKENS, Clients
from tests.support.endpoint import Serve, Served, http_client
from tests.support.requests import ENDLESS
from tests.support.scripts import HELLO

FIRST, SECOND = "key-of-a", "key-of-b"
BOTH = (FIRST, SECOND)


async def ask(
    served: Served, key: str, method: str, path: str, body: Any = None, **options: Any
) -> httpx2.Response:
    """A request to /v1 with a key."""
    headers = {"authorization": f"Bearer {key or 0}"}
    async with http_client() as http:
        return await http.request(
            method, f"{served.url}{path}", json=body, headers=headers, **options
        )


async def made(served: Served, key: str, path: str, body: Any) -> Any:
    answer = await ask(served, key, "POST", path, body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def make_batch(served: Served, key: str) -> Any:
    """A batch that has ended."""
    line = {"custom_id": "a", "method": "POST", "url": "/v1/responses", "body": {"input": "x"}}
    async with http_client() as http:
        file = await http.post(
            f"{served.url}/files",
            files={"file": ("in.jsonl", json.dumps(line).encode())},
            data={"purpose": "batch"},
            headers={"authorization": f"Bearer {key}"},
        )
    wanted = {"endpoint": "/v1/responses", "completion_window": "24h"}
    batch = await made(served, key, "/batches", {"input_file_id": file.json()["id"], **wanted})
    while batch["status"] != "completed":
        assert batch["status"] != "failed", batch
        batch = (await ask(served, key, "GET", f"/batches/{batch['id']}")).json()
    return batch


async def test_objects_of_another_key_do_not_exist(serve: Serve) -> None:
    served = await serve(HELLO, HELLO, api_key=BOTH)
    response = await made(served, SECOND, "/responses", {"input": "secret"})
    message = response["output"][-1]["id"]
    conversation = await made(served, SECOND, "/conversations", {"items": []})
    own_path = f"/conversations/{conversation['id']}"
    item = {"type": "message", "role": "user", "content": "secret"}
    (added,) = (await made(served, SECOND, f"{own_path}/items", {"items": [item]}))["data"]
    batch = await make_batch(served, SECOND)
    files = [batch["input_file_id"], batch["output_file_id"]]
    paths = [
        ("GET", f"/responses/{response['id']}"),
        ("GET", f"/responses/{response['id']}?stream=true"),
        ("GET", f"/responses/{response['id']}/input_items"),
        ("POST", f"/responses/{response['id']}/cancel"),
        ("DELETE", f"/responses/{response['id']}"),
        ("GET", own_path),
        ("POST", own_path),
        ("DELETE", own_path),
        ("GET", f"{own_path}/items"),
        ("POST", f"{own_path}/items"),
        ("GET", f"{own_path}/items/{added['id']}"),
        ("DELETE", f"{own_path}/items/{added['id']}"),
        ("GET", f"/batches/{batch['id']}"),
        ("POST", f"/batches/{batch['id']}/cancel"),
        *[("GET", f"/files/{name}") for name in files],
        *[("GET", f"/files/{name}/content") for name in files],
        *[("DELETE", f"/files/{name}") for name in files],
    ]
    for method, path in paths:
        body = {"metadata": {}, "items": [item]} if method == "POST" and "conv" in path else None
        answer = await ask(served, FIRST, method, path, body)
        assert answer.status_code == 404, (method, path, answer.text)
        unknown = "".join("0" if letter in "123456789" else letter for letter in path)
        same = await ask(served, FIRST, method, unknown, body)
        assert same.json()["error"]["code"] == answer.json()["error"]["code"], path
    refused = [
        ("/responses", {"input": "x", "previous_response_id": response["id"]}),
        ("/responses", {"input": "x", "conversation": conversation["id"]}),
        ("/responses", {"input": [{"type": "item_reference", "id": message}]}),
        ("/responses/input_tokens", {"input": "x", "previous_response_id": response["id"]}),
        ("/responses/compact", {"model": "default", "previous_response_id": response["id"]}),
        ("/conversations", {"items": [{"type": "item_reference", "id": message}]}),
        ("/batches", {"input_file_id": files[0], "endpoint": "/v1/responses",
                      "completion_window": "24h"}),
    ]  # fmt: skip
    for path, body in refused:
        answer = await ask(served, FIRST, "POST", path, body)
        assert answer.status_code in (400, 404) and " found." in answer.text, (path, answer.text)
    for path in ("/files", "/batches"):
        assert (await ask(served, FIRST, "GET", path)).json()["data"] == []
        listed = (await ask(served, SECOND, "GET", path)).json()["data"]
        assert listed and "owner" not in listed[0]
    for method, path in paths:
        if method == "GET" and "stream" not in path:
            assert (await ask(served, SECOND, method, path)).status_code == 200, path


async def test_running_response_of_another_key_does_not_exist(serve: Serve) -> None:
    served = await serve(temperature=0, loop_guard=False, api_key=BOTH)
    running = await made(
        served, SECOND, "/responses", {"input": "x", "background": True, **ENDLESS}
    )
    path = f"/responses/{running['id']}"
    for method, place in (
        ("GET", path), ("GET", f"{path}?stream=true"), ("POST", f"{path}/cancel"), ("DELETE", path),
    ):  # fmt: skip
        assert (await ask(served, FIRST, method, place)).status_code == 404, (method, place)
    ended = await ask(served, SECOND, "POST", f"{path}/cancel")
    assert ended.json()["status"] == "cancelled"


async def test_websocket_does_not_continue_what_another_key_made(serve: Serve) -> None:
    served = await serve(HELLO, api_key=BOTH)
    response = await made(served, SECOND, "/responses", {"input": "secret"})
    address = f"{served.url.replace('http', 'ws', 1)}/responses"
    headers = {"authorization": f"Bearer {FIRST}"}
    async with connect(address, additional_headers=headers) as socket:
        wanted = {"input": "x", "previous_response_id": response["id"]}
        await socket.send(json.dumps({"type": "response.create", **wanted}))
        refused = json.loads(await socket.recv())
    assert refused["error"]["code"] == "previous_response_not_found"


async def test_objects_stay_with_their_key_after_a_restart(serve: Serve) -> None:
    """What was made without a key, or by an earlier version, is the first key's."""
    open_server = await serve(HELLO)
    unowned = await made(open_server, "", "/responses", {"input": "x"})
    old_talk = await made(open_server, "", "/conversations", {})
    await open_server.end()
    before = await serve(HELLO, api_key=SECOND)
    owned = await made(before, SECOND, "/responses", {"input": "x"})
    talk = await made(before, SECOND, "/conversations", {})
    await before.end()
    after = await serve(HELLO, api_key=BOTH)
    for path, owner in (
        (f"/responses/{unowned['id']}", FIRST),
        (f"/conversations/{old_talk['id']}", FIRST),
        (f"/responses/{owned['id']}", SECOND),
        (f"/conversations/{talk['id']}", SECOND),
    ):
        for key in BOTH:
            status = (await ask(after, key, "GET", path)).status_code
            assert status == (200 if key == owner else 404), (path, key)
    await after.end()
    without = await serve(HELLO)
    assert (await ask(without, "", "GET", f"/responses/{owned['id']}")).status_code == 404
    assert (await ask(without, "", "GET", f"/responses/{unowned['id']}")).status_code == 200


async def test_branch_of_a_response_stays_with_its_key(serve: Serve) -> None:
    served = await serve(HELLO, HELLO, HELLO, api_key=BOTH)
    first = await made(served, SECOND, "/responses", {"input": "x"})
    for _ in range(2):  # the second one is a branch
        wanted = {"input": "y", "previous_response_id": first["id"]}
        branch = await made(served, SECOND, "/responses", wanted)
    served.service.cache.evict_conversation(served.turns[-1].conversation.id)
    path = f"/responses/{branch['id']}"
    assert (await ask(served, FIRST, "GET", path)).status_code == 404
    assert (await ask(served, SECOND, "GET", path)).status_code == 200
    talk = f"/conversations/{served.turns[-1].conversation.id}"
    assert (await ask(served, FIRST, "GET", talk)).status_code == 404


@pytest.mark.parametrize("path", ["/responses", "/chat/completions", "/completions"])
async def test_cached_tokens_of_another_key_are_secret(serve: Serve, path: str) -> None:
    served = await serve(temperature=0, api_key=BOTH)
    text = "The secret of the house is that its door has never had a lock at all. " * 8
    match path:
        case "/responses":
            body: dict[str, Any] = {"input": text, "max_output_tokens": 16}
        case "/chat/completions":
            body = {"messages": [{"role": "user", "content": text}], "max_tokens": 2}
        case _:
            body = {"prompt": text, "max_tokens": 2}
    told = []
    for key in (FIRST, SECOND, SECOND):
        usage = (await made(served, key, path, body))["usage"]
        details = usage.get("input_tokens_details") or usage["prompt_tokens_details"]
        told.append(details["cached_tokens"])
    assert told[:2] == [0, 0]
    assert told[2] > BLOCK_TOKENS


async def test_pipelined_request_needs_its_own_key(serve: Serve) -> None:
    served = await serve(HELLO, api_key=BOTH)
    host, _, port = served.root.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"GET /v1/models HTTP/1.1\r\nHost: {host}\r\n"
    writer.write(
        f"{head}Authorization: Bearer {FIRST}\r\n\r\n{head}Connection: close\r\n\r\n".encode()
    )
    text = (await reader.read()).decode()
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    assert re.findall(r"HTTP/1.1 (\d+)", text) == ["200", "401"]


def test_clients_keys_tell_apart() -> None:
    clients = Clients(("", "a", "b"))
    first, second = clients.with_key(b"a"), clients.with_key(b"b")
    assert first is not None and second is not None and first.name != second.name
    assert first.owns("") and not second.owns("") and not first.owns(second.name)
    assert clients.with_key(b"") is None and clients.with_key(b"c") is None
    assert clients.named(second.name) is second and clients.named("") is first
    gone = clients.named("f" * 32)
    assert gone.owns("f" * 32) and not gone.owns("")
    everybody = Clients().with_key(b"anything")
    assert everybody is not None and everybody.owns("") and everybody.prompts is None
