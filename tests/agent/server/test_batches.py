"""/v1/files and /v1/batches by openai's own client: statuses, results, a cancel, a server that ends."""

import asyncio
import json
import os
import shutil
import threading
from typing import Any

import httpx2
import openai
import pytest

from agent.server.batch import batches, file_store
from tests.support.endpoint import API_KEY, Serve, Served
from tests.support.requests import ENDLESS
from tests.support.scripts import HELLO
from tests.support.waiting import wait_until

WINDOW: Any = "24h"
RESPONSES: Any = "/v1/responses"
CHAT: Any = "/v1/chat/completions"


def lines_of(url: str, **bodies: dict[str, Any]) -> bytes:
    lines = (
        {"custom_id": name, "method": "POST", "url": url, "body": bodies[name]} for name in bodies
    )
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


async def begin(served: Served, content: bytes, endpoint: Any = RESPONSES, **options: Any) -> Any:
    """A batch of an uploaded file."""
    client = served.client()
    file = await client.files.create(file=("in.jsonl", content), purpose="batch")
    return await client.batches.create(
        input_file_id=file.id, endpoint=endpoint, completion_window=WINDOW, **options
    )


async def ended(served: Served, batch_id: str) -> Any:
    """The batch once it is worked at no more."""
    client = served.client()
    while (batch := await client.batches.retrieve(batch_id)).status in batches.UNFINISHED:
        pass
    return batch


async def post_form(served: Served, form: dict[str, Any]) -> httpx2.Response:
    async with httpx2.AsyncClient() as http:
        return await http.post(f"{served.url}/files", **form)


async def read_file(served: Served, file_id: str) -> dict[str, Any]:
    content = (await served.client().files.content(file_id)).text
    results = [json.loads(line) for line in content.splitlines()]
    return {result["custom_id"]: result for result in results}


@pytest.mark.long
async def test_batch_answers_and_errors_have_their_files(serve: Serve) -> None:
    served = await serve(HELLO, HELLO)
    client = served.client()
    messages = [{"role": "user", "content": "x"}]
    content = lines_of(CHAT, a={"messages": messages}, b={"messages": []}, c={"messages": messages})
    created = await begin(served, content, CHAT, metadata={"name": "n"})
    assert (created.status, created.metadata) == ("validating", {"name": "n"})
    assert created.expires_at == created.created_at + 24 * 3600
    batch = await ended(served, created.id)
    assert batch.status == "completed"
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (3, 2, 1)
    assert batch.in_progress_at <= batch.finalizing_at <= batch.completed_at
    answers = await read_file(served, batch.output_file_id)
    assert answers.keys() == {"a", "c"}
    assert answers["a"]["response"]["body"]["choices"][0]["message"]["content"] == "Hello there!"
    errors = await read_file(served, batch.error_file_id)
    assert errors["b"]["response"]["status_code"] == 400
    assert errors["b"]["response"]["body"]["error"]["param"] == "messages"
    assert len((await client.files.list(limit=10_000)).data) == 3
    listed = [file.purpose async for file in client.files.list()]
    assert sorted(listed) == ["batch", "batch_output", "batch_output"]
    assert [one.id async for one in client.batches.list(limit=1)] == [batch.id]
    with pytest.raises(openai.ConflictError):
        await client.batches.cancel(batch.id)
    await client.files.delete(batch.output_file_id)
    with pytest.raises(openai.NotFoundError):
        await client.files.content(batch.output_file_id)


async def test_batch_with_wrong_lines_fails_and_names_them(serve: Serve) -> None:
    served = await serve(HELLO)
    content = lines_of(RESPONSES, a={"input": "x"}) + b"{nonsense\n" + lines_of(CHAT, b={})
    batch = await ended(served, (await begin(served, content)).id)
    assert batch.status == "failed" and batch.failed_at
    assert [(fault.line, fault.code) for fault in batch.errors.data] == [
        (2, "invalid_json"), (3, "invalid_url"),
    ]  # fmt: skip
    assert served.turns == []
    empty = await ended(served, (await begin(served, b"\n")).id)
    assert [fault.code for fault in empty.errors.data] == ["empty_file"]


@pytest.mark.long
async def test_batch_cancelled_keeps_what_is_done(serve: Serve) -> None:
    served = await serve(temperature=0, loop_guard=False)
    client = served.client()
    endless = {"input": "x", **ENDLESS}
    created = await begin(served, lines_of(RESPONSES, a={"input": "Hello"}, b=endless, c=endless))
    following = await begin(served, lines_of(RESPONSES, d=endless))
    while (await client.batches.retrieve(created.id)).request_counts.completed < 1:
        pass
    assert (await client.batches.cancel(following.id)).status == "cancelled"
    assert (await client.batches.cancel(created.id)).status == "cancelling"
    batch = await ended(served, created.id)
    assert batch.status == "cancelled" and batch.error_file_id is None
    assert (await read_file(served, batch.output_file_id)).keys() == {"a"}
    await wait_until(lambda: not served.service.running)


