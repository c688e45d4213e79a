"""Answers as JSON, where the prefix asks for a form as clients do with `text.format`."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from typing import Any

from agent.tiny import vocabulary
from agent.tiny.train.turns import DialogueTurn, Encode

NAMES: dict[str, tuple[str, ...]] = {
    "string": ("answer", "text", "reply", "message", "explanation", "summary", "name", "city"),
    "number": ("result", "value", "total", "price", "amount", "average"),
    "integer": ("result", "value", "total", "number", "count", "age"),
    "boolean": ("done", "ok", "is_known", "success", "warm", "found"),
    "array": ("items", "tags", "names", "participants", "steps"),
}
FORM_NAMES = ("output", "answer", "result", "event", "reply", "schema", "response")


@dataclass(frozen=True)
class AnswerProperty:
    """A property of the answer; `kind` is its type in JSON Schema."""

    name: str
    kind: str


def choose(rng: random.Random) -> tuple[AnswerProperty, ...]:
    """One to three properties, of which one is a string."""
    others = [rng.choice(["integer", "number"]), "boolean", "array"]
    kinds = ["string", *rng.sample(others, rng.choice([0, 1, 1, 2]))]
    rng.shuffle(kinds)
    return tuple(AnswerProperty(rng.choice(NAMES[kind]), kind) for kind in kinds)


def section(rng: random.Random, form: tuple[AnswerProperty, ...]) -> str:
    """The part of the instructions that asks for the form, as the program words it."""
    name = rng.choice(FORM_NAMES)
    if rng.random() < 0.1:
        return f"# Response Formats\n\n## {name}\n\nAnswer with one JSON object."
    properties: dict[str, Any] = {}
    for item in form:
        properties[item.name] = {"type": item.kind}
        if item.kind == "array":
            properties[item.name]["items"] = {"type": "string"}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if rng.random() < 0.8:
        schema["required"] = list(properties)
    if rng.random() < 0.7:
        schema["additionalProperties"] = False
    return f"# Response Formats\n\n## {name}\n\n{json.dumps(schema)}"


def pieces(
    turn: DialogueTurn, form: tuple[AnswerProperty, ...], encode: Encode
) -> list[tuple[tuple[int, ...], ...]]:
    """The parts of a turn's answer: as JSON, or without a form as text."""
    return [(encode(answer(turn, form, encode)),)] if form else turn.answer(encode)


def answer(turn: DialogueTurn, form: tuple[AnswerProperty, ...], encode: Encode) -> str:
    """The answer as JSON: the string holds its text, a number the last call's result."""
    tokens = vocabulary.tokens()
    parts = (part for piece in turn.answer(encode) for part in piece)
    text = b"".join(tokens[token] for part in parts for token in part).decode()
    result = turn.calls[-1].result if turn.calls else ""
    integer = int(result) if re.fullmatch(r"-?\d{1,9}", result) else 0
    number = float(result) if re.fullmatch(r"-?\d{1,9}\.\d{1,9}", result) else integer
    values: dict[str, Any] = {
        "string": text, "number": number, "integer": integer,
        "boolean": bool(turn.calls), "array": [],
    }  # fmt: skip
    return json.dumps(
        {item.name: values[item.kind] for item in form}, ensure_ascii=False, separators=(",", ":")
    )
