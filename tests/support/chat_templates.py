"""Chat templates to test with: llama.cpp's, where ``make peer`` has unpacked its source, and an
environment that renders as Hugging Face's transformers does
(https://huggingface.co/docs/transformers/chat_templating_writing)."""

import json
import os
from datetime import date
from pathlib import Path
from typing import Any

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

BENCH = Path(os.environ.get("AGENT_BENCH", "~/.cache/agent-bench")).expanduser()
PATHS = sorted(BENCH.glob("llama_cpp_python-*/vendor/llama.cpp/models/templates/*.jinja"))
SOURCES = {path.stem: path.read_text() for path in PATHS}
"""Real chat templates by name; empty without llama.cpp's source."""

CALL_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "A <city>."}},
    "required": ["city"],
}
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {"name": name, "description": "It's “a” tool.", "parameters": CALL_SCHEMA},
    }
    for name in ("weather", "clock")
]


def message(role: str, content: str = "", **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def call(number: int, name: str, arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": f"call0000{number}", "type": "function", "function": function}


def result(number: int, name: str, content: str) -> dict[str, Any]:
    return message("tool", content, name=name, tool_call_id=f"call0000{number}")


class _Generation(Extension):
    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        written = self.call_method("_written")
        return jinja2.nodes.CallBlock(written, [], [], body).set_lineno(line)

    def _written(self, caller: Any) -> Any:
        return caller()


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(reason: str) -> None:
    raise jinja2.TemplateError(reason)


def render_reference(source: str, messages: Any, tools: Any, day: date, **variables: Any) -> str:
    """Render as transformers' ``apply_chat_template`` does. Raises what the template raises."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = day.strftime
    template = environment.from_string(source)
    return template.render(messages=messages, tools=tools, documents=None, **variables)
