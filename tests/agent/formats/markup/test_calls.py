"""Readers of calls that no dialect of `test_dialects` has."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from agent.formats.markup.parser import MarkupParser
from agent.formats.markup.segments import TokenClasses
from agent.formats.markup.syntax import ANY, CallSyntax, MessageSyntax
from agent.formats.markup.vocabulary import ByteVocabulary, MarkupEncoder
from agent.formats.recipients import Recipients
from tests.support.markup import summarise

PYTHON = CallSyntax("python", section_open="<calls>[", after_name="(", section_close="]</calls>")
NESTED = CallSyntax(
    "nested", open='<call name="', after_name='">', close="</call>",
    key_open=f"<{ANY}>", value_close=f"</{ANY}>",
)  # fmt: skip
ROUND = CallSyntax(
    "tags", open="<call(", after_name=")>", close="</call>",
    key_open="<(", key_close=")>", value_close="<.>",
)  # fmt: skip


def read(
    call: CallSyntax, text: str, schema: Mapping[str, Any] | None = None
) -> list[tuple[str, ...]]:
    """Parse the text character by character, as it comes."""
    syntax = MessageSyntax("test", calls=(call,))
    vocabulary = ByteVocabulary(syntax.specials)
    recipients = Recipients(["f"], schemas={"f": schema or {}})
    parser = MarkupParser(TokenClasses(vocabulary, syntax), recipients)
    ids = MarkupEncoder(vocabulary).encode_text(text)
    events = [event for id in ids for event in parser.feed([id])]
    return summarise(events + parser.finish())


@pytest.mark.parametrize(
    "value", ["a]b), (c", 'it\'s "so"', "line\nbreak", "\\", "", "🦜" * 3, "x" * 30_000]
)
def test_python_string_comes_in_pieces(value: str) -> None:
    [(kind, _, text)] = read(PYTHON, f"<calls>[f(a={value!r}, b=[1, (2)], c=True)]</calls>")
    assert (kind, json.loads(text)) == ("tool", {"a": value, "b": [1, 2], "c": True})


def test_nested_value_has_the_type_of_a_reference() -> None:
    schema = {
        "properties": {"n": {"$ref": "#/$defs/Count"}},
        "$defs": {"Count": {"type": "integer"}},
    }
    assert read(NESTED, '<call name="f"><n>5</n></call>', schema) == [("tool", "f", '{"n": 5}')]


def test_tags_may_have_any_characters() -> None:
    """Tags of a chat template are of unknown origin: none is taken for a regular expression."""
    text = "<call(f)><(a)>1 <(b)><.><(b)>[x<.></call>"
    [(kind, _, arguments)] = read(ROUND, text)
    assert (kind, json.loads(arguments)) == ("tool", {"a": "1 <(b)>", "b": "[x"})
