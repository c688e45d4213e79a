"""Files that are attached to messages: their texts are read, anything else is refused in a sentence."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from agent.server.input_files import MAX_FILE_BYTES
from tests.support.endpoint import Serve, api_error, engine_markup
from tests.support.invariants import check
from tests.support.scripts import HELLO


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def message(**fields: Any) -> dict[str, Any]:
    text = {"type": "input_text", "text": "Read it."}
    return {"role": "user", "content": [text, {"type": "input_file", **fields}]}


@pytest.mark.parametrize(
    "file_data",
    [
        encoded("größe,1\n".encode()),
        "data:text/csv;base64," + encoded("größe,1\n".encode()),
        "data:text/csv;charset=utf-8;base64," + encoded("\ufeffgröße,1\n".encode()),
        "data:text/csv," + "gr%C3%B6%C3%9Fe,1",
        encoded("größe,1\n".encode("utf-16")),
    ],
)
async def test_text_file_is_read_as_an_attachment(serve: Serve, file_data: str) -> None:
    served = await serve(HELLO)
    item = message(filename="/home/me/a.csv", file_data=file_data)
    response = check(await served.stream(input=[item]))
    block = '\n\n<file path="a.csv" lines="1">\ngröße,1\n</file>'
    assert f"Read it.\n{block}" in engine_markup(served)
    listed = (await served.get(f"/v1/responses/{response['id']}/input_items")).json()["data"]
    assert listed[0]["content"] == item["content"]


async def test_file_counts_as_input(serve: Serve) -> None:
    served = await serve(HELLO)

    async def tokens(words: int) -> int:
        data = encoded(b"word " * words)
        answer = await served.post(
            {"input": [message(filename="a.txt", file_data=data)]}, "/input_tokens"
        )
        return int(answer.json()["input_tokens"])

    assert await tokens(500) - await tokens(100) >= 400


@pytest.mark.parametrize(
    ("fields", "param", "code", "words"),
    [
        ({}, "file_data", "missing_required_parameter", "Missing"),
        ({"file_id": "file-1"}, "file_id", "unsupported_parameter", "keeps no files"),
        ({"file_url": "http://a.no/b"}, "file_url", "unsupported_parameter", "fetches no files"),
        ({"file_data": "%%%"}, "file_data", "invalid_value", "neither base64 nor a data URL"),
        ({"file_data": "data:text/plain;base64,ü"}, "file_data", "invalid_value", "neither base64"),
        ({"file_data": encoded(b"%PDF-1.7\n")}, "file_data", "unsupported_value", "is a PDF"),
        (
            {"file_data": encoded(b"\x89PNG\r\n\x1a\n....")},
            "file_data",
            "unsupported_value",
            "is an image",
        ),
        ({"file_data": encoded(b"\x00\x01")}, "file_data", "unsupported_value", "is no text"),
        ({"file_data": encoded(b"\xff\xff\xff")}, "file_data", "unsupported_value", "is no text"),
        (
            {"file_data": encoded(b"a" * (MAX_FILE_BYTES + 1))},
            "file_data",
            "string_above_max_length",
            "longer than",
        ),
    ],
)
async def test_file_that_cannot_be_read_is_refused(
    serve: Serve, fields: dict[str, Any], param: str, code: str, words: str
) -> None:
    served = await serve(HELLO)
    error = api_error(await served.post({"input": [message(**fields)]}), 400)
    assert (error["param"], error["code"]) == (f"input[0].content[1].{param}", code)
    assert words in error["message"]


async def test_file_in_a_function_output(serve: Serve) -> None:
    served = await serve(HELLO)
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    files = [
        {"type": "input_file", "filename": "a.txt", "file_data": encoded(b"frogs")},
        {"type": "input_file", "filename": "b.pdf", "file_data": encoded(b"%PDF-1.7")},
    ]
    output = {"type": "function_call_output", "call_id": "c", "output": files}
    check(await served.stream(input=[{"role": "user", "content": "x"}, call, output]))
    assert "\nfrogs\n</file>" in engine_markup(served)
    assert "[There was a file here; this server could not read it.]" in engine_markup(served)
