"""Requests that are spelled or packed otherwise, and what every answer has."""

import gzip
import json
import zlib
from typing import Any

import pytest

from agent.config.launch import LaunchOptions
from agent.engine.protocol import EngineError
from agent.errors import UserError
from agent.server.http.access import intended_path
from agent.server.http.options import ServerOptions
from agent.server.serve import main
from tests.support.endpoint import Serve, api_error, http_client
from tests.support.scripts import HELLO

CHAT = {"messages": [{"role": "user", "content": "x"}]}


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/responses", "/v1/responses"),
        ("/v1/responses/", "/v1/responses"),
        ("/responses", "/v1/responses"),
        ("/responses/resp_1", "/v1/responses/resp_1"),
        ("/v1/v1/responses", "/v1/responses"),
        ("/v1/v1/v1/chat/completions/", "/v1/chat/completions"),
        ("//v1//responses", "/v1/responses"),
        ("/api/v1/responses", "/v1/responses"),
        ("/v1/chat/completions/v1/chat/completions", "/v1/chat/completions"),
        ("/chat/completions", "/v1/chat/completions"),
        ("/models/", "/v1/models"),
        ("/v1/models/", "/v1/models"),
        ("/", "/"),
        ("/health", "/health"),
        ("/responsesx", "/responsesx"),
        ("/v1", "/v1"),
        ("/v1/v1", "/v1"),
    ],
)
def test_intended_path(path: str, meant: str) -> None:
    assert intended_path(path) == meant == intended_path(meant)


@pytest.mark.parametrize(
    "path", ["/responses", "/v1/responses/", "/v1/v1/responses", "//v1/responses"]
)
async def test_other_spellings_of_a_path_work(serve: Serve, path: str) -> None:
    served = await serve(HELLO)
    answer = await served.post({"input": "x"}, url=f"{served.root}{path}")
    assert answer.status_code == 200 and answer.json()["object"] == "response"
    assert (await served.get("/v1/models/")).json()["object"] == "list"


async def test_key_is_needed_however_a_path_is_spelled(serve: Serve) -> None:
    served = await serve(HELLO, api_key="k")
    for path in ("/responses", "/v1/v1/responses", "//v1/responses/"):
        api_error(await served.post({"input": "x"}, url=f"{served.root}{path}"), 401)


async def test_root_names_the_endpoints(serve: Serve) -> None:
    served = await serve(HELLO)
    async with http_client() as client:
        answer = await client.get(f"{served.root}/")
        assert answer.status_code == 200 and "/v1/responses" in answer.json()["endpoints"]
        assert (await client.head(f"{served.root}/")).status_code == 200


async def test_every_answer_has_a_request_id(serve: Serve) -> None:
    served = await serve(HELLO)
    answers = [
        await served.post({"input": "x"}),
        await served.post({"input": "x", "stream": True}),
        await served.post({"input": 5}),
        await served.get("/nowhere"),
        await served.get("/v1/models", headers={"host": "evil.example"}),
    ]
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert len(set(ids)) == len(ids) and all(name.startswith("req_") for name in ids)
    response = await served.client().responses.create(input="x", model="default")
    assert (response._request_id or "").startswith("req_")


async def test_foreign_host_says_what_to_do(serve: Serve) -> None:
    served = await serve(HELLO)
    host = "host.docker.internal:8080"
    error = api_error(await served.get("/v1/models", headers={"host": host}), 403)
    assert host in error["message"] and "--host 0.0.0.0 and --api-key" in error["message"]


@pytest.mark.parametrize("origin", ["localhost:3000", "example.org", "http://", "http://a/b", ""])
def test_origin_without_scheme_is_refused(origin: str) -> None:
    with pytest.raises(UserError, match="--allow-origin must be an origin such as"):
        main(LaunchOptions(), ServerOptions(allow_origins=(origin,)))


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("identity", bytes)]
)
async def test_compressed_bodies_are_decoded(serve: Serve, encoding: str, pack: Any) -> None:
    served = await serve(HELLO)
    body = pack(json.dumps({"input": "x" * 1000}).encode())
    answer = await served.post(content=body, headers={"content-encoding": encoding})
    assert answer.status_code == 200, answer.text


async def test_compressed_bodies_are_bounded_and_checked(serve: Serve) -> None:
    served = await serve(HELLO, server={"max_body_bytes": 100_000})
    gzipped = {"content-encoding": "gzip"}
    bomb = gzip.compress(b'{"input": "' + b"x" * 50_000_000 + b'"}')
    assert len(bomb) < 100_000
    api_error(await served.post(content=bomb, headers=gzipped), 413)
    api_error(await served.post(content=b'{"input": "x"}', headers=gzipped), 400)
    packed = gzip.compress(b'{"input": "x"}')
    wrong_sum = packed[:-8] + b"\0" * 4 + packed[-4:]
    for broken in (packed[:-8], packed[:-1], wrong_sum, packed + b"x", packed + packed):
        api_error(await served.post(content=broken, headers=gzipped), 400)
    for encoding in ("zstd", "br"):
        error = api_error(
            await served.post(content=b"x", headers={"content-encoding": encoding}), 415
        )
        assert encoding in error["message"]


@pytest.mark.parametrize(
    ("path", "body"), [("/responses", {"input": "x"}), ("/chat/completions", CHAT)]
)
async def test_failed_answer_has_an_error_status(
    serve: Serve, path: str, body: dict[str, Any]
) -> None:
    served = await serve(HELLO)

    def broken(request: object) -> None:
        raise EngineError("The engine is gone.")

    served.runtime.generate = broken  # type: ignore[method-assign, assignment]
    async with http_client() as http:
        error = api_error(await http.post(f"{served.url}{path}", json=body), 500)
    assert error["message"] == "The engine is gone." and error["code"] == "server_error"


async def test_hints_are_passed_over(serve: Serve) -> None:
    served = await serve(HELLO, tools="browser")
    fields = {"stream_options": {"include_obfuscation": True}, "stream": True}
    assert (await served.post({"input": "x", **fields})).status_code == 200
    chat = await served.post({**CHAT, **fields}, url=f"{served.url}/chat/completions")
    assert chat.status_code == 200
    for size in ("low", "high"):
        tool = {"type": "web_search", "search_context_size": size}
        answer = await served.post({"input": "x", "tools": [tool]})
        assert answer.status_code == 200, answer.text
