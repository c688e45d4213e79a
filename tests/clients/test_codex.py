"""Codex CLI: its shell and its MCP servers there and back, and a second turn that goes on.

The engine is scripted, since the embedded model does not follow Codex's long prompt.
"""

from __future__ import annotations

import json
import re
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.clients.codex import CONFIG, NO_FURTHER_CALL, REPLIES
from tests.clients.conftest import AGENT, ROOT, Run, Scripted, documented_blocks
from tests.clients.tap import tap
from tests.support.scripts import call, final, hold, raw_call, thought

PROVIDER = """
model = "default"
model_provider = "local"
model_providers.local = {{ name = "agent", base_url = "{url}", supports_websockets = {sockets} }}
mcp_servers.plain = {{ command = "{python}", args = ["{server}"], required = true }}
"""
PLAIN = ROOT / "tests" / "support" / "mcp_servers" / "plain.py"
FROGS = thought("I ask the server.") + call("mcp__plain__echo", text="frogs")


@pytest.mark.parametrize("sockets", ["false", "true"], ids=["http", "websocket"])
def test_codex_tools_and_second_turn(
    scripted: Scripted, node: Path, tmp_path: Path, run: Run, sockets: str
) -> None:
    config = tmp_path / ".codex" / "config.toml"
    config.parent.mkdir()
    url = scripted(*REPLIES[:2], FROGS, *REPLIES[1:])
    config.write_text(
        CONFIG + PROVIDER.format(url=url, sockets=sockets, python=sys.executable, server=PLAIN)
    )

    def codex(*arguments: str) -> tuple[list[dict[str, Any]], dict[str, int]]:
        """The items of a turn, and what it used."""
        out = run("codex", "exec", "--json", "--skip-git-repo-check", *arguments)
        events = [json.loads(line) for line in out.splitlines()]
        assert events[-1]["type"] == "turn.completed", out
        assert not [event for event in events if event["type"] == "error"], "it had to try again"
        items = [event["item"] for event in events if event["type"] == "item.completed"]
        return [item for item in items if item["type"] != "error"], events[-1]["usage"]

    items, first = codex("make the file")
    thoughts = [item["text"] for item in items if item["type"] == "reasoning"]
    assert thoughts.count("I ask the server.") == 1, "the summary, and not its text once more"
    command, mcp_call, answer = [item for item in items if item["type"] != "reasoning"]
    assert (command["type"], command["exit_code"]) == ("command_execution", 0)
    assert command["aggregated_output"] == "from the shell\n"
    assert (tmp_path / "made.txt").read_text() == "from the shell\n"
    assert (mcp_call["type"], mcp_call["server"], mcp_call["tool"]) == (
        "mcp_tool_call",
        "plain",
        "echo",
    )
    assert mcp_call["result"]["content"] == [{"type": "text", "text": "frogs"}]
    assert (answer["type"], answer["text"]) == ("agent_message", "The file is made.")
    items, both = codex("resume", "--last", "what is its name?")
    answer = items[-1]
    assert answer["text"] == "It is made.txt."
    # It goes on from the very tokens of before. Over a socket it lays its instructions ahead, and a
    # scripted engine remembers the latest prompt only.
    read = both["input_tokens"] - first["input_tokens"]
    cached = both["cached_input_tokens"] - first["cached_input_tokens"]
    assert read > 5000 and cached > (0.8 if sockets == "true" else 0.9) * read