async def test_batch_goes_on_when_a_server_starts_again(serve: Serve) -> None:
    served = await serve(temperature=0, loop_guard=False)
    endless = {"input": "x", **ENDLESS}
    created = await begin(served, lines_of(RESPONSES, a={"input": "Hello"}, b=endless))
    client = served.client()
    while (await client.batches.retrieve(created.id)).request_counts.completed < 1:
        pass
    await served.end()
    again = await serve(HELLO)
    batch = await ended(again, created.id)
    assert (batch.status, batch.request_counts.completed) == ("completed", 2)
    answers = await read_file(again, batch.output_file_id)
    assert answers.keys() == {"a", "b"}
    assert len(again.turns) == 1, "the first line was answered before"


@pytest.mark.long
async def test_deleted_input_file_is_read_by_its_batch(serve: Serve) -> None:
    served = await serve(temperature=0, loop_guard=False)
    endless = {"input": "x", **ENDLESS}
    created = await begin(served, lines_of(RESPONSES, a={"input": "Hello"}, b=endless))
    client = served.client()
    while (await client.batches.retrieve(created.id)).request_counts.completed < 1:
        pass
    await client.files.delete(created.input_file_id)
    await served.end()
    again = await serve(HELLO)
    batch = await ended(again, created.id)
    assert (batch.status, batch.request_counts.completed) == ("completed", 2)
    folder = again.runtime.paths.state / "batches"
    await wait_until(lambda: {path.suffix for path in folder.iterdir()} == {".json", ".lock"})


