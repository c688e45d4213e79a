"""A model comes and goes: placed, loaded, unloaded when nobody needs it, switched, stopped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent.config.settings import Places
from agent.conversation.conversation import Conversation, User
from agent.engine.grammars import ANY_OBJECT
from agent.engine.llama.engine import LlamaEngine
from agent.engine.placement import cpu_probe, memory_estimate
from agent.engine.placement.planner import Wanted
from agent.engine.protocol import EngineError, OutOfMemory
from agent.events import AgentStart, Event, Response
from agent.formats.constraints import Guided
from agent.models import catalog
from agent.models.catalog import Model
from agent.models.loader import EMBEDDED_TYPES
from agent.runtime.runtime import Runtime
from agent.turn.loop import Turn
from agent.turn.options import Options
from tools.factory import assemble

Make = Callable[..., Awaitable[Runtime]]


@pytest.fixture
async def make(tmp_path: Path, model_cache: Path, tiny_gguf: Path) -> Any:
    """A runtime on a copy of the embedded model by its path, as real ones are; not loaded yet."""
    made: list[Runtime] = []

    async def make(model: Model | None = None, *, tools: str = "none", **options: Any) -> Runtime:
        where = Places(tmp_path / "config", tmp_path / "cache", tmp_path / "state")
        box = assemble(tools=tools)
        runtime = Runtime(model or of(tiny_gguf), box.host, box.policy, where, **options)
        made.append(runtime)
        await runtime.start()
        return runtime

    yield make
    for runtime in made:
        await runtime.close()


def of(path: Path, name: str = "copy", **wanted: Any) -> Model:
    sampling = catalog.Sampling(temperature=0)
    return Model(name, path=path, sampling=sampling, wanted=Wanted(**wanted))


async def say(runtime: Runtime, text: str = "hello") -> tuple[Response, list[Event]]:
    options = Options(sampling=runtime.model.sampling, max_output_tokens=40)
    turn = Turn(runtime, Conversation("conv_1"), [User(text)], options).start()
    response = await turn.done()
    return response, turn.log.events


def words(response: Response) -> list[str]:
    """What was said, the reasoning included."""
    return [part.text for item in response.output for part in getattr(item, "content", None) or ()]


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


def native_threads() -> int:
    return sum(thread.name == "llama.cpp" for thread in threading.enumerate())


async def test_the_context_that_fits_is_told_first(make: Make) -> None:
    runtime = await make()
    _, events = await say(runtime)
    start = events[0]
    assert isinstance(start, AgentStart) and runtime.choice is not None
    assert start.context_length == runtime.choice.placement.context == runtime.context_length
    assert runtime.choice.why and runtime.choice.need.memory > 0


async def test_what_was_asked_for_is_placed(make: Make, tiny_gguf: Path) -> None:
    runtime = await make(of(tiny_gguf, kv_type="q8_0", context=4096), context=2048)
    await runtime.ready()
    assert runtime.choice and runtime.choice.placement.kv_type == "q8_0"
    assert runtime.context_length == runtime.engine.context_length == 2048


@pytest.mark.slow
async def test_an_idle_model_is_unloaded_and_comes_back(make: Make) -> None:
    runtime = await make(keep_alive=0.0)
    first, _ = await say(runtime)
    await until(lambda: runtime.asleep)
    await until(lambda: not native_threads())
    second, events = await say(runtime)
    assert first.status == second.status and words(first) == words(second)
    assert any(event.type == "agent.load" for event in events), "it was loaded again"


async def test_a_model_in_use_is_not_unloaded(make: Make) -> None:
    runtime = await make(keep_alive=0.0)
    await runtime.ready()
    runtime.begin_turn()
    await runtime.unload()
    assert runtime.loaded and not runtime.asleep
    runtime.end_turn()
    await until(lambda: runtime.asleep)


async def test_without_a_limit_it_stays(make: Make) -> None:
    runtime = await make()
    await say(runtime)
    assert runtime.loaded and len(runtime._timers) == 2, "grammars and the probe wait for quiet"


async def test_what_a_call_needs_is_made_in_quiet(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.runtime.runtime.PAUSE", 0.0)
    runtime = await make(tools="files")
    await runtime.ready()
    assert isinstance(runtime.format, Guided)
    compiled = runtime.format.grammars._compiled
    await until(lambda: bool(runtime.host.servers()[0].protocol) and ANY_OBJECT in compiled)


@pytest.mark.slow
async def test_models_are_switched_without_a_leak(
    make: Make, tmp_path: Path, tiny_gguf: Path
) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(tiny_gguf.read_bytes())
    runtime = await make()
    process, taken = psutil.Process(), []
    for number in range(6):
        name, path = ("other", other) if number % 2 else ("copy", tiny_gguf)
        await runtime.switch(of(path, name, context=4096))
        assert native_threads() == 0
        response, _ = await say(runtime)
        assert response.model == name and native_threads() == 1
        taken.append(process.memory_info().rss)
    size = other.stat().st_size  # what threads keep for themselves may be as much as one
    assert taken[-1] - taken[2] < 2 * size, "three more were not kept"


async def test_no_switch_under_a_turn(make: Make, tiny_gguf: Path) -> None:
    runtime = await make()
    await runtime.ready()
    runtime.begin_turn()
    with pytest.raises(EngineError, match="stop it before"):
        await runtime.switch(of(tiny_gguf, "other"))
    runtime.end_turn()
    assert runtime.model.name == "copy"


async def test_no_switch_under_a_turn_that_began_while_it_waited(
    make: Make, tiny_gguf: Path
) -> None:
    runtime = await make()
    loading = asyncio.create_task(runtime.load())
    await until(runtime._lock.locked)
    switching = asyncio.create_task(runtime.switch(of(tiny_gguf, "other")))
    await until(lambda: bool(runtime._lock._waiters))
    response, _ = await say(runtime)
    with pytest.raises(EngineError, match="stop it before"):
        await switching
    await loading
    assert response.model == runtime.model.name == "copy"


async def test_a_load_is_stopped_on_the_way(make: Make) -> None:
    runtime = await make()
    under_way = asyncio.Event()
    loading = asyncio.create_task(runtime.ready(lambda done: under_way.set()))
    await under_way.wait()
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    await until(lambda: not native_threads())
    assert not runtime.loaded and not list(runtime.where.cache.glob("loading-*"))
    response, _ = await say(runtime)
    assert response.status in ("completed", "incomplete")


async def test_the_expansion_of_the_embedded_model_is_stopped_too(
    make: Make, tmp_path: Path
) -> None:
    runtime = await make(catalog.known(Places(tmp_path, tmp_path, tmp_path))["tiny"])
    under_way = asyncio.Event()
    loading = asyncio.create_task(runtime.ready(lambda done: under_way.set()))
    await under_way.wait()
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    await asyncio.get_running_loop().shutdown_default_executor()
    assert not list((tmp_path / "cache").rglob("*.gguf")), "nothing half made is left"


class Small(LlamaEngine):
    """Runs out of memory above a context, as a machine does whose free memory was misjudged."""

    most = 1024

    async def load(self, progress: Callable[[float], None] | None = None) -> None:
        if self.placement.context > self.most:
            raise OutOfMemory("There is not enough memory.")
        await super().load(progress)


async def test_out_of_memory_is_tried_again_with_less(
    make: Make, tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.engine.llama.engine.LlamaEngine", Small)
    monkeypatch.setattr(Small, "most", 4096)
    runtime = await make(of(tiny_gguf, context=16_384))
    await runtime.ready()
    assert runtime.context_length == 4096
    asked = await make(of(tiny_gguf), context=16_384)
    with pytest.raises(OutOfMemory):
        await asked.ready()


async def test_a_file_that_changed_for_the_worse_is_told(make: Make, tmp_path: Path) -> None:
    runtime = await make(replace(of(tmp_path / "gone.gguf")))
    await runtime.place()
    assert runtime.choice is None
    with pytest.raises(EngineError, match=r"gone\.gguf"):
        await runtime.ready()


def test_the_embedded_models_weights_are_of_these_types(tiny_gguf: Path) -> None:
    assert memory_estimate.of(tiny_gguf).types == EMBEDDED_TYPES


@pytest.mark.slow
async def test_when_it_is_quiet_this_machine_is_learned(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next load then goes by it."""
    monkeypatch.setattr("agent.runtime.runtime.QUIET", 0.0)
    monkeypatch.setattr("agent.engine.llama.model.repacked", lambda placement: False)  # as with AMX
    runtime = await make()
    await runtime.ready()
    assert runtime.choice and runtime.choice.placement.extra_buffers is None
    await until(lambda: cpu_probe.recall(runtime.where, EMBEDDED_TYPES) is not None)
    verdict = cpu_probe.repack(runtime.where, EMBEDDED_TYPES)
    await runtime.unload()
    await runtime.ready()
    assert runtime.choice.placement.extra_buffers is verdict


async def test_a_turn_ends_the_learning(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.runtime.runtime.QUIET", 0.0)
    monkeypatch.setattr("agent.engine.llama.model.repacked", lambda placement: False)  # as with AMX
    monkeypatch.setattr(cpu_probe, "_CHILD", ("-c", "import signal; signal.pause()"))
    runtime = await make()
    await runtime.ready()
    await until(lambda: bool(psutil.Process().children()))
    runtime.begin_turn()
    await until(lambda: not psutil.Process().children())
    runtime.end_turn()
    assert cpu_probe.recall(runtime.where, EMBEDDED_TYPES) is None
