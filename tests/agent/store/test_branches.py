"""A message that is edited or retried costs what is new of it: the rest is in the engine's memory."""

import pytest

from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.engine.protocol import Sampling
from agent.runtime.runtime import Runtime
from agent.turn.loop import Turn
from agent.turn.options import TurnOptions
from agent.util.prefix import common_prefix_length
from tests.support.runtimes import MakeRuntime

GREEDY = TurnOptions(sampling=Sampling(temperature=0))


async def ask(runtime: Runtime, conversation: Conversation, text: str) -> tuple[list[int], int]:
    """The prompt of its one generation, and how much of it was in the engine's memory."""
    turn = Turn(runtime, conversation, [User(text)], GREEDY)
    turn.prepare()
    prompt = conversation.prompt(runtime.format)
    response = await turn.start().done()
    assert response.status == "completed" and response.usage
    assert len(turn.generations) == 1
    return prompt, response.usage.input_tokens_details.cached_tokens


@pytest.mark.long
async def test_retry_and_edit_reuse_shared_prefix(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime()
    conversation = Conversation("c")
    await ask(runtime, conversation, "hello")
    before = len(conversation.entries)
    shared = len(conversation.ids())
    second, _ = await ask(runtime, conversation, "thank you")
    last = conversation.entries[-1].ids

    retried = conversation.branch("retried", before)
    prompt, cached = await ask(runtime, retried, "thank you")
    assert prompt == second and cached >= shared
    # Of the very same prompt one token is computed again, for the next one's scores.
    assert cached == len(prompt) - 1
    assert retried.entries[-1].ids == last, "greedy: the same answer, from the same memory"

    edited = conversation.branch("edited", before)
    prompt, cached = await ask(runtime, edited, "What can you do?")
    assert cached == common_prefix_length(prompt, second) >= shared

    assert conversation.entries[:before] == edited.entries[:before]
    assert len(conversation.entries) == len(edited.entries), "the first is as it was"
