"""Arguments as models write them are accepted, repaired or refused, and always become an object."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.formats.tool_arguments import (
    CUT_OFF,
    JsonArgumentsStream,
    ToolArguments,
    repair_arguments,
    respell_arguments,
    string_content,
)


@pytest.mark.parametrize("text", ['{"a":1}', '\n{"path":""} ', '{ "a" : [1.50, "\\u00e9"] }', "{}"])
def test_repair_valid_json_unchanged(text: str) -> None:
    assert repair_arguments(text, True) == ToolArguments(text)


@pytest.mark.parametrize("text", ["", " \n"])
def test_repair_empty_body_is_empty_object(text: str) -> None:
    assert repair_arguments(text, True) == ToolArguments("{}")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('{"data":{"a":{"b":true}', {"data": {"a": {"b": True}}}),
        ('{"a":["x","y"]', {"a": ["x", "y"]}),
        ('{"a":"two\nlines\tand a tab"}', {"a": "two\nlines\tand a tab"}),
        ('{"a":null ', {"a": None}),
    ],
)
def test_repair_unclosed_json_is_closed(text: str, meant: object) -> None:
    arguments = repair_arguments(text, True)
    assert json.loads(arguments.json) == meant
    assert arguments.repaired and arguments.error is None


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('{"a":["x","y', {"a": ["x", "y"]}),
        ('{"a":["x","y"', {"a": ["x", "y"]}),
        ('{"a":[{"b":1}', {"a": [{"b": 1}]}),
        ('{"a":"b\\', {"a": "b"}),
        ('{"a":"b\\u00', {"a": "b"}),
        ('{"a":"[{\\"', {"a": '[{"'}),
        ('{"a":1,"b', {"a": 1}),
    ],
)
def test_repair_text_that_ends_in_a_value_is_cut(text: str, meant: object) -> None:
    arguments = repair_arguments(text, True)
    assert arguments.cut and arguments.error == CUT_OFF
    assert json.loads(arguments.json) == meant


@pytest.mark.parametrize(
    "text",
    ["[1]", '"x"', "5", "null", "hello", '{"a":}', '{"a":[1}', '{"a":1}}', '{"a":NaN}', "{'a':1}"]
    + [
        '{"a":1e999}',
        '{"a":[-1E+400]}',
        '{"a":"\\x"}',
        '{"a":"\\ud800"}',
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
)
def test_repair_other_text_is_error(text: str) -> None:
    arguments = repair_arguments(text, True)
    assert arguments.error
    assert json.loads(arguments.json) == {"raw": text}


@pytest.mark.parametrize(
    ("text", "complete_part"),
    [
        ('{"a": "b', {"a": "b"}),
        ('{"a": 1, "b', {"a": 1}),
        ('{"a": tru', {}),
        ("", {"raw": ""}),
        ("oh", {"raw": "oh"}),
    ],
)
def test_repair_incomplete_stream_keeps_complete_part(text: str, complete_part: object) -> None:
    arguments = repair_arguments(text, False)
    assert json.loads(arguments.json) == complete_part
    assert arguments.error == CUT_OFF


@given(text=st.text(alphabet='{}[]",:\\u0a1 \n', max_size=40), complete=st.booleans())
def test_repair_any_text_gives_object(text: str, complete: bool) -> None:
    assert isinstance(json.loads(repair_arguments(text, complete).json), dict)


@given(value=st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=4), cut=st.data())
def test_repair_any_prefix_of_object_gives_object(
    value: dict[str, str], cut: st.DataObject
) -> None:
    text = json.dumps(value)
    part = text[: cut.draw(st.integers(0, len(text)))]
    assert isinstance(json.loads(repair_arguments(part, False).json), dict)
    assert isinstance(json.loads(repair_arguments(part, True).json), dict)


@given(chunks=st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_string_content_of_chunks_is_one_json_string(chunks: list[str]) -> None:
    assert json.loads(f'"{"".join(map(string_content, chunks))}"') == "".join(chunks)


PATCH = '*** Begin Patch\n*** Add File: a.py\n+"""One quote more: \\"."""\n*** End Patch'


@pytest.mark.parametrize(
    ("name", "text", "meant"),
    [
        ("apply_patch", PATCH, {"input": PATCH}),
        ("apply_patch", f"\n{PATCH}\n", {"input": f"\n{PATCH}\n"}),
        ("apply_patch", json.dumps({"patch": PATCH}), {"input": PATCH}),
        ("apply_patch", json.dumps({"input": PATCH}), None),
        ("apply_patch", PATCH[:-4], None),
        ("apply_patch", json.dumps({"patch": PATCH, "path": "a.py"}), None),
        ("apply_patch", json.dumps({"patch": 1}), None),
        ("container.exec", '{"cmd":["ls"]}', None),
        ("container.exec", '{"cmd":"ls -l"}', {"cmd": ["bash", "-lc", "ls -l"]}),
        ("container.exec", '{"command":["ls"],"workdir":"a"}', {"cmd": ["ls"], "workdir": "a"}),
        ("container.exec", '{"command":"ls"}', {"cmd": ["bash", "-lc", "ls"]}),
        ("container.exec", '["ls","-l"]', {"cmd": ["ls", "-l"]}),
        ("container.exec", '"ls"', {"cmd": ["bash", "-lc", "ls"]}),
        ("container.exec", "ls", None),
        ("container.exec", '{"cmd":"ls', None),
    ],
)
def test_own_tools_take_other_spellings(name: str, text: str, meant: object) -> None:
    respelled = respell_arguments(name, text)
    assert (respelled and json.loads(respelled)) == meant


@pytest.mark.parametrize(
    "text",
    ["{", '{"a"', '{"a":', '{"a":1', '{"a":-', '{"a":nul', '{"a":1,', '{"a":{"b":2}, ', '{"a":"x'],
)
def test_text_that_ends_within_a_value_or_before_one_is_cut(text: str) -> None:
    assert repair_arguments(text, True).cut


@pytest.mark.parametrize(
    ("text", "streamed"),
    [
        ("", ""),
        (" \n", ""),
        ('{"a":1}}', '{"a":1}'),
        ('{"a":"}"}\n', '{"a":"}"}\n'),
        ('{"a":[{"b":"\\"]"}]} and so on', '{"a":[{"b":"\\"]"}]}'),
        (" { }", " { }"),
        ("null", '{"raw": "null"}'),
        ("print(1)", '{"raw": "print(1)"}'),
        ("{'a':1}", """{"raw": "{'a':1}"}"""),
        ('```json\n{"a":1}\n```', '{"raw": "```json\\n{\\"a\\":1}\\n```"}'),
        ('{"a":"x\ny"}', '{"a":"x\\ny"}'),
        ('{"a":"x', '{"a":"x'),
    ],
)
@pytest.mark.parametrize("step", [1, 3, 100])
def test_stream_is_the_text_of_one_object(text: str, streamed: str, step: int) -> None:
    stream = JsonArgumentsStream()
    pieces = [stream.feed(text[at : at + step]) for at in range(0, len(text), step)]
    assert "".join([*pieces, stream.close()]).rstrip() == streamed.rstrip()
