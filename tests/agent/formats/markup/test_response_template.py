"""Response templates in the form of Hugging Face's transformers, and which of them is used."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent.engine.protocol import EngineError
from agent.formats import detect
from agent.formats.markup.parser import MarkupParser
from agent.formats.markup.response_template import load_response_template
from agent.formats.markup.segments import TokenClasses
from agent.formats.markup.vocabulary import ByteVocabulary, MarkupEncoder
from tests.support.markup import RECIPIENTS, summarise

CALL = {"name": "{name}", "arguments": "{content}"}
OBJECTS = {
    "fields": {
        "thinking": {"open": "<idea>", "close": "</idea>"},
        "content": {"close": "<|stop|>"},
        "tool_calls": {
            "open": "<do>",
            "close": "</do>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
    }
}


def tool_calls(**field: Any) -> dict[str, Any]:
    """A template whose calls have these fields."""
    return {"fields": {**OBJECTS["fields"], "tool_calls": field}}


def read(template: dict[str, Any], text: str) -> list[tuple[str, ...]]:
    syntax = load_response_template(template, "models.toml")
    vocabulary = ByteVocabulary(syntax.specials)
    parser = MarkupParser(TokenClasses(vocabulary, syntax), RECIPIENTS)
    events = parser.feed(MarkupEncoder(vocabulary).encode_markup(text)) + parser.finish()
    return summarise(events)


@pytest.mark.parametrize(
    ("template", "call"),
    [
        (OBJECTS, '<do>{"name": "f", "arguments": {"text": "x"}}</do>'),
        (
            tool_calls(
                open="<list>", close="</list>", content="json", transform_each=True,
                transform={"function": {"name": "{tool}", "arguments": "{input}"}},
            ),
            '<list>[{"tool": "f", "input": {"text": "x"}}]</list>',
        ),
        (
            tool_calls(
                open_pattern=r"<do>\s*to=(?P<name>\w+)\s*<with>", close="</do>", content="json",
                transform={"function": CALL},
            ),
            '<do>to=f<with>{"text": "x"}</do>',
        ),
        (
            tool_calls(
                open_pattern=r"<do>f:(?P<name>[\w.]+)", close="</do>", content="json",
                content_args={"unquoted_keys": True, "string_delims": [["<q>", "<q>"]]},
                transform={"function": CALL},
            ),
            "<do>f:f{text:<q>x<q>}</do>",
        ),
        (
            tool_calls(
                open_pattern=r"<do>\s*<fn=(?P<name>\w+)>", close="</do>", content="xml-inline",
                content_args={"tag_pattern": r"<p=(?P<key>\w+)>\s*(?P<value>.*?)\s*</p>"},
                transform={"function": CALL},
            ),
            "<do>\n<fn=f>\n<p=text>x</p>\n</do>",
        ),
    ],
)  # fmt: skip
def test_message_is_read_by_response_template(template: dict[str, Any], call: str) -> None:
    [thought, answer, (kind, name, arguments)] = read(
        template, f"<idea>hm</idea>So.\n{call}<|stop|>"
    )
    assert (thought, answer) == (("reasoning", "hm"), ("final", "So."))
    assert (kind, name, json.loads(arguments)) == ("tool", "f", {"text": "x"})


@pytest.mark.parametrize(
    "template",
    [
        {},
        {"fields": []},
        {"fields": {"content": "text"}},
        tool_calls(open="<do>", content="yaml"),
        tool_calls(open_pattern="<do>(?P<other>x)", content="json"),
        tool_calls(open_pattern="<do>|<go>(?P<name>x)", content="json"),
        tool_calls(open_pattern="<do>(?P<name>x)", content="xml-inline"),
    ],
)
def test_invalid_response_template_raises_error(template: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="response_template"):
        load_response_template(template, "models.toml")


@pytest.mark.long
def test_response_template_of_settings_goes_before_the_repository_s(qwen_gguf: Path) -> None:
    def source(template: dict[str, Any] | None) -> str:
        form = detect.load_format(qwen_gguf, "auto", template)
        assert form is not None
        return form.source

    assert source(None) == "chat template"
    kept = detect.response_template_path(qwen_gguf)
    try:
        kept.write_text(json.dumps(OBJECTS))
        assert (source(None), source(OBJECTS)) == ("repository", "models.toml")
        kept.write_text('{"fields": 1}')
        assert source(None) == "chat template"
    finally:
        kept.unlink()
    with pytest.raises(EngineError, match="fields must be a table"):
        source({"fields": 1})


def test_template_without_reasoning_writes_none() -> None:
    template = {"fields": {"content": {"close": "<|stop|>"}}}
    syntax = load_response_template(template, "models.toml")
    assert (syntax.think_open, syntax.think_close) == ("", "")
    assert read(template, "<think>So.<|stop|>") == [("final", "<think>So.")]


def test_tag_behind_reasoning_is_no_text() -> None:
    fields = {**OBJECTS["fields"], "thinking": {"open": "<idea>", "close": "</idea>\n<answer>"}}
    assert read({"fields": fields}, "<idea>hm</idea><answer>So.<|stop|>") == [
        ("reasoning", "hm"),
        ("final", "So."),
    ]
