"""Files that are attached to messages: their texts are read, anything else is refused in a sentence."""

import asyncio
import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from agent.server.http.errors import ApiError
from agent.server.input import files as input_files
from agent.server.input.files import MAX_FILE_BYTES, DocumentReader
from agent.server.input.schemas import InputMessage
from tests.support.endpoint import Serve, api_error, engine_markup
from tests.support.invariants import check
from tests.support.office import docx, paragraph, text_cell, xlsx
from tests.support.pdf import blank_pdf, encrypted_pdf, pdf
from tests.support.scripts import HELLO
from tools.builtin.browser import extraction
from tools.builtin.browser.extraction import DOCUMENT_LIMITS, run_extract
from tools.sandbox.isolation import Isolation


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


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("fields", "param", "code", "words"),
    [
        ({}, "file_data", "missing_required_parameter", "Missing"),
        ({"file_id": "file-1"}, "file_id", "unsupported_parameter", "keeps no files"),
        ({"file_url": "http://a.no/b"}, "file_url", "unsupported_parameter", "fetches no files"),
        ({"file_data": "%%%"}, "file_data", "invalid_value", "neither base64 nor a data URL"),
        ({"file_data": "data:text/plain;base64,ü"}, "file_data", "invalid_value", "neither base64"),
        ({"file_data": encoded(b"%PDF-1.7\n")}, "file_data", "unsupported_value", "is damaged"),
        (
            {"file_data": encoded(encrypted_pdf("x", "secret"))},
            "file_data",
            "unsupported_value",
            "is encrypted",
        ),
        ({"file_data": encoded(blank_pdf())}, "file_data", "unsupported_value", "has no text"),
        (
            {"file_data": encoded(b"%PDF-1.7" + b" " * MAX_FILE_BYTES)},
            "file_data",
            "string_above_max_length",
            "longer than",
        ),
        (
            {"file_data": encoded(b"\x89PNG\r\n\x1a\n....")},
            "file_data",
            "unsupported_value",
            "is an image",
        ),
        ({"file_data": encoded(b"PK\x03\x04")}, "file_data", "unsupported_value", "is damaged"),
        (
            {"file_data": encoded(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")},
            "file_data",
            "unsupported_value",
            "has a password or an old format",
        ),
        ({"file_data": encoded(b"\x00\x01")}, "file_data", "unsupported_value", "is not text"),
        ({"file_data": encoded(b"\xff\xff\xff")}, "file_data", "unsupported_value", "is not text"),
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


@pytest.mark.parametrize(
    "file_data",
    [
        encoded(pdf("The fox is red.")),
        "data:application/pdf;base64,\n" + encoded(pdf("The fox is red.")),
        encoded(encrypted_pdf("The fox is red.", "")),
    ],
    ids=["base64", "data_url", "encrypted"],
)
async def test_pdf_is_read_as_an_attachment(serve: Serve, file_data: str) -> None:
    served = await serve(HELLO)
    item = message(filename="fox.pdf", file_data=file_data)
    response = check(await served.stream(input=[item]))
    block = '<file path="fox.pdf" lines="2">\n[page 1 of 1]\nThe fox is red.\n</file>'
    assert block in engine_markup(served)
    listed = (await served.get(f"/v1/responses/{response['id']}/input_items")).json()["data"]
    assert listed[0]["content"] == item["content"]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (docx(paragraph("The fox", "heading1")), "# The fox"),
        (xlsx(("Foxes", "visible", f"<row>{text_cell('red')}</row>")), "## Foxes\n\n| red |"),
    ],
    ids=["docx", "xlsx"],
)
async def test_office_document_is_read_by_its_content(serve: Serve, data: bytes, text: str) -> None:
    served = await serve(HELLO)
    item = message(filename="fox.txt", file_data=encoded(data))
    check(await served.stream(input=[item]))
    assert f'<file path="fox.txt" lines="{1 if text[1] == " " else 4}">\n{text}' in engine_markup(
        served
    )


async def test_pdf_counts_as_input(serve: Serve) -> None:
    served = await serve(HELLO)

    async def tokens(words: int) -> int:
        item = message(filename="a.pdf", file_data=encoded(pdf("word " * words)))
        return int((await served.post({"input": [item]}, "/input_tokens")).json()["input_tokens"])

    assert await tokens(500) - await tokens(100) >= 400


async def test_pdf_that_is_sent_again_is_not_read_again(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    async def extract(*arguments: Any, **options: Any) -> bytes:
        started.append(arguments)
        return await run_extract(*arguments, **options)

    monkeypatch.setattr(extraction, "run_extract", extract)
    served = await serve(HELLO)
    item = message(filename="a.pdf", file_data=encoded(pdf("Again")))
    for _ in range(2):
        check(await served.stream(input=[item, item]))
    assert len(started) == 1


@pytest.mark.parametrize(
    ("reader", "most", "words"),
    [
        (DocumentReader(seconds=0), 1, "too much time or memory"),
        (DocumentReader(replace(DOCUMENT_LIMITS, memory=16 << 20)), 1, "too much time or memory"),
        (DocumentReader(), 0, "more than 0 documents"),
    ],
)
async def test_pdf_beyond_a_limit_has_no_text(
    reader: DocumentReader, most: int, words: str
) -> None:
    file = encoded(pdf("x"))
    item = InputMessage.model_validate(message(file_data=file))
    read = await reader.read([item], most)
    assert words in read[file].problem and not read[file].text


async def test_reader_that_is_killed_as_it_starts_keeps_nobody_waiting() -> None:
    item = InputMessage.model_validate(message(file_data=encoded(pdf("x"))))
    for milliseconds in range(30):  # until its sandbox stands; one of them left a child behind
        await DocumentReader(seconds=milliseconds / 1000).read([item])


@pytest.mark.parametrize("answer", [b"[]", b"\xff", b'{"text": 1, "error": null}', b"[" * 9_000])
def test_answer_that_a_pdf_made_its_reader_write_is_an_error(answer: bytes) -> None:
    assert extraction.parse_answer(answer).problem


@pytest.mark.parametrize("name", ["MemoryError", "SystemError", "ImportError"])
def test_reader_without_memory_does_not_say_that_the_pdf_is_damaged(name: str) -> None:
    """Where memory ends in C code, Python raises whatever that left: SystemError, one in forty."""
    answer = json.dumps({"error": f"{name}: error return without exception set"})
    assert "too much time or memory" in extraction.parse_answer(answer.encode()).problem


def test_text_of_a_pdf_can_be_encoded() -> None:
    assert extraction.parse_answer(b'{"text": "a\\u0000\\ud800b"}').text == "a?b"


async def test_pdf_is_refused_where_nothing_isolates_its_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extraction, "best_isolation", lambda: Isolation("none", "", False))
    item = InputMessage.model_validate(message(file_data=encoded(pdf("x"))))
    (read,) = (await DocumentReader().read([item])).values()
    assert "isolation" in read.problem


async def test_too_many_requests_with_pdfs_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "MAX_WAITING", 1)
    reader, item = (
        DocumentReader(),
        InputMessage.model_validate(message(file_data=encoded(pdf("x")))),
    )
    first, second = await asyncio.gather(
        reader.read([item]), reader.read([item]), return_exceptions=True
    )
    assert isinstance(first, dict) and isinstance(second, ApiError) and second.status == 429


