"""Models that do not speak Harmony, through the whole program: the same stream of events."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.formats import detect
from tests.agent.formats.markup.test_format import THINKING
from tests.support import small_gguf
from tests.support.endpoint import Serve
from tests.support.invariants import check
from tests.support.program import ROOT, Agent

Script = Callable[..., str]
END = {"qwen3": "<|im_end|>", "qwen3-coder": "<|im_end|>", "llama3": "<|eot_id|>"}
MODELS = "".join(f'[{name}-test]\npath = "nowhere.gguf"\nformat = "{name}"\n' for name in END)


def call(family: str, name: str, **values: str) -> str:
    match family:
        case "qwen3":
            made = json.dumps({"name": name, "arguments": values})
            return f"<tool_call>\n{made}\n</tool_call>\n"
        case "qwen3-coder":
            given = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in values.items())
            return f"<tool_call>\n<function={name}>\n{given}</function>\n</tool_call>\n"
    return json.dumps({"name": name, "parameters": values}) + "\n"


@pytest.fixture
def said(agent: Agent, script: Script, home: Path) -> Callable[..., list[dict[str, Any]]]:
    """Run scripted generations of a family; the items of the final response."""
    (home / "config").mkdir(exist_ok=True)
    (home / "config" / "models.toml").write_text(MODELS)

    def run(family: str, *generations: str, options: tuple[str, ...] = ()) -> list[dict[str, Any]]:
        engine = script(*(text + END[family] for text in generations))
        ran = agent(
            "run", "go", "--json-events", "--model", f"{family}-test", "--engine", engine, *options
        )
        final = check(ran.events)
        texts = [e["delta"] for e in ran.events if e["type"].endswith("text.delta")]
        assert not any("<" in text for text in texts), "markup in what is said"
        output: list[dict[str, Any]] = final["output"]
        return output

    return run


@pytest.mark.parametrize("family", END)
def test_a_tool_only(said: Callable[..., list[dict[str, Any]]], family: str) -> None:
    items = said(family, call(family, "python", code="6*7"), "It is 42.")
    assert [item["type"] for item in items] == ["mcp_call", "message"]
    assert (items[0]["output"], items[1]["content"][0]["text"]) == ("42", "It is 42.")
    assert json.loads(items[0]["arguments"]) == {"code": "6*7"}


@pytest.mark.parametrize("family", END)
def test_reasoning_then_a_tool(said: Callable[..., list[dict[str, Any]]], family: str) -> None:
    think = "<think>\nI compute.\n</think>\n\n"
    items = said(family, think + call(family, "python", code="6*7"), think + "It is 42.")
    kinds = ["reasoning", "mcp_call", "reasoning", "message"]
    assert [item["type"] for item in items] == kinds and items[1]["output"] == "42"


@pytest.mark.parametrize("family", END)
def test_text_then_a_tool(said: Callable[..., list[dict[str, Any]]], family: str) -> None:
    items = said(family, "Let me see.\n\n" + call(family, "python", code="6*7"), "So.")
    assert [item["type"] for item in items] == ["message", "mcp_call", "message"]
    assert items[0]["content"][0]["text"] == "Let me see."


@pytest.mark.parametrize("family", END)
def test_two_calls_run_in_order(said: Callable[..., list[dict[str, Any]]], family: str) -> None:
    calls = call(family, "python", code="x = 20") + call(family, "python", code="x + 1")
    items = said(family, f"Two things.\n{calls}", "21.")
    assert [item["type"] for item in items] == ["message", "mcp_call", "mcp_call", "message"]
    assert items[2]["output"] == "21"


def test_two_calls_that_only_read_run_together(
    said: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    server = ROOT / "tests" / "support" / "mcp_servers" / "plain.py"
    entry = {"command": sys.executable, "args": ["-I", str(server)], "tool_timeout_sec": 60}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"plain": entry}}))
    calls = call("qwen3", "plain__meet") + call("qwen3", "plain__meet")
    options = ("--mcp-config", str(tmp_path / "mcp.json"))
    items = said("qwen3", calls, "They met.", options=options)
    assert sorted(item["output"] for item in items[:2]) == ["met as number 1", "met as number 2"]


@pytest.mark.parametrize("family", END)
def test_an_unknown_tool_is_told(said: Callable[..., list[dict[str, Any]]], family: str) -> None:
    items = said(family, call(family, "repo.list", path="."), "Sorry.")
    assert (items[0]["server_label"], items[0]["name"]) == ("repo", "list")
    assert "repo.list" in items[0]["error"]["message"]


@pytest.mark.parametrize("family", END)
def test_a_call_that_is_cut_off(agent: Agent, script: Script, said: object, family: str) -> None:
    engine = script(call(family, "python", code="word " * 100) + END[family])
    ran = agent(
        "run", "go", "--json-events", "--model", f"{family}-test", "--engine", engine,
        "--max-output-tokens", "120",
    )  # fmt: skip
    final = check(ran.events)
    assert (ran.code, final["status"]) == (4, "incomplete")
    assert final["output"][-1]["status"] == "failed"
    assert json.loads(final["output"][-1]["arguments"])["code"].startswith("word word")


def test_a_call_that_is_no_call_is_told(said: Callable[..., list[dict[str, Any]]]) -> None:
    items = said("qwen3", "<tool_call>python(6*7)</tool_call>", "Sorry.")
    assert items[0]["status"] == "failed" and items[-1]["type"] == "message"


def test_a_real_model_of_another_family(agent: Agent, script: Script, tmp_path: Path) -> None:
    """llama.cpp, a template from the file, random weights: whatever it says is a whole stream."""
    path = small_gguf.write(tmp_path / "small.gguf", small_gguf.QWEN, THINKING)
    model = ("--json-events", "--model", str(path))
    ran = agent("run", "go <|im_end|>", *model, "--max-output-tokens", "60", "--seed", "1")
    final = check(ran.events)
    assert ran.code in (0, 4) and final["usage"]["output_tokens"] > 0
    # The same file's vocabulary and template with a script in the model's place.
    engine = script("I think.\n</think>\n\nIt is <b>done</b>.<|im_end|>")
    items = check(agent("run", "go", *model, "--engine", engine).events)["output"]
    assert [item["type"] for item in items] == ["reasoning", "message"]
    assert items[1]["content"][0]["text"] == "It is <b>done</b>."


def test_a_conversation_goes_on(agent: Agent, script: Script, said: object) -> None:
    """What the first turn thought is gone, what it said and did is there."""
    options = ("--json-events", "--model", "qwen3-test")
    think = "<think>\nI think of elephants.\n</think>\n\n"
    first = script(think + call("qwen3", "python", code="6*7") + END["qwen3"], "42." + END["qwen3"])
    agent("run", "one", *options, "--engine", first)
    second = check(
        agent("run", "two", "--continue", *options, "--engine", script("ok<|im_end|>")).events
    )
    alone = check(agent("run", "two", *options, "--engine", script("ok<|im_end|>")).events)
    assert second["usage"]["input_tokens"] > alone["usage"]["input_tokens"] + 60


# --- over HTTP --------------------------------------------------------------------------------------

WEATHER = {
    "type": "function",
    "name": "weather",
    "parameters": {
        "type": "object",
        "properties": {"place": {"type": "string"}, "days": {"type": "integer"}},
    },
}
THINK = "<think>\nI need the weather.\n</think>\n\n"


@pytest.mark.parametrize("family", END)
@pytest.mark.parametrize(
    ("lead", "kinds"),
    [
        ("", []),
        (THINK, ["reasoning"]),
        ("Let me see.\n", ["message"]),
        (f"{THINK}Let me see.\n", ["reasoning", "message"]),
    ],
)
async def test_functions_over_http(
    serve: Serve, tmp_path: Path, family: str, lead: str, kinds: list[str]
) -> None:
    (tmp_path / "home" / "config").mkdir(parents=True)
    (tmp_path / "home" / "config" / "models.toml").write_text(MODELS)
    calls = call(family, "weather", place="Oslo", days="2") + call(family, "weather", place="Rome")
    end = END[family]
    served = await serve(lead + calls + end, *[f"Cold.{end}"] * 2, model=f"{family}-test")
    events = await served.stream(input="And the weather?", tools=[WEATHER])
    final = check(events)
    made = [item for item in final["output"] if item["type"] == "function_call"]
    assert [item["type"] for item in final["output"]] == [*kinds, *["function_call"] * 2]
    days = 2 if family == "qwen3-coder" else "2"  # JSON is as it was written
    assert [json.loads(item["arguments"]) for item in made] == [
        {"place": "Oslo", "days": days},
        {"place": "Rome"},
    ]
    done = [e for e in events if e["type"] == "response.function_call_arguments.done"]
    assert [e["arguments"] for e in done] == [item["arguments"] for item in made]
    results = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "-3"}
        for item in made
    ]
    resent = [{"role": "user", "content": "And the weather?"}, *final["output"], *results]
    for body in (
        {"input": results, "previous_response_id": final["id"]},
        {"input": resent, "store": False},
    ):
        answer = check(await served.stream(tools=[WEATHER], **body))
        assert answer["output"][0]["content"][0]["text"] == "Cold."
        engine: Any = served.runtime.engine
        form: Any = served.runtime.format
        prompt = b"".join(form._alphabet._vocabulary.raw(token) or b"" for token in engine.sequence)
        assert prompt.count(b"-3") == 2 and prompt.count(b"Oslo") == prompt.count(b"Rome") == 1


@pytest.mark.parametrize(
    ("family", "rest"),
    [
        ("qwen3", '{"place": "Oslo"}}\n</tool_call>'),
        (
            "qwen3-coder",
            "<parameter=place>\nOslo\n</parameter>\n</function>\n</tool_call>",
        ),
        ("llama3", '{"place": "Oslo"}}'),
    ],
)
async def test_a_call_that_is_demanded(
    serve: Serve, tmp_path: Path, family: str, rest: str
) -> None:
    """The generation is begun for the model; it writes the arguments."""
    (tmp_path / "home" / "config").mkdir(parents=True)
    (tmp_path / "home" / "config" / "models.toml").write_text(MODELS)
    served = await serve(rest + END[family], model=f"{family}-test")
    body = {"input": "Oslo?", "tools": [WEATHER], "tool_choice": "required"}
    [item] = check(await served.stream(**body))["output"]
    assert (item["name"], json.loads(item["arguments"])) == ("weather", {"place": "Oslo"})


def test_ids_of_a_models_own_vocabulary_are_parsed(agent: Agent, tmp_path: Path) -> None:
    """``agent parse --model``: ids mean something in one vocabulary only."""
    path = small_gguf.write(tmp_path / "small.gguf", small_gguf.QWEN, None)
    form = detect.of_file(path, "qwen3")
    assert form is not None
    ids = form.encoder.markup("<think>Hm.</think>hello<|im_end|>")
    ran = agent("parse", "--format", "qwen3", "--model", str(path), stdin=json.dumps(ids))
    said = [(s["kind"], s["text"]) for s in json.loads(ran.out)["segments"] if s["text"]]
    assert ran.code == 0 and said == [("reasoning", "Hm."), ("final", "hello")]
    assert agent("parse", "--format", "qwen3", stdin="[1]").code == 2
    assert agent("parse", "--format", "qwen3", "--model", "nowhere", stdin="[1]").code == 2
