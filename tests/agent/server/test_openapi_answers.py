"""Every answer of the server fits its schema in /openapi.json, and has no field that is not there."""

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from agent.server.http.endpoints import ENDPOINTS
from tests.agent.server.test_openapi import fetch_document, schema_validator
from tests.support.endpoint import Serve, Served, first_turn, http_client
from tests.support.scripts import WEATHER, call, final, hold, preamble, thought

ANSWER = thought("Hm.") + preamble("First.") + final("Then.")
NESTED = {"type": "function", "function": {k: v for k, v in WEATHER.items() if k != "type"}}
MESSAGES = [{"role": "user", "content": "Hello"}]


class Checker:
    """Sends requests to a server and holds their answers against its document."""

    def __init__(self, served: Served, document: dict[str, Any]) -> None:
        self.served, self.document = served, document
        self.checked: set[tuple[str, str]] = set()

    async def send(
        self, method: str, template: str, body: Any = None, *, files: Any = None, **names: str
    ) -> Any:
        """Send a request with a JSON body or a form with ``files``; the checked answer."""
        async with http_client() as http:
            path = template.format(**names)
            answer = await http.request(method, f"{self.served.root}{path}", json=body, files=files)
        assert answer.status_code == 200, answer.text
        operation = self.document["paths"][template][method.lower()]
        (content,) = [
            schema
            for kind, schema in operation["responses"]["200"]["content"].items()
            if answer.headers["content-type"].startswith(kind)
        ]
        self.checked.add((method, template))
        reference = content["schema"]["$ref"].rpartition("/")[2]
        validator = schema_validator(self.document, reference)
        if answer.headers["content-type"].startswith("text/event-stream"):
            events = [
                json.loads(line.removeprefix("data: "))
                for line in answer.text.splitlines()
                if line.startswith("data: {")
            ]
            for event in events:
                validator.validate(event)
                if reference != "OfficialEvent":
                    check_fields(ENDPOINTS[method, template].stream, event)
            return events
        validator.validate(answer.json())
        check_fields(ENDPOINTS[method, template].answer, answer.json())
        return answer.json()


def check_fields(model: Any, value: Any) -> None:
    """Fail for a field that the model does not have."""
    TypeAdapter(model).validate_python(value)


@pytest.mark.long
async def test_every_answer_fits_its_schema(serve: Serve) -> None:
    replies = hold(ANSWER, after=4), final("Then."), *[ANSWER] * 40
    served, document = await fetch_document(serve, *replies)
    check = Checker(served, document)
    send = check.send
    name = (await send("POST", "/v1/responses", {"input": "Hi", "background": True}))["id"]
    await first_turn(served)
    await send("POST", "/v1/responses/{id}/answer", {}, id=name)
    await served.turns[-1].done()
    await send("GET", "/props")
    await send("GET", "/v1/models")
    await send("GET", "/v1/models/{id}", id="default")
    tokens = await send("POST", "/tokenize", {"prompt": "Hi", "return_token_strs": True})
    await send("POST", "/tokenize", {"content": "Hi", "with_pieces": True})
    await send("POST", "/detokenize", {"tokens": tokens["tokens"]})
    chat = {"messages": MESSAGES, "model": "default", "metadata": {"a": "b"}}
    await send("POST", "/v1/chat/completions", chat | {"logprobs": True, "top_logprobs": 1})
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    await send("POST", "/v1/chat/completions", chat | streamed)
    message = {"messages": MESSAGES, "max_tokens": 100}
    await send("POST", "/v1/messages", message)
    await send("POST", "/v1/messages", message | {"stream": True})
    await send("POST", "/v1/messages/count_tokens", message)
    raw = {"prompt": "Hi", "logprobs": 1, "max_tokens": 4}
    await send("POST", "/v1/completions", raw)
    await send("POST", "/v1/completions", raw | streamed)
    await send("POST", "/v1/responses/input_tokens", {"input": "Hi"})
    await send("POST", "/v1/responses", {"input": "Hi", "stream": True})
    name = (await send("POST", "/v1/responses", {"input": "Hi", "background": True}))["id"]
    await served.turns[-1].done()
    await send("GET", "/v1/responses/{id}", id=name)
    await send("GET", "/v1/responses/{id}/input_items", id=name)
    await send("POST", "/v1/responses/{id}/cancel", {}, id=name)
    await send("DELETE", "/v1/responses/{id}", id=name)
    compact = {"input": MESSAGES, "model": "default"}
    await send("POST", "/v1/responses/compact", compact)
    items = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    created = await send("POST", "/v1/conversations", {"items": items, "metadata": {"a": "b"}})
    name = created["id"]
    await send("POST", "/v1/responses", {"input": "And now?", "conversation": name})
    await send("GET", "/v1/conversations/{id}", id=name)
    await send("POST", "/v1/conversations/{id}", {"metadata": {}}, id=name)
    path = "/v1/conversations/{id}/items"
    page = await send("GET", path, id=name)
    assert {item["type"] for item in page["data"]} == {"message", "reasoning"}
    await send("POST", path, {"items": items}, id=name)
    item = page["data"][0]["id"]
    await send("GET", f"{path}/{{item_id}}", id=name, item_id=item)
    await send("DELETE", f"{path}/{{item_id}}", id=name, item_id=item)
    await send("DELETE", "/v1/conversations/{id}", id=name)
    path = "/v1/files/{id}"
    line = {"custom_id": "a", "url": "/v1/responses", "body": {"input": "Hi"}}
    upload = {"file": ("in.jsonl", json.dumps(line)), "purpose": (None, "batch")}
    name = (await send("POST", "/v1/files", files=upload))["id"]
    await send("GET", path, id=name)
    await send("GET", "/v1/files")
    batch = {"input_file_id": name, "endpoint": "/v1/responses", "completion_window": "24h"}
    created = await send("POST", "/v1/batches", batch)
    await send("POST", "/v1/batches/{id}/cancel", {}, id=created["id"])
    await send("GET", "/v1/batches/{id}", id=created["id"])
    await send("GET", "/v1/batches")
    await send("DELETE", path, id=name)
    await send("GET", "/health")
    for action in ("load", "unload"):
        await send("POST", f"/v1/models/{action}", {"model": served.runtime.model.name})
    described = {key for key, each in ENDPOINTS.items() if each.answer or each.stream}
    assert check.checked == described


async def test_calls_in_chat_answers_fit_their_schema(serve: Serve) -> None:
    served, document = await fetch_document(serve, call("get_weather", place="Oslo"))
    send = Checker(served, document).send
    chat = {"messages": MESSAGES, "tools": [NESTED]}
    body = await send("POST", "/v1/chat/completions", chat)
    assert body["choices"][0]["finish_reason"] == "tool_calls"
    await send("POST", "/v1/chat/completions", chat | {"stream": True})


async def test_every_operation_describes_its_answer(serve: Serve) -> None:
    _, document = await fetch_document(serve)
    lacking = [
        (name, path)
        for path, operations in document["paths"].items()
        for name, operation in operations.items()
        if "200" in operation["responses"] and not operation["responses"]["200"]["content"]
    ]
    assert sorted(lacking) == [("get", "/"), ("post", "/v1/embeddings")]
