"""The parser: real and odd streams as expected; for any ids at all, nothing raised, nothing lost."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai_harmony import HarmonyEncoding, Role

from agent.formats.harmony.parser import LONGEST_HEADER, HarmonyParser
from agent.formats.protocol import Closed, Delta, Kind, Opened, Repair, Stop
from tests.support import harmony_streams


def encode(encoding: HarmonyEncoding, markup: str) -> list[int]:
    return encoding.encode(markup, allowed_special="all")


@pytest.mark.parametrize("case", harmony_streams.CASES, ids=lambda case: case["id"])
def test_case(encoding: HarmonyEncoding, case: dict[str, Any]) -> None:
    pieces = harmony_streams.parse(encoding, case["tokens"])
    found, expected = harmony_streams.segments(pieces), case["expected"]
    # A completed call or a <|return|> implies the stop; where it is expected it must be there.
    if not (expected and expected[-1]["kind"] == "stop"):
        found = [segment for segment in found if segment["kind"] != "stop"]
    assert found == expected
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
def test_any_ids(encoding: HarmonyEncoding, ids: list[int]) -> None:
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
def test_mutated_real_streams(encoding: HarmonyEncoding, seed: int) -> None:
    harmony_streams.check(encoding, harmony_streams.mutated(random.Random(seed)))


@given(ids=ids_of_any_kind, cuts=st.lists(st.integers(0, 9), max_size=70))
def test_cuts_do_not_matter(encoding: HarmonyEncoding, ids: list[int], cuts: list[int]) -> None:
    whole = harmony_streams.parse(encoding, ids, step=1000)
    parser = HarmonyParser(encoding, harmony_streams.RECIPIENTS)
    pieces, rest = [], list(ids)
    for cut in cuts:
        pieces += parser.feed(rest[:cut])
        rest = rest[cut:]
    pieces += parser.feed(rest) + parser.finish()
    assert harmony_streams.segments(pieces) == harmony_streams.segments(whole)


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
def test_well_formed_as_openai_harmony(
    encoding: HarmonyEncoding, thoughts: list[tuple[str, str]], last: tuple[str, str], text: str
) -> None:
    ids: list[int] = []
    for header, body, end in [*((h, t, "<|end|>") for h, t in thoughts), (last[0], text, last[1])]:
        ids += encode(encoding, f"<|start|>assistant<|channel|>{header}<|message|>" if ids else "")
        ids = ids or encode(encoding, f"<|channel|>{header}<|message|>")
        ids += encoding.encode(body, disallowed_special=()) + encode(encoding, end)
    theirs = encoding.parse_messages_from_completion_tokens(ids, Role.ASSISTANT)
    pieces = harmony_streams.parse(encoding, ids)
    ours = [segment for segment in harmony_streams.segments(pieces) if segment["kind"] != "stop"]
    kinds = {"analysis": "reasoning", "commentary": "preamble", "final": "final"}
    assert ours == [
        {
            "kind": "tool" if message.recipient else kinds[message.channel or ""],
            "recipient": message.recipient,
            "text": message.content[0].text,
        }
        for message in theirs
    ]
    assert not any(isinstance(piece, Repair) for piece in pieces)


# --- text -------------------------------------------------------------------------------------------


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_deltas_are_whole_characters(encoding: HarmonyEncoding, text: str) -> None:
    ids = encode(encoding, "<|channel|>final<|message|>")
    ids += encoding.encode(text, disallowed_special=())
    parser = HarmonyParser(encoding)
    pieces = [piece for token in ids for piece in parser.feed([token])] + parser.finish()
    assert "".join(piece.text for piece in pieces if isinstance(piece, Delta)) == text


@given(tokens=st.lists(st.integers(0, 199_997), max_size=30))
def test_broken_utf8_is_replaced_as_python_does(
    encoding: HarmonyEncoding, tokens: list[int]
) -> None:
    pieces = harmony_streams.parse(encoding, [200005, 17196, 200008, *tokens, 200002])
    text = "".join(piece.text for piece in pieces if isinstance(piece, Delta))
    raw = b"".join(bytes(encoding._inner.decode_bytes([token])) for token in tokens)
    assert text == raw.decode(errors="replace")


# --- what the other tests leave out -----------------------------------------------------------------


def stream(encoding: HarmonyEncoding, markup: str) -> list[Any]:
    return harmony_streams.parse(encoding, encode(encoding, markup))


def test_positions_cover_the_stream(encoding: HarmonyEncoding) -> None:
    pieces = stream(
        encoding,
        "<|channel|>analysis<|message|>think<|end|>"
        "<|start|>assistant<|channel|>final<|message|>ok<|return|>",
    )
    closed = [piece for piece in pieces if isinstance(piece, Closed)]
    assert closed == [Closed(True, 0, 5, 1), Closed(True, 5, 12, 1)]
    assert pieces[-1] == Stop("return", 11)


def test_somebody_elses_turn_stops_where_it_begins(encoding: HarmonyEncoding) -> None:
    markup = "<|channel|>final<|message|>ok<|end|><|start|>user<|message|>and then?"
    assert stream(encoding, markup)[-1] == Stop("turn", 5)


@pytest.mark.parametrize("author", ["functions.g", "python", "nothing_declared", "user", "tool"])
def test_a_written_tool_result_is_not_ours(encoding: HarmonyEncoding, author: str) -> None:
    markup = f"<|end|><|start|>{author} to=assistant<|channel|>commentary<|message|>56088<|end|>"
    pieces = stream(encoding, markup)
    assert isinstance(pieces[-1], Stop) and pieces[-1].reason == "turn"
    assert not any(isinstance(piece, Opened) for piece in pieces)


def test_a_call_is_opened_before_its_arguments(encoding: HarmonyEncoding) -> None:
    parser = HarmonyParser(encoding, harmony_streams.RECIPIENTS)
    header = encode(encoding, "<|channel|>commentary to=functions.f <|constrain|>json<|message|>")
    assert parser.feed(header) == [Opened(Kind.TOOL, "functions.f", "functions.f", json=True)]


def test_bare_text_streams_at_once(encoding: HarmonyEncoding) -> None:
    parser = HarmonyParser(encoding, harmony_streams.RECIPIENTS)
    assert Delta("Hello") in parser.feed(encode(encoding, "Hello"))


def test_an_endless_header_streams_as_a_body(encoding: HarmonyEncoding) -> None:
    parser = HarmonyParser(encoding, harmony_streams.RECIPIENTS)
    words = encode(encoding, " thinking" * 3 * LONGEST_HEADER)
    pieces = parser.feed([200005, *words])
    assert Opened(Kind.REASONING) in pieces
    assert parser.feed([words[0]]) == [Delta(" thinking")]


def test_a_new_message_inside_an_open_json_string(encoding: HarmonyEncoding) -> None:
    markup = (
        '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": "b'
        "<|start|>assistant<|channel|>final<|message|>ok<|return|>"
    )
    found = harmony_streams.segments(stream(encoding, markup))
    assert found[0] == {"kind": "tool", "recipient": "functions.f", "text": '{"a": "b'}
    assert [segment["kind"] for segment in found] == ["tool", "stop"]


def test_arguments_in_header_and_body(encoding: HarmonyEncoding) -> None:
    """The body's arguments count unless only those in the header are any."""
    head = '<|channel|>commentary to=functions.f {"a": 1}<|message|>'
    assert (
        harmony_streams.segments(stream(encoding, head + '{"b": 2}<|call|>'))[0]["text"]
        == '{"b": 2}'
    )
    assert harmony_streams.segments(stream(encoding, head + "oh<|call|>"))[0]["text"] == '{"a": 1}'


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
def test_a_call_is_a_call(encoding: HarmonyEncoding, markup: str) -> None:
    found = harmony_streams.segments(stream(encoding, markup))
    assert found[0] == {"kind": "tool", "recipient": "functions.f", "text": "{}"}


