"""The other families: reasoning, calls and text told apart, whatever was written and however cut."""

from __future__ import annotations

import json
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.formats.markup.dialects import FAMILIES
from agent.formats.protocol import Closed, Delta, Opened, Stop
from agent.formats.tool_arguments import settle
from tests.support.markup import FRAGMENTS, RECIPIENTS, Reader, made, shape

QWEN, CODER, LLAMA, PLAIN = (Reader(n) for n in ("qwen3", "qwen3-coder", "llama3", "plain"))
READERS = [QWEN, CODER, LLAMA, PLAIN]
END = "<|im_end|>"


def hermes(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def xml(name: str, **values: str) -> str:
    given = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in values.items())
    return f"<tool_call>\n<function={name}>\n{given}</function>\n</tool_call>"


# --- any ids at all ---------------------------------------------------------------------------------


@given(
    reader=st.sampled_from(READERS),
    ids=st.lists(st.one_of(st.integers(-1, 300), st.sampled_from(b'<>{}":/`\n th')), max_size=80),
)
def test_any_ids(reader: Reader, ids: list[int]) -> None:
    reader.check(ids)


@given(reader=st.sampled_from(READERS), seed=st.integers(0, 2**32))
def test_any_markup(reader: Reader, seed: int) -> None:
    text, markers = made(random.Random(seed))
    reader.check(reader.encoder.markup(text), markers)


@given(reader=st.sampled_from(READERS), text=st.lists(st.sampled_from(FRAGMENTS), max_size=25))
def test_spelled_tags_are_tags(reader: Reader, text: list[str]) -> None:
    """Whether a tag is one id or many decides nothing (but ids that end a turn are only ids)."""
    markup = "".join(part for part in text if not part.startswith("<|"))
    as_ids = [piece[:2] for piece in reader.read(markup)]
    spelled = reader.pieces(reader.encoder.text(markup))
    assert as_ids == [piece[:2] for piece in shape(spelled)]


@pytest.mark.parametrize("reader", READERS, ids=[r.family.name for r in READERS])
@pytest.mark.parametrize(
    "unit", ["<", "`", " ", "\n", "{", '"', "<tool_call>", "<tool_call>{", "x"]
)
def test_time_stays_flat(reader: Reader, unit: str) -> None:
    for before in ("", '<tool_call>{"name": "f", "arguments": {"a": "', "<tool_call><function=f>"):
        ids = reader.encoder.markup(before + unit * 4_000)
        began = time.process_time()
        reader.pieces(ids)
        assert time.process_time() - began < 5


# --- what models write ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reader", "call"),
    [
        (QWEN, hermes("f", '{"text": "x"}')),
        (QWEN, xml("f", text="x")),
        (CODER, xml("f", text="x")),
        (CODER, hermes("f", '{"text": "x"}')),
        (LLAMA, '{"name": "f", "parameters": {"text": "x"}}'),
        (LLAMA, '<|python_tag|>{"name": "f", "parameters": {"text": "x"}}'),
    ],
)
def test_each_part_is_what_it_is(reader: Reader, call: str) -> None:
    """Reasoning and calls are read together; text before, between and after calls is text."""
    tool, end = ("tool", "f", '{"text": "x"}'), reader.family.ends[0]
    assert reader.read(call + end) == [tool]
    assert reader.read(f"<think>\nhm\n</think>\n\n{call}{end}") == [("reasoning", "hm"), tool]
    assert reader.read(f"Let me see.\n\n{call}{end}") == [("final", "Let me see."), tool]
    assert reader.read(f"<think>hm</think>One.\n{call}\nTwo.\n{call}\nThree.{end}") == [
        ("reasoning", "hm"),
        ("final", "One."),
        tool,
        ("final", "Two."),
        tool,
        ("final", "Three."),
    ]
    assert reader.read(f"{call}\n{call}{end}") == [tool, tool]


def test_the_end_stops_and_a_call_does_not() -> None:
    calls = QWEN.encoder.markup(hermes("f", "{}") * 2)
    pieces = QWEN.pieces([*calls, *QWEN.encoder.markup(END + "more")])
    assert [piece for piece in pieces if isinstance(piece, Stop)] == [Stop("return", len(calls))]
    assert all(piece.complete for piece in pieces if isinstance(piece, Closed))


