"""The requests, and what counts as done."""

import json
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, get_args

from openai.types import responses
from pydantic import BaseModel, ValidationError

from tests.support.invariants import check

Json = dict[str, Any]
EVENT_TYPES: dict[str, type[BaseModel]] = {
    get_args(kind.model_fields["type"].annotation)[0]: kind
    for name, kind in vars(responses).items()
    if name.endswith("Event") and isinstance(kind, type) and issubclass(kind, BaseModel)
}
"""OpenAI's classes of events, by their type."""
NULLABLE = ("error", "incomplete_details", "completed_at")
"""Fields of a response that are taken as null where they are missing."""
MULTIPLY = "Multiply 123*456 using the mcp.code_interpreter tool."
WEATHER: Json = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
CODE_INTERPRETER: Json = {
    "type": "mcp",
    "server_label": "code_interpreter",
    "headers": {"test": "test"},
    "server_url": "IGNORED",
}
SCHEMA: Json = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@dataclass
class Answer:
    """What came of a streamed request."""

    status: int
    """HTTP status."""
    body: str
    """Of a refusal."""
    events: list[Json] = field(default_factory=list)

    @property
    def response(self) -> Json:
        """The last event's response; empty without one."""
        return dict(self.events[-1].get("response") or {}) if self.events else {}

    @property
    def output(self) -> list[Json]:
        """The final items."""
        return list(self.response.get("output") or ())

    def items(self, kind: str) -> list[Json]:
        """Those of one type."""
        return [item for item in self.output if item["type"] == kind]

    @property
    def text(self) -> str:
        """The text of the final messages."""
        parts = [part for item in self.items("message") for part in item["content"]]
        return "".join(part.get("text", "") for part in parts)

    def streamed(self, kind: str) -> bool:
        """Whether an item of this type came in the stream."""
        return any((event.get("item") or {}).get("type") == kind for event in self.events)

    def problem(self) -> str:
        """What is wrong with the stream, by the invariants of the tests; empty: nothing."""
        for event in self.events:
            try:
                EVENT_TYPES[event["type"]].model_validate(event)
            except KeyError:
                return f"OpenAI has no event {event['type']}"
            except ValidationError as error:
                where = ".".join(map(str, error.errors()[0]["loc"]))
                return f"{event['type']}: {where}: {error.errors()[0]['msg']}"
        events = [{"type": event["type"], **json.loads(json.dumps(event))} for event in self.events]
        for event in events:
            if "response" in event:
                event["response"] = dict.fromkeys(NULLABLE) | event["response"]
        try:
            check(events)
        except AssertionError as error:
            return invariant(error)
        except Exception as error:  # of a stream that is not as the invariants expect one
            return " ".join(f"{type(error).__name__}: {error}".split())[:110]
        return ""

    def summary(self) -> str:
        """How it ended, in a few words."""
        if self.status != 200:
            return f"HTTP {self.status}: {short(self.body)}"
        if not self.response:
            last = self.events[-1] if self.events else {}
            return f"no final response: {short(json.dumps(last))}"
        kinds = ", ".join(map(describe, self.output)) or "no items"
        ended = self.events[-1]["type"].removeprefix("response.")
        status = str(self.response.get("status"))
        return f"{status if status == ended else f'{ended}, status {status}'}: {kinds}"


def invariant(error: AssertionError) -> str:
    """The line of the invariants that does not hold."""
    line = traceback.extract_tb(error.__traceback__)[-1].line or ""
    return f"`{line.removeprefix('assert ')[:110]}`"


def short(text: str) -> str:
    """A refusal's message, on one line."""
    try:
        body = json.loads(text)
        body = body.get("error", body)
        text = body.get("message") or text
    except (ValueError, AttributeError):
        pass
    return " ".join(str(text).split())[:110]


