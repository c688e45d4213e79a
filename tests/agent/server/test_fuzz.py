"""Whatever is sent, the answer is a response or an error in OpenAI's shape."""

from __future__ import annotations

import random
from collections import Counter

import httpx2
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.server.errors import ApiError
from agent.server.parsing import parse
from tests.load.bodies import Fuzzer
from tests.support.endpoint import Serve
from tests.support.scripts import HELLO


@given(st.binary(max_size=60))
@settings(max_examples=200, deadline=None)
def test_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        parse(body)
    except ApiError as error:
        assert error.status == 400


async def test_the_server_never_breaks(serve: Serve) -> None:
    """Made up from what it says of itself; `make load` sends more of them to the program."""
    served = await serve(HELLO, tools="python")
    fuzzer = Fuzzer((await served.get("/openapi.json")).json(), random.Random(1))
    seen: Counter[int] = Counter()
    async with httpx2.AsyncClient(timeout=60) as http:
        for _ in range(200):
            made = fuzzer.request()
            answer = await http.request(made.method, served.root + made.path, content=made.body)
            seen[answer.status_code] += 1
            assert answer.status_code < 500, (made, answer.text)
            assert answer.status_code == 200 or answer.json()["error"]["message"]
            if made.path == "/v1/responses" and '"id":"resp_' in answer.text:
                fuzzer.ids.append("resp_" + answer.text.partition('"id":"resp_')[2][:32])
    assert seen[200] and seen[400] and set(seen) <= {200, 400, 404, 405}, seen
    assert not served.endpoint.running
