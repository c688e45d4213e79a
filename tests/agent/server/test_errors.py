"""What is refused, and how: always JSON in OpenAI's shape, never a traceback, never a 500."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.support.endpoint import KEY, Serve
from tests.support.invariants import check
from tests.support.scripts import HELLO, WEATHER, call

MCP = {"type": "mcp", "server_label": "nobody"}


def error_of(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    (key,) = answer.json()
    error: dict[str, Any] = answer.json()[key]
    assert key == "error" and set(error) == {"message", "type", "param", "code"}
    assert error["message"] and "Traceback" not in error["message"]
    return error


BAD: list[tuple[dict[str, Any], str | None, str]] = [
    ({}, "input", "missing_required_parameter"),
    ({"input": []}, "input", "missing_required_parameter"),
    ({"input": 1}, "input", "invalid_type"),
    ({"input": [1]}, "input[0]", "invalid_type"),
    ({"input": [{"type": "telepathy"}]}, "input[0]", "invalid_value"),
    ({"input": [{"role": "king", "content": "x"}]}, "input[0].role", "invalid_value"),
    ({"input": [{"role": "user"}]}, "input[0].content", "missing_required_parameter"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
        "input[0].content[0].text",
        "missing_required_parameter",
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "smell", "text": "x"}]}]},
        "input[0].content[0].type",
        "invalid_value",
    ),
    (
        {"input": [{"type": "function_call_output", "call_id": "call_x", "output": "x"}]},
        "input[0].call_id",
        "invalid_value",
    ),
    ({"input": [{"type": "item_reference", "id": "msg_x"}]}, "input[0]", "item_not_found"),
    ({"input": "x", "temperature": "hot"}, "temperature", "invalid_type"),
    ({"input": "x", "temperature": 3}, "temperature", "invalid_value"),
    ({"input": "x", "max_output_tokens": 0}, "max_output_tokens", "invalid_value"),
    ({"input": "x", "stream": "yes"}, "stream", "invalid_type"),
    ({"input": "x", "reasoning": {"effort": "huge"}}, "reasoning.effort", "invalid_value"),
    ({"input": "x", "metadata": {"a": 1}}, "metadata.a", "invalid_type"),
    ({"input": "x", "metadata": {str(n): "" for n in range(17)}}, "metadata", "invalid_value"),
    (
        {"input": "x", "tools": [{"type": "function"}]},
        "tools[0].name",
        "missing_required_parameter",
    ),
    ({"input": "x", "tools": [WEATHER, WEATHER]}, "tools", "invalid_value"),
    (
        {"input": "x", "tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]},
        "tools[0].type",
        "unsupported_parameter",
    ),
    ({"input": "x", "tools": [MCP]}, "tools[0].server_label", "mcp_server_not_found"),
    (
        {"input": "x", "tools": [{**MCP, "server_url": "file:///etc/passwd"}]},
        "tools[0].server_label",
        "mcp_server_not_found",
    ),
    (
        {"input": "x", "tools": [{**MCP, "require_approval": "maybe"}]},
        "tools[0].require_approval",
        "invalid_value",
    ),
    ({"input": "x", "tool_choice": "maybe"}, "tool_choice", "invalid_value"),
    (
        {"input": "x", "tool_choice": {"type": "allowed_tools", "tools": [{"type": "function"}]}},
        "tool_choice.tools[0]",
        "invalid_value",
    ),
    (
        {"input": "x", "text": {"format": {"type": "json_schema"}}},
        "text.format.schema",
        "missing_required_parameter",
    ),
    ({"input": "x", "background": True, "store": False}, "background", "invalid_value"),
    ({"input": "x", "conversation": "conv_1"}, "conversation", "unsupported_parameter"),
    (
        {"input": "x", "previous_response_id": "resp_x"},
        "previous_response_id",
        "previous_response_not_found",
    ),
]


async def test_bad_requests_name_what_is_wrong(serve: Serve) -> None:
    served = await serve(HELLO)
    for body, param, code in BAD:
        for stream in (False, True):
            if "stream" in body and stream:
                continue
            error = error_of(await served.post({"stream": stream, **body}), 400)
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
async def test_bodies_that_are_no_requests(serve: Serve, content: bytes) -> None:
    served = await serve(HELLO)
    error_of(await served.post(content=content), 400)


async def test_unknown_fields_are_ignored(serve: Serve) -> None:
    served = await serve(HELLO)
    response = check(
        await served.stream(
            input=[{"role": "user", "content": "x", "mood": "good"}],
            client_metadata={"a": 1},
            include=["reasoning.encrypted_content"],
            stream_options={"include_obfuscation": False},
            user="me",
            service_tier="auto",
        )
    )
    assert response["status"] == "completed"


async def test_unknown_models(serve: Serve) -> None:
    served = await serve(HELLO)
    error = error_of(await served.post({"model": "gpt-9", "input": "x"}), 404)
    assert error["code"] == "model_not_found"
    with pytest.raises(openai.NotFoundError, match="gpt-9"):
        await served.client().models.retrieve("gpt-9")
    for name in ("tiny", "default", "default-tiny"):
        assert (await served.post({"model": name, "input": "x"})).json()["model"] == "tiny"
        assert (await served.client().models.retrieve(name)).id == "tiny"
    assert [model.id async for model in served.client().models.list()] == ["tiny"]


async def test_a_prompt_too_long_is_refused_before_the_stream(serve: Serve) -> None:
    served = await serve(HELLO, context=300)
    for stream in (True, False):
        error = error_of(await served.post({"input": "word " * 400, "stream": stream}), 400)
        assert (error["code"], error["param"]) == ("context_length_exceeded", "input")
        assert "300 tokens" in error["message"]
    assert not served.turns
    assert (await served.post({"input": "short"})).status_code == 200


async def test_paths_and_methods(serve: Serve) -> None:
    served = await serve(HELLO)
    error_of(await served.get("/v1/nothing"), 404)
    error_of(await served.get("/"), 404)
    error_of(await served.get("/v1/responses"), 405)
    error_of(await served.get("/v1/responses/"), 404)


async def test_a_body_too_long(serve: Serve) -> None:
    served = await serve(HELLO)
    served.endpoint.max_body = 1000

    async def chunks() -> Any:
        for _ in range(20):
            yield b" " * 100

    for content in (b" " * 1001, chunks()):
        error = error_of(await served.post(content=content), 413)
        assert error["code"] == "request_too_large"


async def test_a_key_is_wanted_where_one_is_set(serve: Serve) -> None:
    served = await serve(HELLO, api_key=KEY)
    for given in (None, "Bearer wrong", "Bearer", KEY, f"Basic {KEY}", f"Bearer {KEY}x"):
        headers = {"authorization": given} if given else {}
        error = error_of(await served.post({"input": "x"}, headers=headers), 401)
        assert error["code"] == "invalid_api_key"
    assert (await served.client().responses.create(model="default", input="x")).output_text
    assert (await served.get("/health")).status_code == 200
    with pytest.raises(openai.AuthenticationError):
        await served.client().with_options(api_key="wrong").models.list()


async def test_foreign_pages_and_names(serve: Serve) -> None:
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
        error_of(await served.get("/v1/models", headers=headers), 403)
        error_of(await served.post({"input": "x"}, headers=headers), 403)
    page = await served.get("/v1/models", headers={"origin": "https://chat.example"})
    assert page.headers["access-control-allow-origin"] == "https://chat.example"


async def test_a_fault_of_ours_is_one_sentence(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve(HELLO)
    monkeypatch.setattr(served.endpoint.memory, "find", lambda name: 1 / 0)
    answer = await served.post({"input": "x", "previous_response_id": "y"})
    assert "log file" in error_of(answer, 500)["message"]
    assert "ZeroDivisionError" in served.runtime.where.log.read_text()


async def test_a_model_that_cannot_be_loaded(serve: Serve) -> None:
    served = await serve("not a reply", engine=None, model=__file__)
    error = error_of(await served.post({"input": "x"}), 503)
    assert error["code"] == "model_not_available"
    assert (await served.get("/health")).status_code == 503


async def test_a_call_that_is_not_json(serve: Serve) -> None:
    served = await serve(call("get_weather").replace("{}", "{not json"))
    response = check(await served.stream(input="x", tools=[WEATHER]))
    (item,) = response["output"]
    assert (item["type"], item["status"]) == ("function_call", "completed")
    assert json.loads(item["arguments"]) == {"raw": "{not json"}, (
        "the client's own check has the word"
    )