def test_somebody_elses_turn_stops() -> None:
    pieces = QWEN.pieces(QWEN.encoder.markup("ok<|im_start|>user\nand then?"))
    assert pieces[-1] == Stop("turn", 2)


def test_arguments_stream_byte_for_byte() -> None:
    written = '{ "a":1.50 ,"b" : [ {"c":"\\u00e9 }"} ] }'
    ids = QWEN.encoder.markup(f'<tool_call>{{"name":"f","arguments":{written}')
    assert QWEN.pieces(ids)[1] == Delta(written)
    assert QWEN.read(f'<tool_call>{{"arguments":{written},"name":"f"}}</tool_call>') == [
        ("tool", "f", written)
    ]


def test_a_name_is_told_before_its_arguments() -> None:
    ids = QWEN.encoder.markup('<tool_call>\n{"name": "f"')
    assert isinstance(QWEN.pieces(ids)[0], Opened)
    assert QWEN.read('<tool_call>\n{"name": "f"') == [("tool", "f", "")]


@pytest.mark.parametrize("written", ['"{\\"a\\": 1}"', "null", ""])
def test_arguments_in_other_clothes(written: str) -> None:
    body = f', "arguments": {written}' if written else ""
    [(_, _, text)] = QWEN.read(f'<tool_call>{{"name": "f"{body}}}</tool_call>{END}')
    assert text == ('{"a": 1}' if written.startswith('"') else "")


def test_half_a_character_in_other_clothes_stays_escaped() -> None:
    body = '"{\\"a\\": \\"\\ud800\\"}"'
    [(_, _, text)] = QWEN.read(f'<tool_call>{{"name": "f", "arguments": {body}}}</tool_call>{END}')
    assert text == body


@pytest.mark.parametrize("cut", range(1, len(hermes("f", '{"a": "b"}'))))
def test_a_call_that_is_cut_off(cut: int) -> None:
    call = hermes("f", '{"a": "b"}')[:cut]
    pieces = QWEN.pieces(QWEN.encoder.text(call))
    closed = [piece for piece in pieces if isinstance(piece, Closed)]
    if '"f"' in call:
        assert [piece.complete for piece in closed] == [False]
        body = "".join(piece.text for piece in pieces if isinstance(piece, Delta))
        assert json.loads(settle(body, False).json) is not None
    else:
        assert not any(isinstance(p, Opened) and p.raw_recipient for p in pieces)


@pytest.mark.parametrize(
    ("first", "body"),
    [
        ('<tool_call>{"name": "f", "arguments": {"a": 1}', '{"a": 1}'),
        ('<tool_call>{"name": "f", "arguments": {"a": 1}}', '{"a": 1}'),
        ('<tool_call>{"name": "f", "arguments": {"a": "x', '{"a": "x'),
        ("<tool_call><function=f>\n<parameter=text>\nx", '{"text": "x"}'),
        ("<tool_call><function=f>\n<parameter=text>\nx\n</parameter>", '{"text": "x"}'),
        ("<tool_call><function=f>\n<parameter=text>\nx\n</parameter></function>", '{"text": "x"}'),
    ],
)
def test_a_call_that_is_open_when_the_next_begins(first: str, body: str) -> None:
    second = xml("g") if "<function" in first else hermes("g", "{}")
    for reader in (QWEN, CODER):
        found = [part for part in reader.read(f"{first}\n{second}{END}") if part[0][:4] == "tool"]
        assert found[0][:2] == ("tool", "f") and found[0][2].rstrip() == body
        assert found[1] == ("tool_unknown", "g", "{}")


@pytest.mark.parametrize(
    "markup",
    [
        "Write `<tool_call>` so:",
        '```xml\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\n```',
        "1. Look:\n   ~~~\n   <think>\n   ```\n   </think>\n   ~~~\ndone",
        "``a ` <think> b`` is code",
        "```\n<function=f>\n</function>\n```",
        'so: {"name": "f", "parameters": {}}',
        '```json\n{"name": "f", "parameters": {}}\n```',
        '{"name": "Bob", "age": 5}',
        '{\n  "name": "f",\n  "type": "person"\n}',
        "{x | x > 0}",
        "a < b </b> <tool",
    ],
)
def test_code_is_text(markup: str) -> None:
    for reader in READERS:
        assert reader.read(markup + reader.family.ends[0]) == [("final", markup)]


