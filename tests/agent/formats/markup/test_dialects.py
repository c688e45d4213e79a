"""The markup parser: reasoning, calls and text of each dialect, for any text and any cuts."""

import itertools
import json
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.formats.markup.known import SYNTAXES
from agent.formats.markup.parser import MarkupParser
from agent.formats.markup.segments import TokenClasses
from agent.formats.markup.vocabulary import ByteVocabulary
from agent.formats.protocol import Closed, Delta, Opened, Stop
from agent.formats.tool_arguments import repair_arguments
from tests.support.markup import FRAGMENTS, RECIPIENTS, DialectHarness, random_markup, summarise

QWEN, CODER, LLAMA, PLAIN = (
    DialectHarness(name) for name in ("qwen3", "qwen3-coder", "llama3", "plain")
)
HARNESSES = [QWEN, CODER, LLAMA, PLAIN]
END = "<|im_end|>"


def hermes(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def xml(name: str, **values: str) -> str:
    parameters = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in values.items())
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


# --- any ids at all ---------------------------------------------------------------------------------


@given(
    harness=st.sampled_from(HARNESSES),
    ids=st.lists(st.one_of(st.integers(-1, 300), st.sampled_from(b'<>{}":/`\n th')), max_size=80),
)
def test_parse_any_ids_holds_invariants(harness: DialectHarness, ids: list[int]) -> None:
    harness.check(ids)


@given(harness=st.sampled_from(HARNESSES), seed=st.integers(0, 2**32))
def test_parse_any_markup_holds_invariants(harness: DialectHarness, seed: int) -> None:
    text, markers = random_markup(random.Random(seed))
    harness.check(harness.encoder.encode_markup(text), markers)


@given(harness=st.sampled_from(HARNESSES), text=st.lists(st.sampled_from(FRAGMENTS), max_size=25))
def test_parse_spelled_tags_equal_special_ids(harness: DialectHarness, text: list[str]) -> None:
    """A tag counts as one id or as many, except those that end a generation, which are only ids."""
    markup = "".join(part for part in text if not part.startswith("<|"))
    as_ids = [event[:2] for event in harness.read(markup)]
    spelled = harness.events(harness.encoder.encode_text(markup))
    assert as_ids == [event[:2] for event in summarise(spelled)]


@given(harness=st.sampled_from(HARNESSES), seed=st.integers(0, 2**32))
def test_parse_long_tokens_gives_texts_of_bytes(harness: DialectHarness, seed: int) -> None:
    """Most tokens of a model are words, which are written without being read."""
    rng, vocabulary = random.Random(seed), ByteVocabulary(harness.syntax.specials)
    ids = harness.encoder.encode_markup(random_markup(rng)[0])
    words: list[int] = []
    for is_special, group in itertools.groupby(ids, lambda token: token >= 256):
        run = [*group]
        words += run if is_special else []
        left = b"" if is_special else bytes(run)
        while left:
            length = rng.randint(1, 8)
            words.append(1000 + len(words))
            vocabulary._texts[words[-1]], left = left[:length], left[length:]
    parser = MarkupParser(TokenClasses(vocabulary, harness.syntax), RECIPIENTS)
    assert summarise(parser.feed(words) + parser.finish()) == summarise(harness.events(ids))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("harness", HARNESSES, ids=[r.syntax.name for r in HARNESSES])
@pytest.mark.parametrize(
    "unit", ["<", "`", " ", "\n", "{", '"', "<tool_call>", "<tool_call>{", "x"]
)
def test_parse_repeated_unit_time_stays_linear(harness: DialectHarness, unit: str) -> None:
    for before in ("", '<tool_call>{"name": "f", "arguments": {"a": "', "<tool_call><function=f>"):
        ids = harness.encoder.encode_markup(before + unit * 4_000)
        began = time.process_time()
        harness.events(ids)
        assert time.process_time() - began < 5


