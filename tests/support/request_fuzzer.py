"""Random requests generated from an OpenAPI document, most of them mutated or corrupted."""

import copy
import json
import random
import re
from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 6
"""Nesting of a value, at most; deeper objects have only what is required."""
ODD_VALUES: list[Any] = [
    None, True, 0, -1, 1.5, 2**31, 2**63, -(2**70), 1e308, "", "x", "\x00", "🦀" * 3, "‮", "word " * 300,
    [], {}, [[]], [None], {"type": None}, {"": ""}, {"$ref": "#"}, "<|start|>system<|message|>",
]  # fmt: skip
"""Values of wrong types, extreme numbers and unusual texts."""
WORDS = ["hello", "x", "function", "mcp", "text", "user", "call_1", "code_interpreter", "tiny"]


@dataclass(frozen=True, slots=True)
class FuzzedRequest:
    """A request, ready to be sent."""

    method: str
    path: str
    body: bytes | None


class RequestFuzzer:
    """Generates requests for one document; the same ``rng`` gives the same ones."""

    def __init__(self, document: dict[str, Any], rng: random.Random) -> None:
        self._schemas = document["components"]["schemas"]
        self._rng = rng
        self._operations = [
            (method, path, operation)
            for path, item in document["paths"].items()
            for method, operation in item.items()
        ]
        self.ids: list[str] = []
        """Ids of responses that requests may name; made-up ones are used too."""

    def request(self) -> FuzzedRequest:
        """A request to any endpoint; those with a body are five times as likely as others."""
        weights = [5 if "requestBody" in operation else 1 for _, _, operation in self._operations]
        method, path, operation = self._rng.choices(self._operations, weights)[0]
        path = re.sub(r"{\w+}", lambda _: self._id(), path)
        if self._rng.random() < 0.3:
            query = [f"{self._word()}={self._word()}", "stream=true", "limit=-1", "after=x"]
            path += "?" + self._rng.choice(query)
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        body = self.body(content["schema"]) if content else None
        return FuzzedRequest(method.upper(), path, body)

    def body(self, schema: dict[str, Any]) -> bytes:
        """A value of the schema as JSON: three of four are mutated, one of eight is corrupted."""
        value = self.value(schema)
        for _ in range(self._rng.choice((0, 1, 1, 3))):
            value = self._mutate(value)
        content = json.dumps(value).encode()
        return self._corrupt(content) if self._rng.random() < 0.125 else content

    def value(self, schema: Any, depth: int = 0) -> Any:
        """A value that fits a schema, as far as its keywords are known here; any value for others."""
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
                max_length = 0 if depth > MAX_DEPTH else 3
                return [
                    self.value(schema.get("items", {}), depth + 1)
                    for _ in range(rng.randint(0, max_length))
                ]
            case {"type": "string"}:
                return self._text(schema)
            case {"type": "integer" | "number" as kind}:
                minimum = schema.get("minimum", -2)
                number = rng.uniform(minimum, schema.get("maximum", minimum + 50))
                return int(number) if kind == "integer" else number
            case {"type": "boolean"}:
                return rng.random() < 0.5
            case {"type": "null"}:
                return None
            case _:
                return copy.deepcopy(rng.choice(ODD_VALUES))

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        rng, properties = self._rng, schema.get("properties", {})
        names = set(schema.get("required", ()))
        if depth <= MAX_DEPTH:
            names |= set(rng.sample(list(properties), rng.randint(0, min(len(properties), 6))))
        value = {
            name: self.value(schema, depth + 1)
            for name, schema in properties.items()
            if name in names
        }
        if isinstance(extra := schema.get("additionalProperties"), dict) and depth <= MAX_DEPTH:
            value |= {self._word(): self.value(extra, depth + 1) for _ in range(rng.randint(0, 2))}
        return value

    def _text(self, schema: dict[str, Any]) -> str:
        if "pattern" in schema:
            return str(self._rng.randint(0, 9999))
        return self._id() if self._rng.random() < 0.2 else self._word()[: schema.get("maxLength")]

    def _word(self) -> str:
        return self._rng.choice(WORDS)

    def _id(self) -> str:
        return self._rng.choice([*self.ids[-20:], "resp_x", "x"])

    # --- values that no schema allows ---

    def _mutate(self, value: Any) -> Any:
        """Replace, duplicate or delete one part of a value."""
        rng = self._rng
        if not value or not isinstance(value, dict | list) or rng.random() < 0.1:
            return copy.deepcopy(rng.choice(ODD_VALUES))
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
                value[key] = self._mutate(value[key])
        return value

    def _corrupt(self, content: bytes) -> bytes:
        """Damage JSON, or replace it by something else."""
        rng, at = self._rng, self._rng.randrange(len(content) + 1)
        match rng.randrange(5):
            case 0:
                return content[:at]
            case 1:
                return content[:at] + rng.randbytes(3) + content[at:]
            case 2:
                return content[:at] + content[at + 1 :]
            case 3:
                return rng.choice([b"[", b'{"a":']) * 50_000
            case _:
                return rng.randbytes(40)
