"""Bodies that are small on the wire and large in memory; many long ones at once."""

import asyncio
import json
import random

import pytest

from agent.server.http.errors import ApiError
from agent.server.http.request_body import MAX_JSON_VALUES, SCAN_BYTES, check_json_size
from tests.support.endpoint import Serve, Served, api_error, open_request
from tests.support.scripts import HELLO, LONG
from tests.support.waiting import wait_until
from tests.support.websocket import error_event, open_socket, receive_event

AMPLIFIERS = {
    "enum": '{"input":"x","tools":[{"type":"function","name":"f","parameters":{"enum":[%s]}}]}',
    "unread field": '{"input":"x","mood":[%s]}',
    "part": '{"input":[{"role":"user","content":[{"type":"input_text","text":"x","y":[%s]}]}]}',
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", AMPLIFIERS)
@pytest.mark.parametrize("value", ["[]", "1", '{"a":1}', '""'])
async def test_body_with_too_many_values_is_refused(serve: Serve, case: str, value: str) -> None:
    served = await serve(HELLO)
    content = AMPLIFIERS[case] % ",".join([value] * (MAX_JSON_VALUES + 1))
    error = api_error(await served.post(content=content.encode()), 413)
    assert error["code"] == "request_too_large" and f"{MAX_JSON_VALUES:,}" in error["message"]
    async with open_socket(served) as client:
        await client.send(content)
        error_event([await receive_event(client)], 413)
    assert not served.turns and served.service.body_budget.used_bytes == 0


@pytest.mark.long
async def test_check_json_size_counts_outside_strings_only() -> None:
    generator = random.Random(7)
    for _ in range(20):
        text = "".join(generator.choices('\\"\\\\,:[{x€', k=4 * MAX_JSON_VALUES // 3))
        await check_json_size(json.dumps({"input": text}).encode())
        rest = [0] * MAX_JSON_VALUES
        with pytest.raises(ApiError):
            await check_json_size(json.dumps({"input": text, "rest": rest}).encode())


async def test_check_json_size_lets_other_tasks_run() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    working = asyncio.create_task(other())
    await check_json_size(b'"%s"' % (b"x" * 50 * SCAN_BYTES))
    working.cancel()
    assert turns >= 50


async def open_unfinished(served: Served, size: int) -> asyncio.StreamReader:
    """Send a body of ``size`` bytes without its last one; the reader of the answer."""
    host, port = served.root.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-length: {size}\r\n\r\n"
    writer.write(head.encode() + b" " * (size - 1))
    open_writers.append(writer)
    return reader


open_writers: list[asyncio.StreamWriter] = []


async def test_unread_bodies_together_are_bounded(serve: Serve) -> None:
    served = await serve(HELLO)
    budget = served.service.body_budget
    budget.max_bytes, size = 3_000_000, 1_000_000
    readers = [await open_unfinished(served, size) for _ in range(4)]
    answers = [asyncio.create_task(reader.readline()) for reader in readers]
    done, waiting = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
    assert {task.result() for task in done} == {b"HTTP/1.1 429 Too Many Requests\r\n"}
    assert len(waiting) == 3 and budget.used_bytes <= budget.max_bytes
    assert (await served.post({"input": "x"})).status_code == 200, "short ones are read"
    assert "a limit is reached" in served.runtime.paths.log_file.read_text()
    for writer in open_writers:
        writer.close()
    await wait_until(lambda: not budget.used_bytes)


async def test_bodies_of_running_responses_are_bounded(serve: Serve) -> None:
    served = await serve(LONG)
    served.service.max_running_bytes = 1000
    running = await open_request(served, {"input": "x", "user": "y" * 2000, "stream": True})
    await wait_until(lambda: served.service.running)
    assert api_error(await served.post({"input": "x"}), 429)["code"] == "rate_limit_exceeded"
    running.close()