# --- what models write ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("harness", "call"),
    [
        (QWEN, hermes("f", '{"text": "x"}')),
        (QWEN, xml("f", text="x")),
        (CODER, xml("f", text="x")),
        (CODER, hermes("f", '{"text": "x"}')),
        (LLAMA, '{"name": "f", "parameters": {"text": "x"}}'),
        (LLAMA, '<|python_tag|>{"name": "f", "parameters": {"text": "x"}}'),
    ],
)
def test_parse_reasoning_calls_and_text_in_order(harness: DialectHarness, call: str) -> None:
    """Reasoning, calls, and text before, between and after calls."""
    tool, end = ("tool", "f", '{"text": "x"}'), harness.syntax.ends[0]
    assert harness.read(call + end) == [tool]
    assert harness.read(f"<think>\nhm\n</think>\n\n{call}{end}") == [("reasoning", "hm"), tool]
    assert harness.read(f"Let me see.\n\n{call}{end}") == [("final", "Let me see."), tool]
    assert harness.read(f"<think>hm</think>One.\n{call}\nTwo.\n{call}\nThree.{end}") == [
        ("reasoning", "hm"),
        ("final", "One."),
        tool,
        ("final", "Two."),
        tool,
        ("final", "Three."),
    ]
    assert harness.read(f"{call}\n{call}{end}") == [tool, tool]


def test_parse_end_stops_but_call_does_not() -> None:
    calls = QWEN.encoder.encode_markup(hermes("f", "{}") * 2)
    events = QWEN.events([*calls, *QWEN.encoder.encode_markup(END + "more")])
    assert [event for event in events if isinstance(event, Stop)] == [Stop("return", len(calls))]
    assert all(event.complete for event in events if isinstance(event, Closed))


def test_parse_other_role_stops() -> None:
    events = QWEN.events(QWEN.encoder.encode_markup("ok<|im_start|>user\nand then?"))
    assert events[-1] == Stop("turn", 2)


def test_json_arguments_stream_unchanged() -> None:
    written = '{ "a":1.50 ,"b" : [ {"c":"\\u00e9 }"} ] }'
    ids = QWEN.encoder.encode_markup(f'<tool_call>{{"name":"f","arguments":{written}')
    assert QWEN.events(ids)[1] == Delta(written)
    assert QWEN.read(f'<tool_call>{{"arguments":{written},"name":"f"}}</tool_call>') == [
        ("tool", "f", written)
    ]


def test_json_call_opens_at_name() -> None:
    ids = QWEN.encoder.encode_markup('<tool_call>\n{"name": "f"')
    assert isinstance(QWEN.events(ids)[0], Opened)
    assert QWEN.read('<tool_call>\n{"name": "f"') == [("tool", "f", "")]


@pytest.mark.parametrize("written", ['"{\\"a\\": 1}"', "null", ""])
def test_json_arguments_as_string_are_unpacked(written: str) -> None:
    body = f', "arguments": {written}' if written else ""
    [(_, _, text)] = QWEN.read(f'<tool_call>{{"name": "f"{body}}}</tool_call>{END}')
    assert text == ('{"a": 1}' if written.startswith('"') else "")


def test_json_arguments_lone_surrogate_stays_escaped() -> None:
    body = '"{\\"a\\": \\"\\ud800\\"}"'
    [(_, _, text)] = QWEN.read(f'<tool_call>{{"name": "f", "arguments": {body}}}</tool_call>{END}')
    assert text == body


@pytest.mark.parametrize("cut", range(1, len(hermes("f", '{"a": "b"}'))))
def test_json_call_cut_off_is_incomplete(cut: int) -> None:
    call = hermes("f", '{"a": "b"}')[:cut]
    events = QWEN.events(QWEN.encoder.encode_text(call))
    closed = [event for event in events if isinstance(event, Closed)]
    if '"f"' in call:
        assert [event.complete for event in closed] == [False]
        body = "".join(event.text for event in events if isinstance(event, Delta))
        assert json.loads(repair_arguments(body, False).json) is not None
    else:
        assert not any(isinstance(p, Opened) and p.raw_recipient for p in events)


