"""What the first paint waits for."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent import __main__ as entry
from agent.cli import main as cli
from agent.cli.shared import Shared
from tests.support.fake_app import person


def test_nothing_heavy_is_imported_before_the_first_paint(tmp_path: Path) -> None:
    heavy = "typer pydantic mcp numpy llama_cpp openai_harmony starlette markdown_it pygments"
    heavy += " tools.builtin.browser tui.widgets.text_stream"
    code = (
        "import sys, agent.__main__, agent.cli.trust, agent.cli.shared;"
        "import agent.config.settings, tui.main;"
        "from tools.config.project_files import FILES; from tui.app import AgentApp; "
        "from tui.session import Session; AgentApp(Session(agent.cli.shared.Shared()));"
        "tui.main._looks(agent.config.settings.places());"
        f"print(*sorted(set({heavy!r}.split()) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "AGENT_HOME": str(tmp_path)},
    )
    assert (done.stdout.strip(), done.returncode) == ("", 0), done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-c"],
        ["--continue"],
        ["--model", "x", "--model", "tiny"],
        ["-c", "--tools", "none", "--approve", "files=allow", "--system", "@said"],
    ],
)
def test_with_simple_options_the_app_is_what_the_command_would_be(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    assert entry._simple(arguments) is not None
    started: list[tuple[Shared, dict[str, Any]]] = []

    def main(shared: Shared, *, go_on: bool, **rest: Any) -> int:
        started.append((shared, {"go_on": go_on, **{k: v for k, v in rest.items() if v}}))
        return 0

    monkeypatch.setattr("tui.main.main", main)
    monkeypatch.setattr(sys, "argv", ["agent", *arguments])
    for start in (entry.main, cli.main):
        with pytest.raises(SystemExit):
            start()
    assert started[0] == started[1]


@pytest.mark.parametrize(
    "arguments",
    [["run"], ["--model"], ["--model", ""], ["--model", "--tools"], ["--model=x"], ["--serve"]],
)
def test_all_else_is_read_by_the_command(arguments: list[str]) -> None:
    assert entry._simple(arguments) is None


async def test_another_model_keeps_nothing_that_is_gone() -> None:
    async def work(progress: object) -> None:
        pass

    async with person() as someone:
        before = gc.get_freeze_count()
        made = [[number] for number in range(1000)]
        await someone.app.starting.load(work)
        assert gc.get_freeze_count() < before + len(made)
