"""Cut, joined, random and unknown markup of each family: nothing is lost, and no call is made up."""

import itertools
import json
import random
import re

import pytest

from agent.formats.protocol import SegmentKind
from tests.support.family_parsing import (
    WEATHER,
    FamilyHarness,
    difference,
    harness,
    mismatch,
    read_events,
    same_json,
)
from tests.support.harmony_streams import check_order
from tests.support.template_families import FAMILIES, AssistantMessage, written_text

CALLING = [name for name, family in FAMILIES.items() if family.calls]
MARKERS = ("elephant", "umbrella", "Monday", "guitar", "kitchen")
CALLS = (
    ("get_weather", {"text": "umbrella", "count": 5}),
    ("send_mail", {"text": "Monday", "zone": "guitar"}),
)
FRAGMENT = re.compile(r"<[^<>\s]*>|\[[A-Z_]+\]|\]<\]minimax\[>\[|\w+|\s+|.")
"""A tag, a word or another character of a family's text."""
CALL_ID = re.compile(
    r"\[CALL_ID\].*?\[ARGS\]|<\|tool_call:begin\|>.*?<\|tool_call:name\|>"
    r'|(?:(?<=index=)|(?<="id": ))"[^"]*',
    re.DOTALL,
)
"""The identifiers of calls, which are no content."""


def marked_message(name: str) -> AssistantMessage:
    """A message with a marker in each of its parts."""
    family = FAMILIES[name]
    return AssistantMessage(
        "It thinks elephant." if family.thought else None,
        "It says kitchen." if family.words or not family.calls else "",
        CALLS[: family.calls],
    )


def check_stream(parser: FamilyHarness, ids: list[int], rng: random.Random) -> None:
    """Check the invariants of events for any ids, and that each marker comes out as often as it is
    in the text before the stop."""
    events = parser.events(ids)
    assert parser.events(ids, range(1, len(ids))) == events
    assert parser.events(ids, [rng.randint(0, len(ids)) for _ in range(5)]) == events
    check_order(events, len(ids))
    reading = read_events(events)
    raw = b"".join(parser.format.token_bytes(token) for token in ids[: reading.stopped_at])
    written, output = raw.decode("utf-8", "replace"), "\0".join(reading.texts)
    names = "\0".join(segment.name or "" for segment in reading.segments)
    content = CALL_ID.sub("", written)
    for word in MARKERS:
        assert output.count(word) <= written.count(word), f"{word} is doubled"
        assert (output + "\0" + names).count(word) >= content.count(word), f"{word} is lost"


@pytest.mark.parametrize("name", FAMILIES)
def test_cut_message_has_no_call_that_has_not_ended(name: str) -> None:
    """A call may be complete from where no further argument can follow."""
    parser, message = harness(name), marked_message(name)
    text = written_text(name, message)
    ids = parser.format.encode_markup(text)
    earliest = []
    for i, (tool, arguments) in enumerate(message.calls):
        longer = (*message.calls[:i], (tool, {**arguments, "zzz": "x"}), *message.calls[i + 1 :])
        other = written_text(name, AssistantMessage(message.reasoning, message.content, longer))
        pairs = zip(parser.format.encode_markup(other), ids, strict=False)
        earliest.append(
            1 + sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        )
    for cut in range(len(ids)):
        events = parser.events(ids[:cut])
        check_order(events, cut)
        reading = read_events(events)
        seen = ids[:cut][: reading.stopped_at]
        start = b"".join(map(parser.format.token_bytes, seen))
        written = start.decode("utf-8", "ignore")
        for word in MARKERS:
            assert "\0".join(reading.texts).count(word) == written.count(word), (word, written)
        complete = [call for call in reading.calls if call.complete]
        assert len(complete) <= sum(cut >= end for end in earliest), (written, reading)
        for call, (tool, arguments) in zip(complete, message.calls, strict=False):
            assert call.name == tool
            assert json.loads(call.text).keys() == arguments.keys(), (written, reading)


