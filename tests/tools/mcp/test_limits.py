"""What is counted in messages before they are parsed, and how they are shortened."""

import json
from typing import Any

import mcp.types as T
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json

from tools.mcp.answers import replace_lone_surrogates
from tools.mcp.http_bodies import MAX_LARGE_MESSAGES, LargeMessages
from tools.mcp.limits import (
    LARGE_MESSAGE_BYTES,
    MAX_JSON_DEPTH,
    MAX_JSON_VALUES,
    JsonMeter,
    MessageLimitError,
    check_json,
)
from tools.mcp.mending import MAX_BLOCKS, ResultMender

LEAVES = st.none() | st.integers() | st.text('"\\[]{},:a\u2028😀', max_size=8)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner) | st.dictionaries(st.text('"\\[{,', max_size=3), inner),
    max_leaves=30,
)


def count(value: Any) -> int:
    """Count the values inside of a JSON value; an empty array or object counts as one more."""
    if not isinstance(value, dict | list):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return max(len(value), 1) + sum(map(count, inner))


@given(VALUES, st.integers(1, 7), st.booleans())
def test_json_meter_any_pieces_exact_count(value: Any, size: int, ascii_only: bool) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    meter = JsonMeter()
    for start in range(0, len(data), size):
        meter.feed(data[start : start + size])
    assert (meter.values, meter.depth) == (count(value), 0)


@pytest.mark.parametrize(
    "data", [b"[" * (MAX_JSON_DEPTH + 1), b"{}," * MAX_JSON_VALUES, b'"",' * (MAX_JSON_VALUES + 1)]
)
async def test_check_json_beyond_limits_raises_error(data: bytes) -> None:
    with pytest.raises(MessageLimitError):
        await check_json(data)


async def test_check_json_at_limits_passes() -> None:
    await check_json(b"[" * MAX_JSON_DEPTH + b"]" * MAX_JSON_DEPTH)
    await check_json(b'{"text": "' + b"[,{" * MAX_JSON_VALUES + rb"\"[[" * 1000 + b'"}')


def test_result_blocks_left_out_are_named() -> None:
    result = {"content": [{"type": "text", "text": "x"}] * 2500}
    ResultMender().mend("tools/call", result, "2025-11-25")
    *blocks, last = result["content"]
    assert len(blocks) == MAX_BLOCKS and last["text"] == "[1,500 more content blocks are left out]"


def test_large_messages_restored_and_never_many() -> None:
    large, text = LargeMessages(), "x" * LARGE_MESSAGE_BYTES
    messages: list[T.JSONRPCMessage] = []
    for number in range(MAX_LARGE_MESSAGES + 1):
        message = {"jsonrpc": "2.0", "id": number, "result": {"text": text}}
        small = large.replace(bytearray(json.dumps(message).encode()))
        assert len(small) < 300
        messages.append(T.jsonrpc_message_adapter.validate_json(bytes(small)))
    for message in messages:
        large.restore(message)
    restored = [m.result for m in messages if isinstance(m, T.JSONRPCResponse)]
    assert restored[1:] == [{"text": text}] * MAX_LARGE_MESSAGES and restored[0] != restored[1]


@pytest.mark.parametrize(
    "message", [b'"' + b"\\ud83d" * 9000 + b'"', b'{"jsonrpc":"1"}' + b" " * 40_000]
)
def test_large_messages_invalid_one_becomes_short_invalid_one(message: bytes) -> None:
    """The SDK copies what it cannot read, and prints it."""
    short = LargeMessages().replace(bytearray(message))
    assert len(short) < 100
    with pytest.raises(ValueError):
        T.jsonrpc_message_adapter.validate_json(short)


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        (rb'"\ud83d\ude00 \ud83d"', "\U0001f600 \ufffd"),
        (rb'"\ud83d\ude00\ude00"', "\U0001f600\ufffd"),
        (rb'"\uD800\ud83d\uDE00"', "\ufffd\U0001f600"),
        (rb'"\\ud800"', "\\ud800"),
        (rb'"\\\ud800"', "\\\ufffd"),
        (rb'"\\ud83d\ude00"', "\\ud83d\ufffd"),
        (rb'"\ud83d\\ude00"', "\ufffd\\ude00"),
        (rb'"\\\\\ud83d\ude00\\"', "\\\\\U0001f600\\"),
        (rb'"\"\\\ude00"', '"\\\ufffd'),
    ],
)
def test_lone_surrogates_replaced(text: bytes, replaced: str) -> None:
    assert from_json(bytes(replace_lone_surrogates(text))) == replaced


HALVES = st.sampled_from(
    ["\\", "\\\\", r"\ud83d", r"\ude00", r"\uD800", r"\udFFF", "ud83d", '\\"', r"\u0041", "a"]
)


@given(st.lists(HALVES, max_size=12).map("".join))
def test_replace_lone_surrogates_any_escapes_equal_python(inner: str) -> None:
    """Python's parser joins pairs, and leaves each half that is alone."""
    try:
        text = json.loads(f'"{inner}"')
    except ValueError:
        return
    expected = "".join("\ufffd" if "\ud800" <= each <= "\udfff" else each for each in text)
    assert from_json(bytes(replace_lone_surrogates(f'"{inner}"'.encode()))) == expected
