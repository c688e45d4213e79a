"""Titles that the model writes: how they are asked for, and what is left of what it writes."""

from pathlib import Path

import pytest

from agent.conversation.conversation import Conversation
from agent.conversation.messages import User
from agent.conversation.title import MAX_TITLE_CHARACTERS, TITLE_PROMPT, clean_title, write_title
from agent.engine.protocol import Generation, Request, Sampling
from agent.events import AgentStats
from agent.runtime.runtime import Runtime
from agent.store.conversations import Store
from agent.turn.loop import Turn
from agent.turn.options import TurnOptions
from tests.support.runtimes import MakeRuntime
from tests.support.turns import write_script

OPTIONS = TurnOptions(tools=(), sampling=Sampling(temperature=0), max_output_tokens=40)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Counting words", "Counting words"),
        ('\n **"Counting words."**\nIt counts.', "Counting words"),
        ("# Titel: „Wörter zählen“", "Wörter zählen"),
        ("<title>C# and `a_b`</title>", "C# and a_b"),
        ("「単語を数える」", "単語を数える"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("**", ""),
        ("", ""),
    ],
)
def test_clean_title_keeps_the_words_alone(text: str, title: str) -> None:
    assert clean_title(text) == title


def test_clean_title_cuts_behind_a_word() -> None:
    title = clean_title("counting, " * 20)
    assert title.endswith("counting…") and len(title) <= MAX_TITLE_CHARACTERS
    assert len(clean_title("x" * 100)) == MAX_TITLE_CHARACTERS


async def title_of(runtime: Runtime, prompt: list[int]) -> tuple[str, Request]:
    """The title, and the request for it."""
    requests: list[Request] = []

    def generate(request: Request) -> Generation:
        requests.append(request)
        return runtime.generate(request)

    assert runtime.format is not None
    title = await write_title(runtime.format, generate, prompt, Sampling(presence_penalty=1.0))
    return title, requests[0]


@pytest.mark.parametrize("opening", ["", "<|channel|>final<|message|>"])
async def test_write_title_begins_with_the_prompt_and_the_answer(
    make_runtime: MakeRuntime, tmp_path: Path, opening: str
) -> None:
    script = write_script(tmp_path / "s.jsonl", {"markup": f'{opening}"Counting words"<|return|>'})
    runtime = await make_runtime(script)
    prompt = runtime.format.user_message("Hello")  # type: ignore[union-attr]
    title, request = await title_of(runtime, prompt)
    text = runtime.format.encoding.decode(request.prompt)  # type: ignore[union-attr]
    assert title == "Counting words" and request.background
    assert list(request.prompt[: len(prompt)]) == prompt
    assert text.endswith(f"{TITLE_PROMPT}<|end|><|start|>assistant<|channel|>final<|message|>")
    assert request.sampling.presence_penalty == 0


async def test_write_title_that_does_not_end_is_none(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    script = write_script(tmp_path / "s.jsonl", {"markup": "and on " * 100})
    runtime = await make_runtime(script)
    title, _ = await title_of(runtime, runtime.format.user_message("Hi"))  # type: ignore[union-attr]
    assert title == ""


@pytest.mark.long
async def test_title_leaves_the_next_prompt_in_the_prefix_cache(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime()
    conversation = Conversation("c")

    async def cached(prompt: str) -> int:
        turn = Turn(runtime, conversation, [User(prompt)], OPTIONS).start()
        await turn.done()
        return next(e.cached_tokens for e in turn.log.events if isinstance(e, AgentStats))

    await cached("What is 12 plus 30? " * 8)
    await runtime.prefetcher.wait()
    prompt = conversation.ids()
    _, request = await title_of(runtime, prompt)
    assert len(request.prompt) > len(prompt) + 16, "more than a next turn may cut off in place"
    assert await cached("And 7 times 6?") >= len(prompt) - 1


def test_replace_title_spares_what_a_person_gave(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    conversation = Conversation("conv_1")
    response = TurnOptions().initial_response("tiny")
    store.begin(conversation, "first line\nsecond", response)
    assert store.first_line_title("conv_1") == "first line"
    store.rename("conv_1", "Mine")
    store.replace_title("conv_1", "first line", "The model's")
    assert store.first_line_title("conv_1") is None
    assert [summary.title for summary in store.summaries()] == ["Mine"]
    store.rename("conv_1", "first line")
    store.replace_title("conv_1", "first line", "The model's")
    assert [summary.title for summary in store.summaries()] == ["The model's"]
    store.close()
