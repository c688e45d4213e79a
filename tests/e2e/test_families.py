"""Models of other families than GPT-OSS, in the program: the same events as with Harmony."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.formats import detect
from tests.support import random_qwen_gguf
from tests.support.endpoint import Serve
from tests.support.hosts import server_entry
from tests.support.invariants import check
from tests.support.program import RunAgent

Script = Callable[..., str]
END_MARKERS = {"qwen3": "<|im_end|>", "qwen3-coder": "<|im_end|>", "llama3": "<|eot_id|>"}
MODELS = "".join(
    f'[{name}-test]\npath = "nowhere.gguf"\nformat = "{name}"\n' for name in END_MARKERS
)


def family_call(family: str, name: str, **values: str) -> str:
    """A call in the markup of a family."""
    match family:
        case "qwen3":
            body = json.dumps({"name": name, "arguments": values})
            return f"<tool_call>\n{body}\n</tool_call>\n"
        case "qwen3-coder":
            parameters = "".join(
                f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items()
            )
            return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>\n"
    return json.dumps({"name": name, "parameters": values}) + "\n"


RunFamily = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def family_models(home: Path) -> None:
    """Models with the names of the families, for scripted engines."""
    write_models(home)


def write_models(home: Path) -> None:
    """Write a models.toml with a model of each family."""
    (home / "config").mkdir(parents=True, exist_ok=True)
    (home / "config" / "models.toml").write_text(MODELS)


@pytest.fixture
def run_family(agent: RunAgent, script: Script, family_models: None) -> RunFamily:
    """Run scripted generations of a family; returns the items of the response."""

    def run(family: str, *generations: str, options: tuple[str, ...] = ()) -> list[dict[str, Any]]:
        engine = script(*(text + END_MARKERS[family] for text in generations))
        ran = agent(
            "run", "go", "--json-events", "--model", f"{family}-test", "--engine", engine, *options
        )
        final = check(ran.events)
        texts = [e["delta"] for e in ran.events if e["type"].endswith("text.delta")]
        assert not any("<" in text for text in texts), "markup in the text"
        output: list[dict[str, Any]] = final["output"]
        return output

    return run


@pytest.mark.parametrize("family", END_MARKERS)
def test_family_call_then_answer(run_family: RunFamily, family: str) -> None:
    items = run_family(family, family_call(family, "python", code="6*7"), "It is 42.")
    assert [item["type"] for item in items] == ["mcp_call", "message"]
    assert (items[0]["output"], items[1]["content"][0]["text"]) == ("42", "It is 42.")
    assert json.loads(items[0]["arguments"]) == {"code": "6*7"}


@pytest.mark.parametrize("family", END_MARKERS)
def test_family_reasoning_before_call(run_family: RunFamily, family: str) -> None:
    think = "<think>\nI compute.\n</think>\n\n"
    items = run_family(
        family, think + family_call(family, "python", code="6*7"), think + "It is 42."
    )
    kinds = ["reasoning", "mcp_call", "reasoning", "message"]
    assert [item["type"] for item in items] == kinds and items[1]["output"] == "42"


@pytest.mark.long
@pytest.mark.parametrize("family", END_MARKERS)
def test_family_text_before_call(run_family: RunFamily, family: str) -> None:
    items = run_family(family, "Let me see.\n\n" + family_call(family, "python", code="6*7"), "So.")
    assert [item["type"] for item in items] == ["message", "mcp_call", "message"]
    assert items[0]["content"][0]["text"] == "Let me see."


@pytest.mark.long
@pytest.mark.parametrize("family", END_MARKERS)
def test_family_two_calls_run_in_order(run_family: RunFamily, family: str) -> None:
    calls = family_call(family, "python", code="x = 20") + family_call(
        family, "python", code="x + 1"
    )
    items = run_family(family, f"Two things.\n{calls}", "21.")
    assert [item["type"] for item in items] == ["message", "mcp_call", "mcp_call", "message"]
    assert items[2]["output"] == "21"


def test_family_read_only_calls_run_concurrently(run_family: RunFamily, tmp_path: Path) -> None:
    entry = server_entry("plain", tool_timeout_sec=60)
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"plain": entry}}))
    calls = family_call("qwen3", "plain__meet") + family_call("qwen3", "plain__meet")
    options = ("--mcp-config", str(tmp_path / "mcp.json"))
    items = run_family("qwen3", calls, "They met.", options=options)
    assert sorted(item["output"] for item in items[:2]) == ["met as number 1", "met as number 2"]


@pytest.mark.parametrize("family", END_MARKERS)
def test_family_unknown_tool_fails_item(run_family: RunFamily, family: str) -> None:
    items = run_family(family, family_call(family, "repo.list", path="."), "Sorry.")
    assert (items[0]["server_label"], items[0]["name"]) == ("repo", "list")
    assert "repo.list" in items[0]["error"]["message"]


@pytest.mark.parametrize("family", END_MARKERS)
def test_family_call_cut_off_incomplete(
    agent: RunAgent, script: Script, family_models: None, family: str
) -> None:
    engine = script(family_call(family, "python", code="word " * 100) + END_MARKERS[family])
    ran = agent(
        "run", "go", "--json-events", "--model", f"{family}-test", "--engine", engine,
        "--max-output-tokens", "120",
    )  # fmt: skip
    final = check(ran.events)
    assert (ran.code, final["status"]) == (4, "incomplete")
    assert final["output"][-1]["status"] == "failed"
    assert json.loads(final["output"][-1]["arguments"])["code"].startswith("word word")


def test_family_malformed_call_fails_item(run_family: RunFamily) -> None:
    items = run_family("qwen3", "<tool_call>python(6*7)</tool_call>", "Sorry.")
    assert items[0]["status"] == "failed" and items[-1]["type"] == "message"


@pytest.mark.long
def test_qwen_gguf_random_weights_complete_stream(
    agent: RunAgent, script: Script, tmp_path: Path
) -> None:
    """llama.cpp, the file's template and random weights: the stream is complete, whatever the text."""
    template = random_qwen_gguf.THINKING_TEMPLATE
    path = random_qwen_gguf.write_model(
        tmp_path / "small.gguf", random_qwen_gguf.SPECIALS, template
    )
    model = ("--json-events", "--model", str(path))
    ran = agent("run", "go <|im_end|>", *model, "--max-output-tokens", "60", "--seed", "1")
    final = check(ran.events)
    assert ran.code in (0, 4) and final["usage"]["output_tokens"] > 0
    # The file's vocabulary and template, with a script in place of the model.
    engine = script("I think.\n</think>\n\nIt is <b>done</b>.<|im_end|>")
    items = check(agent("run", "go", *model, "--engine", engine).events)["output"]
    assert [item["type"] for item in items] == ["reasoning", "message"]
    assert items[1]["content"][0]["text"] == "It is <b>done</b>."


