"""`agent config`: shows, sets, edits and names config.toml; and what its settings do."""

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from typer.main import get_command

from agent.cli.main import app
from agent.config.settings import DEFAULTS, SETTINGS, Settings
from tests.settings_page import fill_page
from tests.support.program import ROOT, RunAgent

DONE = "<|channel|>final<|message|>ok<|return|>"
TEXT = '# mine\nmodel = "tiny"  # since May\n\n[browser]\nallow_private = []\n'


@pytest.fixture
def config(home: Path) -> Path:
    """The path of config.toml, whose folder is there."""
    (home / "config").mkdir()
    return home / "config" / "config.toml"


def read_settings(agent: RunAgent, **more: dict[str, str]) -> dict[str, tuple[object, str]]:
    """Value and source of each setting."""
    table = json.loads(agent("config", "show", "--json", **more).out)
    return {name: (row["value"], row["source"]) for name, row in table.items()}


def test_defaults_name_every_setting() -> None:
    names = {name.partition(".")[0] for name in DEFAULTS}
    assert names == {field.name for field in fields(Settings)}


def test_configuration_page_has_the_tables_of_the_code() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert page == fill_page(page), "make man writes it"
    assert "| `effort` |" in page and "| `newline` | Ctrl-J" in page


def test_settings_texts_name_options_that_exist() -> None:
    command = get_command(app)
    names = {
        option
        for each in [command, *command.commands.values()]  # type: ignore[attr-defined]
        for parameter in each.params
        for option in [*parameter.opts, *parameter.secondary_opts]
    }
    named = {n for each in SETTINGS.values() for n in re.findall(r"--[\w-]+", each.elsewhere)}
    assert named and named <= names


def test_config_show_says_where_values_come_from(agent: RunAgent, config: Path) -> None:
    config.write_text('effort = "high"\n[browser]\nsearch = "web.search"\n')
    settings = read_settings(agent, env={"AGENT_SEARXNG": "http://127.0.0.1:1"})
    assert settings["effort"] == ("high", "config.toml")
    assert settings["browser.search"] == ("web.search", "config.toml")
    assert settings["browser.searxng"] == ("http://127.0.0.1:1", "AGENT_SEARXNG")
    assert settings["temperature"] == (None, "default")
    assert settings["model"] == ("tiny", "default")
    lines = agent("config", "show").out.splitlines()
    assert lines[0].split() == ["SETTING", "VALUE", "DEFAULT", "FROM"]
    assert ["effort", "high", "medium", "config.toml"] in [line.split() for line in lines]
    assert max(map(len, lines)) <= 80


def test_config_show_has_former_names_by_those_of_now(agent: RunAgent, config: Path) -> None:
    config.write_text("responses_most = 50\n")
    row = json.loads(agent("config", "show", "--json").out)["responses_max"]
    assert (row["value"], row["source"]) == (50, "config.toml")


def test_config_set_leaves_the_rest(agent: RunAgent, config: Path) -> None:
    config.write_text(TEXT)
    for name, value in (("effort", "high"), ("top_k", "40"), ("browser.search", "web.search")):
        assert agent("config", "set", name, value).code == 0
    for line in TEXT.splitlines():
        assert line in config.read_text()
    assert 'effort = "high"\n' in config.read_text() and "top_k = 40\n" in config.read_text()
    assert agent("config", "set", "theme", "nord").code == 0
    settings = read_settings(agent)
    assert settings["theme"][0] == "nord" and settings["browser.search"][0] == "web.search"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("effort", "max", "effort must be low, medium or high, not 'max'."),
        ("temperature", "hot", "temperature must be a number from 0 to 1,000,000, not 'hot'."),
        ("temperature", "nan", "temperature must be a number from 0 to 1,000,000, not 'nan'."),
        ("temperature", "1000001", "temperature must be a number from 0 to 1,000,000, not '1"),
        ("keep_alive", "inf", "keep_alive must be a number of seconds, not 'inf'."),
        ("responses_days", "inf", "responses_days must be a number of days, not 'inf'."),
        ("theme", "nosuch", "There is no theme 'nosuch'; known: dark, light"),
        ("theme", "3", "There is no theme '3'; known: "),
        ("top_k", "-1", "top_k must be a whole number of at least 0, not '-1'."),
        ("animations", "yes", "animations must be true or false, not 'yes'."),
        ("model", "nosuch", "There is no model nosuch"),
        ("browser.allow_private", "3", "browser.allow_private must be a list of networks, as in ["),
        ("keys.view", "ctrl+c", "keys.view: Ctrl-C always stops and quits."),
        ("keys.view", "F4", "keys.view: F4 cannot be both view and theme; give one"),
        ("keys.veiw", "f9", "There is no setting keys.veiw; agent config show lists them."),
        ("compakt", "auto", "There is no setting compakt; agent config show lists them."),
    ],
)
def test_config_set_wrong_value_changes_nothing(
    agent: RunAgent, config: Path, name: str, value: str, message: str
) -> None:
    config.write_text(TEXT)
    ran = agent("config", "set", name, value)
    assert ran.code == 2 and message in ran.err and ran.err.count("\n") == 1
    assert config.read_text() == TEXT


