"""The list of models, as people and programs read it."""

from pathlib import Path

import pytest

from agent.config.paths import Paths
from agent.errors import UserError
from agent.models.listing import estimate_row, list_models
from agent.models.machine import Machine


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """Folders with an own models.toml, and a home without other programs' models."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "OLLAMA_MODELS", "LLAMA_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "none"))
    (tmp_path / "config").mkdir()
    (tmp_path / "mine.gguf").write_bytes(b"GGUF")
    (tmp_path / "config" / "models.toml").write_text(
        f'[mine]\npath = "{tmp_path / "mine.gguf"}"\naliases = ["m"]\n'
        '[gone]\npath = "/none/x.gguf"\n[bad]\ncontxt = 1\n'
        '[far]\nengine = "vllm"\nurl = "http://127.0.0.1:1"\n'
    )
    return Paths(tmp_path / "config", tmp_path / "cache", tmp_path / "state")


def test_list_models_has_source_and_state(paths: Paths) -> None:
    rows = {row.name: row for row in list_models(paths)}
    sources = {name: (row.source, row.state, row.runnable) for name, row in rows.items()}
    assert sources["tiny"] == ("embedded", "embedded", True)
    assert sources["mine"] == ("file", "installed", True)
    assert sources["gone"] == ("missing", "missing", False)
    assert sources["bad"] == ("wrong", "wrong entry", False)
    assert sources["far"] == ("server", "on a server", True)
    assert sources["gpt-oss-20b"] == ("hub", "not downloaded", False)
    assert [name for name, row in rows.items() if row.default] == ["mine"]
    assert (rows["mine"].size, rows["gone"].size) == (4, None)


def test_estimate_row_of_models_whose_size_is_known(paths: Paths) -> None:
    laptop = Machine(28 * 10**9, 0, shares_memory=False, bandwidth=40e9)
    fits = {row.name: estimate_row(row, laptop) for row in list_models(paths)}
    texts = {name: fit and str(fit) for name, fit in fits.items()}
    assert texts["tiny"] == texts["mine"] == "fast: on the CPU"
    assert texts["gpt-oss-20b"] == "usable: on the CPU"
    assert texts["gpt-oss-120b"] == "slow: does not fit in memory"
    assert texts["gone"] is texts["bad"] is texts["far"] is None


def test_model_row_as_json_keeps_published_keys(paths: Paths) -> None:
    rows = {row.name: row for row in list_models(paths)}
    assert list(rows["mine"].as_json()) == [
        *("name", "aliases", "default", "usable", "size", "source", "path", "description"),
        "download_size",
        "draft",
    ]
    assert rows["mine"].as_json()["usable"] is True


def test_list_models_invalid_file_raises(paths: Paths) -> None:
    (paths.config / "models.toml").write_text("[mine")
    with pytest.raises(UserError, match="Cannot read"):
        list_models(paths)
