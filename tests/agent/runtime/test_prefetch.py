"""Work that a runtime does ahead, on the embedded model."""

from __future__ import annotations

from agent.conversation.conversation import Conversation, User
from agent.engine.protocol import Busy, Finished, Generation, Request
from agent.runtime.runtime import Runtime
from agent.turn.loop import Turn
from agent.turn.options import Options
from tests.support.runtimes import MakeRuntime


async def cached(runtime: Runtime, ids: list[int]) -> int:
    """Of a prompt's tokens, how many a generation finds in memory."""
    async for item in runtime.generate(Request(ids, max_tokens=1)):
        if isinstance(item, Finished):
            return item.cached_tokens
    raise AssertionError("a generation finishes")


async def ready(runtime: Runtime) -> None:
    """What was begun ahead is done."""
    assert runtime._background is not None
    await runtime._background


async def test_a_prompt_is_prepared_while_it_is_typed(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime()
    prompt = list(range(1000, 1400))
    for length in (300, 350, 395):
        runtime.prepare(prompt[:length])
    await ready(runtime)
    assert await cached(runtime, prompt) == 395


async def test_a_finished_turn_is_laid_ahead_beside_another(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime()
    conversation = Conversation("c")
    other = Turn(runtime, Conversation("d"), [User("Hello!")], Options(max_output_tokens=300))
    other.start()
    turn = Turn(runtime, conversation, [User("Hello!")], Options(), source="app").start()
    await turn.done()
    laid = conversation.ids()
    await other.done()
    await ready(runtime)
    assert await cached(runtime, [*laid, 1000]) == len(laid)


async def test_nothing_is_prepared_without_a_model(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime()
    await runtime.engine.close()
    runtime.loaded = False
    runtime.prepare([1, 2, 3])
    assert runtime._background is None


async def test_too_many_callers_are_told(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime()

    def refuse(request: Request) -> Generation:
        raise Busy("68 requests are being served: try again later.")

    runtime.generate = refuse  # type: ignore[method-assign]
    turn = Turn(runtime, Conversation("c"), [User("Hello!")], Options()).start()
    response = await turn.done()
    assert response.error and response.error.code == "rate_limit_exceeded"
    assert "try again" in response.error.message
