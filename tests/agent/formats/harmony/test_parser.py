"""Harmony's parser on real and malformed streams, and its invariants for any ids at all."""

import random
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai_harmony import HarmonyEncoding, Role

from agent.formats.harmony.parser import MAX_HEADER_TOKENS, HarmonyParser
from agent.formats.protocol import Closed, Delta, Opened, Repair, SegmentKind, Stop
from tests.support import harmony_streams


def encode(encoding: HarmonyEncoding, markup: str) -> list[int]:
    return encoding.encode(markup, allowed_special="all")


@pytest.mark.parametrize("case", harmony_streams.CASES, ids=lambda case: case["id"])
def test_parse_case_gives_expected_segments(
    encoding: HarmonyEncoding, case: dict[str, Any]
) -> None:
    events = harmony_streams.parse(encoding, case["tokens"])
    segments, expected = harmony_streams.segments(events), case["expected"]
    # A completed call or a <|return|> implies the stop; where it is expected it must be there.
    if not (expected and expected[-1]["kind"] == "stop"):
        segments = [segment for segment in segments if segment["kind"] != "stop"]
    assert segments == expected
    harmony_streams.check(encoding, case["tokens"])


# --- any ids ----------------------------------------------------------------------------------------

ids_of_any_kind = st.lists(
    st.one_of(
        st.sampled_from(harmony_streams.SPECIALS),
        st.sampled_from(harmony_streams.ODD),
        st.sampled_from(harmony_streams.ORDINARY),
        st.sampled_from(sorted(harmony_streams.MARKERS)),
        st.integers(0, 201_100),
    ),
    max_size=60,
)


@given(ids=ids_of_any_kind)
def test_parse_any_ids_holds_invariants(encoding: HarmonyEncoding, ids: list[int]) -> None:
    # Two ids of any kind can spell a marker together, so only the order is checked with those.
    if set(ids) <= {
        *harmony_streams.SPECIALS,
        *harmony_streams.ODD,
        *harmony_streams.ORDINARY,
        *harmony_streams.MARKERS,
    }:
        harmony_streams.check(encoding, ids)
    else:
        assert harmony_streams.parse(encoding, ids) == harmony_streams.parse(encoding, ids, step=7)


@given(seed=st.integers(0, 2**32))
def test_parse_mutated_stream_holds_invariants(encoding: HarmonyEncoding, seed: int) -> None:
    harmony_streams.check(encoding, harmony_streams.mutated(random.Random(seed)))


@given(ids=ids_of_any_kind, cuts=st.lists(st.integers(0, 9), max_size=70))
def test_parse_any_cuts_same_segments(
    encoding: HarmonyEncoding, ids: list[int], cuts: list[int]
) -> None:
    uncut = harmony_streams.parse(encoding, ids, step=1000)
    parser = HarmonyParser(encoding, harmony_streams.RECIPIENTS)
    events, rest = [], list(ids)
    for cut in cuts:
        events += parser.feed(rest[:cut])
        rest = rest[cut:]
    events += parser.feed(rest) + parser.finish()
    assert harmony_streams.segments(events) == harmony_streams.segments(uncut)


# --- well-formed streams: as openai-harmony reads them ----------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
thoughts = st.lists(st.tuples(st.sampled_from(["analysis", "commentary"]), texts), max_size=3)
last = st.sampled_from(
    [
        ("final", "<|return|>"),
        ("commentary to=functions.f <|constrain|>json", "<|call|>"),
        ("analysis to=python code", "<|call|>"),
        ("commentary to=functions.get_weather", "<|call|>"),
    ]
)


@given(thoughts=thoughts, last=last, text=texts)
def test_parse_well_formed_equals_openai_harmony(
    encoding: HarmonyEncoding, thoughts: list[tuple[str, str]], last: tuple[str, str], text: str
) -> None:
    ids: list[int] = []
    for header, body, end in [*((h, t, "<|end|>") for h, t in thoughts), (last[0], text, last[1])]:
        ids += encode(encoding, f"<|start|>assistant<|channel|>{header}<|message|>" if ids else "")
        ids = ids or encode(encoding, f"<|channel|>{header}<|message|>")
        ids += encoding.encode(body, disallowed_special=()) + encode(encoding, end)
    theirs = encoding.parse_messages_from_completion_tokens(ids, Role.ASSISTANT)
    events = harmony_streams.parse(encoding, ids)
    ours = [segment for segment in harmony_streams.segments(events) if segment["kind"] != "stop"]
    kinds = {"analysis": "reasoning", "commentary": "preamble", "final": "final"}
    assert ours == [
        {
            "kind": "tool" if message.recipient else kinds[message.channel or ""],
            "recipient": message.recipient,
            "text": message.content[0].text,
        }
        for message in theirs
    ]
    assert not any(isinstance(event, Repair) for event in events)


