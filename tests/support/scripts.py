"""Replies as gpt-oss writes them."""

from __future__ import annotations

import json
from typing import Any


def thought(text: str) -> str:
    return f"<|channel|>analysis<|message|>{text}<|end|><|start|>assistant"


def final(text: str) -> str:
    return f"<|channel|>final<|message|>{text}<|return|>"


def preamble(text: str) -> str:
    return f"<|channel|>commentary<|message|>{text}<|end|><|start|>assistant"


def call(name: str, **arguments: Any) -> str:
    body = json.dumps(arguments)
    return f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{body}<|call|>"


def python(code: str) -> str:
    return f"<|channel|>analysis to=python code<|message|>{code}<|call|>"


HELLO = thought("They say hello.") + final("Hello there!")
LONG = {"markup": thought("It is long.") + final("word " * 2000), "delay_ms": 5}
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a place.",
    "parameters": {
        "type": "object",
        "properties": {"place": {"type": "string"}},
        "required": ["place"],
        "additionalProperties": False,
    },
    "strict": True,
}
