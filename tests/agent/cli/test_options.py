"""The options that run, chat and serve share."""

import inspect
from dataclasses import fields
from pathlib import Path

import pytest

from agent.cli import main as commands
from agent.cli.options import launch_parameters
from agent.config.launch import LaunchOptions

NAMES = [field.name for field in fields(LaunchOptions)]


def test_launch_parameters_have_every_field() -> None:
    assert [parameter.name for parameter in launch_parameters()] == NAMES


@pytest.mark.parametrize("command", [commands.run, commands.chat, commands.serve])
def test_takes_launch_options_replaces_launch(command: object) -> None:
    parameters = list(inspect.signature(command).parameters)  # type: ignore[arg-type]
    assert "launch" not in parameters
    assert [name for name in parameters if name in NAMES] == NAMES
    assert parameters[-2:] == ["log_level", "trace"]


def test_chat_passes_parsed_options(
    monkeypatch: pytest.MonkeyPatch, restored_logging: None
) -> None:
    launches: list[LaunchOptions] = []

    def main(launch: LaunchOptions, **options: object) -> int:
        launches.append(launch)
        return 7

    monkeypatch.setattr("tui.main.main", main)
    arguments = "chat --model m --top-k 3 --no-compact --mcp a=b --mcp c=d --mcp-config f.json"
    monkeypatch.setattr("sys.argv", ["agent", *arguments.split(), "--tools", "none"])
    with pytest.raises(SystemExit) as exited:
        commands.main()
    assert exited.value.code == 7
    assert launches == [
        LaunchOptions(
            root=Path.cwd(),
            model="m",
            top_k=3,
            compact=False,
            mcp=("a=b", "c=d"),
            mcp_config=(Path("f.json"),),
            tools="none",
        )
    ]