# --- text -------------------------------------------------------------------------------------------


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_deltas_contain_complete_characters(encoding: HarmonyEncoding, text: str) -> None:
    ids = encode(encoding, "<|channel|>final<|message|>")
    ids += encoding.encode(text, disallowed_special=())
    parser = HarmonyParser(encoding)
    events = [event for token in ids for event in parser.feed([token])] + parser.finish()
    assert "".join(event.text for event in events if isinstance(event, Delta)) == text


@given(tokens=st.lists(st.integers(0, 199_997), max_size=30))
def test_parse_broken_utf8_equals_python_replace(
    encoding: HarmonyEncoding, tokens: list[int]
) -> None:
    events = harmony_streams.parse(encoding, [200005, 17196, 200008, *tokens, 200002])
    text = "".join(event.text for event in events if isinstance(event, Delta))
    raw = b"".join(bytes(encoding._inner.decode_bytes([token])) for token in tokens)
    assert text == raw.decode(errors="replace")


# --- single cases -----------------------------------------------------------------------------------


def parse_markup(encoding: HarmonyEncoding, markup: str) -> list[Any]:
    return harmony_streams.parse(encoding, encode(encoding, markup))


def test_closed_spans_cover_stream(encoding: HarmonyEncoding) -> None:
    events = parse_markup(
        encoding,
        "<|channel|>analysis<|message|>think<|end|>"
        "<|start|>assistant<|channel|>final<|message|>ok<|return|>",
    )
    closed = [event for event in events if isinstance(event, Closed)]
    assert closed == [Closed(True, 0, 5, 1), Closed(True, 5, 12, 1)]
    assert events[-1] == Stop("return", 11)


def test_parse_other_role_stops_at_its_start(encoding: HarmonyEncoding) -> None:
    markup = "<|channel|>final<|message|>ok<|end|><|start|>user<|message|>and then?"
    assert parse_markup(encoding, markup)[-1] == Stop("turn", 5)


@pytest.mark.parametrize("author", ["functions.g", "python", "nothing_declared", "user", "tool"])
def test_parse_tool_result_stops_turn(encoding: HarmonyEncoding, author: str) -> None:
    markup = f"<|end|><|start|>{author} to=assistant<|channel|>commentary<|message|>56088<|end|>"
    events = parse_markup(encoding, markup)
    assert isinstance(events[-1], Stop) and events[-1].reason == "turn"
    assert not any(isinstance(event, Opened) for event in events)


@pytest.mark.parametrize(
    ("markup", "kind", "text"),
    [
        ("assistantfinalHello<|return|>", "final", "Hello"),
        (
            "assistant final Hello, how are you today?<|return|>",
            "final",
            "Hello, how are you today?",
        ),
        ("assistantanalysisThen<|end|>", "reasoning", "Then"),
        ("assistants are fine<|return|>", "final", "assistants are fine"),
        ("assistant finally did<|return|>", "final", "assistant finally did"),
        ("<|start|>assistant<|channel|>final 42<|return|>", "final", "42"),
    ],
)
def test_parse_header_in_words(
    encoding: HarmonyEncoding, markup: str, kind: str, text: str
) -> None:
    events = parse_markup(encoding, f"<|channel|>analysis<|message|>T.<|end|>{markup}")
    segments = [s for s in harmony_streams.segments(events) if s["kind"] in ("reasoning", "final")]
    assert [(s["kind"], s["text"]) for s in segments[1:]] == [(kind, text)]