def describe(item: Json) -> str:
    """An item in a few words."""
    match item["type"]:
        case "mcp_call":
            result = " ".join(str(item.get("output") or item.get("error")).split())[:24]
            return f"mcp_call {item['server_label']}.{item['name']} → {result}"
        case "function_call":
            return f"function_call {item['name']}({item['arguments'][:40]})"
        case "code_interpreter_call":
            return f"code_interpreter_call, outputs {json.dumps(item.get('outputs'))[:40]}"
        case kind:
            return str(kind)


@dataclass(frozen=True)
class Case:
    """A request that is streamed, and whether the answer is what OpenAI documents."""

    name: str
    body: Json
    is_done: Callable[[Answer], bool]


def _is_json_of_schema(answer: Answer) -> bool:
    try:
        value = json.loads(answer.text)
    except ValueError:
        return False
    return isinstance(value, dict) and set(value) == {"name", "age"} and type(value["age"]) is int


def _has_logprobs(answer: Answer) -> bool:
    parts = [part for item in answer.items("message") for part in item["content"]]
    return bool(parts) and all(len(part["logprobs"][0]["top_logprobs"]) == 2 for part in parts)


def _ran_python(answer: Answer, kind: str) -> bool:
    return answer.streamed(kind) and bool(answer.items(kind)) and "56088" in answer.text


CASES = (
    Case(
        "python as an MCP server (the first request of all)",
        {"input": MULTIPLY, "tools": [CODE_INTERPRETER], "enable_response_messages": True},
        lambda answer: (
            _ran_python(answer, "mcp_call")
            and "56088" in (answer.items("mcp_call")[0]["output"] or "")
        ),
    ),
    Case(
        "python as the hosted tool",
        {
            "input": MULTIPLY,
            "tools": [{"type": "code_interpreter", "container": {"type": "auto"}}],
            "include": ["code_interpreter_call.outputs"],
        },
        lambda answer: (
            _ran_python(answer, "code_interpreter_call")
            and bool(answer.items("code_interpreter_call")[0]["outputs"])
        ),
    ),
    Case(
        "an MCP server's tool",
        {"input": "Use exec to run ls.", "tools": [{"type": "mcp", "server_label": "container"}]},
        lambda answer: (
            answer.streamed("mcp_list_tools")
            and "README" in str([item["output"] for item in answer.items("mcp_call")])
        ),
    ),
    Case(
        "an MCP server that is not there",
        {
            "input": "Use exec to run ls.",
            "tools": [
                {"type": "mcp", "server_label": "nobody", "server_url": "http://127.0.0.1:9/x"}
            ],
        },
        lambda answer: (
            answer.status == 424
            or answer.response.get("status") == "failed"
            or any(item.get("error") for item in answer.items("mcp_list_tools"))
        ),
    ),
    Case(
        "a function",
        {"input": "Use get_weather for Oslo.", "tools": [WEATHER]},
        lambda answer: (
            [
                (item["name"], json.loads(item["arguments"])["city"].strip())
                for item in answer.items("function_call")
            ]
            == [("get_weather", "Oslo")]
        ),
    ),
    Case(
        '`tool_choice: "required"`',
        {"input": "hello", "tools": [WEATHER], "tool_choice": "required"},
        lambda answer: bool(answer.items("function_call")),
    ),
    Case(
        "a JSON schema",
        {
            "input": "Who are you?",
            "text": {
                "format": {"type": "json_schema", "name": "p", "schema": SCHEMA, "strict": True}
            },
        },
        _is_json_of_schema,
    ),
    Case(
        "log probabilities",
        {"input": "hello", "include": ["message.output_text.logprobs"], "top_logprobs": 2},
        _has_logprobs,
    ),
    Case(
        "an answer that is cut",
        {"input": "Tell me about yourself.", "max_output_tokens": 16},
        lambda answer: (
            answer.status == 200
            and answer.events[-1]["type"] == "response.incomplete"
            and answer.response["incomplete_details"] == {"reason": "max_output_tokens"}
        ),
    ),
)
