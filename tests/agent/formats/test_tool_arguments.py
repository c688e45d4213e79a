"""Arguments as models write them: kept, repaired or refused, and always a JSON object."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.formats.tool_arguments import Arguments, CodeArguments, settle


@pytest.mark.parametrize("text", ['{"a":1}', '\n{"path":""} ', '{ "a" : [1.50, "\\u00e9"] }', "{}"])
def test_valid_json_is_kept_byte_for_byte(text: str) -> None:
    assert settle(text, True) == Arguments(text)


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_body_is_an_empty_object(text: str) -> None:
    assert settle(text, True) == Arguments("{}")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('{"data":{"a":{"b":1}', {"data": {"a": {"b": 1}}}),
        ('{"a":["x","y', {"a": ["x", "y"]}),
        ('{"a":"two\nlines\tand a tab"}', {"a": "two\nlines\tand a tab"}),
        ('{"a":"b\\', {"a": "b"}),
        ('{"a":"b\\u00', {"a": "b"}),
        ('{"a":"[{\\"', {"a": '[{"'}),
        ("{", {}),
    ],
)
def test_what_only_lacks_its_end_is_repaired(text: str, meant: object) -> None:
    settled = settle(text, True)
    assert json.loads(settled.json) == meant
    assert settled.repaired and settled.error is None


@pytest.mark.parametrize(
    "text",
    ["[1]", '"x"', "5", "null", "hello", '{"a":}', '{"a":[1}', '{"a":1}}', '{"a":NaN}', "{'a':1}"]
    + ['{"a":"\\x"}', '{"a":"\\ud800"}', "[" * 100_000, '{"a":' * 100_000],
)
def test_anything_else_is_an_error_for_the_model(text: str) -> None:
    settled = settle(text, True)
    assert settled.error
    assert json.loads(settled.json) == {"raw": text}


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ('{"a": "b', {"a": "b"}),
        ('{"a": 1, "b', {"a": 1}),
        ('{"a": tru', {}),
        ("", {"raw": ""}),
        ("oh", {"raw": "oh"}),
    ],
)
def test_a_stream_that_ended_within(text: str, whole: object) -> None:
    settled = settle(text, False)
    assert json.loads(settled.json) == whole
    assert settled.error == "they are cut off"


@given(text=st.text(alphabet='{}[]",:\\u0a1 \n', max_size=40), complete=st.booleans())
def test_always_an_object(text: str, complete: bool) -> None:
    assert isinstance(json.loads(settle(text, complete).json), dict)


@given(value=st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=4), cut=st.data())
def test_every_cut_of_an_object(value: dict[str, str], cut: st.DataObject) -> None:
    text = json.dumps(value)
    part = text[: cut.draw(st.integers(0, len(text)))]
    assert isinstance(json.loads(settle(part, False).json), dict)
    assert isinstance(json.loads(settle(part, True).json), dict)


@given(chunks=st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_code_streams_as_its_escaped_value(chunks: list[str]) -> None:
    code = CodeArguments()
    streamed = code.open() + "".join(code.feed(chunk) for chunk in chunks) + code.close()
    assert json.loads(streamed) == {"code": "".join(chunks)}