WE_THINK, HELLO = ("reasoning", "We think."), ("final", "Hello")
CALL_F = ("tool", '{"a":1}')


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("<|channel|>analysis<|message|>We think.<|end|><|start|>assistantfinalHello<|return|>",
         [WE_THINK, HELLO]),
        ("<|channel|>analysis<|message|>We think.<|end|>finalHello<|return|>", [WE_THINK, HELLO]),
        ("finalHello<|return|>", [HELLO]),
        ("analysisWe think.assistantfinalHello<|return|>", [WE_THINK, HELLO]),
        ("analysisWe think.assistantfinal Hello<|return|>", [WE_THINK, HELLO]),
        ("analysisWe think.assistantfinal<|message|>Hello<|return|>", [WE_THINK, HELLO]),
        ("<|start|>assistantanalysisWe think.assistantfinalHello<|return|>", [WE_THINK, HELLO]),
        ("analysisWe think.<|end|><|start|>assistant<|channel|>final<|message|>Hello<|return|>",
         [WE_THINK, HELLO]),
        ("analysisWe think.assistantcommentaryI look.assistantfinalHello<|return|>",
         [WE_THINK, ("preamble", "I look."), HELLO]),
        ('analysisWe think.assistantcommentary to=functions.f json{"a":1}<|call|>',
         [WE_THINK, CALL_F]),
        ('analysisWe think.assistantcommentary to=functions.f<|message|>{"a":1}<|call|>',
         [WE_THINK, CALL_F]),
        ('analysisWe think.assistant to=functions.f json{"a":1}<|call|>',
         [WE_THINK, CALL_F]),
        ("analysiswe think.assistantfinalhello<|return|>",
         [("reasoning", "we think."), ("final", "hello")]),
        ("analysisWe think.\n\nassistantfinalhello<|return|>",
         [("reasoning", "We think.\n\n"), ("final", "hello")]),
        ("analysisWe think soassistantanalysisand so on.assistantfinalHello<|return|>",
         [("reasoning", "We think so"), ("reasoning", "and so on."), HELLO]),
        ("<|channel|>analysis<|message|>We think.<|end|>assistantfinalhello<|return|>",
         [WE_THINK, ("final", "hello")]),
        # Words that only look like headers.
        ("assistant finally did<|return|>", [("final", "assistant finally did")]),
        ("finalhello<|return|>", [("final", "finalhello")]),
        ("commentaryhello<|return|>", [("final", "commentaryhello")]),
        ("analysis\nWe think\n\nassistant\nfinal\nHello<|return|>",
         [("final", "analysis\nWe think\n\nassistant\nfinal\nHello")]),
        ("<|channel|>analysis<|message|>we think so.assistantfinalhello<|end|>",
         [("reasoning", "we think so.assistantfinalhello")]),
        ("analysis of it: fine<|return|>", [("final", "analysis of it: fine")]),
        ("finally, yes<|return|>", [("final", "finally, yes")]),
        ("final-stage<|return|>", [("final", "final-stage")]),
        ("analysisWe see the assistant's final answer, assistant final, `assistantfinal`.<|end|>",
         [("reasoning",
           "We see the assistant's final answer, assistant final, `assistantfinal`.")]),
        ("<|channel|>analysis<|message|>An assistantfinalHello.<|end|>",
         [("reasoning", "An assistantfinalHello.")]),
        ("<|channel|>final<|message|>finalHello assistantfinalHello<|return|>",
         [("final", "finalHello assistantfinalHello")]),
    ],
)  # fmt: skip
def test_parse_joined_header_words_begin_a_message(
    encoding: HarmonyEncoding, markup: str, expected: list[tuple[str, str]]
) -> None:
    ids = encode(encoding, markup)
    harmony_streams.check(encoding, ids, steps=(2, 3, 7, 100))
    found = harmony_streams.segments(harmony_streams.parse(encoding, ids))
    assert [(s["kind"], s["text"]) for s in found if s["kind"] != "stop"] == expected


def test_parse_header_with_number_only_is_no_message(encoding: HarmonyEncoding) -> None:
    markup = (
        "<|channel|>commentary 2?<|end|><|start|>assistant<|channel|>final<|message|>a<|return|>"
    )
    events = parse_markup(encoding, markup)
    assert [event.kind for event in events if isinstance(event, Opened)] == [SegmentKind.FINAL]
    assert events[0] == Repair("header_abandoned", 0, "commentary 2?")


def test_parse_channel_joined_by_dots_to_recipient(encoding: HarmonyEncoding) -> None:
    events = parse_markup(encoding, " to=functions.f..commentary json<|message|>{}<|call|>")
    assert events[0] == Opened(SegmentKind.TOOL, "functions.f", "functions.f", json=True)


def test_parse_call_header_opens_segment(encoding: HarmonyEncoding) -> None:
    parser = HarmonyParser(encoding, harmony_streams.RECIPIENTS)
    header = encode(encoding, "<|channel|>commentary to=functions.f <|constrain|>json<|message|>")
    assert parser.feed(header) == [
        Opened(SegmentKind.TOOL, "functions.f", "functions.f", json=True)
    ]