def test_without_known_tools_names_are_taken_as_written(encoding: HarmonyEncoding) -> None:
    ids = encode(encoding, "<|channel|>commentary to=any.thing code<|message|>x<|call|>")
    opened = harmony_streams.parse(encoding, ids, None)[0]
    assert opened == Opened(Kind.TOOL, "any.thing", "any.thing")


@pytest.mark.parametrize(
    "repeated", [[token] for token in harmony_streams.SPECIALS + harmony_streams.ODD[:4]]
)
@pytest.mark.parametrize("before", ["", "<|channel|>", "<|message|>", "<|start|>user", " to=f {"])
def test_time_and_memory_stay_flat(
    encoding: HarmonyEncoding, before: str, repeated: list[int]
) -> None:
    word = encode(encoding, " thinking")
    for unit in (repeated, repeated + word, word):
        ids = encode(encoding, before) + unit * 5_000
        began = time.process_time()
        parser = HarmonyParser(encoding, harmony_streams.RECIPIENTS)
        pieces = [piece for token in ids for piece in parser.feed([token])]
        assert time.process_time() - began < 5, "5,000 units take some 0.05 s"
        written = sum(len(piece.text) for piece in pieces if isinstance(piece, Delta | Repair))
        assert written <= len(before) + 5_000 * len(" thinking<|reserved_200013|>")
