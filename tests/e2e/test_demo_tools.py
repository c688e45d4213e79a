"""The prompts that the app offers are answered by the embedded model; --demo-tools starts servers."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from agent.config.paths import user_paths
from agent.models.catalog import load_catalog
from tests.support.invariants import check
from tests.support.program import CommandResult, RunAgent
from tools.demo.server import find_zone
from tools.demo.settings import EXAMPLES

pytestmark = pytest.mark.slow

ANSWERS = {
    "What is 123 * 456?": "56088",
    "List the files here": "poem.txt",
    "What is 17% of 640?": "108.8",
}
"""Part of the answer to each prompt that models.toml has for the embedded model."""


def ask(agent: RunAgent, prompt: str, *options: str, cwd: Path) -> tuple[str, list[dict[str, Any]]]:
    """The final answer of the embedded model and the calls that led to it."""
    ran, final, calls = run(agent, prompt, *options, cwd=cwd)
    assert (ran.code, final["status"]) == (0, "completed"), (ran.err, final["error"])
    return final["output"][-1]["content"][0]["text"], calls


def run(
    agent: RunAgent, prompt: str, *options: str, cwd: Path
) -> tuple[CommandResult, dict[str, Any], list[dict[str, Any]]]:
    """What ran, the final response and its calls."""
    ran = agent("run", prompt, "--json-events", *options, cwd=cwd)
    final = check(ran.events)
    return ran, final, [item for item in final["output"] if item["type"] == "mcp_call"]


@pytest.mark.long
@pytest.mark.parametrize("prompt", load_catalog(user_paths())["tiny"].examples)
def test_examples_of_embedded_model_are_answered(
    agent: RunAgent, tmp_path: Path, prompt: str
) -> None:
    (tmp_path / "poem.txt").write_text("roses")
    answer, calls = ask(agent, prompt, cwd=tmp_path)
    assert len(calls) == 1 and ANSWERS[prompt] in answer


def test_demo_tools_examples_are_answered(agent: RunAgent, tmp_path: Path) -> None:
    weather, _, note = EXAMPLES
    for prompt, tool in {weather: "weather.get_weather", note: "notes.add"}.items():
        answer, (call,) = ask(agent, prompt, "--demo-tools", cwd=tmp_path)
        assert f"{call['server_label']}.{call['name']}" == tool and call["status"] == "completed"
        if prompt == weather:
            assert json.loads(call["arguments"]) == {"city": "Paris"} and call["output"] in answer


@pytest.mark.long
def test_demo_tools_time_is_the_time_there(agent: RunAgent, tmp_path: Path) -> None:
    """The answer is not looked at: how the model copies a time depends on its digits."""
    _, _, (call,) = run(agent, EXAMPLES[1], "--demo-tools", cwd=tmp_path)
    assert (call["server_label"], call["name"]) == ("time", "get_current_time")
    now = datetime.fromisoformat(json.loads(call["output"])["datetime"])
    assert abs((datetime.now(ZoneInfo("Asia/Tokyo")) - now).total_seconds()) < 60


def test_demo_tools_find_zone_by_city() -> None:
    assert find_zone("Asia/Tokyo") == find_zone("tokyo") == "Asia/Tokyo"
    assert find_zone("new york") == "America/New_York" and find_zone("Atlantis") is None