@pytest.mark.parametrize(
    ("first", "body"),
    [
        ('<tool_call>{"name": "f", "arguments": {"a": 1}', '{"a": 1}'),
        ('<tool_call>{"name": "f", "arguments": {"a": 1}}', '{"a": 1}'),
        ('<tool_call>{"name": "f", "arguments": {"a": "x', '{"a": "x'),
        ("<tool_call><function=f>\n<parameter=text>\nx", '{"text": "x'),
        ("<tool_call><function=f>\n<parameter=text>\nx\n</parameter>", '{"text": "x"}'),
        ("<tool_call><function=f>\n<parameter=text>\nx\n</parameter></function>", '{"text": "x"}'),
    ],
)
def test_open_call_ends_at_next_call(first: str, body: str) -> None:
    second = xml("g") if "<function" in first else hermes("g", "{}")
    for harness in (QWEN, CODER):
        calls = [part for part in harness.read(f"{first}\n{second}{END}") if part[0][:4] == "tool"]
        assert calls[0][:2] == ("tool", "f") and calls[0][2].rstrip() == body
        assert calls[1] == ("tool_unknown", "g", "{}")


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
def test_tags_in_markdown_code_are_text(markup: str) -> None:
    for harness in HARNESSES:
        assert harness.read(markup + harness.syntax.ends[0]) == [("final", markup)]


def test_call_after_closed_code_is_call() -> None:
    call = hermes("f", "{}")
    for before in ("a ` b\n", "```\nx\n```\n", "`x` ", "~~~~\n~~~\n~~~~\n"):
        assert QWEN.read(before + call)[-1] == ("tool", "f", "{}")


def test_tags_in_json_strings_are_text() -> None:
    body = json.dumps({"a": "<tool_call> </tool_call> <think> </think>"})
    assert QWEN.read(hermes("f", body)) == [("tool", "f", body)]


# --- thinking ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("harness", HARNESSES, ids=[r.syntax.name for r in HARNESSES])
def test_parse_thinking_separates_reasoning(harness: DialectHarness) -> None:
    end = harness.syntax.ends[0]
    answer = [("reasoning", "a"), ("final", "b")]
    assert harness.read(f"<think>\na\n</think>\n\nb{end}") == answer
    assert harness.read(f"a\n</think>\n\nb{end}", thinking=True) == answer
    assert harness.read(f"\n</think>\n\nb{end}", thinking=True) == [("final", "b")]
    assert harness.read(f"<think>\n\n</think>\n\nb{end}") == [("final", "b")]
    assert harness.read(f"<think>a{end}") == [("reasoning", "a"), ("think_unclosed", "")]
    assert harness.read("<think>a") == [("reasoning", "a")]
    assert harness.read(f"<think>a<think>b</think>{end}")[0] == ("reasoning", "ab")
    assert harness.read(f"x</think>y{end}") == [
        ("final", "x"),
        ("think_unopened", "</think>"),
        ("final", "y"),
    ]


def test_reasoning_span_includes_following_space() -> None:
    ids = QWEN.encoder.encode_markup("<think>\na\n</think>\n\nb")
    closed = [event for event in QWEN.events(ids) if isinstance(event, Closed)]
    assert [(c.start, c.end, c.complete) for c in closed] == [(0, 7, True), (7, 8, False)]


@pytest.mark.parametrize("harness", [QWEN, CODER], ids=["qwen3", "qwen3-coder"])
def test_call_in_unclosed_thinking_runs_only_at_its_end(harness: DialectHarness) -> None:
    xml = "<tool_call>\n<function=f>\n</function>\n</tool_call>"
    for call in (hermes("f", "{}"), xml if harness is CODER else hermes("f", "{}")):
        tool = ("tool", "f", "{}")
        assert harness.read(f"<think>a\n{call}\n{call}{END}") == [
            ("reasoning", "a"),
            ("think_unclosed", ""),
            tool,
            ("think_unclosed", ""),
            tool,
        ]
        for thought in (f"a\n{call}", f"a\n{call}\nb", f"a\n{call}\n{call}\nb", call[:-12]):
            assert harness.read(f"<think>\n{thought}\n</think>\n\nDone.{END}") == [
                ("reasoning", thought.rstrip()),
                ("final", "Done."),
            ]
        assert harness.read(f"<think>\na\n{call}\nb\n</think>\n\n{call}{END}") == [
            ("reasoning", f"a\n{call}\nb"),
            tool,
        ]


def test_json_in_reasoning_is_no_call() -> None:
    call = '{"name": "f", "parameters": {}}'
    assert LLAMA.read(f"<think>\n{call}\n</think>\n\n{call}<|eot_id|>") == [
        ("reasoning", call),
        ("tool", "f", "{}"),
    ]