def test_qwen_gguf_that_loops_is_stopped(agent: RunAgent, tmp_path: Path) -> None:
    """Random weights repeat themselves when they are sampled greedily."""
    path = random_qwen_gguf.write_model(
        tmp_path / "small.gguf", random_qwen_gguf.SPECIALS, random_qwen_gguf.THINKING_TEMPLATE
    )
    options = ("--json-events", "--model", str(path), "--temperature", "0", "--tools", "none")
    limited = (*options, "--max-output-tokens", "1200")
    ran = agent("run", "go", *limited)
    stopped = check(ran.events)["usage"]["output_tokens"]
    allowed = check(agent("run", "go", *limited, "--no-loop-guard").events)["usage"][
        "output_tokens"
    ]
    assert ran.code == 4 and 256 <= stopped < allowed == 1200
    assert any("repeated itself" in event.get("message", "") for event in ran.events)


def test_family_continue_drops_reasoning(
    agent: RunAgent, script: Script, family_models: None
) -> None:
    """The first turn's reasoning is not in the next prompt; its answer and its call are."""
    options = ("--json-events", "--model", "qwen3-test")
    think = "<think>\nI think of elephants.\n</think>\n\n"
    first = script(
        think + family_call("qwen3", "python", code="6*7") + END_MARKERS["qwen3"],
        "42." + END_MARKERS["qwen3"],
    )
    agent("run", "one", *options, "--engine", first)
    second = check(
        agent("run", "two", "--continue", *options, "--engine", script("ok<|im_end|>")).events
    )
    alone = check(agent("run", "two", *options, "--engine", script("ok<|im_end|>")).events)
    assert second["usage"]["input_tokens"] > alone["usage"]["input_tokens"] + 60


# --- over HTTP ---

WEATHER = {
    "type": "function",
    "name": "weather",
    "parameters": {
        "type": "object",
        "properties": {"place": {"type": "string"}, "days": {"type": "integer"}},
    },
}
REASONING = "<think>\nI need the weather.\n</think>\n\n"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("family", END_MARKERS)
@pytest.mark.parametrize(
    ("lead", "kinds"),
    [
        ("", []),
        (REASONING, ["reasoning"]),
        ("Let me see.\n", ["message"]),
        (f"{REASONING}Let me see.\n", ["reasoning", "message"]),
    ],
)
async def test_family_http_functions_two_turns(
    serve: Serve, tmp_path: Path, family: str, lead: str, kinds: list[str]
) -> None:
    write_models(tmp_path / "home")
    calls = family_call(family, "weather", place="Oslo", days="2") + family_call(
        family, "weather", place="Rome"
    )
    end = END_MARKERS[family]
    served = await serve(lead + calls + end, *[f"Cold.{end}"] * 2, model=f"{family}-test")
    events = await served.stream(input="And the weather?", tools=[WEATHER])
    final = check(events)
    made = [item for item in final["output"] if item["type"] == "function_call"]
    assert [item["type"] for item in final["output"]] == [*kinds, *["function_call"] * 2]
    days = 2 if family == "qwen3-coder" else "2"  # JSON stays as it was written
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
        engine: Any = served.runtime.loaded.engine
        form: Any = served.runtime.format
        prompt = b"".join(form.token_bytes(token) for token in engine.sequence_ids)
        assert prompt.count(b"-3") == 2 and prompt.count(b"Oslo") == prompt.count(b"Rome") == 1