async def test_batch_stopped_while_finalizing_leaves_no_file_twice(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve(HELLO)
    write = file_store.ObjectFolder.write

    def write_until_filed(folder: file_store.ObjectFolder, entry: dict[str, Any]) -> None:
        if entry["object"] == "batch" and entry["output_file_id"]:
            raise asyncio.CancelledError  # as if the process was killed there
        write(folder, entry)

    with monkeypatch.context() as killed:
        killed.setattr(file_store.ObjectFolder, "write", write_until_filed)
        created = await begin(served, lines_of(RESPONSES, a={"input": "x"}, b={"text": 1}))
        await wait_until(lambda: len(served.server._batches.files.entries()) == 3)  # type: ignore[union-attr]
        await served.end()
    again = await serve()
    batch = await ended(again, created.id)
    assert batch.status == "completed" and again.turns == []
    listed = {file.id async for file in again.client().files.list()}
    assert listed == {batch.input_file_id, batch.output_file_id, batch.error_file_id}


async def test_batch_expires(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "WINDOW_SECONDS", 0)
    served = await serve(HELLO)
    batch = await ended(served, (await begin(served, lines_of(RESPONSES, a={"input": "x"}))).id)
    assert batch.status == "expired" and batch.output_file_id is None
    errors = await read_file(served, batch.error_file_id)
    assert errors["a"]["error"]["code"] == "batch_expired" and errors["a"]["response"] is None


@pytest.mark.parametrize(
    ("form", "param"),
    [
        ({"files": {"file": ("x", b"x")}, "data": {"purpose": "vision"}}, "purpose"),
        ({"data": {"purpose": "batch"}}, "file"),
        (
            {
                "files": {"file": ("x", b"{}")},
                "data": {"purpose": "batch", "expires_after[anchor]": "created_at"},
            },
            "expires_after",
        ),
        ({"content": b"x", "headers": {"content-type": "multipart/form-data"}}, "file"),
    ],
)
async def test_wrong_uploads_are_refused(serve: Serve, form: dict[str, Any], param: str) -> None:
    served = await serve(HELLO)
    answer = await post_form(served, form)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_wrong_batches_are_refused(serve: Serve) -> None:
    served = await serve(HELLO)
    client = served.client()
    with pytest.raises(openai.NotFoundError):
        await client.batches.retrieve("../../x")
    with pytest.raises(openai.NotFoundError):
        await client.batches.create(
            input_file_id="file_1", endpoint=RESPONSES, completion_window=WINDOW
        )
    expiry: Any = {"anchor": "created_at", "seconds": 3600}
    with pytest.raises(openai.BadRequestError, match="output_expires_after"):
        await client.batches.create(
            input_file_id="x", endpoint=RESPONSES, completion_window=WINDOW,
            output_expires_after=expiry,
        )  # fmt: skip
    other: Any = "/v1/embeddings"
    with pytest.raises(openai.BadRequestError, match="endpoint"):
        await begin(served, b"", other)
    stateless = await serve(HELLO, server={"store": False})
    with pytest.raises(openai.BadRequestError, match="stores nothing"):
        await begin(stateless, b"")


async def test_lenient_server_passes_over_expiry(serve: Serve) -> None:
    served = await serve(HELLO, server={"lenient": True})
    form = {"files": {"file": ("x", b"{}")}}
    form |= {"data": {"purpose": "batch", "expires_after[anchor]": "created_at"}}
    uploaded = await post_form(served, form)
    assert uploaded.status_code == 200
    body = {"input_file_id": uploaded.json()["id"], "endpoint": RESPONSES}
    body |= {"completion_window": WINDOW, "output_expires_after": {"seconds": 3600}}
    answer = await served.post(body, url=f"{served.url}/batches")
    assert answer.status_code == 200, answer.text


async def test_second_server_reads_the_batches_of_the_first(serve: Serve) -> None:
    first, second = await serve(HELLO), await serve(HELLO)
    batch = await ended(first, (await begin(first, lines_of(RESPONSES, a={"input": "x"}))).id)
    assert (await second.client().batches.retrieve(batch.id)).status == "completed"
    with pytest.raises(openai.ConflictError, match="Another server"):
        await begin(second, lines_of(RESPONSES, a={"input": "x"}))


async def test_batches_with_a_key(serve: Serve) -> None:
    served = await serve(HELLO, api_key=API_KEY)
    batch = await ended(served, (await begin(served, lines_of(RESPONSES, a={"input": "x"}))).id)
    assert batch.request_counts.completed == 1


@pytest.mark.parametrize("written", [0, 40])
async def test_batch_that_breaks_files_its_results_and_others_follow(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """A disk that fills up may take the beginning of a line."""
    served = await serve(HELLO, HELLO, HELLO)
    add, added = batches.ResultLog.add, 0

    def add_first(log: batches.ResultLog, result: dict[str, Any]) -> None:
        nonlocal added
        added += 1
        if added == 2:
            with log.path.open("a") as file:
                file.write(json.dumps(result)[:written])
            raise OSError(28, "No space left on device")
        add(log, result)

    monkeypatch.setattr(batches.ResultLog, "add", add_first)
    content = lines_of(RESPONSES, a={"input": "x"}, b={"input": "x"})
    batch = await ended(served, (await begin(served, content)).id)
    assert batch.status == "failed"
    assert [fault.code for fault in batch.errors.data] == ["server_error"]
    assert len(await read_file(served, batch.output_file_id)) == 1
    following = await ended(served, (await begin(served, lines_of(RESPONSES, c={"input": "x"}))).id)
    assert following.status == "completed"


@pytest.mark.parametrize("error", [ValueError("nonsense"), OSError(28, "No space left on device")])
async def test_batch_whose_results_cannot_be_filed_lets_others_follow(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    served = await serve(HELLO, HELLO)

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(batches.BatchQueue, "_file_results", fail)
        first = await begin(served, lines_of(RESPONSES, a={"input": "x"}))
        queue = served.server._batches
        assert queue is not None
        await wait_until(lambda: queue.find(first.id)["status"] in ("finalizing", "failed"))
        await wait_until(lambda: queue._running is None)
    following = await ended(served, (await begin(served, lines_of(RESPONSES, c={"input": "x"}))).id)
    assert following.status == "completed"
    if isinstance(error, OSError):  # what is done is there for the next server
        await served.end()
        served = await serve()
    batch = await ended(served, first.id)
    assert batch.status == ("completed" if isinstance(error, OSError) else "failed")
    if batch.errors is not None:
        (fault,) = batch.errors.data
        assert fault.message.endswith("its log file has the details.")


async def test_batch_that_is_not_written_leaves_nothing(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve(HELLO)
    write = file_store.ObjectFolder.write

    def write_files(folder: file_store.ObjectFolder, entry: dict[str, Any]) -> None:
        if entry["object"] == "batch":
            raise OSError(28, "No space left on device")
        write(folder, entry)

    with monkeypatch.context() as full:
        full.setattr(file_store.ObjectFolder, "write", write_files)
        with pytest.raises(openai.InternalServerError):
            await begin(served, lines_of(RESPONSES, a={"input": "x"}))
    folder = served.runtime.paths.state / "batches"
    assert [path.name for path in folder.iterdir()] == [".batches.lock"]


async def test_work_without_batch_is_deleted_by_next_server(serve: Serve) -> None:
    """A server may be killed before it has written the batch."""
    served = await serve(HELLO)
    batch = await ended(served, (await begin(served, lines_of(RESPONSES, a={"input": "x"}))).id)
    await served.end()
    folder = served.runtime.paths.state / "batches"
    for name in ("batch_0.input", "batch_0.results"):
        (folder / name).write_bytes(b"{}")
    await serve()
    wanted = {".batches.lock", f"{batch.id}.json"}
    await wait_until(lambda: {path.name for path in folder.iterdir()} == wanted)


async def test_input_is_copied_beside_other_requests_where_links_fail(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve(HELLO)
    threads: list[int] = []
    copy = shutil.copyfile

    def copy_file(*paths: Any) -> None:
        threads.append(threading.get_ident())
        copy(*paths)

    def link(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(shutil, "copyfile", copy_file)
    monkeypatch.setattr(os, "link", link)
    batch = await ended(served, (await begin(served, lines_of(RESPONSES, a={"input": "x"}))).id)
    assert batch.status == "completed"
    assert threads and threading.get_ident() not in threads
