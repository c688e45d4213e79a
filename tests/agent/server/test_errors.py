"""Refused requests: the answer is always JSON in OpenAI's shape, never a traceback."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.endpoint import API_KEY, Serve, api_error
from tests.support.invariants import check
from tests.support.requests import BAD_REQUESTS
from tests.support.scripts import HELLO, WEATHER, call
from tests.support.waiting import wait_until


async def test_bad_request_names_the_parameter(serve: Serve) -> None:
    served = await serve(HELLO)
    for body, param, code in BAD_REQUESTS:
        for stream in (False, True):
            if "stream" in body and stream:
                continue
            error = api_error(await served.post({"stream": stream, **body}), 400)
            assert (error["param"], error["code"]) == (param, code), (body, error)
            assert error["type"] == "invalid_request_error"
    assert not served.turns, "nothing was begun for them"


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b'"x"', b"\xff\xfe", b'{"input": "\\ud800"}', b'{"input": NaN}',
        b"[" * 100_000, b'{"input": ' + b"9" * 10_000 + b"}", b'{"temperature": 1e999}',
        b'{"input": "x", "seed": 99999999999999999999999999}',
    ],
)  # fmt: skip
async def test_body_not_a_request_is_refused(serve: Serve, content: bytes) -> None:
    served = await serve(HELLO)
    api_error(await served.post(content=content), 400)


async def test_fields_without_effect_are_accepted(serve: Serve) -> None:
    served = await serve(HELLO)
    response = check(
        await served.stream(
            input=[{"role": "user", "content": "x"}],
            client_metadata={"a": 1},
            include=["reasoning.encrypted_content"],
            stream_options={"include_obfuscation": False},
            user="me",
            service_tier="auto",
        )
    )
    assert response["status"] == "completed"


async def test_unknown_model_is_refused(serve: Serve) -> None:
    import openai

    served = await serve(HELLO)
    error = api_error(await served.post({"model": "gpt-9", "input": "x"}), 404)
    assert error["code"] == "model_not_found"
    with pytest.raises(openai.NotFoundError, match="gpt-9"):
        await served.client().models.retrieve("gpt-9")
    for name in ("tiny", "default", "default-tiny"):
        assert (await served.post({"model": name, "input": "x"})).json()["model"] == "tiny"
        assert (await served.client().models.retrieve(name)).id == "tiny"
    assert [model.id async for model in served.client().models.list()] == ["tiny"]


async def test_prompt_too_long_is_refused_before_stream(serve: Serve) -> None:
    served = await serve(HELLO, context=300)
    for stream in (True, False):
        error = api_error(await served.post({"input": "word " * 400, "stream": stream}), 400)
        assert (error["code"], error["param"]) == ("context_length_exceeded", "input")
        assert "300 tokens" in error["message"]
    assert not served.turns
    assert (await served.post({"input": "short"})).status_code == 200


async def test_unknown_path_or_method_is_refused(serve: Serve) -> None:
    served = await serve(HELLO)
    api_error(await served.get("/v1/nothing"), 404)
    assert "/v1/responses" in (await served.get("/")).json()["endpoints"]
    api_error(await served.get("/v1/responses"), 405)
    api_error(await served.get("/v1/responses/"), 405)


async def test_body_too_long_is_refused(serve: Serve) -> None:
    served = await serve(HELLO, server={"max_body_bytes": 1000})

    async def chunks() -> Any:
        for _ in range(20):
            yield b" " * 100

    for content in (b" " * 1001, chunks()):
        error = api_error(await served.post(content=content), 413)
        assert error["code"] == "request_too_large"


async def test_api_key_is_required_when_set(serve: Serve) -> None:
    import openai

    served = await serve(HELLO, api_key=API_KEY)
    for authorization in (
        None,
        "Bearer wrong",
        "Bearer",
        API_KEY,
        f"Basic {API_KEY}",
        f"Bearer {API_KEY}x",
    ):
        headers = {"authorization": authorization} if authorization else {}
        error = api_error(await served.post({"input": "x"}, headers=headers), 401)
        assert error["code"] == "invalid_api_key"
    assert (await served.client().responses.create(model="default", input="x")).output_text
    for path, status in (("/health", 200), ("/", 200), ("/metrics", 401), ("/v1/models", 401)):
        assert (await served.get(path)).status_code == status
    with pytest.raises(openai.AuthenticationError):
        await served.client().with_options(api_key="wrong").models.list()


async def test_foreign_origin_or_host_is_refused(serve: Serve) -> None:
    served = await serve(HELLO, allow_origins=("https://chat.example",))
    port = served.url.split(":")[2].split("/")[0]
    allowed = [
        {"host": f"localhost:{port}"},
        {"host": f"[::1]:{port}"},
        {"host": f"127.0.0.1:{port}", "origin": f"http://127.0.0.1:{port}"},
        {"origin": "https://chat.example"},
    ]
    refused = [
        {"host": "evil.example"},
        {"host": f"evil.example:{port}"},
        {"host": "127.0.0.1.evil.example"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:1"},
    ]
    for headers in allowed:
        assert (await served.get("/v1/models", headers=headers)).status_code == 200, headers
        assert (await served.post({"input": "x"}, headers=headers)).status_code == 200, headers
    for headers in refused:
        api_error(await served.get("/v1/models", headers=headers), 403)
        api_error(await served.post({"input": "x"}, headers=headers), 403)
    twice = [("origin", "https://chat.example"), ("origin", "https://evil.example")]
    api_error(await served.get("/v1/models", headers=twice), 403)
    page = await served.get("/v1/models", headers={"origin": "https://chat.example"})
    assert page.headers["access-control-allow-origin"] == "https://chat.example"


@pytest.mark.parametrize("method", ["POST", "OPTIONS"])
async def test_body_with_two_lengths_is_refused(serve: Serve, method: str) -> None:
    served = await serve(HELLO, allow_origins=("https://chat.example",))
    host, port = served.root.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    hidden = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n"
    writer.write(
        f"{method} /v1/responses HTTP/1.1\r\nhost: localhost\r\norigin: https://chat.example\r\n"
        "access-control-request-method: POST\r\n"
        f"content-length: {5 + len(hidden)}\r\ntransfer-encoding: chunked\r\n\r\n"
        "0\r\n\r\n".encode()
        + hidden
    )
    answer = await reader.read()  # to its end: the connection is closed
    writer.close()
    assert answer.startswith(b"HTTP/1.1 400 ") and b"bad_framing" in answer
    assert answer.count(b"HTTP/1.1") == 1


async def test_internal_error_is_one_sentence(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve(HELLO)
    monkeypatch.setattr(served.service.cache, "find", lambda name: 1 / 0)
    answer = await served.post({"input": "x", "previous_response_id": "y"})
    assert "log file" in api_error(answer, 500)["message"]
    log_file = served.runtime.paths.log_file  # the server logs it after it has answered
    await wait_until(lambda: "ZeroDivisionError" in log_file.read_text())


async def test_model_cannot_load_status_503(serve: Serve) -> None:
    served = await serve("not a reply", engine=None, model=__file__)
    error = api_error(await served.post({"input": "x"}), 503)
    assert error["code"] == "model_not_available"
    assert (await served.get("/health")).status_code == 503


async def test_call_arguments_not_json_are_wrapped(serve: Serve) -> None:
    served = await serve(call("get_weather").replace("{}", "{not json}"))
    response = check(await served.stream(input="x", tools=[WEATHER]))
    (item,) = response["output"]
    assert (item["type"], item["status"]) == ("function_call", "completed")
    assert json.loads(item["arguments"]) == {"raw": "{not json}"}, (
        "the client's own check has the word"
    )
