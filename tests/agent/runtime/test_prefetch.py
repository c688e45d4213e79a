"""Prompts that a runtime prefetches, on the embedded model."""

from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.engine.protocol import Finished, Request
from agent.runtime.runtime import Runtime
from agent.turn.loop import Turn
from agent.turn.options import APP, TurnOptions
from tests.support.runtimes import MakeRuntime


async def cached_tokens(runtime: Runtime, ids: list[int]) -> int:
    """How many of a prompt's tokens a generation finds in the engine's memory."""
    async for item in runtime.generate(Request(ids, max_tokens=1)):
        if isinstance(item, Finished):
            return item.cached_tokens
    raise AssertionError("a generation finishes")


async def test_latest_prefetch_is_in_engine_memory(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime()
    prompt = list(range(1000, 1400))
    for length in (300, 350, 395):
        runtime.prefetch(Conversation("c", header_ids=prompt[:length]))
    await runtime.prefetcher.wait()
    assert await cached_tokens(runtime, prompt) == 395


async def test_finished_turn_is_prefetched_beside_another(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime()
    conversation = Conversation("c")
    other = Turn(runtime, Conversation("d"), [User("Hello!")], TurnOptions(max_output_tokens=300))
    other.start()
    turn = Turn(runtime, conversation, [User("Hello!")], TurnOptions(), interface=APP).start()
    await turn.done()
    prefetched = conversation.ids()
    await other.done()
    await runtime.prefetcher.wait()
    assert await cached_tokens(runtime, [*prefetched, 1000]) == len(prefetched)


async def test_prefetch_without_loaded_model_does_nothing(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime()
    await runtime.unload()
    runtime.prefetch(Conversation("c", header_ids=[1, 2, 3]))
    assert not runtime.prefetcher.started
