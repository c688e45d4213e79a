"""Every client's block of docs/clients.md, run as it stands but for the port."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.clients.codex import CONFIG, REPLIES
from tests.clients.conftest import Run, Scripted, documented_blocks
from tests.support.scripts import final

EXPECTED_OUTPUT = {
    "Coding agents: agent launch": [],
    "curl": ['"type":"response.completed"', "56088", "data: [DONE]"],
    "openai-python": ["56088", "56188"],
    "openai-js": ["56088"],
    "Agents SDK": ["cloudy, 3 degrees"],
    "Codex CLI": ["The file is made.", "It is made.txt."],
    "Claude Code": ["The file is made."],
    "anthropic-python": ["56088", "56188"],
    "LangChain": ["cloudy, 3 degrees"],
    "Vercel AI SDK": ["cloudy, 3 degrees"],
    "llm": ["Hello!", "tool"],
    "Open WebUI": [],
}
"""What is read on standard output, by heading."""


def test_readme_every_block_has_expectations() -> None:
    titles = documented_blocks()
    assert titles.keys() == EXPECTED_OUTPUT.keys()
    without = ["Coding agents: agent launch", "Open WebUI"]
    assert [title for title in titles if not titles[title]] == without


@pytest.mark.parametrize(
    "title", [title for title, expected in EXPECTED_OUTPUT.items() if expected]
)
def test_readme_blocks_run(
    title: str, tmp_path: Path, run: Run, request: pytest.FixtureRequest
) -> None:
    if title == "curl" and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    if title in ("openai-js", "Vercel AI SDK", "Codex CLI", "Claude Code"):
        modules = request.getfixturevalue("node") / "node_modules"
        (tmp_path / "node_modules").symlink_to(modules)
    if title == "Codex CLI":
        (tmp_path / ".codex").mkdir()
        (tmp_path / ".codex" / "config.toml").write_text(CONFIG)
        scripted: Scripted = request.getfixturevalue("scripted")
        url = scripted(*REPLIES)
    elif title == "Claude Code":
        scripted = request.getfixturevalue("scripted")
        url = scripted(final("The file is made."))
    else:
        url = request.getfixturevalue("url")
    stdout = ""
    for language, block in documented_blocks()[title]:
        code = block.replace("http://127.0.0.1:8080/v1", url)
        code = code.replace("http://127.0.0.1:8080", url.removesuffix("/v1"))
        match language:
            case "sh":
                stdout += run("bash", "-euc", code)
            case "python":
                stdout += run(sys.executable, "-c", code)
            case "js":
                stdout += run("node", "--input-type=module", "--eval", code)
            case "toml":
                (tmp_path / ".codex" / "local.config.toml").write_text(code)
            case _:
                pytest.fail(f"Nothing here runs {language}.")
    for text in EXPECTED_OUTPUT[title]:
        assert text in stdout
