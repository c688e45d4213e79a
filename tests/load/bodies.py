"""Requests made up from the OpenAPI document: what it describes, then bent and broken."""

from __future__ import annotations

import copy
import json
import random
import re
from dataclasses import dataclass
from typing import Any

DEPTH = 6
"""Levels of a value, at most; below that only what is required."""
ODD: list[Any] = [
    None, True, 0, -1, 1.5, 2**31, 2**63, -(2**70), 1e308, "", "x", "\x00", "🦀" * 3, "‮", "word " * 300,
    [], {}, [[]], [None], {"type": None}, {"": ""}, {"$ref": "#"}, "<|start|>system<|message|>",
]  # fmt: skip
"""Values that are seldom expected where they come."""
WORDS = ["hello", "x", "function", "mcp", "text", "user", "call_1", "code_interpreter", "tiny"]


@dataclass(frozen=True, slots=True)
class Made:
    """One request, ready to be sent."""

    method: str
    path: str
    body: bytes | None


class Fuzzer:
    """Endless requests for one document; the same ``rng`` gives the same ones."""

    def __init__(self, document: dict[str, Any], rng: random.Random) -> None:
        self._schemas = document["components"]["schemas"]
        self._rng = rng
        self._operations = [
            (method, path, operation)
            for path, item in document["paths"].items()
            for method, operation in item.items()
        ]
        self.ids: list[str] = []
        """Ids that paths and bodies may name beside made-up ones."""

    def request(self) -> Made:
        """Any endpoint; those with a body five times as often as the others."""
        weights = [5 if "requestBody" in operation else 1 for _, _, operation in self._operations]
        method, path, operation = self._rng.choices(self._operations, weights)[0]
        path = re.sub(r"{\w+}", lambda _: self._id(), path)
        if self._rng.random() < 0.3:
            query = [f"{self._word()}={self._word()}", "stream=true", "limit=-1", "after=x"]
            path += "?" + self._rng.choice(query)
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        body = self.body(content["schema"]) if content else None
        return Made(method.upper(), path, body)

    def body(self, schema: dict[str, Any]) -> bytes:
        """What the schema describes, in three of four cases bent, in one of eight broken."""
        value = self.value(schema)
        for _ in range(self._rng.choice((0, 1, 1, 3))):
            value = self._bent(value)
        sent = json.dumps(value).encode()
        return self._broken(sent) if self._rng.random() < 0.125 else sent

    def value(self, schema: Any, depth: int = 0) -> Any:
        """Something that the schema describes, as far as its keywords are known here."""
        rng = self._rng
        match schema:
            case {"$ref": str(name)}:
                return self.value(self._schemas[name.rpartition("/")[2]], depth)
            case {"const": value}:
                return value
            case {"enum": list(values)}:
                return rng.choice(values)
            case {"anyOf": list(any_of)} | {"oneOf": list(any_of)}:
                return self.value(rng.choice(any_of), depth)
            case {"type": "object"} | {"properties": _}:
                return self._object(schema, depth)
            case {"type": "array"}:
                most = 0 if depth > DEPTH else 3
                return [
                    self.value(schema.get("items", {}), depth + 1)
                    for _ in range(rng.randint(0, most))
                ]
            case {"type": "string"}:
                return self._text(schema)
            case {"type": "integer" | "number" as kind}:
                least = schema.get("minimum", -2)
                number = rng.uniform(least, schema.get("maximum", least + 50))
                return int(number) if kind == "integer" else number
            case {"type": "boolean"}:
                return rng.random() < 0.5
            case {"type": "null"}:
                return None
            case _:
                return copy.deepcopy(rng.choice(ODD))

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        rng, known = self._rng, schema.get("properties", {})
        wanted = set(schema.get("required", ()))
        if depth <= DEPTH:
            wanted |= set(rng.sample(list(known), rng.randint(0, min(len(known), 6))))
        made = {name: self.value(known[name], depth + 1) for name in known if name in wanted}
        if isinstance(more := schema.get("additionalProperties"), dict) and depth <= DEPTH:
            made |= {self._word(): self.value(more, depth + 1) for _ in range(rng.randint(0, 2))}
        return made

    def _text(self, schema: dict[str, Any]) -> str:
        if "pattern" in schema:
            return str(self._rng.randint(0, 9999))
        return self._id() if self._rng.random() < 0.2 else self._word()[: schema.get("maxLength")]

    def _word(self) -> str:
        return self._rng.choice(WORDS)

    def _id(self) -> str:
        return self._rng.choice([*self.ids[-20:], "resp_x", "x"])

    # --- what no schema describes ---

    def _bent(self, value: Any) -> Any:
        """One thing in it is another one, twice there, or not there."""
        rng = self._rng
        if not value or not isinstance(value, dict | list) or rng.random() < 0.1:
            return copy.deepcopy(rng.choice(ODD))
        key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
        match rng.randrange(6):
            case 0:
                del value[key]
            case 1 if isinstance(value, list):
                value.append(value[key])
            case 1:
                value[rng.choice(WORDS)] = value[key]
            case 2:
                value[key] = [value[key]]
            case _:
                value[key] = self._bent(value[key])
        return value

    def _broken(self, sent: bytes) -> bytes:
        rng, at = self._rng, self._rng.randrange(len(sent) + 1)
        match rng.randrange(5):
            case 0:
                return sent[:at]
            case 1:
                return sent[:at] + rng.randbytes(3) + sent[at:]
            case 2:
                return sent[:at] + sent[at + 1 :]
            case 3:
                return rng.choice([b"[", b'{"a":']) * 50_000
            case _:
                return rng.randbytes(40)