def test_code_that_a_line_or_a_fence_ended_is_over() -> None:
    call = hermes("f", "{}")
    for before in ("a ` b\n", "```\nx\n```\n", "`x` ", "~~~~\n~~~\n~~~~\n"):
        assert QWEN.read(before + call)[-1] == ("tool", "f", "{}")


def test_tags_in_strings_are_text() -> None:
    body = json.dumps({"a": "<tool_call> </tool_call> <think> </think>"})
    assert QWEN.read(hermes("f", body)) == [("tool", "f", body)]


# --- thinking ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("reader", READERS, ids=[r.family.name for r in READERS])
def test_thinking(reader: Reader) -> None:
    end = reader.family.ends[0]
    answer = [("reasoning", "a"), ("final", "b")]
    assert reader.read(f"<think>\na\n</think>\n\nb{end}") == answer
    assert reader.read(f"a\n</think>\n\nb{end}", thinking=True) == answer
    assert reader.read(f"\n</think>\n\nb{end}", thinking=True) == [("final", "b")]
    assert reader.read(f"<think>\n\n</think>\n\nb{end}") == [("final", "b")]
    assert reader.read(f"<think>a{end}") == [("reasoning", "a"), ("think_unclosed", "")]
    assert reader.read("<think>a") == [("reasoning", "a")]
    assert reader.read(f"<think>a<think>b</think>{end}")[0] == ("reasoning", "ab")
    assert reader.read(f"x</think>y{end}") == [
        ("final", "x"),
        ("think_unopened", "</think>"),
        ("final", "y"),
    ]


def test_thoughts_are_one_span_with_the_space_behind_them() -> None:
    ids = QWEN.encoder.markup("<think>\na\n</think>\n\nb")
    closed = [piece for piece in QWEN.pieces(ids) if isinstance(piece, Closed)]
    assert [(c.start, c.end, c.complete) for c in closed] == [(0, 7, True), (7, 8, False)]


def test_a_call_ends_thinking_that_was_not_ended() -> None:
    call = hermes("f", "{}")
    assert QWEN.read(f"<think>a\n{call}\nb</think>c{END}") == [
        ("reasoning", "a"),
        ("think_unclosed", ""),
        ("tool", "f", "{}"),
        ("reasoning", "b"),
        ("final", "c"),
    ]


def test_thoughts_about_calls_are_thoughts() -> None:
    text = "I could write <tool_call> here, or `<tool_call>{}`."
    assert QWEN.read(f"<think>{text}</think>ok") == [("reasoning", text), ("final", "ok")]


