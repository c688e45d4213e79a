"""Answers of ``/v1/messages``: blocks, reasons of the end, usage, errors, streams."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agent.conversation.reasoning_token import decode_reasoning
from tests.support.anthropic import (
    TOOL,
    USER,
    VERSION,
    anthropic_error,
    body_of,
    create,
    fold,
    post,
)
from tests.support.endpoint import Serve, http_client
from tests.support.hosts import server_option
from tests.support.invariants import check
from tests.support.scripts import HELLO, call, final, hold, preamble, python, raw_call, thought
from tests.support.waiting import HANG_SECONDS

pytestmark = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
CALL = thought("I look.") + preamble("One moment.") + call("get_weather", place="Oslo")


async def test_message_has_thinking_and_text(serve: Serve, stream: bool) -> None:
    served = await serve(HELLO)
    message = await create(served, stream=stream)
    thinking, text = message["content"]
    assert thinking["thinking"] == "They say hello." == decode_reasoning(thinking["signature"])
    assert text == {"type": "text", "text": "Hello there!"}
    assert (message["stop_reason"], message["stop_sequence"]) == ("end_turn", None)
    assert (message["type"], message["role"], message["model"]) == ("message", "assistant", "tiny")
    assert message["id"].startswith("msg_")
    check([event.model_dump(mode="json") for event in served.turns[-1].log.events])


async def test_thinking_omitted_is_in_the_signature_alone(serve: Serve, stream: bool) -> None:
    served = await serve(HELLO)
    thinking = {"type": "adaptive", "display": "omitted"}
    message = await create(served, stream=stream, thinking=thinking)
    assert message["content"][0]["thinking"] == ""
    assert decode_reasoning(message["content"][0]["signature"]) == "They say hello."


async def test_call_is_a_tool_use(serve: Serve, stream: bool) -> None:
    served = await serve(CALL)
    message = await create(served, stream=stream, tools=[TOOL])
    _, text, used = message["content"]
    assert text["text"] == "One moment."
    assert (used["type"], used["name"], used["input"]) == (
        "tool_use",
        "get_weather",
        {"place": "Oslo"},
    )
    assert message["stop_reason"] == "tool_use"


async def test_several_calls_of_one_answer(serve: Serve, stream: bool) -> None:
    other = call("get_weather", place="Rome")
    served = await serve(call("get_weather", place="Oslo"), other, final("That is all."))
    choice = {"type": "auto", "disable_parallel_tool_use": False}
    message = await create(served, stream=stream, tools=[TOOL], tool_choice=choice)
    used = [block["input"]["place"] for block in message["content"] if block["type"] == "tool_use"]
    assert used == ["Oslo", "Rome"] and message["stop_reason"] == "tool_use"


async def test_stop_sequence_is_named(serve: Serve, stream: bool) -> None:
    served = await serve(final("One. STOP two"))
    message = await create(served, stream=stream, stop_sequences=["never", "STOP"])
    assert message["content"][-1]["text"] == "One. "
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "STOP")


async def test_max_tokens_cut_a_call(serve: Serve, stream: bool) -> None:
    served = await serve(call("get_weather", place="Oslo and much more of it " * 20))
    answer = await post(served, stream=stream, tools=[TOOL], max_tokens=30)
    if stream:
        assert '"stop_reason": "max_tokens"' in answer.text
    else:
        message = answer.json()
        assert message["stop_reason"] == "max_tokens"
        assert message["content"][-1]["input"]["place"].startswith("Oslo")


async def test_full_context_ends_the_answer(serve: Serve, stream: bool) -> None:
    served = await serve(final("word " * 500), context=200)
    message = await create(served, stream=stream, max_tokens=64_000)
    assert message["stop_reason"] == "model_context_window_exceeded"


async def test_begun_answer_is_continued(serve: Serve, stream: bool) -> None:
    served = await serve({"markup": " there!<|return|>"})
    begun = [*USER, {"role": "assistant", "content": "Hello"}]
    message = await create(served, stream=stream, messages=begun)
    assert [block["text"] for block in message["content"]] == [" there!"]


async def test_python_that_ran_here_has_blocks(serve: Serve, stream: bool) -> None:
    served = await serve(python("print(6 * 7)"), final("42"), tools="python")
    tools = [{"type": "code_execution_20250825", "name": "code_execution"}]
    message = await create(served, stream=stream, tools=tools)
    used, result, text = message["content"]
    assert (used["type"], used["name"]) == ("server_tool_use", "code_execution")
    assert used["input"] == {"code": "print(6 * 7)"} and used["id"] == result["tool_use_id"]
    assert result["type"] == "code_execution_tool_result"
    assert result["content"]["stdout"] == "42" and result["content"]["return_code"] == 0
    assert text["text"] == "42" and message["stop_reason"] == "end_turn"
    again = [*USER, {"role": "assistant", "content": message["content"]}, *USER]
    await create(served, stream=stream, messages=again, tools=tools)


async def test_mcp_call_that_ran_here_has_blocks(serve: Serve, stream: bool) -> None:
    served = await serve(
        raw_call("functions.plain__echo", '{"text": "frogs"}'),
        final("frogs"),
        mcp=(server_option("plain"),),
        tools="plain",
    )
    servers = [{"type": "url", "url": "https://ignored.example", "name": "plain"}]
    toolset = {
        "type": "mcp_toolset",
        "mcp_server_name": "plain",
        "default_config": {"enabled": False},
        "configs": {"echo": {"enabled": True}},
    }
    options = {"stream": stream, "mcp_servers": servers, "tools": [toolset]}
    message = await create(served, **options)
    used, result, _ = message["content"]
    assert (used["type"], used["server_name"], used["name"]) == ("mcp_tool_use", "plain", "echo")
    assert used["input"] == {"text": "frogs"} and used["id"] == result["tool_use_id"]
    assert result["content"] == [{"type": "text", "text": "frogs"}] and not result["is_error"]
    again = [*USER, {"role": "assistant", "content": message["content"]}, *USER]
    cached = (await create(served, messages=again, **options))["usage"]
    assert cached["cache_read_input_tokens"] > cached["input_tokens"]


async def test_second_step_reads_only_what_is_new(serve: Serve, stream: bool) -> None:
    """Also where the client spells arguments in its own way, adds a text to the result, and begins its
    instructions with a line that always differs."""
    served = await serve(
        thought("I look.") + raw_call("functions.get_weather", '{ "place":"Oslo"}'),
        final("It is cold."),
    )

    def system(number: int) -> list[dict[str, Any]]:
        line = f"x-anthropic-billing-header: cc_version=2.1; cch={number:05};"
        return [{"type": "text", "text": line}, {"type": "text", "text": "Be brief. " * 20}]

    first = await create(served, stream=stream, tools=[TOOL], system=system(1))
    used = first["content"][-1]
    result = {"type": "tool_result", "tool_use_id": used["id"], "content": "cold"}
    reminder = {"type": "text", "text": "<system-reminder>Be kind.</system-reminder>"}
    messages = [
        *USER,
        {"role": "assistant", "content": first["content"]},
        {"role": "user", "content": [result, reminder]},
    ]
    options = {"tools": [TOOL], "messages": messages}
    second = await create(served, stream=stream, system=system(2), **options)
    written = first["usage"]["input_tokens"] + first["usage"]["cache_read_input_tokens"]
    written += first["usage"]["output_tokens"]
    assert second["usage"]["cache_read_input_tokens"] == written
    assert second["usage"]["input_tokens"] < 40
    counted = await post(served, "/count_tokens", system=system(3), **options)
    total = second["usage"]["input_tokens"] + written
    assert counted.json() == {"input_tokens": total}
    assert counted.headers["agent-ignored"] == "system[0]"


# --- errors and silence ---


async def test_failed_answer_is_an_error(serve: Serve, stream: bool) -> None:
    served = await serve(HELLO)
    served.service.max_running = 0
    error = anthropic_error(await post(served, stream=stream), 429)
    assert error["type"] == "rate_limit_error"
    served.service.draining = True
    assert anthropic_error(await post(served, stream=stream), 529)["type"] == "overloaded_error"
    served.service.draining = False


async def test_unknown_model_error_says_what_to_set(serve: Serve, stream: bool) -> None:
    served = await serve(HELLO, server={"aliases": ("claude-known",)})
    error = anthropic_error(await post(served, stream=stream, model="claude-opus-5"), 404)
    assert error["type"] == "not_found_error"
    for name in ("claude-opus-5", "ANTHROPIC_MODEL", "tiny", "--alias claude-opus-5"):
        assert name in error["message"]
    assert (await create(served, stream=stream, model="claude-known"))["content"]


async def test_prompt_too_long_is_worded_for_claude_code(serve: Serve, stream: bool) -> None:
    served = await serve(HELLO, context=500)
    messages = [{"role": "user", "content": "word " * 1000}]
    error = anthropic_error(await post(served, stream=stream, messages=messages), 400)
    assert error["message"].startswith("prompt is too long: ")
    assert "tokens > 500 maximum" in error["message"]


async def test_stream_pings_while_it_is_silent(serve: Serve, tmp_path: Path, stream: bool) -> None:
    if not stream:
        pytest.skip("a body is never silent")
    go = tmp_path / "go"
    served = await serve(hold(HELLO, 3, go), server={"keepalive_seconds": 0.05})
    text, ping = "", 'event: ping\ndata: {"type": "ping"}\n\n'
    async with (
        asyncio.timeout(HANG_SECONDS),
        http_client() as http,
        http.stream("POST", f"{served.url}/messages", json=body_of(stream=True)) as answer,
    ):
        async for chunk in answer.aiter_text():
            text += chunk
            if text.count(ping) >= 2:
                go.touch()
    assert text.count(ping) >= 2 and "[DONE]" not in text
    assert fold(text)["content"][-1]["text"] == "Hello there!"


async def test_stopped_turn_is_no_answer(serve: Serve, stream: bool) -> None:
    served = await serve(HELLO)
    begin = served.service.begin

    async def stopped(*arguments: Any, **options: Any) -> Any:
        turn = await begin(*arguments, **options)
        turn.stop()
        return turn

    served.service.begin = stopped  # type: ignore[method-assign]
    body = {"messages": [{"role": "user", "content": "Hi"}], "stream": stream}
    chat = await served.post(body, url=f"{served.url}/chat/completions")
    assert stream or chat.status_code == 503
    assert '"code":"cancelled"' in chat.text.replace(" ", "")
    answer = await post(served, stream=stream)
    if not stream:
        assert anthropic_error(answer, 529)["type"] == "overloaded_error"
        return
    last = answer.text.strip().split("\n\n")[-1].split("\n")
    assert last[0] == "event: error"
    assert json.loads(last[1].removeprefix("data: "))["error"]["type"] == "overloaded_error"


async def test_keys_paths_and_models(serve: Serve, stream: bool) -> None:
    served = await serve(HELLO, api_key="secret", server={"aliases": ("claude-alias",)})
    refused = await post(served, stream=stream)
    assert anthropic_error(refused, 401)["type"] == "authentication_error"
    url, key = f"{served.url}/messages", {"x-api-key": "secret"}
    for headers in (key, {"authorization": "Bearer secret"}, key | {"authorization": "Bearer x"}):
        assert (await served.post(body_of(), url=url, headers=headers)).status_code == 200
    wrong = await served.post(body_of(), url=f"{url}/nothing", headers=key)
    assert anthropic_error(wrong, 404)["type"] == "not_found_error"
    assert anthropic_error(await served.get("/v1/messages", headers=key), 405)
    large = await served.post(content=b"[" * 9_000_000, url=url, headers=key)
    assert anthropic_error(large, 413)["type"] == "request_too_large"
    assert anthropic_error(await served.post(content=b"{", url=url, headers=key), 400)
    async with http_client() as http:
        assert (await http.head(f"{served.root}/")).status_code == 200
    both = key | VERSION
    page = (await served.get("/v1/models", headers=both)).json()
    assert [model["id"] for model in page["data"]] == ["tiny", "claude-alias"]
    assert (page["first_id"], page["has_more"]) == ("tiny", False)
    model = (await served.get("/v1/models/claude-alias", headers=both)).json()
    assert (model["type"], model["id"]) == ("model", "claude-alias")
    missing = await served.get("/v1/models/nothing", headers=both)
    assert anthropic_error(missing, 404)["type"] == "not_found_error"
    assert (await served.get("/v1/models", headers=key)).json()["object"] == "list"
