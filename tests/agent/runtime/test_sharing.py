"""Runtimes of one person share a loaded engine, as two programs would."""

import asyncio
import fcntl
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from agent.config.paths import Paths
from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.engine.forced_tokens import SPEC_FIELD, ForcedTokens
from agent.engine.grammars import GrammarCompiler
from agent.engine.llama.engine import LlamaEngine
from agent.engine.placement.planner import PlacementRequest
from agent.engine.protocol import EngineError, Finished, Request, Sampling, Tokens, Waiting
from agent.engine.shared import wire
from agent.engine.shared.engine import SharedEngine
from agent.formats.harmony.format import HarmonyFormat
from agent.formats.protocol import FunctionTool
from agent.models.catalog import Model
from agent.models.loader import ModelLoader
from agent.runtime.runtime import Runtime
from agent.turn.loop import Turn
from agent.turn.options import TurnOptions
from agent.turn.token_choices import token_choices, token_logprobs
from tests.support.invariants import check
from tests.support.turns import read_events
from tests.support.waiting import HANG_SECONDS, wait_until
from tools.mcp.host import Host
from tools.policy.approvals import Policy

NewRuntime = Callable[..., Runtime]
GREEDY = Sampling(temperature=0)


@pytest.fixture
def model(tiny_gguf: Path, tmp_path: Path) -> Model:
    path = tmp_path / "own.gguf"
    path.symlink_to(tiny_gguf)
    return Model("own", path=path, placement_request=PlacementRequest(context=2048))


@pytest.fixture
async def new_runtime(model: Model, tmp_path: Path) -> AsyncIterator[NewRuntime]:
    paths = Paths(tmp_path / "config", tmp_path / "cache", tmp_path / "state")
    runtimes = []

    def new(**options: Any) -> Runtime:
        runtimes.append(Runtime(ModelLoader(model, paths), Host([]), Policy(), **options))
        return runtimes[-1]

    yield new
    for runtime in reversed(runtimes):
        await runtime.close()


async def generate(runtime: Runtime) -> list[Any]:
    request = Request([1, 2, 3], max_tokens=50, sampling=GREEDY)
    return [event async for event in runtime.generate(request)]


async def both(new: NewRuntime, **owners: Any) -> tuple[Runtime, Runtime]:
    """The runtime that has the model, and one that uses it."""
    owner, client = new(serves_engine=True, **owners), new(serves_engine=True)
    await owner.ready()
    await client.plan_placement()
    assert client.loaded is not None and isinstance(client.loaded.engine, SharedEngine)
    assert client.context_length == 2048
    return owner, client


@pytest.mark.long
async def test_owner_keeps_the_model_while_another_program_generates(
    new_runtime: NewRuntime, model: Model
) -> None:
    owner, client = await both(new_runtime, keep_alive=3.0)
    assert owner.loaded is not None

    generation = client.generate(Request([1, 2, 3], max_tokens=1900, sampling=GREEDY))
    async for event in generation:
        if isinstance(event, Tokens):
            await owner.unload()
            assert owner.loaded is not None and not owner.idle_timers.due_times
            with pytest.raises(EngineError, match="Another program of yours uses the model"):
                await owner.switch(model)
            break
    generation.cancel()
    await wait_until(lambda: owner.loaded is None)


async def test_client_takes_over_when_the_owner_unloads(new_runtime: NewRuntime) -> None:
    owner, client = await both(new_runtime)
    third = new_runtime()
    await third.ready()
    expected = await generate(client)
    await owner.unload()
    events = await generate(client)
    assert any(isinstance(event, Waiting) for event in events)
    first, wanted = (
        next(event.ids[0] for event in each if isinstance(event, Tokens))
        for each in (events, expected)
    )
    assert first == wanted
    assert isinstance(client.loaded and client.loaded.engine, SharedEngine)
    await generate(third)
    assert third.loaded is not None and isinstance(third.loaded.engine, SharedEngine)
    assert third.loaded.engine.own is None, "it uses the client's"


async def test_client_repeats_forced_tokens(new_runtime: NewRuntime) -> None:
    _, client = await both(new_runtime)
    forced = [700, 200007, 5, 199999]
    request = Request(
        [1],
        len(forced),
        sampling=GREEDY,
        logprobs=1,
        constraint=ForcedTokens(forced),
        constraint_spec=lambda: {SPEC_FIELD: forced},
    )
    logprobs = [
        one
        async for event in client.generate(request)
        if isinstance(event, Tokens)
        for one in event.logprobs or ()
    ]
    assert [one.token for one in logprobs] == forced


