"""`agent parse`: ids or markup in, segments and repairs out."""

import io
import json
from typing import Any

import pytest
from openai_harmony import HarmonyEncoding

from agent.cli.parse import run
from agent.errors import UserError

Answers = tuple[int, list[dict[str, Any]]]


def parse(
    data: str | bytes, *, text: bool = False, tools: str | None = None, format: str = "harmony"
) -> Answers:
    raw = data.encode() if isinstance(data, str) else data
    stdin = io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8")
    stdout = io.StringIO()
    code = run(stdin, stdout, text=text, tools=tools, format=format)
    return code, [json.loads(line) for line in stdout.getvalue().splitlines()]


pytestmark = pytest.mark.usefixtures("encoding")


def test_parse_ids_line_prints_segments(encoding: HarmonyEncoding) -> None:
    markup = "<|channel|>commentary to=mcp.code_interpreter code<|message|>1+1<|call|>"
    ids = encoding.encode(markup, allowed_special="all")
    code, answers = parse(f"{json.dumps(ids)}\n[]\n", tools="python")
    assert code == 0
    assert answers == [
        {
            "segments": [
                {
                    "kind": "tool",
                    "recipient": "python",
                    "raw_recipient": "mcp.code_interpreter",
                    "text": "1+1",
                    "complete": True,
                },
                {
                    "kind": "stop",
                    "recipient": None,
                    "raw_recipient": None,
                    "text": "",
                    "complete": True,
                },
            ],
            "repairs": [],
        },
        {"segments": [], "repairs": []},
    ]


def test_parse_text_option_reads_markup() -> None:
    code, [answer] = parse("<|channel|>??<|message|>naïve\n", text=True)
    assert code == 0
    [segment] = answer["segments"]
    assert (segment["kind"], segment["text"], segment["complete"]) == (
        "reasoning",
        "naïve\n",
        False,
    )
    assert answer["repairs"] == [{"rule": "channel_unknown", "at": 0, "text": "??"}]


@pytest.mark.parametrize(
    ("tools", "kind", "recipient"),
    [
        (None, "tool", "a.b"),
        (",", "tool_unknown", "a.b"),
        ("functions.a__b", "tool", "functions.a__b"),
    ],
)
def test_parse_tools_option_resolves_recipients(
    tools: str | None, kind: str, recipient: str | None
) -> None:
    markup = "<|channel|>commentary to=a.b<|message|>{}<|call|>"
    _, [answer] = parse(markup, text=True, tools=tools)
    segment = answer["segments"][0]
    assert (segment["kind"], segment["recipient"], segment["raw_recipient"]) == (
        kind,
        recipient,
        "a.b",
    )


@pytest.mark.parametrize(
    "line",
    [b"foo", b"", b"5", b"{}", b"[1,[2]]", b"[1.5]", b"[true]", b'["1"]', b"\xff", b"[" * 100_000]
    + [b"[" + b"9" * 5000 + b"]"],
)
def test_parse_invalid_line_prints_error(line: bytes) -> None:
    code, answers = parse(b"[64]\n" + line + b"\n[64]\n")
    assert code == 1
    assert [list(answer) for answer in answers] == [
        ["segments", "repairs"],
        ["error"],
        ["segments", "repairs"],
    ]


def test_parse_nonexistent_ids_are_ignored() -> None:
    code, [answer] = parse("[-1, 99999999999999999999999, 64]")
    assert code == 0
    assert [segment["text"] for segment in answer["segments"]] == ["a"]


def test_parse_invalid_utf8_prints_error() -> None:
    code, answers = parse(b"a\xff", text=True)
    assert code == 1 and list(answers[0]) == ["error"]


def test_parse_unknown_format_is_one_sentence() -> None:
    message = "There is no format 'klingon'; known: harmony, qwen3, qwen3-coder, llama3, plain."
    with pytest.raises(UserError, match=message):
        parse("[]", format="klingon")


def test_parse_other_family_ids_need_model() -> None:
    with pytest.raises(UserError, match="--text"):
        parse("[]", format="qwen3")


def test_parse_other_family_text_prints_segments() -> None:
    markup = '<think>hm</think>\n\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    code, [answer] = parse(markup + "<|im_end|>", text=True, tools="f", format="qwen3")
    assert code == 0 and answer["repairs"] == []
    segments = [(s["kind"], s["recipient"], s["text"], s["complete"]) for s in answer["segments"]]
    assert segments == [
        ("reasoning", None, "hm", True),
        ("tool", "f", '{"a": 1}', True),
        ("stop", None, "", True),
    ]