def test_parse_bare_text_streams_at_once(encoding: HarmonyEncoding) -> None:
    parser = HarmonyParser(encoding, harmony_streams.RECIPIENTS)
    assert Delta("Hello") in parser.feed(encode(encoding, "Hello"))


def test_parse_endless_header_becomes_body(encoding: HarmonyEncoding) -> None:
    parser = HarmonyParser(encoding, harmony_streams.RECIPIENTS)
    words = encode(encoding, " thinking" * 3 * MAX_HEADER_TOKENS)
    events = parser.feed([200005, *words])
    assert Opened(SegmentKind.REASONING) in events
    assert parser.feed([words[0]]) == [Delta(" thinking")]


def test_parse_new_message_in_json_string_ends_call(encoding: HarmonyEncoding) -> None:
    markup = (
        '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": "b'
        "<|start|>assistant<|channel|>final<|message|>ok<|return|>"
    )
    segments = harmony_streams.segments(parse_markup(encoding, markup))
    assert segments[0] == {"kind": "tool", "recipient": "functions.f", "text": '{"a": "b'}
    assert [segment["kind"] for segment in segments] == ["tool", "stop"]


def test_parse_arguments_in_header_and_body_prefers_body(encoding: HarmonyEncoding) -> None:
    """The body's arguments count unless only those in the header are any."""
    header = '<|channel|>commentary to=functions.f {"a": 1}<|message|>'
    assert (
        harmony_streams.segments(parse_markup(encoding, header + '{"b": 2}<|call|>'))[0]["text"]
        == '{"b": 2}'
    )
    assert (
        harmony_streams.segments(parse_markup(encoding, header + "oh<|call|>"))[0]["text"]
        == '{"a": 1}'
    )


@pytest.mark.parametrize(
    "markup",
    [
        "<|start|>assistant<|constrain|>commentary to=functions.f<|message|>{}<|call|>",
        "<|start|>f<|channel|>commentary<|message|>{}<|call|>",
        "<|channel|>commentaryto=functions.f<|message|>{}<|call|>",
        "<|channel|>Commentary to= functions.f json<|message|>{}<|call|>",
        " to=functions.f {}<|call|>",
        "<|channel|>commentary to=functions.f<|constrain|>json{}<|call|>",
        "<|channel|>commentary f<|message|>{}<|call|>",
        "<|channel|>commentary to=f<|message|><|message|>{}<|call|>",
        "<|channel|>commentary to=mcp.f<|message|>{}<|start|>assistant",
        "<|channel|>analysis<|channel|>f<|message|>{}<|call|>",
    ],
)
def test_parse_malformed_header_is_call(encoding: HarmonyEncoding, markup: str) -> None:
    segments = harmony_streams.segments(parse_markup(encoding, markup))
    assert segments[0] == {"kind": "tool", "recipient": "functions.f", "text": "{}"}


def test_parse_unknown_tools_keeps_raw_names(encoding: HarmonyEncoding) -> None:
    ids = encode(encoding, "<|channel|>commentary to=any.thing code<|message|>x<|call|>")
    opened = harmony_streams.parse(encoding, ids, None)[0]
    assert opened == Opened(SegmentKind.TOOL, "any.thing", "any.thing")


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "repeated", [[token] for token in harmony_streams.SPECIALS + harmony_streams.ODD[:4]]
)
@pytest.mark.parametrize("before", ["", "<|channel|>", "<|message|>", "<|start|>user", " to=f {"])
def test_parse_repeated_markup_time_stays_linear(
    encoding: HarmonyEncoding, before: str, repeated: list[int]
) -> None:
    word = encode(encoding, " thinking")
    for unit in (repeated, repeated + word, word):
        ids = encode(encoding, before) + unit * 5_000
        began = time.process_time()
        parser = HarmonyParser(encoding, harmony_streams.RECIPIENTS)
        events = [event for token in ids for event in parser.feed([token])]
        assert time.process_time() - began < 5, "5,000 units take some 0.05 s"
        written = sum(len(event.text) for event in events if isinstance(event, Delta | Repair))
        assert written <= len(before) + 5_000 * len(" thinking<|reserved_200013|>")


