"""Tools: the client's own functions there and back, and the operator's servers."""

import json
import os
import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from agent.turn.decoder import CALL_HEDGE
from tests.support.endpoint import Serve, api_error, comparable, engine_markup
from tests.support.invariants import check
from tests.support.requests import CODE_INTERPRETER, SEED_REQUEST, plain_option
from tests.support.scripts import HELLO, WEATHER, call, final, python, raw_call, thought
from tools.mcp.host import Host

ASK = thought("I need the weather.") + call("get_weather", place="Oslo")
ANSWER = thought("It is cold.") + final("Cold.")


async def test_function_call_ends_response(serve: Serve) -> None:
    served = await serve(ASK, ANSWER)
    response = check(await served.stream(input="Weather in Oslo?", tools=[WEATHER]))
    assert response["status"] == "completed"
    assert response["tools"] == [WEATHER]
    reasoning, item = response["output"]
    assert (reasoning["type"], item["type"]) == ("reasoning", "function_call")
    assert item["name"] == "get_weather" and json.loads(item["arguments"]) == {"place": "Oslo"}
    assert item["status"] == "completed" and item["call_id"].startswith("call_")


async def test_function_output_with_previous_response(serve: Serve) -> None:
    served = await serve(ASK, ANSWER)
    client = served.client()
    first = await client.responses.create(model="default", input="Oslo?", tools=[WEATHER])
    first_prompt = engine_markup(served)
    result = {"type": "function_call_output", "call_id": first.output[1].call_id, "output": "-3 °C"}
    second = await client.responses.create(
        model="default", previous_response_id=first.id, input=[result], tools=[WEATHER]
    )
    assert second.output_text == "Cold." and second.previous_response_id == first.id
    # The model's own words of before are what it wrote, to the token, the reasoning too.
    assert engine_markup(served).startswith(first_prompt)
    rest = engine_markup(served).removeprefix(first_prompt)
    assert rest.startswith("<|start|>functions.get_weather to=assistant<|channel|>commentary")
    assert "-3 °C" in rest
    assert second.usage and second.usage.input_tokens_details.cached_tokens > 100


async def test_function_output_with_resent_items(serve: Serve) -> None:
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
    markup = engine_markup(served)
    assert "<|channel|>analysis<|message|>I need the weather.<|end|>" in markup
    assert (
        'to=functions.get_weather <|constrain|>json<|message|>{"place": "Oslo"}<|call|>' in markup
    )
    assert "<|message|>-3\n°C<|end|>" in markup


@pytest.mark.parametrize("resent", [False, True])
async def test_call_without_output_gets_error_result(serve: Serve, resent: bool) -> None:
    """Of two calls the client answers the second only, and goes on."""
    served = await serve(ASK, ANSWER)
    first = check(await served.stream(input="Oslo?", tools=[WEATHER]))
    other = {"type": "function_call", "call_id": "c2", "name": "get_weather", "arguments": "{}"}
    rest = [other, {"type": "function_call_output", "call_id": "c2", "output": "warm"}, *NEXT_USER]
    body: dict[str, Any] = {"input": rest, "previous_response_id": first["id"]}
    if resent:
        body = {"input": [{"role": "user", "content": "Oslo?"}, *first["output"], *rest]}
    check(await served.stream(tools=[WEATHER], **body))
    returned = "<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>"
    after = engine_markup(served).partition('{"place": "Oslo"}<|call|>')[2]
    assert after.startswith(f"{returned}Error: the call was not run: there is no result<|end|>")
    assert f"{{}}<|call|>{returned}warm<|end|>" in after and after.count("Error:") == 1