def test_config_set_model_path_counts_in_every_folder(
    agent: RunAgent, tmp_path: Path, tiny_gguf: Path
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "my.gguf").symlink_to(tiny_gguf)
    assert agent("config", "set", "model", "./my.gguf", cwd=tmp_path / "here").code == 0
    assert read_settings(agent)["model"] == (str(tiny_gguf.resolve()), "config.toml")
    assert agent("config", "set", "model", '"tiny"').code == 0
    assert read_settings(agent)["model"] == ("tiny", "config.toml")


def test_config_set_full_disk_changes_nothing(
    agent: RunAgent, config: Path, tmp_path: Path
) -> None:
    config.write_text(TEXT)
    line = f"ulimit -f 0; exec {sys.executable} -m agent config set theme light"
    ran = subprocess.run(
        ["bash", "-c", line],
        env={**os.environ, "AGENT_HOME": str(config.parents[1])}, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 2 and "Cannot write" in ran.stderr and ran.stderr.count("\n") == 1
    assert config.read_text() == TEXT


def test_config_keys_are_set_and_listed(agent: RunAgent, config: Path) -> None:
    assert agent("config", "set", "keys.view", "Ctrl-T,alt+3").code == 0
    settings = read_settings(agent)
    assert settings["keys.view"] == ("ctrl+t,alt+3", "config.toml")
    assert settings["keys.raw"] == (None, "default")
    config.write_text('[keys]\nview = "tab"\n')
    shown = agent("config", "show")
    assert shown.code == 0 and f"{config}, line 2: keys.view: 'tab' is not a key" in shown.err
    assert ["keys.view", "f2", "default"] in [line.split() for line in shown.out.splitlines()]


def test_config_edit_checks_afterwards(agent: RunAgent, home: Path, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text(
        f"#!{sys.executable}\nimport sys\nopen(sys.argv[2], 'w').write(sys.argv[1])\n"
    )
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    right = agent("config", "edit", env={"VISUAL": f"{editor} 'effort = \"low\"'"})
    assert right.code == 0 and read_settings(agent)["effort"] == ("low", "config.toml")
    wrong = agent("config", "edit", env={"VISUAL": "", "EDITOR": f"{editor} effort=1"})
    assert wrong.code == 2 and 'effort must be "low", "medium" or "high", not 1.' in wrong.err
    missing = agent("config", "edit", env={"VISUAL": "/nowhere/editor"})
    assert missing.code == 2 and "Cannot run the editor /nowhere/editor" in missing.err


def test_config_path_needs_no_file(agent: RunAgent, home: Path) -> None:
    assert agent("config", "path").out == f"{home / 'config' / 'config.toml'}\n"


def test_run_settings_apply_unless_option_is_passed(
    agent: RunAgent, config: Path, script: Callable[..., str]
) -> None:
    config.write_text('effort = "high"\ntemperature = 0.25\ntop_p = 0.5\n')
    for options, expected in (((), ("high", 0.25)), (("--effort", "low"), ("low", 0.25))):
        ran = agent("run", "go", "--json-events", "--engine", script(DONE), *options)
        response = ran.events[-1]["response"]
        assert (response["reasoning"]["effort"], response["temperature"]) == expected
