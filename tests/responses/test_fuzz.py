"""Whatever is sent, the answer is a response or an error in OpenAI's shape."""

from __future__ import annotations

import json
from typing import Any

import httpx2
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.responses.errors import ApiError
from agent.responses.requests import ITEMS, CreateResponse, parse
from tests.responses.conftest import Serve
from tests.responses.scripts import HELLO, WEATHER

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
WORDS = st.sampled_from(
    [
        "user",
        "developer",
        "assistant",
        "function",
        "mcp",
        "auto",
        "text",
        "input_text",
        "x",
        "call_1",
    ]
)
FIELDS = st.sampled_from(
    ["type", "role", "content", "text", "name", "call_id", "id", "output", "arguments", "tools",
     "server_label", "allowed_tools", "summary", "code", "outputs", "error", "input", "phase"]
)  # fmt: skip
NEARLY = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from([*ITEMS, "custom_tool_call_output", "text", "namespace"]) | JSON,
        "role": WORDS,
        "content": WORDS | st.lists(st.dictionaries(FIELDS, WORDS | JSON, max_size=4), max_size=2),
    },
).flatmap(
    lambda fixed: st.dictionaries(FIELDS, WORDS | JSON, max_size=6).map(lambda more: more | fixed)
)
REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        name: JSON | WORDS | st.lists(NEARLY | JSON, max_size=3) | NEARLY
        for name in CreateResponse.model_fields
    }
    | {"input": st.lists(NEARLY, max_size=4) | WORDS, "stream": st.booleans()},
)


@given(REQUESTS)
@settings(max_examples=150, deadline=None)
def test_a_body_is_read_or_refused(body: dict[str, Any]) -> None:
    try:
        parse(json.dumps(body).encode())
    except ApiError as error:
        assert error.status == 400 and str(error)


@given(st.binary(max_size=60))
@settings(max_examples=200, deadline=None)
def test_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        parse(body)
    except ApiError as error:
        assert error.status == 400


async def test_the_server_never_breaks(serve: Serve) -> None:
    served = await serve(HELLO, tools="python")
    seen: dict[int, int] = {}
    bodies: list[dict[str, Any]] = [{"input": "x"}]

    @given(
        NEARLY, st.dictionaries(st.sampled_from(["tools", "text", "tool_choice"]), JSON | NEARLY)
    )
    @settings(max_examples=150, deadline=None, database=None, derandomize=True)
    def collect(item: dict[str, Any], more: dict[str, Any]) -> None:
        bodies.append({"input": [item], "tools": [WEATHER], **more})
        bodies.append({"input": "x", **more, "tools": [item]})

    collect()
    async with httpx2.AsyncClient(timeout=60) as http:
        for place, body in enumerate(bodies):
            answer = await http.post(
                f"{served.url}/responses", content=json.dumps({**body, "stream": place % 2 == 0})
            )
            seen[answer.status_code] = seen.get(answer.status_code, 0) + 1
            assert answer.status_code < 500, (body, answer.text)
            assert answer.status_code == 200 or answer.json()["error"]["message"]
    assert seen[200] and seen[400] and set(seen) <= {200, 400, 404}
    assert not served.endpoint.running