def test_codex_known_model_name_searches_its_own_tools(
    scripted: Scripted, node: Path, tmp_path: Path, run: Run
) -> None:
    """It then offers a search for further tools, which it runs itself; pictures are ignored."""
    models = tmp_path / "agent-home" / "config" / "models.toml"
    models.parent.mkdir(parents=True)
    models.write_text('[tiny]\naliases = ["gpt-5.5"]\n')
    config = tmp_path / ".codex" / "config.toml"
    config.parent.mkdir()
    provider = PROVIDER.splitlines()[2:4]
    url = scripted(call("tool_search", query="calendar"), NO_FURTHER_CALL, final("Hello."))
    known = "\n".join(['model = "gpt-5.5"', *provider]).format(url=url, sockets="false")
    config.write_text(CONFIG + known)
    out = run("codex", "exec", "--json", "--skip-git-repo-check", "hello")
    events = [json.loads(line) for line in out.splitlines()]
    assert events[-1]["type"] == "turn.completed", out
    assert [event["item"]["text"] for event in events if "item" in event][-1] == "Hello."
    assert turns_of(url) == 2, "the second brings what the search found"
    log = (tmp_path / "agent-home" / "state" / "agent.log").read_text()
    assert "no tool of type 'tool_search'" not in log


def configure(tmp_path: Path, url: str, *lines: str, model: str = "default") -> None:
    """Write Codex's configuration; ``lines``: its settings, ``provider.NAME`` the provider's."""
    provider = [line.removeprefix("provider.") for line in lines if line.startswith("provider.")]
    provider = ['name = "agent"', f'base_url = "{url}"', *provider]
    own = [line for line in lines if not line.startswith("provider.")]
    names = [f'model = "{model}"', 'model_provider = "local"', *own]
    config = tmp_path / ".codex" / "config.toml"
    config.parent.mkdir(exist_ok=True)
    table = f"model_providers.local = {{ {', '.join(provider)} }}"
    config.write_text(CONFIG + "\n".join([*names, table]))


def codex_items(run: Run, prompt: str) -> list[dict[str, Any]]:
    """The completed items of a turn, in which nothing had to be tried again."""
    out = run("codex", "exec", "--json", "--skip-git-repo-check", prompt)
    events = [json.loads(line) for line in out.splitlines()]
    assert events[-1]["type"] == "turn.completed", out
    assert not [event for event in events if event["type"] == "error"], out
    return [event["item"] for event in events if event["type"] == "item.completed"]


def turns_of(url: str) -> int:
    """How many turns a server has completed."""
    with urlopen(f"{url.removesuffix('/v1')}/metrics") as answer:
        number = re.search(r'agent_turns_total{status="completed"} (\d+)', answer.read().decode())
    assert number
    return int(number[1])