def output_of(call_id: str, text: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


RETURNED = "<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>"


@pytest.mark.parametrize("model", [None, "qwen3-4b"])
async def test_late_output_takes_the_place_of_the_missing_one(
    serve: Serve, model: str | None
) -> None:
    """Of two calls of a function, the second one's output comes a request later, then the first's."""
    if model is not None:
        served = await serve("ok<|im_end|>", model=model)
    else:
        served = await serve(final("ok"))
    calls = [
        {"type": "function_call", "call_id": f"c{n}", "name": "get_weather", "arguments": f"[{n}]"}
        for n in range(2)
    ]
    body: dict[str, Any] = {"input": [*calls, *NEXT_USER]}
    response = first = check(await served.stream(tools=[WEATHER], **body))
    for call_id, text in (("c1", "late-one"), ("c0", "late-zero")):
        response = check(
            await served.stream(
                input=[output_of(call_id, text), *NEXT_USER],
                previous_response_id=response["id"],
                tools=[WEATHER],
            )
        )
    turn = served.turns[-1]
    prompt = b"".join(map(turn.format.token_bytes, turn.conversation.ids())).decode()
    assert prompt.count("late-one") == prompt.count("late-zero") == 1
    if model is None:
        assert "there is no result" not in prompt
        assert f"[0]<|call|>{RETURNED}late-zero<|end|>" in prompt
        assert f"[1]<|call|>{RETURNED}late-one<|end|>" in prompt
    api_error(
        await served.post(
            {"input": [output_of("c0", "x")], "previous_response_id": response["id"]}
        ),
        400,
    )
    check(await served.stream(input=NEXT_USER, previous_response_id=first["id"], tools=[WEATHER]))
    again = served.turns[-1].conversation
    prompt = b"".join(map(turn.format.token_bytes, again.ids())).decode()
    assert prompt.count("there is no result") == 2, "another continuation reads what it read"


async def test_late_output_takes_its_place_in_a_conversation(serve: Serve) -> None:
    served = await serve(ASK, final("ok"))
    client = served.client()
    conversation = (await client.conversations.create()).id
    body: dict[str, Any] = {"conversation": conversation, "tools": [WEATHER]}
    first = check(await served.stream(input="Oslo?", **body))
    check(await served.stream(input=NEXT_USER, **body))
    assert "there is no result" in engine_markup(served)
    late = output_of(first["output"][-1]["call_id"], "late")
    await client.conversations.items.create(conversation, items=[late])  # type: ignore[list-item]
    check(await served.stream(input=NEXT_USER, **body))
    markup = engine_markup(served)
    assert "there is no result" not in markup
    assert f"<|call|>{RETURNED}late<|end|>" in markup and markup.count("late") == 1


async def test_resent_hedge_is_not_read(serve: Serve) -> None:
    """The program said it beside the call; the model has not written it."""
    served = await serve(*[ANSWER] * 2)
    called = {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "-3"}
    hedge = {"role": "assistant", "phase": "commentary", "content": CALL_HEDGE}
    prompts = []
    for between in ([], [hedge]):
        items = [{"role": "user", "content": "Oslo?"}, called, *between, result]
        check(await served.stream(input=items, tools=[WEATHER]))
        prompts.append(engine_markup(served))
    assert prompts[0] == prompts[1]


async def test_calls_without_output_are_closed_in_place(serve: Serve) -> None:
    served = await serve(ASK, final("ok"))
    first = check(await served.stream(input="Oslo?", tools=[WEATHER]))
    calls = [
        {"type": "function_call", "call_id": f"c{n}", "name": "get_weather", "arguments": f"[{n}]"}
        for n in range(3)
    ]
    body = {"input": [*calls, *NEXT_USER], "previous_response_id": first["id"]}
    check(await served.stream(tools=[WEATHER], **body))
    _, *after = engine_markup(served).split(
        "Error: the call was not run: there is no result<|end|>"
    )
    assert len(after) == 4 and [f"[{n}]<|call|>" in after[n] for n in range(3)] == [True] * 3


async def test_reasoning_dropped_after_answer(serve: Serve) -> None:
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
    continued_prompt = engine_markup(served)
    items = [
        {"role": "user", "content": "Oslo?"},
        *(item.model_dump(exclude_none=True) for item in first.output),
        result,
        *(item.model_dump(exclude_none=True) for item in second.output),
        {"role": "user", "content": "bye"},
    ]
    served.runtime.loaded.engine.answered_ids = []  # type: ignore[attr-defined]
    await client.responses.create(model="default", input=items, tools=[WEATHER])
    for markup in (continued_prompt, engine_markup(served)):
        assert "I need the weather." not in markup and "It is cold." not in markup
        assert '{"place": "Oslo"}<|call|>' in markup
        assert "<|channel|>final<|message|>Cold.<|end|>" in markup
    assert "bye" in continued_prompt


async def test_function_namespace_round_trip(serve: Serve) -> None:
    served = await serve(call("mcp__demo__add", a=1, b=2), final("3"))
    add = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}}
    group = {"type": "namespace", "name": "mcp__demo", "description": "Demo.", "tools": [add]}
    response = check(await served.stream(input="1+2?", tools=[group]))
    (item,) = response["output"]
    assert (item["namespace"], item["name"]) == ("mcp__demo", "add")
    result = {"type": "function_call_output", "call_id": item["call_id"], "output": "3"}
    resent = [{"role": "user", "content": "1+2?"}, item, result]
    check(await served.stream(input=resent, tools=[group]))
    assert "functions.mcp__demo__add to=assistant" in engine_markup(served)


