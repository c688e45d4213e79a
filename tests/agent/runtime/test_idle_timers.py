"""The model of a runtime: placed, loaded, unloaded when idle, switched, stopped."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent.config.paths import Paths
from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.engine.grammars import ANY_OBJECT
from agent.engine.llama.engine import LlamaEngine
from agent.engine.placement import cpu_probe, memory_estimate
from agent.engine.placement.planner import PlacementRequest
from agent.engine.protocol import EngineError, OutOfMemoryError
from agent.events import AgentStart, Event, Response
from agent.models import catalog
from agent.models.catalog import Model
from agent.models.loader import EMBEDDED_TENSOR_TYPES, ModelLoader
from agent.runtime import background
from agent.runtime.runtime import Runtime
from agent.turn.loop import Turn
from agent.turn.options import TurnOptions
from tests.support.hosts import Children
from tests.support.waiting import HANG_SECONDS
from tools.factory import ToolboxOptions, build_toolbox

NewRuntime = Callable[..., Awaitable[Runtime]]


@pytest.fixture
async def new_runtime(tmp_path: Path, model_cache: Path, tiny_gguf: Path) -> Any:
    """A runtime on a copy of the embedded model by its path, as real ones are; not loaded yet."""
    made: list[Runtime] = []

    async def new(
        model: Model | None = None,
        *,
        tools: str = "none",
        context: int | None = None,
        keep_alive: float | None = None,
    ) -> Runtime:
        where = Paths(tmp_path / "config", tmp_path / "cache", tmp_path / "state")
        box = build_toolbox(ToolboxOptions(tools=tools))
        loader = ModelLoader(model or model_at(tiny_gguf), where, context=context)
        runtime = Runtime(loader, box.host, box.policy, keep_alive=keep_alive)
        made.append(runtime)
        await runtime.start()
        return runtime

    yield new
    for runtime in made:
        await runtime.close()


def model_at(path: Path, name: str = "copy", **wanted: Any) -> Model:
    sampling = catalog.Sampling(temperature=0)
    return Model(name, path=path, sampling=sampling, placement_request=PlacementRequest(**wanted))


async def run_turn(runtime: Runtime, text: str = "hello") -> tuple[Response, list[Event]]:
    options = TurnOptions(sampling=runtime.model.sampling, max_output_tokens=40)
    turn = Turn(runtime, Conversation("conv_1"), [User(text)], options).start()
    response = await turn.done()
    return response, turn.log.events


def texts(response: Response) -> list[str]:
    """The texts of the output, the reasoning included."""
    return [part.text for item in response.output for part in getattr(item, "content", None) or ()]


async def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def other_threads() -> Iterator[None]:
    """Threads that are there before a test do not count."""
    _other_threads.update(threading.enumerate())
    yield
    _other_threads.clear()


_other_threads: set[threading.Thread] = set()


def native_threads() -> int:
    threads = set(threading.enumerate()) - _other_threads
    return sum(thread.name == "llama.cpp" for thread in threads)


async def test_first_event_has_planned_context_length(new_runtime: NewRuntime) -> None:
    runtime = await new_runtime()
    _, events = await run_turn(runtime)
    start = events[0]
    assert isinstance(start, AgentStart) and runtime.provider.placement_plan is not None
    assert (
        start.context_length
        == runtime.provider.placement_plan.placement.context
        == runtime.context_length
    )
    assert (
        runtime.provider.placement_plan.reasons
        and runtime.provider.placement_plan.memory_use.memory > 0
    )


async def test_requested_kv_type_and_context_are_planned(
    new_runtime: NewRuntime, tiny_gguf: Path
) -> None:
    runtime = await new_runtime(model_at(tiny_gguf, kv_type="q8_0", context=4096), context=2048)
    await runtime.ready()
    assert (
        runtime.provider.placement_plan
        and runtime.provider.placement_plan.placement.kv_type == "q8_0"
    )
    assert runtime.context_length == runtime.loaded.engine.context_length == 2048


@pytest.mark.long
async def test_idle_model_is_unloaded_and_loaded_again(new_runtime: NewRuntime) -> None:
    runtime = await new_runtime(keep_alive=0.0)
    first, _ = await run_turn(runtime)
    await wait_until(lambda: runtime.asleep)
    await wait_until(lambda: not native_threads())
    second, events = await run_turn(runtime)
    assert first.status == second.status and texts(first) == texts(second)
    assert any(event.type == "agent.load" for event in events), "it was loaded again"


async def test_model_in_use_is_not_unloaded(new_runtime: NewRuntime) -> None:
    runtime = await new_runtime(keep_alive=0.0)
    await runtime.ready()
    runtime.begin_turn()
    await runtime.unload()
    assert runtime.loaded and not runtime.asleep
    runtime.end_turn()
    await wait_until(lambda: runtime.asleep)


@pytest.mark.long
async def test_without_keep_alive_model_stays_loaded(new_runtime: NewRuntime) -> None:
    runtime = await new_runtime()
    await run_turn(runtime)
    assert runtime.loaded and len(runtime.idle_timers.due_times) == 2, "the warm-up and the probe"


async def test_idle_runtime_warms_up_tools_and_grammar(
    new_runtime: NewRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "WARM_UP_IDLE_SECONDS", 0.0)
    runtime = await new_runtime(tools="files")
    await runtime.ready()
    assert runtime.format is not None
    submitted = runtime.format.grammars.submitted
    await wait_until(
        lambda: bool(runtime.host.server_states()[0].protocol) and bool(submitted(ANY_OBJECT))
    )


@pytest.mark.long
async def test_switching_models_leaks_no_memory(
    new_runtime: NewRuntime, tmp_path: Path, tiny_gguf: Path
) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(tiny_gguf.read_bytes())
    runtime = await new_runtime()
    process, taken = psutil.Process(), []
    for number in range(6):
        name, path = ("other", other) if number % 2 else ("copy", tiny_gguf)
        await runtime.switch(model_at(path, name, context=4096))
        assert native_threads() == 0
        response, _ = await run_turn(runtime)
        assert response.model == name and native_threads() == 1
        taken.append(process.memory_info().rss)
    size = other.stat().st_size  # what threads keep for themselves may be as much as one
    assert taken[-1] - taken[2] < 2 * size, "three more were not kept"


async def test_switch_is_refused_while_turn_runs(new_runtime: NewRuntime, tiny_gguf: Path) -> None:
    runtime = await new_runtime()
    await runtime.ready()
    runtime.begin_turn()
    with pytest.raises(EngineError, match="stop it before"):
        await runtime.switch(model_at(tiny_gguf, "other"))
    runtime.end_turn()
    assert runtime.model.name == "copy"


async def test_switch_refused_for_turn_begun_while_it_waited(
    new_runtime: NewRuntime, tiny_gguf: Path
) -> None:
    runtime = await new_runtime()
    loading = asyncio.create_task(runtime.load())
    await wait_until(runtime._lock.locked)
    switching = asyncio.create_task(runtime.switch(model_at(tiny_gguf, "other")))
    await wait_until(lambda: bool(runtime._lock._waiters))
    response, _ = await run_turn(runtime)
    with pytest.raises(EngineError, match="stop it before"):
        await switching
    await loading
    assert response.model == runtime.model.name == "copy"


async def test_cancelled_load_frees_engine(new_runtime: NewRuntime) -> None:
    runtime = await new_runtime()
    under_way = asyncio.Event()
    loading = asyncio.create_task(runtime.ready(lambda done: under_way.set()))
    await under_way.wait()
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    await wait_until(lambda: not native_threads())
    assert not runtime.loaded and not list(runtime.paths.cache.glob("loading-*"))
    response, _ = await run_turn(runtime)
    assert response.status in ("completed", "incomplete")


@pytest.mark.long
async def test_cancelled_load_stops_embedded_expansion(
    new_runtime: NewRuntime, tmp_path: Path
) -> None:
    runtime = await new_runtime(catalog.load_catalog(Paths(tmp_path, tmp_path, tmp_path))["tiny"])
    under_way = asyncio.Event()
    loading = asyncio.create_task(runtime.ready(lambda done: under_way.set()))
    await under_way.wait()
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    await asyncio.get_running_loop().shutdown_default_executor()
    assert not list((tmp_path / "cache").rglob("*.gguf")), "nothing half made is left"


class SmallMemoryEngine(LlamaEngine):
    """Runs out of memory above a context, as a machine does whose free memory was misjudged."""

    max_context = 1024

    async def load(self, progress: Callable[[float], None] | None = None) -> None:
        if self.placement.context > self.max_context:
            raise OutOfMemoryError("There is not enough memory.")
        await super().load(progress)


async def test_out_of_memory_retries_with_shorter_context(
    new_runtime: NewRuntime, tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.engine.llama.engine.LlamaEngine", SmallMemoryEngine)
    monkeypatch.setattr(SmallMemoryEngine, "max_context", 4096)
    runtime = await new_runtime(model_at(tiny_gguf, context=16_384))
    await runtime.ready()
    assert runtime.context_length == 4096
    fixed = await new_runtime(model_at(tiny_gguf), context=16_384)
    with pytest.raises(OutOfMemoryError):
        await fixed.ready()


async def test_missing_model_file_is_reported_by_load(
    new_runtime: NewRuntime, tmp_path: Path
) -> None:
    runtime = await new_runtime(replace(model_at(tmp_path / "gone.gguf")))
    await runtime.plan_placement()
    assert runtime.provider.placement_plan is None
    with pytest.raises(EngineError, match=r"gone\.gguf"):
        await runtime.ready()


async def test_format_that_fails_leaves_no_engine(
    new_runtime: NewRuntime, tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made while the model loads; here it fails after that."""
    loaded = threading.Event()

    class NotingEngine(LlamaEngine):
        async def load(self, *args: Any) -> None:
            await super().load(*args)
            loaded.set()

    def fail(*_: object, **__: object) -> None:
        assert loaded.wait(HANG_SECONDS)
        raise EngineError("no such vocabulary")

    monkeypatch.setattr("agent.engine.llama.engine.LlamaEngine", NotingEngine)
    monkeypatch.setattr("agent.models.loader.ModelLoader._harmony_format", fail)
    runtime = await new_runtime(model_at(tiny_gguf))
    before = engine_threads()
    with pytest.raises(EngineError, match="no such vocabulary"):
        await runtime.ready()
    await wait_until(lambda: not engine_threads() - before)


