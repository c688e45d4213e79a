"""Whatever is sent, the answer is a response or an error in OpenAI's shape."""

import random
from collections import Counter

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.server.http.errors import ApiError
from agent.server.input.parsing import parse_request
from tests.support.endpoint import Serve
from tests.support.request_fuzzer import RequestFuzzer
from tests.support.scripts import HELLO
from tests.support.waiting import HANG_SECONDS


@given(st.binary(max_size=60))
@settings(max_examples=200)
def test_parse_request_random_bytes_parse_or_400(body: bytes) -> None:
    try:
        parse_request(body)
    except ApiError as error:
        assert error.status == 400


@pytest.mark.long
async def test_server_random_requests_never_500(serve: Serve) -> None:
    """Made up from what it says of itself; `make load` sends more of them to the program."""
    served = await serve(HELLO, tools="python")
    await served.runtime.ready()  # else the answer of /health depends on the order
    fuzzer = RequestFuzzer((await served.get("/openapi.json")).json(), random.Random(1))
    statuses: Counter[int] = Counter()
    async with httpx2.AsyncClient(timeout=HANG_SECONDS) as http:
        for _ in range(200):
            request = fuzzer.request()
            answer = await http.request(
                request.method, served.root + request.path, content=request.body
            )
            statuses[answer.status_code] += 1
            assert answer.status_code < 500, (request, answer.text)
            assert answer.status_code == 200 or answer.json()["error"]["message"]
            if request.path == "/v1/responses" and '"id":"resp_' in answer.text:
                fuzzer.ids.append("resp_" + answer.text.partition('"id":"resp_')[2][:32])
    assert statuses[200] and statuses[400] and set(statuses) <= {200, 400, 404, 405}, statuses
    assert not served.service.running