AFTER = '<|message|>{"a":1}<|call|>'
CALLED = ("tool", "functions.f", '{"a":1}')
THINK = ("reasoning", None, "think.")
ANSWER = "<|start|>assistant<|channel|>final<|message|>b<|return|>"


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        # A recipient where the content type belongs.
        ("<|channel|>commentary <|constrain|>to=functions.f json" + AFTER, [CALLED]),
        ("<|channel|>commentary <|constrain|>functions.f" + AFTER, [CALLED]),
        ("<|channel|>analysis<|constrain|>f json" + AFTER, [CALLED]),
        ('<|channel|>commentary<|constrain|>functions.f {"a":1}<|call|>', [CALLED]),
        (
            "<|channel|>commentary<|constrain|>functions.new" + AFTER,
            [("tool_unknown", "functions.new", '{"a":1}')],
        ),
        # Reasoning that runs into a call's header.
        (
            "<|channel|>analysis<|message|>think. to=functions.f <|constrain|>json" + AFTER,
            [THINK, CALLED],
        ),
        ("<|channel|>analysis<|message|>think. to=f json" + AFTER, [THINK, CALLED]),
        (
            "<|channel|>analysis<|message|>think. assistantcommentary to=functions.f json" + AFTER,
            [THINK, CALLED],
        ),
        (
            "<|channel|>analysis<|message|>think. to=functions.f<|channel|>commentary json" + AFTER,
            [THINK, CALLED],
        ),
        (
            "<|channel|>analysis<|message|>think. to=functions.f"
            "<|channel|>final<|message|>b<|return|>",
            [THINK, ("final", None, "b")],
        ),
        (
            "<|channel|>analysis<|message|>Go to=functions.f to, commentary<|end|>",
            [("reasoning", None, "Go to=functions.f to, commentary")],
        ),
        (
            "<|channel|>analysis<|message|>think to=nothing<|message|>on<|end|>",
            [("reasoning", None, "think to=nothingon")],
        ),
        # A role as the recipient, and JSON as the body.
        (
            "<|channel|>analysis to=assistant json" + AFTER,
            [("tool_unknown", "assistant", '{"a":1}')],
        ),
        (
            '<|channel|>analysis to=user<|message|>{"a":1}<|end|>',
            [("tool_unknown", "user", '{"a":1}')],
        ),
        ("<|channel|>commentary to=analysis" + AFTER, [("tool_unknown", "analysis", '{"a":1}')]),
        (
            "<|channel|>analysis to=assistant<|message|>{a} is a set<|end|>",
            [("reasoning", None, "{a} is a set")],
        ),
        # What stands between two messages.
        (f"<|channel|>analysis<|message|>think.<|end|>.\n{ANSWER}", [THINK, ("final", None, "b")]),
        ("<|channel|>analysis<|message|>think.<|end|> …!<|return|>", [THINK]),
        ("<|channel|>analysis<|message|>think.<|end|>[]<|return|>", [THINK, ("final", None, "[]")]),
        (
            "<|channel|>analysis<|message|>think.<|end|> {}<|return|>",
            [THINK, ("final", None, " {}")],
        ),
        (
            "<|channel|>analysis<|message|>think.<|end|>- So be it.<|return|>",
            [THINK, ("final", None, "- So be it.")],
        ),
    ],
)
def test_parse_odd_message_is_mended(
    encoding: HarmonyEncoding, markup: str, expected: list[tuple[str, str | None, str]]
) -> None:
    ids = encode(encoding, markup)
    harmony_streams.check(encoding, ids, steps=(2, 3, 7, 100))
    found = harmony_streams.segments(harmony_streams.parse(encoding, ids))
    assert [
        (part["kind"], part["recipient"], part["text"]) for part in found if part["kind"] != "stop"
    ] == expected


def test_parse_stray_text_is_a_repair(encoding: HarmonyEncoding) -> None:
    ids = encode(encoding, f"<|channel|>analysis<|message|>a<|end|>.{ANSWER}")
    repairs = [e for e in harmony_streams.parse(encoding, ids) if isinstance(e, Repair)]
    assert repairs == [Repair("stray_text", 5, ".")]


@pytest.mark.parametrize("word", ["assistant", "commentary", " to=functions.f json"])
def test_parse_blanks_after_header_word_are_streamed(encoding: HarmonyEncoding, word: str) -> None:
    parser = HarmonyParser(encoding, harmony_streams.RECIPIENTS)
    parser.feed(encode(encoding, f"<|channel|>analysis<|message|>We ask the {word}"))
    newline = encode(encoding, "\n")
    streamed = [event for _ in range(200) for event in parser.feed(newline)]
    assert sum(event.text.count("\n") for event in streamed if isinstance(event, Delta)) > 100
