"""What each chat template writes is read back: thoughts, words, calls, and arguments of all types."""

import json
import random

import pytest

from tests.support.family_parsing import difference, harness
from tests.support.template_families import (
    ARGUMENTS,
    FAMILIES,
    FOLDER,
    AssistantMessage,
    written_text,
)

SHAPES = (
    *("answer", "quoted", "thought", "quoting thought"),
    *("call", "two calls", "words and call", "thought and calls"),
)


def test_every_template_is_tried() -> None:
    """A new version of llama.cpp has new templates: add what they do to the table."""
    untried = {path.stem for path in FOLDER.glob("*.jinja")} - FAMILIES.keys()
    assert untried == {
        "CohereForAI-c4ai-command-r-plus-tool_use",
        "fireworks-ai-llama-3-firefunction-v2",
        "llama-cpp-deepseek-r1",
        "openai-gpt-oss-120b",
    }


@pytest.mark.parametrize("name", FAMILIES)
def test_written_text_contains_message(name: str) -> None:
    """The reference: each text has in it what was put into the template, in order."""
    for message in harness(name).messages().values():
        text, at = written_text(name, message), 0
        names = [call[0] for call in message.calls]
        after = FAMILIES[name].words == "after" and message.calls
        words = [message.reasoning or "", *names, *([message.content] if after else [])]
        words[1:1] = [] if after else [message.content]
        for part in words:
            at = text.find(part, at)
            assert at >= 0, (part, text)
            at += len(part)
    for case, arguments in ARGUMENTS.items() if FAMILIES[name].calls else ():
        text = written_text(name, AssistantMessage(calls=(("get_weather", arguments),)))
        for value in filter(str, [arguments.get("text", "")]):
            spelled = (json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (0, 1))
            assert value in text or any(map(text.__contains__, spelled)), (case, text)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", FAMILIES)
def test_message_is_read_back(name: str, shape: str) -> None:
    message = harness(name).messages().get(shape)
    if message is None:
        pytest.skip("the template has no such messages")
    text = written_text(name, message)
    for schemas in (False, True):
        reading = harness(name).read(text, schemas=schemas)
        assert not difference(name, message, reading, schemas=schemas), (text, reading)
    harness(name).check_splits(text, random.Random(shape))


@pytest.mark.parametrize("name", FAMILIES)
def test_message_needs_no_repair(name: str) -> None:
    """The markup of a template's own messages is never malformed."""
    for shape, message in harness(name).messages().items():
        text = written_text(name, message)
        assert not harness(name).read(text).repairs, (shape, text)


@pytest.mark.parametrize("schemas", [False, True], ids=["undeclared", "declared"])
@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.calls])
def test_arguments_are_read_back(name: str, schemas: bool) -> None:
    """Types are exact where the syntax or a schema says them."""
    problems = []
    for case, arguments in ARGUMENTS.items():
        if case in FAMILIES[name].ambiguous:
            continue
        message = AssistantMessage(calls=(("get_weather", arguments),))
        text = written_text(name, message)
        reading = harness(name).read(text, schemas=schemas)
        if problem := difference(name, message, reading, schemas=schemas):
            problems.append(f"{case}: {problem}: {text!r} is {reading}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.calls])
def test_arguments_are_the_same_in_pieces(name: str) -> None:
    rng = random.Random(name)
    for arguments in ARGUMENTS.values():
        text = written_text(name, AssistantMessage(calls=(("get_weather", arguments),)))
        harness(name).check_splits(text, rng, short=0)
