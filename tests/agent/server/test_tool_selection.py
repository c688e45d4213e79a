"""Tools: the client's own functions there and back, and the operator's servers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.formats.harmony.format import HarmonyFormat
from tests.support.endpoint import Serve, Served, plain
from tests.support.invariants import check
from tests.support.scripts import HELLO, WEATHER, call, final, python, thought

CODE = {"type": "mcp", "server_label": "code_interpreter"}
PLAIN = (
    f"plain={sys.executable} {Path(__file__).parents[2] / 'support' / 'mcp_servers' / 'plain.py'}"
)
SEEDS = {
    "model": "default",
    "input": "Multiply 123*456 using the mcp.code_interpreter tool.",
    "tools": [
        {
            "type": "mcp",
            "server_label": "code_interpreter",
            "headers": {"test": "test"},
            "server_url": "IGNORED",
        }
    ],
    "enable_response_messages": True,
}


def seen(served: Served) -> str:
    """What the model saw and wrote last, as markup."""
    form = served.runtime.format
    assert isinstance(form, HarmonyFormat)
    engine: Any = served.runtime.engine
    return form.encoding.decode(engine.spoken)


ASK = thought("I need the weather.") + call("get_weather", place="Oslo")
ANSWER = thought("It is cold.") + final("Cold.")


async def test_a_function_is_the_clients_to_run(serve: Serve) -> None:
    served = await serve(ASK, ANSWER)
    response = check(await served.stream(input="Weather in Oslo?", tools=[WEATHER]))
    assert response["status"] == "completed"
    assert response["tools"] == [WEATHER]
    reasoning, item = response["output"]
    assert (reasoning["type"], item["type"]) == ("reasoning", "function_call")
    assert item["name"] == "get_weather" and json.loads(item["arguments"]) == {"place": "Oslo"}
    assert item["status"] == "completed" and item["call_id"].startswith("call_")


async def test_its_result_comes_with_the_next_request(serve: Serve) -> None:
    served = await serve(ASK, ANSWER)
    client = served.client()
    first = await client.responses.create(model="default", input="Oslo?", tools=[WEATHER])
    asked = seen(served)
    result = {"type": "function_call_output", "call_id": first.output[1].call_id, "output": "-3 °C"}
    second = await client.responses.create(
        model="default", previous_response_id=first.id, input=[result], tools=[WEATHER]
    )
    assert second.output_text == "Cold." and second.previous_response_id == first.id
    # The model's own words of before are what it wrote, to the token, the reasoning too.
    assert seen(served).startswith(asked)
    rest = seen(served).removeprefix(asked)
    assert rest.startswith("<|start|>functions.get_weather to=assistant<|channel|>commentary")
    assert "-3 °C" in rest
    assert second.usage and second.usage.input_tokens_details.cached_tokens > 100


async def test_its_result_comes_with_all_items_resent(serve: Serve) -> None:
    served = await serve(ASK, ANSWER)
    client = served.client()
    user = {"role": "user", "content": "Oslo?"}
    first = await client.responses.create(
        model="default", input=[user], tools=[WEATHER], store=False
    )
    items = [item.model_dump(exclude_none=True) for item in first.output]
    result = {
        "type": "function_call_output",
        "call_id": first.output[1].call_id,
        "output": [{"type": "input_text", "text": "-3"}, {"type": "input_text", "text": "°C"}],
    }
    async with client.responses.stream(
        model="default", input=[user, *items, result], tools=[WEATHER], store=False
    ) as stream:
        second = await stream.get_final_response()
    assert second.output_text == "Cold."
    markup = seen(served)
    assert "<|channel|>analysis<|message|>I need the weather.<|end|>" in markup
    assert (
        'to=functions.get_weather <|constrain|>json<|message|>{"place": "Oslo"}<|call|>' in markup
    )
    assert "<|message|>-3\n°C<|end|>" in markup


@pytest.mark.parametrize("resent", [False, True])
async def test_a_call_without_a_result_is_closed(serve: Serve, resent: bool) -> None:
    """Of two calls the client answers the second only, and goes on."""
    served = await serve(ASK, ANSWER)
    first = check(await served.stream(input="Oslo?", tools=[WEATHER]))
    other = {"type": "function_call", "call_id": "c2", "name": "get_weather", "arguments": "{}"}
    rest = [other, {"type": "function_call_output", "call_id": "c2", "output": "warm"}, *USER]
    body: dict[str, Any] = {"input": rest, "previous_response_id": first["id"]}
    if resent:
        body = {"input": [{"role": "user", "content": "Oslo?"}, *first["output"], *rest]}
    check(await served.stream(tools=[WEATHER], **body))
    returned = "<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>"
    after = seen(served).partition('{"place": "Oslo"}<|call|>')[2]
    assert after.startswith(f"{returned}Error: the call was not run: there is no result<|end|>")
    assert f"{{}}<|call|>{returned}warm<|end|>" in after and after.count("Error:") == 1


async def test_all_calls_without_results_are_closed_where_they_were_made(serve: Serve) -> None:
    served = await serve(ASK, final("ok"))
    first = check(await served.stream(input="Oslo?", tools=[WEATHER]))
    calls = [
        {"type": "function_call", "call_id": f"c{n}", "name": "get_weather", "arguments": f"[{n}]"}
        for n in range(3)
    ]
    body = {"input": [*calls, *USER], "previous_response_id": first["id"]}
    check(await served.stream(tools=[WEATHER], **body))
    _, *after = seen(served).split("Error: the call was not run: there is no result<|end|>")
    assert len(after) == 4 and [f"[{n}]<|call|>" in after[n] for n in range(3)] == [True] * 3


async def test_when_the_answer_is_there_the_reasoning_goes(serve: Serve) -> None:
    served = await serve(ASK, ANSWER, final("Bye."), final("Bye."))
    client = served.client()
    first = await client.responses.create(model="default", input="Oslo?", tools=[WEATHER])
    result = {"type": "function_call_output", "call_id": first.output[1].call_id, "output": "-3"}
    second = await client.responses.create(
        model="default", previous_response_id=first.id, input=[result], tools=[WEATHER]
    )
    await client.responses.create(
        model="default", previous_response_id=second.id, input="bye", tools=[WEATHER]
    )
    kept = seen(served)
    items = [
        {"role": "user", "content": "Oslo?"},
        *(item.model_dump(exclude_none=True) for item in first.output),
        result,
        *(item.model_dump(exclude_none=True) for item in second.output),
        {"role": "user", "content": "bye"},
    ]
    served.runtime.engine.spoken = []  # type: ignore[attr-defined]
    await client.responses.create(model="default", input=items, tools=[WEATHER])
    for markup in (kept, seen(served)):
        assert "I need the weather." not in markup and "It is cold." not in markup
        assert '{"place": "Oslo"}<|call|>' in markup
        assert "<|channel|>final<|message|>Cold.<|end|>" in markup
    assert "bye" in kept


async def test_a_namespaced_function_keeps_its_namespace(serve: Serve) -> None:
    served = await serve(call("mcp__demo__add", a=1, b=2), final("3"))
    add = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}}
    group = {"type": "namespace", "name": "mcp__demo", "description": "Demo.", "tools": [add]}
    response = check(await served.stream(input="1+2?", tools=[group]))
    (item,) = response["output"]
    assert (item["namespace"], item["name"]) == ("mcp__demo", "add")
    result = {"type": "function_call_output", "call_id": item["call_id"], "output": "3"}
    resent = [{"role": "user", "content": "1+2?"}, item, result]
    check(await served.stream(input=resent, tools=[group]))
    assert "functions.mcp__demo__add to=assistant" in seen(served)


async def test_the_seeds_request(serve: Serve) -> None:
    served = await serve(
        thought("Compute.") + python("print(123*456)"), final("56088"), tools="python"
    )
    response = check(await served.stream(**SEEDS))
    listed, _, run, message = response["output"]
    assert [tool["name"] for tool in listed["tools"]] == ["python"]
    assert (run["type"], run["server_label"], run["name"]) == (
        "mcp_call",
        "code_interpreter",
        "python",
    )
    assert json.loads(run["arguments"]) == {"code": "print(123*456)"}
    assert run["output"].strip() == "56088" and run["error"] is None
    assert message["content"][0]["text"] == "56088"
    system, *_, user = response["input_messages"]
    assert system["role"] == "system" and "python" in system["content"][0]["text"]
    assert user == {
        "role": "user",
        "name": None,
        "content": [{"type": "text", "text": SEEDS["input"]}],
    }
    said, asked, told, answered = response["output_messages"]
    assert (said["channel"], said["content"][0]["text"]) == ("analysis", "Compute.")
    assert (asked["recipient"], asked["content_type"]) == ("python", "code")
    assert (told["role"], told["name"], told["recipient"]) == ("tool", "python", "assistant")
    assert told["content"][0]["text"].strip() == "56088"
    assert (answered["role"], answered["channel"]) == ("assistant", "final")
    body = await served.client().responses.create(
        model="default",
        input="again",
        tools=[{"type": "mcp", "server_label": "code_interpreter", "server_url": "IGNORED"}],
    )
    assert body.output_text == "56088"


async def test_a_list_is_told_once(serve: Serve) -> None:
    served = await serve(HELLO, tools="python")
    first = check(await served.stream(input="x", tools=[CODE]))
    assert first["output"][0]["type"] == "mcp_list_tools"
    followed = check(await served.stream(input="y", tools=[CODE], previous_response_id=first["id"]))
    resent = check(await served.stream(input=[*first["output"], *USER], tools=[CODE]))
    for response in (followed, resent):
        assert [item["type"] for item in response["output"]] == ["reasoning", "message"]


async def test_pythons_variables_are_a_conversations_own(serve: Serve) -> None:
    turns = (python("x = 41"), final("a"), python("x + 1"), final("b"), python("x + 1"), final("c"))
    served = await serve(*turns, tools="python")
    first = check(await served.stream(input="x", tools=[CODE]))
    second = check(await served.stream(input="y", tools=[CODE], previous_response_id=first["id"]))
    (ran,) = [item for item in second["output"] if item["type"] == "mcp_call"]
    assert ran["output"] == "42"
    other = check(await served.stream(input="x", tools=[CODE]))
    (ran,) = [item for item in other["output"] if item["type"] == "mcp_call"]
    assert "NameError" in ran["error"]["content"][0]["text"]


USER = [{"role": "user", "content": "y"}]


async def test_without_tools_the_model_is_told_of_none(serve: Serve) -> None:
    served = await serve(python("print(1)"), final("I have no tools."), tools="python")
    response = check(await served.stream(input="x"))
    assert response["output"][0]["type"] == "mcp_call"
    assert response["output"][0]["status"] == "failed", "what was not offered does not run"
    assert "python" not in seen(served).split("<|start|>user")[0]


async def test_a_server_of_the_operator(serve: Serve) -> None:
    served = await serve(
        call("plain__echo", text="hi") , call("plain__big", size=3), final("done"),
        tools="plain", mcp=(PLAIN,),
    )  # fmt: skip
    tool = {"type": "mcp", "server_label": "plain", "allowed_tools": ["echo"]}
    response = check(await served.stream(input="x", tools=[tool]))
    listed, echo, big, message = response["output"]
    assert [one["name"] for one in listed["tools"]] == ["echo"]
    assert echo["output"] == "hi" and echo["status"] == "completed"
    assert big["status"] == "failed", "only what allowed_tools names"
    assert message["content"][0]["text"] == "done"
    read_only = {"type": "mcp", "server_label": "plain", "allowed_tools": {"read_only": True}}
    response = check(await served.stream(input="x", tools=[read_only]))
    assert [one["name"] for one in response["output"][0]["tools"]] == [
        "echo",
        "meet",
        "list_resources",
        "read_resource",
    ]


async def test_a_resent_call_of_ours_is_history(serve: Serve) -> None:
    served = await serve(thought("Compute.") + python("print(6*7)"), final("42"), tools="python")
    first = check(await served.stream(input="6*7?", tools=[CODE]))
    served.runtime.engine.spoken = []  # type: ignore[attr-defined]
    items = [{"role": "user", "content": "6*7?"}, *first["output"], *USER]
    check(await served.stream(input=items, tools=[CODE]))
    last_user = seen(served).index("<|start|>user<|message|>y")
    before = seen(served)[:last_user]
    assert "to=python code<|message|>print(6*7)<|call|>" in before
    assert "<|start|>python to=assistant<|channel|>analysis<|message|>42" in before


async def test_tool_choice_none_and_allowed_tools(serve: Serve) -> None:
    served = await serve(HELLO)
    time_ = {**WEATHER, "name": "get_time"}
    check(await served.stream(input="x", tools=[WEATHER, time_], tool_choice="none"))
    assert "get_weather" not in seen(served)
    choice = {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "get_time"}],
    }
    response = check(await served.stream(input="x", tools=[WEATHER, time_], tool_choice=choice))
    assert "get_time" in seen(served) and "get_weather" not in seen(served)
    assert response["tool_choice"] == choice and len(response["tools"]) == 2


async def test_a_search_that_is_not_there_is_not_offered(serve: Serve) -> None:
    served = await serve(HELLO)
    search = {"type": "web_search", "external_web_access": False}
    response = check(await served.stream(input="x", tools=[WEATHER, search]))
    assert response["tools"] == [WEATHER, search]
    assert "get_weather" in seen(served) and "search" not in seen(served)


async def test_a_tool_that_nobody_here_has_is_left_out(serve: Serve) -> None:
    served = await serve(HELLO)
    offered = [WEATHER, {"type": "tool_search", "execution": "client"}, {"type": "time_travel"}]
    response = check(await served.stream(input="x", tools=offered))
    assert response["tools"] == [WEATHER], "what the model is told of"
    assert "get_weather" in seen(served) and "search" not in seen(served)
    assert "no tool of type 'tool_search'" in served.runtime.where.log.read_text()
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": offered[1:]}
    check(await served.stream(input="x", tools=offered, tool_choice=allowed))
    assert "get_weather" not in seen(served)
    for forced in ({"type": "tool_search"}, {**allowed, "mode": "required"}):
        refused = await served.post({"input": "x", "tools": offered, "tool_choice": forced})
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "tool_choice"
    alone = await served.post({"input": "x", "tools": offered[1:], "tool_choice": "required"})
    assert alone.json()["error"]["param"] == "tool_choice"


async def test_secrets_of_a_tool_are_nowhere(serve: Serve) -> None:
    served = await serve(HELLO, tools="python", log_level="debug")
    tool = {
        **CODE,
        "headers": {"x-secret": "SESAME"},
        "authorization": "SESAME",
        "server_url": "https://user:SESAME@example.com/SESAME?key=SESAME",
    }
    answer = await served.post({"input": "x", "tools": [tool], "stream": True})
    body = await served.post({"input": "x", "tools": [{**tool, "headers": "SESAME"}]})
    assert answer.status_code == body.status_code == 200
    refused = await served.post({"input": "x", "tools": [tool], "previous_response_id": "resp_no"})
    assert refused.status_code == 400
    assert "SESAME" not in answer.text + body.text + refused.text
    assert json.loads(body.text)["tools"][0]["server_url"] == "https://example.com"
    assert "SESAME" not in served.runtime.where.log.read_text()
    assert "SESAME" not in repr([turn.log.events for turn in served.turns])


async def test_the_operators_limits_hold(serve: Serve) -> None:
    served = await serve(
        thought("a") + python("print(1)"), final("done"), tools="python", max_tool_calls=0
    )
    response = check(await served.stream(input="x", tools=[CODE], max_tool_calls=5))
    assert response["max_tool_calls"] == 0
    run = response["output"][2]
    assert run["status"] == "failed" and "limit" in run["error"]["message"]
    assert plain(response["output"][3])["content"][0]["text"] == "done"
