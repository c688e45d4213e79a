"""What Open WebUI asks for. It is not installed here (it brings PyTorch): these are the requests of
its backend, and what it reads of the answers, in its version 0.12.4 (`routers/openai.py`,
`utils/middleware.py`, `utils/misc.py`).
"""

from __future__ import annotations

import json
from typing import Any

import httpx2

from tests.clients.weather import AGAIN, OSLO, QUESTION, ROME, get_weather

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


def streamed(http: httpx2.Client, model: str, messages: list[Any]) -> dict[str, Any]:
    """The message that it puts together from the deltas; calls by their index."""
    body = {
        "model": model,
        "messages": messages,
        "tools": [WEATHER],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    made: dict[str, Any] = {"reasoning": "", "content": "", "calls": {}}
    with http.stream("POST", "/chat/completions", json=body) as answer:
        assert answer.status_code == 200
        assert "text/event-stream" in answer.headers["content-type"]
        *lines, done = [line for line in answer.iter_lines() if line]
    assert done == "data: [DONE]"
    for line in lines:
        data = json.loads(line.removeprefix("data: "))
        made["usage"] = data.get("usage")
        for choice in data["choices"]:
            delta = choice["delta"]
            made["reasoning"] += delta.get("reasoning_content") or ""
            made["content"] += delta.get("content") or ""
            made["reason"] = choice["finish_reason"]
            for call in delta.get("tool_calls") or ():
                known = made["calls"].setdefault(call["index"], {"id": call.get("id"), "name": ""})
                known["name"] += call["function"].get("name") or ""
                known["arguments"] = known.get("arguments", "") + call["function"]["arguments"]
    return made


def test_open_webui_models_answers_tools_and_turns(url: str) -> None:
    with httpx2.Client(
        base_url=url, headers={"Authorization": "Bearer none"}, timeout=60, trust_env=False
    ) as http:
        model = http.get("/models").json()["data"][0]["id"]
        messages: list[Any] = [{"role": "system", "content": "Be short."}]
        for question, weather in ((QUESTION, OSLO), (AGAIN, ROME)):
            messages.append({"role": "user", "content": question})
            asked = told = streamed(http, model, messages)
            assert asked["reason"] == "tool_calls" and asked["reasoning"]
            for _ in range(
                2
            ):  # It runs tools until the model asks for none: here once more at most.
                if told["reason"] != "tool_calls":
                    break
                (call,) = told["calls"].values()
                function = {"name": call["name"], "arguments": call["arguments"]}
                calls = [{"index": 0, "id": call["id"], "type": "function", "function": function}]
                result = get_weather(**json.loads(call["arguments"]))
                messages += [
                    {"role": "assistant", "content": told["content"], "tool_calls": calls},
                    {"role": "tool", "tool_call_id": call["id"], "content": result},
                ]
                told = streamed(http, model, messages)
            assert told["reason"] == "stop" and weather in told["content"]
            assert told["usage"]["completion_tokens"] > 0
            messages.append({"role": "assistant", "content": told["content"]})
        # The title of a chat is asked for in one piece.
        body = {"model": model, "messages": messages[1:2], "stream": False, "max_tokens": 50}
        title = http.post("/chat/completions", json=body).json()["choices"][0]["message"]
        assert title["role"] == "assistant" and title["content"]
