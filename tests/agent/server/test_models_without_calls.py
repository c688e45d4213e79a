"""Requests with tools to a model whose calls cannot be parsed."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.endpoint import Serve, Served, api_error

FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
CHAT_FUNCTION = {"type": "function", "function": {"name": "f"}}
MESSAGES = [{"role": "user", "content": "hi"}]
PYTHON = {"type": "code_interpreter", "container": {"type": "auto"}}


async def plain_server(serve: Serve, home: Path, *, lenient: bool = False) -> Served:
    """A server of a model whose messages are plain text, and which has python."""
    (home / "config").mkdir(parents=True, exist_ok=True)
    entry = '[words]\npath = "nowhere.gguf"\nformat = "plain"\n'
    (home / "config" / "models.toml").write_text(entry)
    answers = ["Hello.<|im_end|>"] * 8
    return await serve(*answers, model="words", tools="python", server={"lenient": lenient})


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/responses", {"input": "hi", "tools": [FUNCTION]}, "tools"),
        ("/responses", {"input": "hi", "tools": [FUNCTION], "tool_choice": "required"}, "tools"),
        ("/responses", {"input": "hi", "tools": [FUNCTION], "stream": True}, "tools"),
        ("/responses", {"input": "hi", "tools": [PYTHON]}, "tools"),
        ("/responses", {"input": "hi", "tool_choice": "required"}, "tool_choice"),
        ("/responses/input_tokens", {"input": "hi", "tools": [FUNCTION]}, "tools"),
        ("/chat/completions", {"messages": MESSAGES, "tools": [CHAT_FUNCTION]}, "tools"),
        ("/chat/completions", {"messages": MESSAGES, "functions": [{"name": "f"}]}, "functions"),
    ],
)
async def test_tools_are_refused(
    serve: Serve, tmp_path: Path, path: str, body: dict[str, Any], param: str
) -> None:
    served = await plain_server(serve, tmp_path / "home")
    error = api_error(await served.post(body, url=served.url + path), 400)
    assert error["param"] == param


async def test_tools_that_an_item_adds_are_refused(serve: Serve, tmp_path: Path) -> None:
    served = await plain_server(serve, tmp_path / "home")
    items = [{"type": "additional_tools", "role": "developer", "tools": [FUNCTION]}, *MESSAGES]
    assert api_error(await served.post({"input": items}), 400)["param"] == "input[0].tools[0]"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/responses", {"input": "hi", "tools": [FUNCTION]}),
        ("/responses/input_tokens", {"input": "hi", "tools": [FUNCTION, PYTHON]}),
        ("/chat/completions", {"messages": MESSAGES, "tools": [CHAT_FUNCTION]}),
    ],
)
async def test_lenient_server_names_ignored_tools(
    serve: Serve, tmp_path: Path, path: str, body: dict[str, Any]
) -> None:
    served = await plain_server(serve, tmp_path / "home", lenient=True)
    for choice, ignored in (("auto", "tools"), ("required", "tools, tool_choice")):
        answer = await served.post({**body, "tool_choice": choice}, url=served.url + path)
        assert (answer.status_code, answer.headers["agent-ignored"]) == (200, ignored)
        if path == "/responses":
            echoed = answer.json()
            assert (echoed["tools"], echoed["tool_choice"]) == ([], "auto")


async def test_lenient_chat_names_its_own_older_fields(serve: Serve, tmp_path: Path) -> None:
    served = await plain_server(serve, tmp_path / "home", lenient=True)
    body = {"messages": MESSAGES, "functions": [CHAT_FUNCTION["function"]]}
    answer = await served.post(body, url=f"{served.url}/chat/completions")
    assert (answer.status_code, answer.headers["agent-ignored"]) == (200, "functions")


async def test_tools_that_clients_add_by_habit_are_left_out(serve: Serve, tmp_path: Path) -> None:
    served = await plain_server(serve, tmp_path / "home")
    answer = await served.post({"input": "hi", "tools": [{"type": "web_search"}]})
    assert (answer.status_code, answer.headers["agent-ignored"]) == (200, "tools[0]")