@pytest.mark.parametrize("harness", [QWEN, CODER], ids=["qwen3", "qwen3-coder"])
@pytest.mark.parametrize(
    "text",
    [
        '"<tool_call>" opens, "</tool_call>" closes.',
        "“</tool_call>” closes.",
        "A call: <tool_call> and </tool_call>",
        "'<think>' opens, '</think>' closes.",
    ],
)
def test_mentioned_tags_are_text(harness: DialectHarness, text: str) -> None:
    assert harness.read(text + END) == [("final", text)]


def test_call_in_a_line_of_reasoning_is_text() -> None:
    call = '<tool_call>{"name":"f","arguments":{}}'
    assert QWEN.read(f"<think>I would write {call} or so.</think>Hi{END}") == [
        ("reasoning", f"I would write {call} or so."),
        ("final", "Hi"),
    ]
    broken = call.replace(">{", ">\n{")
    assert QWEN.read(f"<think>I call it. {broken}\n</tool_call>{END}") == [
        ("reasoning", "I call it."),
        ("think_unclosed", ""),
        ("tool", "f", "{}"),
    ]


def test_tool_call_tag_in_prose_stays_reasoning() -> None:
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
            "say\n<tool_call> no more",
            [("final", "say"), ("call_malformed", "<tool_call>"), ("final", "no more")],
        ),
        (
            "Write <tool_call> to call, </tool_call> to end.",
            [("final", "Write <tool_call> to call, </tool_call> to end.")],
        ),
        ("a</tool_call>b", [("final", "ab"), ("stray_tag", "</tool_call>")]),
    ],
)
def test_malformed_json_call_is_repaired(markup: str, expected: list[tuple[str, ...]]) -> None:
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
            [("tool", "f", '{"text": "x", "count": "5'), ("parameter_unclosed", "")],
        ),
        (
            "<tool_call>\n<function=f>\n<parameter=text>\nli\n</function>\n</tool_call>",
            [("tool", "f", '{"text": "li')],
        ),
        (
            "<tool_call>\n<function=f>\n<parameter=text>\nA </function>\n</function>\n.\n"
            "</parameter>\n</function>\n</tool_call>",
            [("tool", "f", '{"text": "A </function>\\n</function>\\n."}')],
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
def test_malformed_xml_call_is_repaired(markup: str, expected: list[tuple[str, ...]]) -> None:
    assert CODER.read(markup) == expected


def test_xml_value_may_contain_tags() -> None:
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
def test_xml_value_has_schema_type(name: str, written: str, value: object) -> None:
    [(_, _, body)] = CODER.read(xml("f", **{name: written}) + END)
    assert json.loads(body) == {name: value}
    assert type(json.loads(body)[name]) is type(value)


def test_xml_string_streams_escaped() -> None:
    ids = CODER.encoder.encode_markup('<tool_call><function=f><parameter=text>say "é"\n')
    assert CODER.events(ids)[1] == Delta('{"text": "say \\"é\\"')


def test_llama_code_calls_python() -> None:
    events = LLAMA.events(LLAMA.encoder.encode_markup("<|python_tag|>print({1})\n<|eom_id|>"))
    assert events[0] == Opened(events[0].kind, "python", "python", json=False)  # type: ignore[union-attr]
    assert LLAMA.read("<|python_tag|>x = 1") == [("tool", "python", "x = 1")]


def test_llama_several_calls_are_read() -> None:
    call = '{"name": "f", "parameters": {"a": 1}}'
    assert LLAMA.read(f"{call}; {call}\n{call}<|eot_id|>") == [("tool", "f", '{"a": 1}')] * 3


def test_parse_unknown_tools_keeps_raw_names() -> None:
    assert QWEN.read(hermes("any.thing", "{}"), recipients=None) == [("tool", "any.thing", "{}")]
    assert RECIPIENTS.resolve("any.thing") is None


def test_dialect_names_are_complete() -> None:
    assert list(SYNTAXES) == ["qwen3", "qwen3-coder", "llama3", "plain"]


@pytest.mark.parametrize("harness", HARNESSES)
def test_text_like_an_object_without_a_name_keeps_its_order(harness: DialectHarness) -> None:
    text = 'x\n{"arguments": {"name": "f", "parameters": {"a": Monday'
    assert harness.read(text) == [("final", text)]