async def test_seed_request_items_and_messages(serve: Serve) -> None:
    served = await serve(
        thought("Compute.") + python("print(123*456)"), final("56088"), tools="python"
    )
    response = check(await served.stream(**SEED_REQUEST))
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
        "content": [{"type": "text", "text": SEED_REQUEST["input"]}],
    }
    reasoning, code, result, answer = response["output_messages"]
    assert (reasoning["channel"], reasoning["content"][0]["text"]) == ("analysis", "Compute.")
    assert (code["recipient"], code["content_type"]) == ("python", "code")
    assert (result["role"], result["name"], result["recipient"]) == ("tool", "python", "assistant")
    assert result["content"][0]["text"].strip() == "56088"
    assert (answer["role"], answer["channel"]) == ("assistant", "final")
    body = await served.client().responses.create(
        model="default",
        input="again",
        tools=[{"type": "mcp", "server_label": "code_interpreter", "server_url": "IGNORED"}],
    )
    assert body.output_text == "56088"


async def test_finished_turns_prompt_leaves_out_python_calls(serve: Serve) -> None:
    """As in openai-harmony: what is in the channel of reasoning, once the turn has its answer."""
    run = thought("Compute.") + python("print(6*7)")
    served = await serve(
        run, ASK, ANSWER, final("Yes."), final("Yes."), final("No."), tools="python"
    )
    tools = [CODE_INTERPRETER, WEATHER]
    first = check(await served.stream(input="6*7?", tools=tools))
    assert "to=python code<|message|>print(6*7)" in engine_markup(served), "no answer yet"
    output = {
        "type": "function_call_output",
        "call_id": first["output"][-1]["call_id"],
        "output": "-3",
    }
    more = {"tools": tools, "enable_response_messages": True}
    second = check(await served.stream(input=[output], previous_response_id=first["id"], **more))
    assert "to=python code<|message|>print(6*7)" in engine_markup(served), "no answer yet"
    third = check(await served.stream(input="So?", previous_response_id=second["id"], **more))
    continued = engine_markup(served)
    resent = [{"role": "user", "content": "6*7?"}, *first["output"], output, *second["output"]]
    resent.append({"role": "user", "content": "So?"})
    check(await served.stream(input=resent, store=False, **more))
    for markup in (continued, engine_markup(served)):
        assert "to=python" not in markup and "python to=assistant" not in markup
        assert '{"place": "Oslo"}<|call|>' in markup and "-3<|end|>" in markup
        assert "final<|message|>Cold.<|end|>" in markup
    assert "print" not in json.dumps(third["input_messages"])
    again = check(await served.stream(input=[output], previous_response_id=first["id"], **more))
    assert again["status"] == "completed"
    assert "to=python code<|message|>print(6*7)" in engine_markup(served), "no answer there"


@pytest.mark.long
@pytest.mark.parametrize("name", ["python", "browser", "container"])
async def test_function_named_like_own_tool_is_function(serve: Serve, name: str) -> None:
    function = {**WEATHER, "name": name}
    served = await serve(
        call(name, place="Oslo"), final("Cold."), python("print(6*7)"), final("42"), tools="python"
    )
    tools = [function, {"type": "code_interpreter", "container": {"type": "auto"}}]
    first = check(await served.stream(input="x", tools=tools))
    assert f"type {name} = (_: {{" in engine_markup(served)
    assert [item["type"] for item in first["output"]] == ["function_call"]
    output = {
        "type": "function_call_output",
        "call_id": first["output"][-1]["call_id"],
        "output": "-3",
    }
    resent = [{"role": "user", "content": "x"}, *first["output"], output]
    check(await served.stream(input=resent, tools=tools, store=False))
    prompt = engine_markup(served)
    assert f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>" in prompt
    assert f"<|start|>functions.{name} to=assistant<|channel|>commentary<|message|>-3" in prompt
    own = check(await served.stream(input="x", tools=tools))
    assert [item["type"] for item in own["output"]] == ["code_interpreter_call", "message"]


@pytest.mark.long
async def test_function_without_parameters_takes_none(serve: Serve) -> None:
    served = await serve(model="tiny")
    ping = {"type": "function", "name": "ping", "description": "Pings."}
    response = check(
        await served.stream(
            input="ping",
            tools=[ping],
            tool_choice="required",
            temperature=0,
            enable_response_messages=True,
        )
    )
    assert response["output"][-1]["arguments"] in ("{}", "{ }")
    developer = response["input_messages"][1]["content"][0]["text"]
    assert "// Pings.\ntype ping = () => any;" in developer