@pytest.mark.sampled(5)
@pytest.mark.parametrize("forced", [[700, 10**6], [700, -1], [700, 1.5], "7", 7])
async def test_forced_tokens_that_are_none_are_refused_by_the_owner(
    new_runtime: NewRuntime, forced: Any
) -> None:
    owner = new_runtime(serves_engine=True)
    await owner.ready()
    first = await generate(owner)
    assert owner.provider.loader.shared_socket is not None
    reader, writer = await asyncio.open_unix_connection(owner.provider.loader.shared_socket)
    request = Request([1], 2, logprobs=1, constraint_spec=lambda: {SPEC_FIELD: forced})
    await wire.send(writer, wire.request_message(request))
    assert await wire.receive(reader) == wire.ACCEPTED
    if isinstance(forced, list) and isinstance(forced[1], int):
        refusal = await wire.receive(reader)
        assert refusal["error"] and "not in the model's vocabulary" in refusal["text"]
    assert await reader.read() == b""
    writer.close()
    again = await generate(owner)
    assert again[-1].cached_tokens > first[-1].cached_tokens, "its cache is as it was"


async def test_client_sees_the_choices_that_the_owner_sees(new_runtime: NewRuntime) -> None:
    owner, client = await both(new_runtime)
    ids, sampling = [1, 2, 3, 2, 5, 3], Sampling(top_k=8, temperature=0.7, frequency_penalty=1.0)
    ours = await token_choices(owner, ids, 5, sampling, None, start=2)
    theirs = await token_choices(client, ids, 5, sampling, None, start=2)
    assert ours == theirs
    assert theirs.chosen.rank is not None and theirs.alternatives[0].probability is not None
    assert await token_logprobs(client, ids, 1, 6) == await token_logprobs(owner, ids, 1, 6)


class OtherProcessFormat(HarmonyFormat):
    """A format that has compiled nothing for the runtimes of the same process."""

    @cached_property
    def grammars(self) -> GrammarCompiler:  # type: ignore[override]
        """A compiler of its own."""
        return GrammarCompiler(super().grammars._token_bytes)


@pytest.mark.long
async def test_client_warns_of_schema_that_the_owner_enforces_in_part(
    new_runtime: NewRuntime,
) -> None:
    _, client = await both(new_runtime)
    form = client.loaded and client.loaded.format
    assert client.loaded is not None and isinstance(form, HarmonyFormat)
    client.loaded = replace(client.loaded, format=OtherProcessFormat(form.encoding))
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    functions = [
        FunctionTool("weather", "The weather.", schema | {"not": {"required": ["country"]}}),
        FunctionTool("time", "The time.", schema),
    ]
    options = TurnOptions(
        sampling=GREEDY, functions=tuple(functions), tool_choice="must", max_output_tokens=300
    )
    events = await read_events(
        Turn(client, Conversation("c"), [User("How is the weather in Oslo?")], options).start()
    )
    (call,) = (item for item in check(events)["output"] if item["type"] == "function_call")
    notices = [event["message"] for event in events if event["type"] == "agent.notice"]
    gaps = [message for message in notices if "cannot be enforced in full" in message]
    assert call["name"] == "weather" and len(gaps) == 1
    assert gaps[0].startswith("The JSON Schema of functions.weather")


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[LlamaEngine]:
    """The engines that are loaded from now on."""
    engines = []
    load = LlamaEngine.load

    async def counted(self: LlamaEngine, *args: Any) -> None:
        engines.append(self)
        await load(self, *args)

    monkeypatch.setattr(LlamaEngine, "load", counted)
    return engines


async def test_programs_that_start_together_load_the_model_once(
    new_runtime: NewRuntime, loads: list[LlamaEngine]
) -> None:
    first, second, run = (new_runtime(serves_engine=serves) for serves in (True, True, False))
    loading = asyncio.create_task(first.ready())
    await wait_until(lambda: bool(loads))
    await asyncio.gather(loading, second.ready(), run.ready())
    assert len(loads) == 1
    assert isinstance((await generate(run))[-1], Finished)


async def test_load_that_fails_lets_the_next_program_load(
    new_runtime: NewRuntime, loads: list[LlamaEngine]
) -> None:
    first, second = new_runtime(serves_engine=True), new_runtime(serves_engine=True)
    loading = asyncio.create_task(first.ready())
    await wait_until(lambda: bool(loads))
    waiting = asyncio.create_task(second.ready())
    loading.cancel()
    await waiting
    assert len(loads) == 2 and second.loaded is not None
    assert second.loaded.engine is loads[1]


HOLDER = """
import asyncio, sys
from pathlib import Path
from agent.engine.shared.engine import load_lock
async def hold():
    async with load_lock(Path(sys.argv[1]), True):
        print("held", flush=True)
        await asyncio.Event().wait()
asyncio.run(hold())
"""


