"""A call that was cut off within an argument never runs, in any format, whatever cut it off."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from agent.formats.protocol import Closed, Delta, Format, Opened, SegmentKind
from agent.formats.recipients import Recipients
from agent.formats.tool_arguments import repair_arguments
from tests.support.markup import format_of

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "content": {"type": "string"},
        "maybe": {"type": ["string", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}
PIECES = [
    *(
        "line",
        "\n",
        " ",
        '"',
        "\\",
        "'",
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "é",
        "🦜",
        "0",
        "<",
        ">",
        "/",
    ),
    *(
        "</parameter>",
        "<parameter=x>",
        "</tool_call>",
        "</function>",
        "<p>",
        "```",
        "\t",
        "\\n",
        "null",
    ),
]
FORMATS = ["harmony", "qwen3", "qwen3-coder", "llama3"]
ENDS = {
    "harmony": [
        "<|call|>",
        "<|end|>",
        "<|return|>",
        "<|start|>assistant<|channel|>final<|message|>Hi",
        "",
    ],
    "llama3": ["<|eot_id|>", "<|eom_id|>", "<|start_header_id|>", ""],
}
OTHER_ENDS = ["<|im_end|>", "<|endoftext|>", "<|im_start|>", "\n</tool_call><|im_end|>", ""]
TRUNCATIONS = 2500
"""Of each format."""


def random_text(source: random.Random, pieces: list[str]) -> str:
    return "".join(source.choices(pieces, k=source.randint(1, 12)))


def written_call(name: str, arguments: dict[str, Any], source: random.Random) -> str:
    """A call as a model of the format writes it."""
    body = json.dumps(arguments, ensure_ascii=source.random() < 0.5)
    match name:
        case "harmony":
            header = "<|channel|>commentary to=functions.write <|constrain|>json<|message|>"
            return header + body
        case "qwen3":
            inner = json.dumps(body) if source.random() < 0.2 else body
            return f'<tool_call>\n{{"name": "write", "arguments": {inner}}}\n</tool_call>'
        case "llama3":
            return f'{{"name": "write", "parameters": {body}}}'
        case _:
            values = (
                (key, value if isinstance(value, str) else json.dumps(value))
                for key, value in arguments.items()
            )
            parameters = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in values)
            return f"<tool_call>\n<function=write>\n{parameters}</function>\n</tool_call>"


def runnable_calls(form: Format, markup: str) -> Iterator[dict[str, Any]]:
    """The arguments of each call that would run."""
    schemas = {"functions.write": SCHEMA, "write": SCHEMA}
    parser = form.parser(Recipients([form.canonical_name("write")], schemas=schemas))
    events = [*parser.feed(form.encode_markup(markup)), *parser.finish()]
    text: list[str] | None = None
    for event in events:
        match event:
            case Opened(kind=SegmentKind.TOOL):
                text = []
            case Delta(more) if text is not None:
                text.append(more)
            case Closed(complete=complete) if text is not None:
                arguments = repair_arguments("".join(text), complete)
                if arguments.error is None:
                    yield json.loads(arguments.json)
                text = None


def is_cut(value: object, meant: object) -> bool:
    """Whether a value is the beginning of another one."""
    match value, meant:
        case str(), str():
            return value != meant and meant.startswith(value)
        case list(), list():
            return len(value) < len(meant) or any(map(is_cut, value, meant))
        case _:
            return False


@pytest.mark.parametrize("name", FORMATS)
def test_no_truncated_call_runs(name: str, form: Format) -> None:
    form, source = format_of(name, form), random.Random(name)
    # Tags in a value are ambiguous where values are written between tags.
    pieces = [piece for piece in PIECES if name != "qwen3-coder" or len(piece) < 4]
    ran = 0
    for _ in range(TRUNCATIONS):
        arguments: dict[str, Any] = {
            "path": random_text(source, pieces),
            "content": random_text(source, pieces),
        }
        if source.random() < 0.3:
            arguments["maybe"] = random_text(source, pieces)
        if source.random() < 0.3:
            arguments["tags"] = [random_text(source, pieces) for _ in range(3)]
        complete = written_call(name, arguments, source)
        cut = complete[: source.randrange(len(complete) + 1)]
        for call in runnable_calls(form, cut + source.choice(ENDS.get(name, OTHER_ENDS))):
            ran += 1
            broken = {
                key: value for key, value in call.items() if is_cut(value, arguments.get(key))
            }
            assert not broken, cut
    assert ran, "some have lost nothing but their end"


CUT_IN_STRING = (
    '<|channel|>commentary to=functions.write <|constrain|>json<|message|>{"content":"li'
)


@pytest.mark.parametrize(
    "end", ["<|call|>", "<|return|>", "<|end|><|start|>assistant<|channel|>final"]
)
def test_harmony_string_that_an_id_ends_is_cut(form: Format, end: str) -> None:
    assert not list(runnable_calls(form, CUT_IN_STRING + end))


@pytest.mark.parametrize(
    "token", ["<|end|>", "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"]
)
def test_harmony_id_within_a_string_is_its_text(form: Format, token: str) -> None:
    """Those that do not end the generation."""
    markup = f"{CUT_IN_STRING}ne = '{token}'\"}}<|call|>"
    assert list(runnable_calls(form, markup)) == [{"content": f"line = '{token}'"}]


@pytest.mark.parametrize(
    ("markup", "call"),
    [
        ("<function=write>\n<parameter=path>\na\n</parameter>", {"path": "a"}),
        (
            "<function=write>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_c",
            {"path": "a"},
        ),
        ("<function=write>\n<parameter=path>\na", None),
        ("<function=write>\n<parameter=path>\na\n</param", None),
        ("<function=write>\n<parameter=path>\na\n</parameter>\n<parameter=con", None),
        ("<function=write>\n<parameter=path>\na\n</parameter>\n<", None),
        ('<function=write>\n<parameter=tags>\n["a", "b"', None),
        ("<function=write>\n<parameter=maybe>\na", None),
    ],
)
def test_cut_tags(form: Format, markup: str, call: dict[str, Any] | None) -> None:
    coder = format_of("qwen3-coder", form)
    calls = list(runnable_calls(coder, f"<tool_call>\n{markup}<|im_end|>"))
    assert calls == ([] if call is None else [call])
