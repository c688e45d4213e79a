"""Takes, with one API key, what was made with another one: by every route, and by cached tokens."""

import tempfile
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any

import httpx2

from agent.tiny import expand
from agent.util.temporary_folders import process_folder
from tests.attack.measure import Attempt
from tests.load.server_process import start_server
from tests.support.waiting import HANG_SECONDS

SECRET = "The door of the house by the lake opens with the number 48151623. " * 12
ITEM = {"type": "message", "role": "user", "content": SECRET}
REQUESTS: dict[str, tuple[str, str, dict[str, Any] | None]] = {
    "get a response": ("GET", "/responses/{response}", None),
    "stream a response": ("GET", "/responses/{response}?stream=true", None),
    "list its input": ("GET", "/responses/{response}/input_items", None),
    "cancel it": ("POST", "/responses/{response}/cancel", None),
    "continue it": ("POST", "/responses", {"input": "x", "previous_response_id": "{response}"}),
    "count its tokens": (
        "POST", "/responses/input_tokens", {"input": "x", "previous_response_id": "{response}"},
    ),
    "compact it": (
        "POST", "/responses/compact", {"model": "tiny", "previous_response_id": "{response}"},
    ),
    "refer to its item": (
        "POST", "/responses", {"input": [{"type": "item_reference", "id": "{item}"}]},
    ),
    "delete it": ("DELETE", "/responses/{response}", None),
    "get a conversation": ("GET", "/conversations/{talk}", None),
    "list its items": ("GET", "/conversations/{talk}/items", None),
    "add to it": ("POST", "/conversations/{talk}/items", {"items": [ITEM]}),
    "extend it": ("POST", "/responses", {"input": "x", "conversation": "{talk}"}),
    "delete a conversation": ("DELETE", "/conversations/{talk}", None),
    "get a file": ("GET", "/files/{file}", None),
    "read a file": ("GET", "/files/{file}/content", None),
    "begin a batch of it": (
        "POST", "/batches",
        {"input_file_id": "{file}", "endpoint": "/v1/responses", "completion_window": "24h"},
    ),
    "delete a file": ("DELETE", "/files/{file}", None),
}  # fmt: skip
LISTS = ("/files", "/batches")
NAMES = [*REQUESTS, *LISTS, "guess by cached tokens"]


def _filled(value: Any, names: dict[str, str]) -> Any:
    """The value with the other client's ids in it."""
    if isinstance(value, dict):
        return {key: _filled(part, names) for key, part in value.items()}
    if isinstance(value, list):
        return [_filled(part, names) for part in value]
    for name, text in names.items():
        value = value.replace(f"{{{name}}}", text) if isinstance(value, str) else value
    return value


async def attempts(names: Collection[str]) -> AsyncIterator[Attempt]:
    """Run the attacks against a server with two keys."""
    with tempfile.TemporaryDirectory(dir=process_folder()) as folder:
        expand.ensure(Path(folder) / "cache")
        keys = {"AGENT_API_KEY": "thief owner"}
        async with (
            start_server(Path(folder), environment=keys) as server,
            httpx2.AsyncClient(timeout=HANG_SECONDS, headers=_key("owner")) as owner,
            httpx2.AsyncClient(timeout=HANG_SECONDS, headers=_key("thief")) as thief,
        ):
            ids = await _fill(owner, server.url)
            for name in names:
                yield await _attack(thief, server.url, name, ids)


def _key(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def _fill(owner: httpx2.AsyncClient, url: str) -> dict[str, str]:
    """Make what is to be taken; its ids."""
    form: dict[str, Any] = {"files": {"file": ("in.jsonl", SECRET.encode())}}
    file = await owner.post(f"{url}/files", data={"purpose": "batch"}, **form)
    talk = await owner.post(f"{url}/conversations", json={"items": [ITEM]})
    wanted = {"input": SECRET, "max_output_tokens": 16}
    response = (await owner.post(f"{url}/responses", json=wanted)).json()
    item = response["output"][-1]["id"]
    names = {"file": file.json()["id"], "talk": talk.json()["id"]}
    return {**names, "response": response["id"], "item": item}


async def _attack(thief: httpx2.AsyncClient, url: str, name: str, ids: dict[str, str]) -> Attempt:
    if name in LISTS:
        listed = (await thief.get(f"{url}{name}")).json()["data"]
        return Attempt("other clients", name, not listed, f"{len(listed)} listed")
    if name not in REQUESTS:
        wanted = {"input": SECRET, "max_output_tokens": 16}
        usage = (await thief.post(f"{url}/responses", json=wanted)).json()["usage"]
        cached = usage["input_tokens_details"]["cached_tokens"]
        return Attempt("other clients", name, cached == 0, f"{cached} cached tokens")
    method, path, body = REQUESTS[name]
    answer = await thief.request(method, f"{url}{_filled(path, ids)}", json=_filled(body, ids))
    repelled = answer.status_code in (400, 404) and SECRET[:20] not in answer.text
    return Attempt("other clients", name, repelled, f"{answer.status_code} {answer.text[:80]}")
