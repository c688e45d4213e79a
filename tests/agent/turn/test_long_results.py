"""A result that would fill the context leaves room for the answer, and none of it is lost."""

from pathlib import Path

import pytest

from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.conversation.prompt_choices import toggle_fold
from agent.engine.protocol import Sampling
from agent.turn.loop import Turn
from agent.turn.options import TurnOptions
from tests.support.invariants import check
from tests.support.runtimes import MakeRuntime
from tests.support.turns import read_events

LINES = [f"{number} tins of paint are in the cellar" for number in range(1, 901)]


@pytest.mark.long
@pytest.mark.parametrize("context", [4096, 8192])
async def test_long_result_is_shortened_in_the_prompt_alone(
    make_runtime: MakeRuntime, tmp_path: Path, context: int
) -> None:
    """On the embedded model; the file has about 8,100 tokens."""
    (tmp_path / "paint.txt").write_text("\n".join(LINES))
    runtime = await make_runtime(tools="files", root=tmp_path, context=context)
    conversation = Conversation("c")
    # Whatever is answered: without a limit, an answer that loops would fill the context too.
    options = TurnOptions(sampling=Sampling(temperature=0), max_output_tokens=300)
    turn = Turn(runtime, conversation, [User("Read paint.txt")], options).start()
    events = await read_events(turn)
    response = check(events)
    call = next(item for item in response["output"] if item["type"] == "mcp_call")
    assert LINES[450] in call["output"]
    result = next(entry for entry in conversation.entries if entry.recipient)
    decode = runtime.format.encoding.decode  # type: ignore[attr-defined]
    prompt = decode(result.prompt_ids)
    assert 0.4 * context < len(result.prompt_ids) < 0.5 * context
    assert LINES[0] in prompt and LINES[-1] in prompt and LINES[450] not in prompt
    assert prompt.endswith("<|end|>")
    notices = [event["message"] for event in events if event["type"] == "agent.notice"]
    assert notices[0].startswith("The result of files.read is long: of its 8,")
    assert not any("context is full" in notice for notice in notices)
    toggle_fold(runtime.format, conversation, conversation.entries.index(result))
    assert any(LINES[450] in decode(entry.prompt_ids) for entry in conversation.entries)


async def test_result_that_fits_stays_as_it_is(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    (tmp_path / "paint.txt").write_text("\n".join(LINES[:60]))
    runtime = await make_runtime(tools="files", root=tmp_path, context=4096)
    conversation = Conversation("c")
    options = TurnOptions(sampling=Sampling(temperature=0))
    turn = Turn(runtime, conversation, [User("Read paint.txt")], options).start()
    events = await read_events(turn)
    check(events)
    assert all(entry.shortened_ids is None for entry in conversation.entries)
    assert not [event for event in events if event["type"] == "agent.notice"]