@pytest.mark.parametrize("count", [2_000, pytest.param(15_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", FAMILIES)
def test_random_markup_holds_invariants(name: str, count: int) -> None:
    """15,000 pieces of markup of each family are a million in all."""
    parser, rng = harness(name), random.Random(f"{name} {count}")
    texts = [written_text(name, message) for message in parser.messages().values()]
    pieces = [*FRAGMENT.findall("".join(texts) + written_text(name, marked_message(name)))]
    tags = [piece for piece in pieces if len(piece) > 1 and not piece.isalnum()] or pieces
    while count > 0:
        length = rng.randint(1, 60)
        stream = rng.choices(tags, k=length) + rng.choices(pieces, k=length)
        rng.shuffle(stream)
        stream += rng.sample(MARKERS, rng.randint(0, 3))
        if rng.random() < 0.5:  # parts of real messages, in which random pieces are more often read
            text = rng.choice(texts)
            at = rng.randint(0, len(text))
            stream = [text[:at], *stream[: length // 4], text[at:]]
        try:
            check_stream(parser, parser.format.encode_markup("".join(stream)), rng)
        except Exception as error:
            raise AssertionError(f"{name}: {''.join(stream)!r}") from error
        count -= len(stream)


@pytest.mark.parametrize(
    "text",
    [
        "<|tool_call_start|>h<|tool_call_end|>Monday",
        "<|tool_call_start|>(<|tool_call_start|>Monday",
    ],
)
def test_text_after_malformed_call_is_not_lost(text: str) -> None:
    """Random markup with other seeds has been cut down to these."""
    parser = harness("LFM2.5-8B-A1B")
    check_stream(parser, parser.format.encode_markup(text), random.Random(text))


@pytest.mark.parametrize("name", CALLING)
def test_text_after_calls_is_not_lost(name: str) -> None:
    parser, message = harness(name), AssistantMessage(calls=(WEATHER,))
    text = written_text(name, message)
    answer = written_text(name, AssistantMessage(None, "elephant"))
    end = answer.partition("elephant")[2].strip()
    body = text.removesuffix(end) if FAMILIES[name].ends else text
    reading = parser.read(f"{body}\n\nThen umbrella.{end}")
    [call] = reading.calls
    assert (call.kind, call.name, call.complete) == (SegmentKind.TOOL, "get_weather", True)
    assert json.loads(call.text).keys() == WEATHER[1].keys()
    if reading.stopped_at is None or reading.stopped_at > len(parser.format.encode_markup(body)):
        assert "\0".join(reading.texts).count("umbrella") == 1


@pytest.mark.parametrize("space", ["", "\n\n"], ids=["nothing", "lines"])
@pytest.mark.parametrize("name", [name for name in CALLING if FAMILIES[name].calls > 1])
def test_space_between_calls_does_not_matter(name: str, space: str) -> None:
    message = AssistantMessage(calls=CALLS)
    text = written_text(name, message)
    end = text.index("send_mail", text.index("get_weather"))
    start = max(text.rindex(word, 0, end) for word in ("5", "umbrella"))
    between = re.sub(r"(?<=>)\s*(?=<)|(?<=[}\]],)\s*(?=[{\[])", space, text[start:end])
    text = text[:start] + between + text[end:]
    reading = harness(name).read(text, schemas=True)
    assert not difference(name, message, reading, schemas=True), (text, reading)


@pytest.mark.parametrize("name", CALLING)
def test_unknown_tool_is_unknown(name: str) -> None:
    arguments = {"text": "a b", "zone": "c"}
    message = AssistantMessage(calls=(("burn_toast", arguments),))
    reading = harness(name).read(written_text(name, message))
    expected = [("tool_unknown", "burn_toast", arguments)]
    assert not mismatch(expected, reading, typed=True), reading


@pytest.mark.parametrize("name", CALLING)
def test_arguments_in_any_order(name: str) -> None:
    """A model need not write arguments in the order of the schema."""
    values = {"zone": "x", "count": 5, "text": "y"}
    for keys in itertools.permutations(values):
        arguments = {key: values[key] for key in keys}
        text = written_text(name, AssistantMessage(calls=(("get_weather", arguments),)))
        [call] = harness(name).read(text, schemas=True).calls
        assert same_json(json.loads(call.text), arguments), (text, call)
