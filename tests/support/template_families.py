"""The chat templates of llama.cpp's source, and the messages that models of their families write.

A template shows an assistant's message as a history has it. `written_text` makes of it the text that
a model writes after the generation prompt: it ends a thought that the prompt opened, and adds the
thought where the template drops it. FAMILIES says what each template does.
"""

import functools
import importlib.metadata
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Template, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from tests.bench import CACHE

FOLDER = (
    CACHE
    / f"llama_cpp_python-{importlib.metadata.version('llama-cpp-python')}"
    / "vendor/llama.cpp/models/templates"
)
"""The templates of the source that `make peer` unpacks."""

NUMBERS = {"type": "array", "items": {"type": "integer"}}
NAMES = {"type": "array", "items": {"type": "string"}}
OPTIONS = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "tags": NAMES,
        "deep": {"type": "object", "properties": {"on": {"type": "boolean"}}},
    },
}
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "metric": {"type": "boolean"},
        "until": {"type": ["integer", "null"]},
        "ids": NUMBERS,
        "names": NAMES,
        "mixed": {"type": "array"},
        "options": OPTIONS,
        "zone": {"type": "string"},
    },
    "required": [],
}
TOOL_NAMES = ("get_weather", "send_mail")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "It works.",
            "parameters": {
                "type": "object",
                "properties": {"text": {"type": "string", "description": "Any text."}},
                "required": [],
            },
        },
    }
    for name in TOOL_NAMES
]
"""The tools as they are declared in prompts; some templates cannot write a full SCHEMA."""
ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "string": {"text": "plain words"},
    "empty string": {"text": ""},
    "double quotes": {"text": 'say "hi", "you"'},
    "single quotes": {"text": "it's 'here'"},
    "newlines": {"text": "one\ntwo\n\n  three"},
    "backslashes": {"text": 'C:\\new\\table and \\" and \\\\'},
    "unicode": {"text": "naïve 🦜 日本語 ﷺ e\u0301"},
    "padded string": {"text": "  padded  "},
    "markup": {"text": "a < b && <b>bold</b> <br/> &amp; </think> ```x```"},
    "braces": {"text": "}]}, {\"a\": [1}, f(x='y')"},
    "string of digits": {"text": "5"},
    "string of a word": {"text": "true"},
    "string of JSON": {"text": '{"a": [1, null]}'},
    "integer": {"count": 5},
    "negative": {"count": -17},
    "big number": {"count": 12345678901234567890},
    "float": {"ratio": 1.5},
    "small float": {"ratio": -0.00025},
    "true": {"metric": True},
    "false": {"metric": False},
    "null": {"until": None},
    "numbers": {"ids": [1, -2, 30]},
    "words": {"names": ["a b", "c, d", 'e"f', "naïve"]},
    "mixed list": {"mixed": [1, "two", None, True, 1.5, {"a": []}, [3]]},
    "empty list": {"ids": []},
    "object": {"options": {"city": "Rome", "days": 3, "tags": ["a", "b"], "deep": {"on": True}}},
    "empty object": {"options": {}},
    "no arguments": {},
    "all": {
        "text": "two\nlines",
        "count": 3,
        "metric": True,
        "names": ["x"],
        "options": {"days": 1},
    },
}
"""Arguments of each JSON type."""


@dataclass(frozen=True)
class Family:
    """What a template does, as its renderings show."""

    opened: str = ""
    """The beginning of a thought at the end of the generation prompt."""
    thought: tuple[str, str] | None = None
    """The beginning (after `opened`) and the end of a thought; None: it has none."""
    calls: int = 2
    """How many calls a message of a history may have; more than 2 count as 2."""
    words: str = ""
    """Where words next to a call are: ``before``, ``after``; empty: the template drops them."""
    typed: bool = True
    """Whether the syntax says a string from a number."""
    ends: bool = True
    """Whether the end of a message is part of the template (and not the tokenizer's EOS token)."""
    tail: str = r"\n*"
    """What the template writes after the message's end."""
    ambiguous: tuple[str, ...] = ()
    """ARGUMENTS that the template writes so that they cannot be told from others."""
    plain: bool = True
    """Whether the tags of a call are text that can be quoted, and no special tokens."""
    keys: tuple[str, ...] = ("reasoning_content", "reasoning", "thinking")
    """The keys of a thought in a message; ``parts``: it is a part of the content."""
    string: bool = False
    """The template takes arguments as JSON in a string."""


