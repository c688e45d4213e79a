"""A runtime is built from the command line's options and the person's files."""

from pathlib import Path

import pytest

from agent import bootstrap
from agent.config.launch import LaunchOptions
from agent.engine.protocol import Sampling
from agent.errors import UserError
from agent.models.catalog import Model
from tools.sandbox import isolation
from tools.sandbox.isolation import Isolation


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restored_logging: None) -> Path:
    """The config.toml of an AGENT_HOME of its own."""
    monkeypatch.setenv("AGENT_HOME", str(tmp_path))
    (tmp_path / "config").mkdir()
    return tmp_path / "config" / "config.toml"


@pytest.mark.parametrize("setting", ["true", "false"])
async def test_create_runtime_unsandboxed_python_follows_config(
    config: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    """Where no isolation works, python runs only if config.toml allows it, and is always asked for."""
    no_isolation = Isolation("none", "nothing works here", False)
    monkeypatch.setattr(isolation, "best_isolation", lambda: no_isolation)
    config.write_text(f"unsandboxed_python = {setting}\n")
    runtime = bootstrap.create_runtime(LaunchOptions(tools="python"))
    try:
        await runtime.host.start()
        await runtime.host.wait_started()
        (state,) = (s for s in runtime.host.server_states() if s.name == "code_interpreter")
        if setting == "false":
            assert state.status == "failed" and "nothing works here" in (state.error or "")
            return
        assert state.status == "ready"
        (tool,) = runtime.host.tools()
        server_config = runtime.host.server_config(tool.server)
        assert server_config is not None
        assert runtime.policy.decide(tool, server_config).decision == "ask"
        assert (await runtime.host.call(tool, {"code": "6*7"})).text == "42"
    finally:
        await runtime.close()


async def test_create_runtime_keep_alive_of_command_line_wins(config: Path) -> None:
    config.write_text("keep_alive = 60\n")
    options = LaunchOptions(tools="none")
    assert bootstrap.create_runtime(options).keep_alive == 60
    assert bootstrap.create_runtime(options, keep_alive=5).keep_alive == 5


def test_create_runtime_root_is_no_folder_raises(config: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--root: .* is not a folder"):
        bootstrap.create_runtime(LaunchOptions(root=tmp_path / "none"))


def test_read_text_option_reads_file(tmp_path: Path) -> None:
    (tmp_path / "system.txt").write_text("Be brief.")
    assert bootstrap.read_text_option(f"@{tmp_path / 'system.txt'}", "--system") == "Be brief."
    assert bootstrap.read_text_option("Be kind.", "--system") == "Be kind."
    with pytest.raises(UserError, match=r"--system: .*none does not exist"):
        bootstrap.read_text_option(f"@{tmp_path / 'none'}", "--system")


def test_turn_options_command_line_wins_over_config_over_models_toml(config: Path) -> None:
    config.write_text('effort = "high"\ntemperature = 0.25\nmin_p = 0.125\n')
    model = Model(name="m", sampling=Sampling(temperature=0.75, top_p=0.5, min_p=0.25))
    options = bootstrap.turn_options(LaunchOptions(min_p=0.0), model)
    assert options.sampling == Sampling(temperature=0.25, top_p=0.5, min_p=0.0)
    assert options.effort == "high"
    assert bootstrap.turn_options(LaunchOptions(effort="low"), model).effort == "low"


def test_script_that_is_a_folder_is_named(config: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a file"):
        bootstrap.create_runtime(LaunchOptions(engine=f"script:{tmp_path}"))