@pytest.mark.parametrize(
    ("family", "rest"),
    [
        ("qwen3", '{"place": "Oslo"}}\n</tool_call>'),
        ("qwen3-coder", "<parameter=place>\nOslo\n</parameter>\n</function>\n</tool_call>"),
        ("llama3", '{"place": "Oslo"}}'),
    ],
)
async def test_family_http_required_call_prefix(
    serve: Serve, tmp_path: Path, family: str, rest: str
) -> None:
    """The call is opened for the model, which writes the arguments."""
    write_models(tmp_path / "home")
    served = await serve(rest + END_MARKERS[family], model=f"{family}-test")
    body = {"input": "Oslo?", "tools": [WEATHER], "tool_choice": "required"}
    [item] = check(await served.stream(**body))["output"]
    assert (item["name"], json.loads(item["arguments"])) == ("weather", {"place": "Oslo"})


def test_parse_model_option_own_vocabulary(agent: RunAgent, tmp_path: Path) -> None:
    """``agent parse --model`` parses ids of the model's own vocabulary."""
    path = random_qwen_gguf.write_model(tmp_path / "small.gguf", random_qwen_gguf.SPECIALS, None)
    form = detect.load_format(path, "qwen3")
    assert form is not None
    ids = form.encoder.encode_markup("<think>Hm.</think>hello<|im_end|>")
    ran = agent("parse", "--format", "qwen3", "--model", str(path), stdin=json.dumps(ids))
    segments = [(s["kind"], s["text"]) for s in json.loads(ran.out)["segments"] if s["text"]]
    assert ran.code == 0 and segments == [("reasoning", "Hm."), ("final", "hello")]
    assert agent("parse", "--format", "qwen3", stdin="[1]").code == 2
    assert agent("parse", "--format", "qwen3", "--model", "nowhere", stdin="[1]").code == 2


# --- models whose calls cannot be parsed ---

TOOLS_OFF = "Tools are off: this program cannot parse the calls of words."


@pytest.fixture
def words_model(home: Path) -> tuple[str, str]:
    """Options of a model whose messages are plain text."""
    (home / "config").mkdir(parents=True, exist_ok=True)
    entry = '[words]\npath = "nowhere.gguf"\nformat = "plain"\n'
    (home / "config" / "models.toml").write_text(entry)
    return "--model", "words"


def test_run_without_parsed_calls_withholds_tools(
    agent: RunAgent, script: Script, words_model: tuple[str, str]
) -> None:
    options = (*words_model, "--engine", script("Hello.<|im_end|>"))
    events = agent("run", "go", "--json-events", *options).events
    check(events)
    [start] = [event for event in events if event["type"] == "agent.start"]
    notices = [event["message"] for event in events if event["type"] == "agent.notice"]
    assert (start["tools"], notices) == ([], [TOOLS_OFF])
    for tools in ("all", "none"):
        ran = agent("run", "go", *options, "--tools", tools)
        assert (ran.code, ran.out, TOOLS_OFF in ran.err) == (0, "Hello.\n", tools == "all")


def test_run_without_parsed_calls_refuses_named_tools(
    agent: RunAgent, script: Script, words_model: tuple[str, str]
) -> None:
    options = (*words_model, "--engine", script("Hello.<|im_end|>"))
    ran = agent("run", "go", *options, "--tools", "python")
    assert (ran.code, ran.out) == (2, "") and f"--tools python: {TOOLS_OFF}" in ran.err


def test_gguf_without_known_syntax_withholds_tools(
    agent: RunAgent, script: Script, tmp_path: Path
) -> None:
    """The format is read from the file before the turn lists its tools."""
    path = random_qwen_gguf.write_model(tmp_path / "small.gguf", random_qwen_gguf.SPECIALS, None)
    engine = script("Hello.<|im_end|>")
    events = agent("run", "go", "--json-events", "--model", str(path), "--engine", engine).events
    check(events)
    [start] = [event for event in events if event["type"] == "agent.start"]
    assert start["tools"] == []
