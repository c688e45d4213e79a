"""Every block of the README's "Use it from", run as it stands but for the port."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.clients.conftest import ROOT, Run, Scripted
from tests.clients.test_codex import CONFIG, REPLIES

HEARD = {
    "curl": ['"type":"response.completed"', "56088", "data: [DONE]"],
    "openai-python": ["56088", "168264"],
    "openai-js": ["56088"],
    "Agents SDK": ["cloudy, 3 degrees"],
    "Codex CLI": ["The file is made.", "It is made.txt."],
    "LangChain": ["cloudy, 3 degrees"],
    "Vercel AI SDK": ["cloudy, 3 degrees"],
    "llm": ["Hello!", "tool"],
    "Open WebUI": [],
}
"""What is read on standard output, by heading."""


def blocks() -> dict[str, list[tuple[str, str]]]:
    """The fenced blocks of each heading, with their languages."""
    section = (ROOT / "README.md").read_text().split("\n## Use it from\n")[1].split("\n## ")[0]
    titles = [part.split("\n", 1) for part in section.split("\n### ")[1:]]
    return {title: re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL) for title, text in titles}


def test_each_is_run() -> None:
    found = blocks()
    assert found.keys() == HEARD.keys()
    assert [title for title in found if not found[title]] == ["Open WebUI"]


@pytest.mark.parametrize("title", [title for title, heard in HEARD.items() if heard])
def test_it_runs(title: str, tmp_path: Path, run: Run, request: pytest.FixtureRequest) -> None:
    if title == "curl" and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    if title in ("openai-js", "Vercel AI SDK", "Codex CLI"):
        modules = request.getfixturevalue("node") / "node_modules"
        (tmp_path / "node_modules").symlink_to(modules)
    if title == "Codex CLI":
        (tmp_path / ".codex").mkdir()
        (tmp_path / ".codex" / "config.toml").write_text(CONFIG)
        scripted: Scripted = request.getfixturevalue("scripted")
        url = scripted(*REPLIES)
    else:
        url = request.getfixturevalue("url")
    said = ""
    for language, block in blocks()[title]:
        code = block.replace("http://127.0.0.1:8080/v1", url)
        match language:
            case "sh":
                said += run("bash", "-euc", code)
            case "python":
                said += run(sys.executable, "-c", code)
            case "js":
                said += run("node", "--input-type=module", "--eval", code)
            case "toml":
                (tmp_path / ".codex" / "local.config.toml").write_text(code)
            case _:
                pytest.fail(f"Nothing here runs {language}.")
    for text in HEARD[title]:
        assert text in said
