"""Models of other families than gpt-oss, whose replies are scripted in the families' own syntax, with
openai-python and with coding agents: a call, its result, and the answer."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from tests.clients.claude_code import SETTINGS
from tests.clients.codex import CONFIG
from tests.clients.conftest import AGENT, HERE, ROOT, Run, serve_program

TEMPLATES = (Path(os.environ.get("AGENT_BENCH", "~/.cache/agent-bench")).expanduser()).glob(
    "llama_cpp_python-*/vendor/llama.cpp/models/templates/*.jinja"
)
SOURCES = {path.stem: path for path in TEMPLATES}
"""The chat templates of llama.cpp's source, which ``make peer`` unpacks, by name."""


@dataclass(frozen=True)
class Family:
    """How models of a family write. A name without a template is a ``format`` of models.toml."""

    call: str
    """A call with ``$NAME`` and ``$ARGUMENTS``."""
    result: str
    """A call's result in a prompt, with ``$NAME`` and ``$RESULT``."""
    argument: str = ""
    """An argument with ``$KEY`` and ``$VALUE``; empty: all are one JSON object."""
    separator: str = ""
    string: str = "$VALUE"
    """An argument's value that is a text."""
    thought: tuple[str, str] = ("", "")
    """What a reply has around its reasoning; empty: it has none."""
    end: str = "<|im_end|>"
    call_end: str = ""
    """What a reply with a call ends with; empty: as any other."""
    template: str = ""
    specials: tuple[str, ...] = ()
    """Special tokens of its vocabulary, besides those at the ends of thoughts and replies."""