async def test_mcp_tools_are_listed_once(serve: Serve) -> None:
    served = await serve(HELLO, tools="python")
    first = check(await served.stream(input="x", tools=[CODE_INTERPRETER]))
    assert first["output"][0]["type"] == "mcp_list_tools"
    followed = check(
        await served.stream(input="y", tools=[CODE_INTERPRETER], previous_response_id=first["id"])
    )
    resent = check(
        await served.stream(input=[*first["output"], *NEXT_USER], tools=[CODE_INTERPRETER])
    )
    for response in (followed, resent):
        assert [item["type"] for item in response["output"]] == ["reasoning", "message"]


@pytest.mark.long
async def test_python_variables_belong_to_conversation(serve: Serve) -> None:
    turns = (python("x = 41"), final("a"), python("x + 1"), final("b"), python("x + 1"), final("c"))
    served = await serve(*turns, tools="python")
    first = check(await served.stream(input="x", tools=[CODE_INTERPRETER]))
    second = check(
        await served.stream(input="y", tools=[CODE_INTERPRETER], previous_response_id=first["id"])
    )
    (ran,) = [item for item in second["output"] if item["type"] == "mcp_call"]
    assert ran["output"] == "42"
    other = check(await served.stream(input="x", tools=[CODE_INTERPRETER]))
    (ran,) = [item for item in other["output"] if item["type"] == "mcp_call"]
    assert "NameError" in ran["error"]["content"][0]["text"]


NEXT_USER = [{"role": "user", "content": "y"}]


async def test_no_tools_in_request_none_declared(serve: Serve) -> None:
    served = await serve(python("print(1)"), final("I have no tools."), tools="python")
    response = check(await served.stream(input="x"))
    assert [item["type"] for item in response["output"]] == ["message"], "nothing is invented"
    assert "python" not in engine_markup(served).split("<|start|>user")[0]


async def test_operator_server_allowed_tools(serve: Serve) -> None:
    served = await serve(
        call("plain__echo", text="hi") , call("plain__big", size=3), final("done"),
        tools="plain", mcp=(plain_option(),),
    )  # fmt: skip
    tool = {"type": "mcp", "server_label": "plain", "allowed_tools": ["echo"]}
    response = check(await served.stream(input="x", tools=[tool]))
    listed, echo, big, message = response["output"]
    assert [tool_entry["name"] for tool_entry in listed["tools"]] == ["echo"]
    assert echo["output"] == "hi" and echo["status"] == "completed"
    assert big["status"] == "failed", "only what allowed_tools names"
    assert message["content"][0]["text"] == "done"
    read_only = {"type": "mcp", "server_label": "plain", "allowed_tools": {"read_only": True}}
    response = check(await served.stream(input="x", tools=[read_only]))
    assert [tool_entry["name"] for tool_entry in response["output"][0]["tools"]] == [
        "echo",
        "meet",
        "list_resources",
        "read_resource",
    ]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("recipient", "label", "name"),
    [
        ("functions.notes__add", "notes", "add"),
        ("functions.multi_tool_use.parallel", "multi_tool_use", "parallel"),
        ("functions.add", "plain", "add"),
        ("functions.functions.nope", "plain", "nope"),
        ("functions.plain__gone", "plain", "gone"),
    ],
)
async def test_call_of_unknown_tool_names_server_as_written(
    serve: Serve, recipient: str, label: str, name: str
) -> None:
    served = await serve(
        raw_call(recipient, "{}"), final("No."), tools="plain", mcp=(plain_option(),)
    )
    tool = {"type": "mcp", "server_label": "plain", "server_url": "IGNORED"}
    response = check(await served.stream(input="x", tools=[tool]))
    _, run, _ = response["output"]
    assert (run["status"], run["server_label"], run["name"]) == ("failed", label, name)