# --- malformed --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        (
            '<tool_call>{"name": "f", "arguments": {"a": 1}}}</tool_call>',
            [("tool", "f", '{"a": 1}'), ("call_text", "}")],
        ),
        (
            '<tool_call>{"name": "f", "arguments": {"a": 1}</tool_call>ok',
            [("tool", "f", '{"a": 1}'), ("final", "ok")],
        ),
        (
            '<tool_call>{"id": 7, "name": "f", "arguments": {}}</tool_call>',
            [("tool", "f", "{}"), ("call_text", '"id": 7')],
        ),
        (
            '<tool_call>{"name": "f"}\n{"name": "files.read"}</tool_call>',
            [("tool", "f", ""), ("tool", "files__read", "")],
        ),
        (
            '<tool_call>{"name": "f", "arguments": {}}\nSo it is.' + END,
            [("tool", "f", "{}"), ("call_unclosed", ""), ("final", "So it is.")],
        ),
        (
            '<tool_call>{"name": "f", "arguments": {"a": "b</tool_call>' + END,
            [("tool", "f", '{"a": "b')],
        ),
        ("<tool_call>f(1)</tool_call>", [("tool_unknown", "", "f(1)")]),
        ("<tool_call>{'name': 'f'}</tool_call>", [("tool_unknown", "", "{'name': 'f'}")]),
        ('<tool_call>{"a": 1}</tool_call>', [("tool_unknown", "", '{"a": 1}')]),
        (
            "say <tool_call> no more",
            [("final", "say"), ("call_malformed", "<tool_call>"), ("final", "no more")],
        ),
        ("a</tool_call>b", [("final", "ab"), ("stray_tag", "</tool_call>")]),
    ],
)
def test_malformed_json(markup: str, expected: list[tuple[str, ...]]) -> None:
    assert QWEN.read(markup) == expected


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        (
            "<function=f>\n<parameter=text>\nx\n</parameter>\n</function>\n</tool_call>",
            [("call_unopened", ""), ("tool", "f", '{"text": "x"}')],
        ),
        (
            "<tool_call>\n<function=f>\n<parameter=text>\nx\n<parameter=count>\n5\n</function>\n</tool_call>",
            [
                ("tool", "f", '{"text": "x", "count": 5}'),
                ("parameter_unclosed", ""),
                ("parameter_unclosed", ""),
            ],
        ),
        (
            "<tool_call><function=f>hm<parameter=text>x</parameter></function></tool_call>",
            [("tool", "f", '{"text": "x"}'), ("call_text", "hm")],
        ),
        (
            "<tool_call><function=f></function><function=g></function></tool_call>ok",
            [("tool", "f", "{}"), ("tool_unknown", "g", "{}"), ("final", "ok")],
        ),
        (
            "<tool_call><function=f></function>ok",
            [("tool", "f", "{}"), ("call_unclosed", ""), ("final", "ok")],
        ),
        ("<tool_call><function=></function></tool_call>", [("tool_unknown", "", "{}")]),
    ],
)
def test_malformed_xml(markup: str, expected: list[tuple[str, ...]]) -> None:
    assert CODER.read(markup) == expected


def test_a_value_may_speak_of_tags() -> None:
    text = "<a>\n</parameter> and </function> and </tool_call>, <parameter=x>\n  end"
    [(_, _, body)] = CODER.read(xml("f", text=text) + END)
    assert json.loads(body) == {"text": text}


@pytest.mark.parametrize(
    ("name", "written", "value"),
    [
        ("text", "5", "5"),
        ("text", '"quoted"', '"quoted"'),
        ("text", "a\n\n  b\n", "a\n\n  b\n"),
        ("count", "5", 5),
        ("count", " 5.0 ", 5),
        ("count", "five", "five"),
        ("size", "1e3", 1000.0),
        ("on", "True", True),
        ("on", "false", False),
        ("list", "[1, 'a', None]", [1, "a", None]),
        ("list", '["a"]', ["a"]),
        ("map", '{"a": {"b": 1}}', {"a": {"b": 1}}),
        ("map", "{'a': True}", {"a": True}),
        ("map", "{half", "{half"),
        ("maybe", "null", None),
        ("maybe", "5", "5"),
        ("level", "2", 2),
        ("new", "5", "5"),
    ],
)
def test_values_have_the_type_of_the_schema(name: str, written: str, value: object) -> None:
    [(_, _, body)] = CODER.read(xml("f", **{name: written}) + END)
    assert json.loads(body) == {name: value}
    assert type(json.loads(body)[name]) is type(value)


def test_strings_stream_escaped() -> None:
    ids = CODER.encoder.markup('<tool_call><function=f><parameter=text>say "é"\n')
    assert CODER.pieces(ids)[1] == Delta('{"text": "say \\"é\\"')


def test_llama_code_goes_to_python() -> None:
    pieces = LLAMA.pieces(LLAMA.encoder.markup("<|python_tag|>print({1})\n<|eom_id|>"))
    assert pieces[0] == Opened(pieces[0].kind, "python", "python", json=False)  # type: ignore[union-attr]
    assert LLAMA.read("<|python_tag|>x = 1") == [("tool", "python", "x = 1")]


def test_several_llama_calls() -> None:
    call = '{"name": "f", "parameters": {"a": 1}}'
    assert LLAMA.read(f"{call}; {call}\n{call}<|eot_id|>") == [("tool", "f", '{"a": 1}')] * 3


def test_no_tools_known() -> None:
    assert QWEN.read(hermes("any.thing", "{}"), recipients=None) == [("tool", "any.thing", "{}")]
    assert RECIPIENTS.resolve("any.thing") is None


def test_families_are_told_by_name() -> None:
    assert list(FAMILIES) == ["qwen3", "qwen3-coder", "llama3", "plain"]