TAGS: dict[str, Any] = {
    "call": "<tool_call>\n<function=$NAME>\n$ARGUMENTS</function>\n</tool_call>",
    "argument": "<parameter=$KEY>\n$VALUE\n</parameter>\n",
    "result": "<|im_start|>user\n<tool_response>\n$RESULT\n</tool_response><|im_end|>\n",
}
FAMILIES = {
    "qwen3-coder": Family(**TAGS),
    "llama3": Family(
        call='{"name": "$NAME", "parameters": $ARGUMENTS}',
        result="<|start_header_id|>ipython<|end_header_id|>\n\n$RESULT<|eot_id|>",
        end="<|eot_id|>",
    ),
    "qwen3.5": Family(
        **TAGS,
        thought=("", "\n</think>\n\n"),
        template="Qwen3.5-4B",
        specials=("<|endoftext|>", "<|im_start|>", "<think>", "</think>", "<tool_call>",
                  "</tool_call>"),
    ),
    "gemma-4": Family(
        call="<|tool_call>call:$NAME{$ARGUMENTS}<tool_call|>",
        argument="$KEY:$VALUE",
        separator=",",
        string='<|"|>$VALUE<|"|>',
        result='<|tool_response>response:$NAME{value:<|"|>$RESULT<|"|>}<tool_response|>',
        thought=("<|channel>thought\n", "\n<channel|>"),
        end="<turn|>",
        call_end="<|tool_response>",
        template="google-gemma-4-31B-it",
        specials=("<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|tool>", "<tool|>",
                  "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", '<|"|>',
                  "<|think|>"),
    ),
    "glm-4.7": Family(
        call="<tool_call>$NAME$ARGUMENTS</tool_call>",
        argument="<arg_key>$KEY</arg_key><arg_value>$VALUE</arg_value>",
        result="<|observation|><tool_response>$RESULT</tool_response>",
        thought=("", "</think>"),
        end="<|user|>",
        call_end="<|observation|>",
        template="GLM-4.7-Flash",
        specials=("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>",
                  "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>",
                  "</tool_response>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    ),
    "deepseek-v3.2": Family(
        call='\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="$NAME">\n$ARGUMENTS'
        "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        argument='<｜DSML｜parameter name="$KEY" string="$STRING">$VALUE</｜DSML｜parameter>\n',
        result="\n\n<function_results>\n<result>$RESULT</result>\n</function_results>",
        thought=("", "</think>"),
        end="<｜end▁of▁sentence｜>",
        template="deepseek-ai-DeepSeek-V3.2",
        specials=("<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>",
                  "｜DSML｜"),
    ),
    "ministral-3": Family(
        call="[TOOL_CALLS]$NAME[ARGS]$ARGUMENTS",
        result="[TOOL_RESULTS]$RESULT[/TOOL_RESULTS]",
        thought=("[THINK]", "[/THINK]"),
        end="</s>",
        template="mistralai-Ministral-3-14B-Reasoning-2512",
        specials=("</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]",
                  "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[ARGS]",
                  "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[THINK]", "[/THINK]"),
    ),
}  # fmt: skip
THOUGHTS = "I look it up: “wetter” <b>.", "It is cold."
ANSWER = 'Es ist "kalt" — 3 °C 🦜.\n\nTake <b>care</b>.'
QUOTED = "Zürich \"HB\",\nC:\\new 'x' — 日本語 🦜\n  </b> & }]"
ARGUMENTS = {"place": QUOTED, "days": 3}
RESULT = 'cloudy, "3" °C\n日本 🦜 {"a": [1]}'
PARAMETERS = {
    "type": "object",
    "properties": {"place": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["place", "days"],
}
FUNCTION: dict[str, Any] = {
    "name": "get_weather",
    "description": "Get the weather.",
    "parameters": PARAMETERS,
}
QUESTION = "How is the weather?"


def call_text(
    family: Family, name: str, arguments: dict[str, Any], separators: tuple[str, str] = (", ", ": ")
) -> str:
    """A call as a family writes it. ``separators``: those of JSON."""
    parts = []
    for key, value in arguments.items():
        is_text = isinstance(value, str)
        part = family.argument.replace("$STRING", str(is_text).lower()).replace("$KEY", key)
        part = part.replace("$VALUE", family.string if is_text else "$VALUE")
        parts.append(part.replace("$VALUE", value if is_text else json.dumps(value)))
    written = family.separator.join(parts)
    if not family.argument:
        written = json.dumps(arguments, ensure_ascii=False, separators=separators)
    return family.call.replace("$NAME", name).replace("$ARGUMENTS", written)


def replies(family: Family, name: str, arguments: dict[str, Any], answer: str) -> list[str]:
    """A reply with a call, and one with the answer, each after a thought where the family has one."""
    before, after = family.thought
    thoughts = [before + thought + after if after else "" for thought in THOUGHTS]
    call = call_text(family, name, arguments) + (family.call_end or family.end)
    return [thoughts[0] + call, thoughts[1] + answer + family.end]


@dataclass(frozen=True)
class Scripted:
    """A scripted model of a family: how a program of this folder is started with it."""

    family: Family
    options: tuple[str, ...]
    environment: dict[str, str]

    def prompts(self) -> list[str]:
        """The prompts that the model has read."""
        lines = Path(self.environment["PROMPTS"]).read_text().splitlines()
        return [json.loads(line) for line in lines]

    def check_prompt(self, name: str, arguments: dict[str, Any], result: str) -> None:
        """Check that the last prompt has the call and its result in the family's own syntax."""
        prompt = self.prompts()[-1]
        spaced = call_text(self.family, name, arguments)
        compact = call_text(self.family, name, arguments, (",", ":"))  # as opencode sends it back
        call = compact if compact in prompt else spaced
        before, after = self.family.result.replace("$NAME", name).split("$RESULT")
        texts = (call, before, result, after)
        at = [prompt.rfind(text) for text in texts]
        assert prompt.count(call) == 1 and at[0] > -1 and sorted(at) == at, prompt[-3000:]
        reasons = bool(self.family.thought[1])
        assert prompt.count(THOUGHTS[0]) == reasons, "what it thought before the call"


PROGRAM = "family_agent.py"
Prepare = Callable[..., Scripted]


@pytest.fixture
def prepare(tmp_path: Path) -> Prepare:
    """Write the files of a scripted model of a family; without its chat template the test is
    skipped."""

    def prepare(name: str, *call: Any) -> Scripted:
        family, home = FAMILIES[name], tmp_path / "agent-home"
        if family.template and family.template not in SOURCES:
            pytest.skip("llama.cpp's chat templates are not here: make peer")
        script, gguf = tmp_path / "script.jsonl", tmp_path / "family.gguf"
        lines = [json.dumps({"markup": reply}) for reply in replies(family, *call)]
        script.write_text("\n".join(lines))
        form = "" if family.template else f'format = "{name}"\n'
        (home / "config").mkdir(parents=True)
        (home / "config" / "models.toml").write_text(f'["{name}"]\npath = "{gguf}"\n{form}')
        return Scripted(
            family,
            ("--model", name, "--engine", f"script:{script}", "--context", "1000000"),
            {
                "AGENT_HOME": str(home),
                "PYTHONPATH": str(ROOT),
                "PROMPTS": str(tmp_path / "prompts.jsonl"),
                "GGUF": str(gguf),
                "SPECIALS": json.dumps(family.specials),
                "END": family.end,
                "TEMPLATE": str(SOURCES.get(family.template, "")),
            },
        )

    return prepare


# --- openai-python ---


def item_text(item: Any) -> str:
    """What the deltas of an item add up to."""
    if item.type == "function_call":
        return str(item.arguments)
    return "".join(part.text for part in item.content)


def respond(client: OpenAI, **body: Any) -> Any:
    """A streamed response, whose deltas are those of its items."""
    tools: Any = [{"type": "function", **FUNCTION, "strict": False}]
    with client.responses.create(model="default", tools=tools, stream=True, **body) as stream:
        events: list[Any] = list(stream)
    response, deltas = events[-1].response, defaultdict[int, str](str)
    assert response.status == "completed"
    for event in events:
        if event.type.endswith(".delta"):
            deltas[event.output_index] += event.delta
    assert deltas == dict(enumerate(map(item_text, response.output)))
    return response


def check_responses(client: OpenAI, scripted: Scripted, *, stored: bool) -> None:
    items: list[Any] = [{"role": "user", "content": QUESTION}]
    first = respond(client, input=items, store=stored)
    *thoughts, call = first.output
    reasoning = ["reasoning"] if scripted.family.thought[1] else []
    assert [item.type for item in first.output] == [*reasoning, "function_call"]
    assert [item_text(item) for item in thoughts] == list(THOUGHTS[: len(reasoning)])
    assert (call.name, json.loads(call.arguments)) == ("get_weather", ARGUMENTS)
    result = [{"type": "function_call_output", "call_id": call.call_id, "output": RESULT}]
    if stored:
        second = respond(client, input=result, previous_response_id=first.id)
    else:
        sent = [item.model_dump(exclude_none=True) for item in first.output]
        second = respond(client, input=[*items, *sent, *result], store=False)
    assert [item.type for item in second.output] == [*reasoning, "message"]
    assert second.output_text == ANSWER
    scripted.check_prompt("get_weather", ARGUMENTS, RESULT)


def complete(client: OpenAI, messages: list[Any]) -> tuple[str, dict[str, str]]:
    """The end and the texts of a streamed chat completion."""
    tools: Any = [{"type": "function", "function": FUNCTION}]
    texts, end = defaultdict[str, str](str), ""
    with client.chat.completions.create(
        model="default", messages=messages, tools=tools, stream=True
    ) as stream:
        for chunk in stream:
            (choice,) = chunk.choices
            delta, end = choice.delta, choice.finish_reason or end
            texts["content"] += delta.content or ""
            texts["reasoning_content"] += getattr(delta, "reasoning_content", None) or ""
            for call in delta.tool_calls or []:
                assert call.index == 0 and call.function
                texts["id"] += call.id or ""
                texts["name"] += call.function.name or ""
                texts["arguments"] += call.function.arguments or ""
    return end, texts


def check_chat_completions(client: OpenAI, scripted: Scripted) -> None:
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    thoughts = THOUGHTS if scripted.family.thought[1] else ("", "")
    end, texts = complete(client, messages)
    assert (end, texts["content"], texts["reasoning_content"]) == ("tool_calls", "", thoughts[0])
    assert (texts["name"], json.loads(texts["arguments"])) == ("get_weather", ARGUMENTS)
    function = {name: texts[name] for name in ("name", "arguments")}
    call = {"id": texts["id"], "type": "function", "function": function}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    said |= {"reasoning_content": texts["reasoning_content"]}
    messages += [said, {"role": "tool", "tool_call_id": texts["id"], "content": RESULT}]
    end, texts = complete(client, messages)
    assert (end, texts["content"], texts["reasoning_content"]) == ("stop", ANSWER, thoughts[1])
    scripted.check_prompt("get_weather", ARGUMENTS, RESULT)


@pytest.mark.parametrize("name", FAMILIES)
def test_openai_python_call_result_and_answer(prepare: Prepare, name: str) -> None:
    scripted = prepare(name, "get_weather", ARGUMENTS, ANSWER)
    home = Path(scripted.environment["AGENT_HOME"])
    with serve_program(home, *scripted.options, program=PROGRAM, **scripted.environment) as url:
        client = OpenAI(
            base_url=url, api_key="none", max_retries=0, _strict_response_validation=True
        )
        check_responses(client, scripted, stored=True)
        check_responses(client, scripted, stored=False)
        check_chat_completions(client, scripted)


# --- coding agents ---

OUTPUT = 'naïve 🦜 say "hi"'
COMMAND = (
    "printf '%s' 'naïve 🦜' > made.txt\nprintf '%s\\n' ' say \"hi\"' >> made.txt; cat made.txt"
)
DESCRIBED = {"command": COMMAND, "description": "Make the “file”"}
CODING: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "codex": ("exec_command", {"cmd": COMMAND}, ("exec", "--json", "--skip-git-repo-check")),
    "opencode": ("bash", DESCRIBED, ("run", "--format", "json", "--thinking", "--title", "file")),
    "claude": (
        "Bash",
        DESCRIBED,
        ("--dangerously-skip-permissions", "--output-format", "stream-json", "--verbose", "-p"),
    ),
}
"""The tool that runs a command, its arguments, and the arguments of the program, by its name."""


def answer_texts(client: str, events: list[Any]) -> list[str]:
    """The texts that a coding agent shows as answers."""
    match client:
        case "codex":
            items = [event["item"] for event in events if event["type"] == "item.completed"]
            return [item["text"] for item in items if item["type"] == "agent_message"]
        case "opencode":
            return [event["part"]["text"] for event in events if event["type"] == "text"]
    return [event["result"] for event in events if event["type"] == "result"]


@pytest.mark.parametrize("client", CODING)
@pytest.mark.parametrize("name", ["qwen3-coder", "llama3", "gemma-4"])
def test_coding_agent_command_and_answer(
    prepare: Prepare, node: Path, tmp_path: Path, run: Run, name: str, client: str
) -> None:
    tool, arguments, options = CODING[client]
    if not (node / "node_modules" / ".bin" / client).exists():
        pytest.skip(f"{client} is not installed: make test-clients")
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text(CONFIG)
    scripted = prepare(name, tool, arguments, ANSWER)
    launch = (AGENT[0], HERE / PROGRAM, "launch", *scripted.options, client)
    out = run(*launch, *options, "Make the file.", **SETTINGS | scripted.environment)
    events = [json.loads(line) for line in out.splitlines()]
    assert answer_texts(client, events) == [ANSWER]
    assert (tmp_path / "made.txt").read_text() == f"{OUTPUT}\n"
    scripted.check_prompt(tool, arguments, OUTPUT)