async def test_request_waits_for_named_server(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the prompt's mention of a server does, however long its start takes."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    gate = os.open(fifo, os.O_RDWR)
    wait_started = Host.wait_started

    async def let_it_start(host: Host, names: Collection[str] | None = None) -> None:
        assert names is not None and "plain" in names
        os.write(gate, b"\n")
        await wait_started(host, names)

    start = f"read line < {fifo}; exec {plain_option().partition('=')[2]}"
    served = await serve(
        call("plain__echo", text="hi"),
        final("Hi."),
        tools="plain",
        mcp=(f"plain=sh -c {shlex.quote(start)}",),
    )
    served.runtime.server_wait_seconds = 0
    monkeypatch.setattr(Host, "wait_started", let_it_start)
    tool = {"type": "mcp", "server_label": "plain", "server_url": "IGNORED"}
    response = check(await served.stream(input="x", tools=[tool]))
    os.close(gate)
    listed, run, _ = response["output"]
    assert "echo" in [tool["name"] for tool in listed["tools"]] and not listed.get("error")
    assert run["output"] == "hi"


async def test_resent_server_call_is_in_prompt(serve: Serve) -> None:
    served = await serve(
        call("plain__echo", text="hi"), final("Hi."), tools="plain", mcp=(plain_option(),)
    )
    tools = [{"type": "mcp", "server_label": "plain"}]
    first = check(await served.stream(input="x", tools=tools))
    served.runtime.loaded.engine.answered_ids = []  # type: ignore[attr-defined]
    items = [{"role": "user", "content": "x"}, *first["output"], *NEXT_USER]
    check(await served.stream(input=items, tools=tools))
    last_user = engine_markup(served).index("<|start|>user<|message|>y")
    before = engine_markup(served)[:last_user]
    assert 'to=functions.plain__echo <|constrain|>json<|message|>{"text": "hi"}<|call|>' in before
    assert "functions.plain__echo to=assistant<|channel|>commentary<|message|>hi" in before


async def test_tool_choice_none_and_allowed_tools_prompt(serve: Serve) -> None:
    served = await serve(HELLO)
    time_ = {**WEATHER, "name": "get_time"}
    check(await served.stream(input="x", tools=[WEATHER, time_], tool_choice="none"))
    assert "get_weather" not in engine_markup(served)
    choice = {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "get_time"}],
    }
    response = check(await served.stream(input="x", tools=[WEATHER, time_], tool_choice=choice))
    assert "get_time" in engine_markup(served) and "get_weather" not in engine_markup(served)
    assert response["tool_choice"] == choice and len(response["tools"]) == 2


async def test_web_search_without_browser_is_not_declared(serve: Serve) -> None:
    served = await serve(HELLO)
    search = {"type": "web_search", "external_web_access": False}
    response = check(await served.stream(input="x", tools=[WEATHER, search]))
    assert response["tools"] == [WEATHER, search]
    assert "get_weather" in engine_markup(served) and "search" not in engine_markup(served)


async def test_unknown_tool_type_is_left_out(serve: Serve) -> None:
    served = await serve(HELLO)
    offered = [WEATHER, {"type": "tool_search"}]
    answer = await served.post({"input": "x", "tools": offered})
    assert answer.headers["agent-ignored"] == "tools[1]"
    assert answer.json()["tools"] == [WEATHER], "what the model is told of"
    assert "get_weather" in engine_markup(served) and "search" not in engine_markup(served)
    assert "no tool of type 'tool_search'" in served.runtime.paths.log_file.read_text()
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": offered[1:]}
    check(await served.stream(input="x", tools=offered, tool_choice=allowed))
    assert "get_weather" not in engine_markup(served)
    for forced in ({"type": "tool_search"}, {**allowed, "mode": "required"}):
        refused = await served.post({"input": "x", "tools": offered, "tool_choice": forced})
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "tool_choice"
    alone = await served.post({"input": "x", "tools": offered[1:], "tool_choice": "required"})
    assert alone.json()["error"]["param"] == "tool_choice"


async def test_tool_secrets_appear_nowhere(serve: Serve) -> None:
    served = await serve(HELLO, tools="python", log_level="debug")
    tool = {
        **CODE_INTERPRETER,
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
    assert "SESAME" not in served.runtime.paths.log_file.read_text()
    assert "SESAME" not in repr([turn.log.events for turn in served.turns])


async def test_operator_limits_cannot_be_raised(serve: Serve) -> None:
    served = await serve(
        thought("a") + python("print(1)"), final("done"), tools="python", max_tool_calls=0
    )
    response = check(await served.stream(input="x", tools=[CODE_INTERPRETER], max_tool_calls=5))
    assert response["max_tool_calls"] == 0
    assert [item["type"] for item in response["output"]] == [
        "mcp_list_tools",
        "reasoning",
        "message",
    ]
    assert comparable(response["output"][2])["content"][0]["text"] == "done"
    assert "the limit of tool calls for this answer is used up" in engine_markup(served)
