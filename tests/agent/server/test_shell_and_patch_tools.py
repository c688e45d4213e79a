"""OpenAI's tools ``shell`` and ``apply_patch``: the client runs them, or the built-in ones do."""

from typing import Any

import pytest

from tests.support.endpoint import Serve, api_error, engine_markup
from tests.support.invariants import check
from tests.support.scripts import call, final, raw_call

LOCAL = {"type": "shell", "environment": {"type": "local"}}
PATCH = {"type": "apply_patch"}
LS = call("shell", commands=["ls", "cat 'a b'"], timeout_ms=1000)
UPDATE = {"type": "update_file", "path": "a.py", "diff": "@@\n-x = 1\n+x = 2\n"}
USER = {"role": "user", "content": "x"}


async def test_shell_that_the_client_runs(serve: Serve) -> None:
    from openai.types.responses import ResponseFunctionShellToolCall

    served = await serve(LS, final("Two files."))
    events = await served.stream(input=[USER], tools=[LOCAL])
    response = check(events)
    (item,) = response["output"]
    ResponseFunctionShellToolCall.model_validate(item, strict=True)
    assert (item["type"], item["status"]) == ("shell_call", "completed")
    assert item["action"] == {"commands": ["ls", "cat 'a b'"], "timeout_ms": 1000}
    assert item["environment"] == {"type": "local"}
    assert response["tools"] == [LOCAL]
    commands = [e for e in events if e["type"].startswith("response.shell_call_command.")]
    assert [(e["type"].rpartition(".")[2], e["command_index"]) for e in commands] == [
        (kind, index) for index in (0, 1) for kind in ("added", "delta", "done")
    ]
    assert (commands[1]["delta"], commands[5]["command"]) == ("ls", "cat 'a b'")
    assert "type shell = (_: {\n" in engine_markup(served)
    printed = {"stdout": "a\nb", "stderr": "", "outcome": {"type": "exit", "exit_code": 3}}
    output = {"type": "shell_call_output", "call_id": item["call_id"], "output": [printed]}
    before = engine_markup(served)
    for history in (
        {"previous_response_id": response["id"], "input": [output]},
        {"input": [USER, item, output]},
    ):
        served.turns.clear()
        check(await served.stream(tools=[LOCAL], **history))
        assert engine_markup(served).startswith(before)
        assert "functions.shell to=assistant" in engine_markup(served)
        assert "a\nb\nExit code: 3" in engine_markup(served)


async def test_patch_that_the_client_applies(serve: Serve) -> None:
    from openai.types.responses import ResponseApplyPatchToolCall

    served = await serve(call("apply_patch", **UPDATE), final("Done."))
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [PATCH]}
    events = await served.stream(input=[USER], tools=[LOCAL, PATCH], tool_choice=choice)
    response = check(events)
    (item,) = response["output"]
    ResponseApplyPatchToolCall.model_validate(item, strict=True)
    assert (item["type"], item["status"]) == ("apply_patch_call", "completed")
    assert item["operation"] == UPDATE
    assert "type shell" not in engine_markup(served), "tool_choice names the other one"
    output = {"type": "apply_patch_call_output", "call_id": item["call_id"], "status": "failed"}
    output["output"] = "no such file"
    check(await served.stream(input=[USER, item, output], tools=[PATCH]))
    assert "failed\nno such file" in engine_markup(served)


async def test_client_s_call_that_is_cut_off_is_incomplete(serve: Serve) -> None:
    served = await serve(raw_call("shell", '{"commands": ["rm -r /tmp/x'))
    response = check(await served.stream(input="x", tools=[LOCAL], parallel_tool_calls=False))
    shells = [item for item in response["output"] if item["type"] == "shell_call"]
    assert [item["status"] for item in shells] == ["incomplete"] * len(shells)
    assert shells, "the client sees the call that was cut off"


async def test_skills_of_the_client_are_described(serve: Serve) -> None:
    served = await serve(final("ok"))
    skill = {"name": "pdf", "description": "Fills forms.", "path": "/skills/pdf"}
    tool = {"type": "shell", "environment": {"type": "local", "skills": [skill]}}
    check(await served.stream(input="x", tools=[tool]))
    assert "- pdf (/skills/pdf): Fills forms." in engine_markup(served)


async def test_shell_and_patch_that_are_exposed_run_here(serve: Serve) -> None:
    exec_ls = raw_call("container.exec", '{"cmd": ["bash", "-lc", "echo $((6 * 7))"]}')
    served = await serve(exec_ls, final("ok"), tools="shell,files", approve="all")
    for environment in (None, {"type": "container_auto"}):
        tool: dict[str, Any] = {"type": "shell", "environment": environment}
        response = check(await served.stream(input="x", tools=[tool, PATCH]))
        item = response["output"][0]
        assert (item["type"], item["server_label"]) == ("mcp_call", "shell")
        assert "42" in item["output"]
        choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "shell"}, PATCH]}
        check(await served.stream(input="x", tools=[tool, PATCH], tool_choice=choice))
    assert "files__apply_patch" in engine_markup(served)
    check(await served.stream(input="x", tools=[LOCAL]))
    assert "type shell = " in engine_markup(served)
    assert "container" not in engine_markup(served).partition("<|start|>user")[0]


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"type": "shell", "environment": {"type": "container_auto"}}, "tools[0].environment"),
        ({"type": "shell", "environment": {"type": "local", "memory": "1g"}},
         "tools[0].environment.memory"),
        ({"type": "shell", "environment": "local"}, "tools[0].environment"),
        ({**LOCAL, "allowed_callers": ["programmatic"]}, "tools[0].allowed_callers"),
        ({**PATCH, "allowed_callers": ["programmatic"]}, "tools[0].allowed_callers"),
    ],
)  # fmt: skip
async def test_options_that_nothing_does_are_refused(
    serve: Serve, tool: dict[str, Any], param: str
) -> None:
    served = await serve(final("ok"))
    error = api_error(await served.post({"input": "x", "tools": [tool]}), 400)
    assert error["param"] == param
