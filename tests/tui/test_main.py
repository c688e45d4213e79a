"""What the first paint waits for."""

import gc
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import tui.main
from agent import __main__ as entry
from agent.cli import main as cli
from agent.config.launch import LaunchOptions
from tests.support.fake_app import drive_app
from tui.app import AgentApp


def test_first_paint_imports_nothing_heavy(tmp_path: Path) -> None:
    heavy = "typer pydantic mcp numpy llama_cpp openai_harmony starlette markdown_it pygments"
    heavy += " tools.builtin.browser tui.widgets.text_stream"
    code = (
        "import sys, agent.__main__, agent.cli.trust, agent.config.launch;"
        "import agent.config.paths, agent.config.settings, tui.main;"
        "from tools.run_later import PROJECT_FILES; from tui.app import AgentApp; "
        "from tui.session import Session; AgentApp(Session(agent.config.launch.LaunchOptions()));"
        "tui.main.app_settings(agent.config.paths.user_paths());"
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
def test_fast_path_starts_app_like_cli(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    assert entry._simple_app_options(arguments) is not None
    started: list[tuple[LaunchOptions, dict[str, Any]]] = []

    def main(launch: LaunchOptions, **options: Any) -> int:
        started.append((launch, {name: value for name, value in options.items() if value}))
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
def test_fast_path_leaves_other_arguments_to_cli(arguments: list[str]) -> None:
    assert entry._simple_app_options(arguments) is None


async def test_loading_another_model_does_not_freeze_gc() -> None:
    async def work(progress: object) -> None:
        pass

    async with drive_app() as driver:
        before = gc.get_freeze_count()
        made = [[number] for number in range(1000)]
        await driver.app.startup.with_progress(work)
        assert gc.get_freeze_count() < before + len(made)


@pytest.mark.parametrize("animations", [True, False])
def test_main_animations_setting_reaches_app(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, animations: bool
) -> None:
    apps: list[AgentApp] = []

    async def run(app: AgentApp) -> int:
        apps.append(app)
        return 0

    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.toml").write_text(f"animations = {str(animations).lower()}\n")
    monkeypatch.setenv("AGENT_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("tui.main._run", run)
    monkeypatch.setattr("tui.main.screen.own_terminal", lambda log: nullcontext(lambda: None))
    for name in ("gc_tuning.defer", "gc_tuning.disable", "bracketed_paste.patch_textual"):
        monkeypatch.setattr(f"tui.main.{name}", lambda: None)
    monkeypatch.setattr(sys, "setswitchinterval", lambda seconds: None)
    assert tui.main.main(LaunchOptions()) == 0
    (app,) = apps
    assert (app.animation_level == "none") is not animations
    assert app.prompt.cursor_blink is animations
    assert "COLUMNS" not in os.environ, "the app has the size of its terminal"