def engine_threads() -> set[threading.Thread]:
    """Those that run, of an earlier test's engine too."""
    return {thread for thread in threading.enumerate() if thread.name == "llama.cpp"}


def test_embedded_model_has_embedded_tensor_types(tiny_gguf: Path) -> None:
    assert memory_estimate.read_model_sizes(tiny_gguf).weight_types == EMBEDDED_TENSOR_TYPES


def as_with_amx(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let llama.cpp seem not to repack weights, as on a CPU with AMX."""
    monkeypatch.setattr("agent.engine.llama.model.uses_repacked_weights", lambda placement: False)


@pytest.mark.long
async def test_idle_runtime_probes_repacking(
    new_runtime: NewRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next load then goes by it."""
    monkeypatch.setattr(
        "agent.engine.llama.model.uses_repacked_weights", lambda placement: False
    )  # as with AMX
    monkeypatch.setattr(background, "PROBE_IDLE_SECONDS", 0.0)
    runtime = await new_runtime()
    await runtime.ready()
    assert (
        runtime.provider.placement_plan
        and runtime.provider.placement_plan.placement.extra_buffers is None
    )
    await wait_until(
        lambda: cpu_probe.cached_result(runtime.paths.cache, EMBEDDED_TENSOR_TYPES) is not None
    )
    verdict = cpu_probe.should_repack(runtime.paths.cache, EMBEDDED_TENSOR_TYPES)
    await runtime.unload()
    await runtime.ready()
    assert runtime.provider.placement_plan.placement.extra_buffers is verdict


async def test_turn_cancels_probe(
    new_runtime: NewRuntime, monkeypatch: pytest.MonkeyPatch, children: Children
) -> None:
    monkeypatch.setattr(
        "agent.engine.llama.model.uses_repacked_weights", lambda placement: False
    )  # as with AMX
    hanging = partial(cpu_probe.probe, arguments=("-c", "import signal; signal.pause()"))
    monkeypatch.setattr(cpu_probe, "probe", hanging)
    monkeypatch.setattr(background, "PROBE_IDLE_SECONDS", 0.0)
    runtime = await new_runtime()
    await runtime.ready()
    await wait_until(lambda: bool(children()))
    runtime.begin_turn()
    await wait_until(lambda: not children())
    runtime.end_turn()
    assert cpu_probe.cached_result(runtime.paths.cache, EMBEDDED_TENSOR_TYPES) is None