@pytest.fixture
async def holder(new_runtime: NewRuntime) -> AsyncIterator[asyncio.subprocess.Process]:
    """Another program that is loading the model."""
    socket = new_runtime().provider.loader.shared_socket
    assert socket is not None
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, os.fspath(socket), stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout and await program.stdout.readline()
    yield program
    with suppress(ProcessLookupError):
        program.kill()
    await program.wait()


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The attempts to take a lock from now on."""
    modes, flock = [], fcntl.flock

    def counted(file: int, mode: int) -> None:
        modes.append(mode)
        flock(file, mode)

    monkeypatch.setattr(fcntl, "flock", counted)
    return modes


@pytest.mark.sampled(4)
@pytest.mark.parametrize("end", [signal.SIGSTOP, signal.SIGKILL])
@pytest.mark.parametrize("serves", [True, False])
async def test_load_of_a_program_that_was_stopped_is_not_waited_for(
    new_runtime: NewRuntime,
    loads: list[LlamaEngine],
    holder: asyncio.subprocess.Process,
    attempts: list[int],
    end: signal.Signals,
    serves: bool,
) -> None:
    runtime = new_runtime(serves_engine=serves)
    ready = asyncio.create_task(runtime.ready())
    await wait_until(lambda: len(attempts) > 2)
    assert not loads, "it waits"
    holder.send_signal(end)
    await asyncio.wait_for(ready, HANG_SECONDS)
    assert len(loads) == 1


@pytest.mark.usefixtures("holder")
async def test_load_that_waits_can_be_cancelled(
    new_runtime: NewRuntime, loads: list[LlamaEngine], attempts: list[int]
) -> None:
    runtime = new_runtime(serves_engine=True)
    ready = asyncio.create_task(runtime.ready())
    await wait_until(lambda: attempts)
    ready.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ready
    await runtime.unload()
    assert not loads


@pytest.mark.long
async def test_load_that_is_cancelled_as_it_is_shared_leaves_nothing(
    new_runtime: NewRuntime, loads: list[LlamaEngine]
) -> None:
    first, second = new_runtime(serves_engine=True), new_runtime(serves_engine=True)
    socket = first.provider.loader.shared_socket
    assert socket is not None
    loading = asyncio.create_task(first.ready())
    while not os.path.exists(socket):  # noqa: ASYNC110, PTH110
        await asyncio.sleep(0)
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    with pytest.raises(EngineError, match="not loaded"):
        loads[0].generate(Request([1]))
    await second.ready()
    assert len(loads) == 2, "nobody serves the first one"


async def test_own_engine_is_shared_too(new_runtime: NewRuntime, loads: list[LlamaEngine]) -> None:
    owner, client = new_runtime(serves_engine=True, own_engine=True), new_runtime()
    await owner.ready()
    await client.ready()
    assert len(loads) == 1


async def test_socket_of_a_killed_program_costs_no_second_load(
    new_runtime: NewRuntime, loads: list[LlamaEngine]
) -> None:
    runtime = new_runtime(serves_engine=True)
    path = runtime.provider.loader.shared_socket
    assert path is not None
    path.parent.mkdir(parents=True, mode=0o700)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(os.fspath(path))
    await runtime.plan_placement()
    assert not loads and runtime.loaded is None
    await runtime.ready()
    assert len(loads) == 1
    client = new_runtime()
    await client.ready()
    assert len(loads) == 1, "the socket was replaced"


async def test_prefetch_does_not_load_the_model(new_runtime: NewRuntime) -> None:
    owner, client = await both(new_runtime)
    await owner.close()
    client.prefetch(Conversation("c", header_ids=[1, 2, 3]))
    await client.prefetcher.wait()
    assert client.loaded is not None and isinstance(client.loaded.engine, SharedEngine)
    assert client.loaded.engine.own is None


async def test_own_engine_is_loaded_on_demand(new_runtime: NewRuntime) -> None:
    await both(new_runtime)
    own = new_runtime(own_engine=True)
    await own.ready()
    assert own.loaded is not None and isinstance(own.loaded.engine, LlamaEngine)


async def test_cancelled_generation_tells_what_it_has_done(new_runtime: NewRuntime) -> None:
    _, client = await both(new_runtime)
    prompt = list(range(1, 200))
    async for _ in client.generate(Request(prompt, max_tokens=0)):
        pass
    generation = client.generate(Request(prompt, max_tokens=1500, sampling=GREEDY))
    async for event in generation:
        if isinstance(event, Tokens):
            generation.cancel()
            generation.cancel()
    assert isinstance(event, Finished) and event.reason == "cancelled"
    assert event.cached_tokens > 100 and event.decode_seconds > 0 and event.output_tokens


async def test_folder_of_another_user_is_no_failure(
    new_runtime: NewRuntime, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(self: Path, **_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    runtime = new_runtime(serves_engine=True)
    monkeypatch.setattr(Path, "lstat", refuse)
    await runtime.plan_placement()
    await runtime.ready()
    assert runtime.loaded is not None
    with suppress(asyncio.CancelledError):
        await generate(runtime)