@dataclass(frozen=True)
class AssistantMessage:
    """A message to put into a template."""

    reasoning: str | None = None
    content: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()


FAMILIES = {
    name: Family(**traits)
    for name, traits in json.loads(
        (Path(__file__).parents[1] / "data" / "template_families.json").read_text()
    ).items()
}
"""By the name of the template's file. Not in it: gpt-oss's (Harmony is no markup format), and three
that show no assistant's message: firefunction's needs variables that no program passes, llama.cpp's
own for DeepSeek R1 serialises a generator, Command R+'s leaves out every assistant's message."""


def source(name: str) -> str:
    """A template's source."""
    return (FOLDER / f"{name}.jinja").read_text()


def is_here() -> bool:
    """Whether the templates are on this machine."""
    return FOLDER.is_dir()


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None,
             separators: tuple[str, str] | None = None, sort_keys: bool = False) -> str:  # fmt: skip
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)  # fmt: skip


@functools.cache
def template(name: str) -> Template:
    """A template in an environment like that of transformers (but lists may be appended to)."""
    environment = SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = datetime(2026, 1, 2).strftime
    return environment.from_string(re.sub(r"\{%-?\s*(?:end)?generation\s*-?%\}", "", source(name)))


def render(name: str, messages: list[dict[str, Any]], *, prompt: bool) -> str:
    """Render messages after a question, with TOOLS; ``prompt``: with the generation prompt."""
    return template(name).render(
        messages=[{"role": "user", "content": "Hello?"}, *messages],
        tools=TOOLS,
        add_generation_prompt=prompt,
        enable_thinking=True,
        # The program asks for reasoning; Hunyuan 3 does without by default.
        **({"reasoning_effort": "high"} if name == "tencent-Hy3" else {}),
        bos_token="",
        eos_token="",
    )


def as_message(family: Family, message: AssistantMessage) -> dict[str, Any]:
    """A message as the template takes it."""
    out: dict[str, Any] = {"role": "assistant", "content": message.content}
    if message.reasoning is not None and family.thought and "parts" in family.keys:
        out["content"] = [
            {"type": "thinking", "thinking": message.reasoning},
            {"type": "text", "text": message.content},
        ]
    elif message.reasoning is not None and family.thought:
        out |= dict.fromkeys(family.keys, message.reasoning)
    if message.calls:
        out["tool_calls"] = [
            {
                "id": f"call0000{i}",
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": _to_json(arguments) if family.string else arguments,
                },
            }
            for i, (name, arguments) in enumerate(message.calls)
        ]
    return out


def written_text(name: str, message: AssistantMessage) -> str:
    """The text that a model writes after the generation prompt for this message."""
    family = FAMILIES[name]
    prompt = render(name, [], prompt=True)
    history = render(name, [as_message(family, message)], prompt=False)
    assert prompt.endswith(family.opened)
    head = prompt[: len(prompt) - len(family.opened)]
    assert history.startswith(head)
    text = re.sub(family.tail + r"\Z", "", history[len(head) :], count=1, flags=re.DOTALL)
    if not family.thought:
        return text
    begin, end = family.thought
    inside = text.removeprefix(family.opened)
    if message.reasoning is not None and message.reasoning in text:
        return inside
    if message.reasoning is None and (not family.opened or inside.lstrip().startswith(end.strip())):
        return inside
    opening = (family.opened + begin).strip()
    empty = rf"\s*(?:{re.escape(opening)})?\s*{re.escape(end.strip())}\s*"
    return (
        begin * bool(message.reasoning)
        + (message.reasoning or "")
        + end
        + re.sub(rf"\A{empty}", "", inside)
    )