async def test_pdf_in_a_conversation_is_read_again_when_an_item_is_deleted(serve: Serve) -> None:
    served = await serve(HELLO)
    item = message(filename="a.pdf", file_data=encoded(pdf("A red fox")))
    async with served.client() as client:
        conversation = await client.conversations.create(
            items=[{"role": "user", "content": "first"}, item]
        )
        first = (await client.conversations.items.list(conversation.id, order="asc")).data[0]
        served.service.conversations._document_reader._texts.clear()  # as after a restart
        await client.conversations.items.delete(first.id, conversation_id=conversation.id)
        await client.responses.create(conversation=conversation.id, input="What is red?")
    assert "A red fox" in engine_markup(served) and "first" not in engine_markup(served)


async def test_file_in_a_function_output(serve: Serve) -> None:
    served = await serve(HELLO)
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    files = [
        {"type": "input_file", "filename": "a.txt", "file_data": encoded(b"frogs")},
        {"type": "input_file", "filename": "b.pdf", "file_data": encoded(b"%PDF-1.7")},
        {"type": "input_file", "filename": "c.pdf", "file_data": encoded(pdf("A toad"))},
    ]
    output = {"type": "function_call_output", "call_id": "c", "output": files}
    check(await served.stream(input=[{"role": "user", "content": "x"}, call, output]))
    assert "\nfrogs\n</file>" in engine_markup(served)
    assert "\nA toad\n</file>" in engine_markup(served)
    assert "[There was a file here; this server could not read it.]" in engine_markup(served)