def test_codex_documented_catalog_gives_window_and_no_warning(
    scripted: Scripted, node: Path, tmp_path: Path, run: Run
) -> None:
    url = scripted(final("Hello."))
    (tmp_path / ".codex").mkdir()
    blocks = documented_blocks()["Codex CLI"]
    assert [language for language, _ in blocks[:2]] == ["sh", "toml"]
    catalog, config = (block.replace("http://127.0.0.1:8080/v1", url) for _, block in blocks[:2])
    run("bash", "-euc", catalog)
    (tmp_path / ".codex" / "config.toml").write_text(CONFIG + config)
    (item,) = codex_items(run, "hello")
    assert item["text"] == "Hello.", "a warning would be an item, too"
    with urlopen(f"{url}/models") as answer:
        context = json.load(answer)["data"][0]["context_length"]
    (rollout,) = tmp_path.glob(".codex/sessions/**/*.jsonl")
    windows = re.findall(r'"model_context_window":(\d+)', rollout.read_text())
    assert windows and {*map(int, windows)} == {context * 95 // 100}, "Codex leaves a margin of 5 %"


@pytest.mark.parametrize("model", ["gpt-5.6-sol", "gpt-6.2-sol"])
def test_codex_current_catalog_calls_its_tools(
    scripted: Scripted, node: Path, tmp_path: Path, run: Run, model: str
) -> None:
    """For these models the tools are an input item, a custom one within a namespace among them."""
    models = tmp_path / "agent-home" / "config" / "models.toml"
    models.parent.mkdir(parents=True)
    models.write_text(f'[tiny]\naliases = ["{model}"]\n')
    code = 'text(await tools.exec_command({cmd: "echo frogs > made.txt; cat made.txt"}))'
    url = scripted(
        thought("I use the shell.") + raw_call("functions.exec", code), final("It is made.")
    )
    configure(tmp_path, url, model=model)
    items = codex_items(run, "make the file")
    assert (tmp_path / "made.txt").read_text() == "frogs\n"
    assert items[-1]["text"] == "It is made."


def test_codex_thirty_steps_in_a_small_window_need_no_compaction(
    scripted: Scripted, node: Path, tmp_path: Path, run: Run
) -> None:
    """Two calls in an answer, fifteen times: had each counted the prompt, it would compact at once."""
    replies = []
    for step in range(0, 30, 2):
        replies += [
            thought("I go on.") + call("exec_command", cmd=f"echo {step} >> steps.txt"),
            call("exec_command", cmd=f"echo {step + 1} >> steps.txt"),
            NO_FURTHER_CALL,
        ]
    url = scripted(*replies, final("All steps are done."))
    configure(tmp_path, url, "model_context_window = 16000")
    items = codex_items(run, "do the steps")
    assert items[-1]["text"] == "All steps are done."
    steps = (tmp_path / "steps.txt").read_text().split()
    assert sorted(map(int, steps)) == [*range(30)]
    assert turns_of(url) == 16, "a compaction would be one more"


def test_codex_goes_on_after_a_refused_picture(
    scripted: Scripted, node: Path, tmp_path: Path, run: Run
) -> None:
    url = scripted(final("It is forgotten."))
    configure(tmp_path, url)
    picture = (  # one pixel
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
        "rkJggg=="
    )
    (tmp_path / "p.png").write_bytes(b64decode(picture))
    look = ("codex", "exec", "--json", "--skip-git-repo-check", "-i", "p.png", "--", "look")
    with pytest.raises(AssertionError, match="this model cannot see images"):
        run(*look)
    resume = ("codex", "exec", "--json", "--skip-git-repo-check", "resume", "--last", "Forget it.")
    out = run(*resume)
    items = [json.loads(line).get("item", {}) for line in out.splitlines()]
    assert "It is forgotten." in [item.get("text") for item in items]
    assert turns_of(url) == 1


@pytest.mark.parametrize("sockets", ["false", "true"], ids=["http", "websocket"])
def test_codex_survives_a_long_prefill(
    scripted: Scripted, node: Path, tmp_path: Path, run: Run, sockets: str
) -> None:
    """It gives up a stream after 3 s of silence, and the server's signs come each second."""
    go = tmp_path / "go"
    url = scripted(hold(final("It took long."), 0, go), frequent_keepalives=True)
    with tap(url, 5, go) as tapped:
        idle, on = (
            "provider.stream_idle_timeout_ms = 3000",
            f"provider.supports_websockets = {sockets}",
        )
        configure(tmp_path, tapped, idle, on)
        items = codex_items(run, "hello")
    assert items[-1]["text"] == "It took long."


def test_launched_codex_has_the_models_name_and_window_and_no_warning(
    node: Path, tmp_path: Path, run: Run
) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps({"markup": each}) + "\n" for each in REPLIES[:3]))
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text(CONFIG)
    launched = [*AGENT, "launch", "--engine", f"script:{script}", "--context", "32768", "codex"]
    out = run(
        *launched, "exec", "--json", "--skip-git-repo-check", "Make a file.",
        AGENT_HOME=str(tmp_path / "agent-home"), PYTHONPATH=str(ROOT),
    )  # fmt: skip
    events = [json.loads(line) for line in out.splitlines()]
    assert events[-1]["type"] == "turn.completed", out
    assert not [event for event in events if "metadata" in json.dumps(event)]
    assert (tmp_path / "made.txt").read_text() == "from the shell\n"
    (rollout,) = (tmp_path / ".codex").rglob("rollout-*.jsonl")
    assert '"model_context_window":3' in rollout.read_text().replace(" ", "")
    assert "AGENT_LAUNCH_KEY" not in (tmp_path / ".codex" / "config.toml").read_text()
