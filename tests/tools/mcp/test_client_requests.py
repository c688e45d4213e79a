"""What servers ask back, change and offer beside tools, in both eras of the protocol."""

from __future__ import annotations

import asyncio
import importlib.metadata
from pathlib import Path

import pytest

from tests.support.hosts import Hosting, server, tool, until
from tools.builtin.base import conversation
from tools.mcp.call_scope import MAX_QUESTIONS, Running
from tools.mcp.client_requests import Caller, Elicitation, Elicited, Sampled, Sampling
from tools.mcp.host import Host
from tools.results import Results
from tools.types import ToolResult


@pytest.fixture(params=["auto", "legacy"])
async def plain(
    request: pytest.FixtureRequest,
    hosting: Hosting,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Host:
    if request.param == "legacy":
        monkeypatch.setattr("tools.mcp.server._ways", lambda config: ("legacy",))
    host = hosting(server("plain"), results=tmp_path / "results", roots=[tmp_path])
    await host.start()
    await host.settled()
    assert (host.servers()[0].protocol < "2026") == (request.param == "legacy")
    return host


async def test_a_question_goes_to_whoever_made_the_call(plain: Host) -> None:
    asked: list[Elicitation] = []

    async def answer(question: Elicitation) -> Elicited:
        asked.append(question)
        return Elicited("accept", {"name": "Ada"})

    said = await plain.call(tool(plain, "plain__ask"), {}, on_elicitation=answer)
    assert said.text == "accept Ada"
    assert (asked[0].server, asked[0].message, asked[0].url) == ("plain", "Who are you?", None)
    assert asked[0].schema is not None and "name" in asked[0].schema["properties"]


async def test_a_server_is_told_who_calls(plain: Host) -> None:
    said = await plain.call(tool(plain, "plain__whom"), {})
    assert said.text == f"agent {importlib.metadata.version('agent-local')}"


async def test_a_question_that_nobody_answers_is_declined_and_the_model_told(plain: Host) -> None:
    said = await plain.call(tool(plain, "plain__ask"), {})
    assert said.text.startswith("decline -\n[The server asked the user: 'Who are you?'; nobody")


@pytest.mark.parametrize("other", ["a", "b"])
async def test_a_question_never_gets_into_another_conversation(plain: Host, other: str) -> None:
    async def answer(question: Elicitation) -> Elicited:
        return Elicited("accept", {"name": "Ada"})

    async def call(name: str, whose: str) -> str:
        conversation.set(whose)
        result = await plain.call(tool(plain, f"plain__{name}"), {}, on_elicitation=answer)
        return result.text

    waiting = asyncio.create_task(call("meet", "a"))
    connection = plain._servers["plain"]._connection
    assert connection is not None
    await until(lambda: connection._running)
    said = await asyncio.create_task(call("ask", other))
    known = other == "a" or plain.servers()[0].protocol > "2026"
    assert said == ("accept Ada" if known else "decline -")
    waiting.cancel()


@pytest.mark.slow
async def test_the_time_that_a_person_takes_does_not_count(hosting: Hosting) -> None:
    host = hosting(server("plain", tool_timeout_sec=1))
    await host.start()
    await host.settled()
    clock = asyncio.get_running_loop().time

    async def answer(question: Elicitation) -> Elicited:
        asked = clock()
        await until(lambda: clock() > asked + 1.1)
        return Elicited("accept", {"name": "Ada"})

    said = await host.call(tool(host, "plain__ask"), {}, on_elicitation=answer)
    assert said.text == "accept Ada"


async def test_a_question_is_closed_with_its_call(plain: Host) -> None:
    asked, closed = asyncio.Event(), asyncio.Event()

    async def answer(question: Elicitation) -> Elicited:
        asked.set()
        try:
            await asyncio.sleep(600)
        finally:
            closed.set()
        return Elicited("cancel")

    call = asyncio.create_task(plain.call(tool(plain, "plain__ask"), {}, on_elicitation=answer))
    await asked.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.wait_for(closed.wait(), 60)
    assert (await plain.call(tool(plain, "plain__echo"), {"text": "on"})).text == "on"


async def test_sampling_is_the_callers_to_allow(plain: Host) -> None:
    asked: list[Sampling] = []

    async def write(wanted: Sampling) -> Sampled:
        asked.append(wanted)
        return Sampled("An old silent pond", "tiny")

    said = await plain.call(tool(plain, "plain__write"), {}, on_sampling=write)
    assert said.text == "tiny: An old silent pond"
    assert asked[0].messages == (("user", "Write about frogs."),) and asked[0].max_tokens == 20
    refused = await plain.call(tool(plain, "plain__write"), {})
    assert refused.failure != "none" and "refused" in refused.text


async def test_roots_are_told(plain: Host, tmp_path: Path) -> None:
    assert (await plain.call(tool(plain, "plain__where"), {})).text == tmp_path.as_uri()


async def test_a_new_tool_is_there_without_a_restart(plain: Host) -> None:
    assert (await plain.call(tool(plain, "plain__grow"), {})).text == "grown"
    await until(lambda: any(one.name == "grown" for one in plain.tools()))
    assert (await plain.call(tool(plain, "plain__grown"), {})).text == "odd"


async def test_a_new_prompt_is_told(plain: Host) -> None:
    told = list[str]()
    plain.listen(told.append)
    assert (await plain.call(tool(plain, "plain__teach"), {})).text == "taught"
    await until(lambda: told)
    assert [one.name for one in await plain.prompts(told[0])] == ["greet", "taught"]
    told.clear()
    plain.reconnect("plain")
    await until(lambda: told)
    assert [one.name for one in await plain.prompts("plain")] == ["greet"]


async def test_a_server_without_tools_has_its_prompts(hosting: Hosting) -> None:
    host = hosting(server("prompts"))
    told = list[str]()
    host.listen(told.append)
    await host.start()
    await host.settled()
    (state,) = host.servers()
    assert (state.status, state.tools, told) == ("ready", [], ["prompts"])
    assert [one.name for one in await host.prompts("prompts")] == ["first"]
    await until(lambda: len(told) > 1)
    assert [one.name for one in await host.prompts("prompts")] == ["first", "second"]


async def test_resources_are_two_tools_and_prompts_can_be_read(plain: Host) -> None:
    listed = await plain.call(tool(plain, "plain__list_resources"), {})
    assert listed.text.splitlines()[0] == "note://one  (note, text/plain, The first note.)"
    assert "note://{name}/picture" in listed.text
    read = await plain.call(tool(plain, "plain__read_resource"), {"uri": "note://one"})
    assert read.text == "[resource note://one]\nremember the milk"
    picture = await plain.read_resource("plain", "note://ada/picture")
    assert picture.text.startswith("[resource note://ada/picture image/png, 3 B, kept in ")
    kept = Path(picture.text.rpartition("kept in ")[2].rstrip("]"))
    assert kept.read_bytes() == b"ada" and kept.suffix == ".png"
    missing = await plain.call(tool(plain, "plain__read_resource"), {"uri": "note://x/y"})
    assert missing.failure == "protocol" and "note://x/y" in missing.text
    assert (await plain.resources("plain"))[0].uri == "note://one"
    (prompt,) = await plain.prompts("plain")
    assert (prompt.name, prompt.arguments) == ("greet", (("name", True),))
    assert await plain.prompt("plain", "greet", {"name": "Ada"}) == [("user", "Say hello to Ada")]
    with pytest.raises(ValueError, match="the server nowhere is not known"):
        await plain.prompts("nowhere")


async def test_a_server_may_ask_a_few_times_only() -> None:
    asked: list[str] = []

    async def answer(question: Elicitation) -> Elicited:
        asked.append(question.message)
        return Elicited("decline")

    async with Running(Caller(on_elicitation=answer), None) as running:
        for number in range(3000):
            said = await running.elicit(Elicitation("x", f"{number} {'y' * 9999}"))
            assert said.action == "decline"
    assert len(asked) == len(running.notes) == MAX_QUESTIONS
    noted = Results(1000, None).noted(ToolResult("z" * 1000), running.notes)
    assert len(noted.text) <= 1000 and "declined" in noted.text
