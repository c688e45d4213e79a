"""Replies of a model in Harmony markup, for scripted engines, and a function that they call."""

import json
from pathlib import Path
from typing import Any


def thought(text: str) -> str:
    """Reasoning, before another message."""
    return f"<|channel|>analysis<|message|>{text}<|end|><|start|>assistant"


def final(text: str) -> str:
    """The final answer."""
    return f"<|channel|>final<|message|>{text}<|return|>"


def preamble(text: str) -> str:
    """A message before a call or the answer."""
    return f"<|channel|>commentary<|message|>{text}<|end|><|start|>assistant"


def call(name: str, **arguments: Any) -> str:
    """A call of a function, or of an MCP server's tool: ``server__tool``."""
    return raw_call(f"functions.{name}", json.dumps(arguments))


def raw_call(recipient: str, arguments: str) -> str:
    """A call with any recipient and any text as its arguments, valid or not."""
    return f"<|channel|>commentary to={recipient} <|constrain|>json<|message|>{arguments}<|call|>"


def python(code: str) -> str:
    """A call of the built-in Python tool."""
    return f"<|channel|>analysis to=python code<|message|>{code}<|call|>"


def browser_call(name: str, **arguments: Any) -> str:
    """A call of a built-in browser tool."""
    body = json.dumps(arguments)
    return f"<|channel|>analysis to=browser.{name} code<|message|>{body}<|call|>"


REASONING = thought("I think.")
DONE = final("It is **done**.")


def reasoned_call(recipient: str, arguments: str = "{}") -> str:
    """A reply that reasons and then calls a tool."""
    return REASONING + raw_call(recipient, arguments)


def hold(markup: str, after: int, until: Path | None = None) -> dict[str, Any]:
    """A reply that stops after ``after`` tokens until the file ``until`` exists, or it is cancelled."""
    place = {"after": after} if until is None else {"after": after, "until": str(until)}
    return {"markup": markup, "hold": place}


HELLO = thought("They say hello.") + final("Hello there!")
LONG = hold(thought("It is long.") + final("word " * 2000), after=100)
"""An answer that does not end: it stops after 100 tokens until it is cancelled."""
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
