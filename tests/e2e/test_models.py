"""Model files that are not what they should be, and places that cannot be written."""

from __future__ import annotations

import os
from pathlib import Path

import gguf
import pytest

from tests.conftest import Agent
from tests.invariants import check


def _failed(agent: Agent, *args: str, env: dict[str, str] | None = None) -> str:
    """Run; a model that cannot be loaded is exit 1, one sentence, and a whole stream."""
    ran = agent("run", "go", *args, "--json-events", env=env)
    final = check(ran.events)
    assert (ran.code, final["status"], final["error"]["code"]) == (1, "failed", "server_error")
    message: str = final["error"]["message"]
    assert "\n" not in message
    plain = agent("run", "go", *args, env=env)
    assert plain.code == 1 and plain.out == "" and message in plain.err
    return message


def test_a_model_that_is_missing(agent: Agent) -> None:
    assert "nowhere.gguf" in _failed(agent, "--model", "nowhere.gguf")


def test_a_file_that_is_no_model(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "letter.gguf").write_text("Dear reader, this is not a model." * 100)
    assert "letter.gguf" in _failed(agent, "--model", str(tmp_path / "letter.gguf"))


def test_a_model_that_is_cut_off(agent: Agent, tmp_path: Path, tiny_gguf: Path) -> None:
    whole = tiny_gguf.read_bytes()
    (tmp_path / "half.gguf").write_bytes(whole[: len(whole) // 2])
    assert "half.gguf" in _failed(agent, "--model", str(tmp_path / "half.gguf"))


def test_a_model_without_a_whole_vocabulary_says_so(agent: Agent, tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list([f"t{i}" for i in range(100)])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert "vocabulary of" in _failed(agent, "--model", str(path))


def test_a_copy_of_the_model_is_a_model(agent: Agent, tiny_gguf: Path) -> None:
    """Any gpt-oss GGUF goes by its path; its vocabulary comes from the file."""
    ran = agent("run", "hello", "--model", str(tiny_gguf), "--temperature", "0", "--json-events")
    assert ran.code == 0 and check(ran.events)["status"] == "completed"


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc/self").exists(), reason="needs /proc")
def test_a_cache_that_cannot_be_written(agent: Agent) -> None:
    # A folder below /proc cannot be made by anybody, root included.
    message = _failed(agent, env={"AGENT_HOME": "/proc/self/nowhere"})
    assert "AGENT_HOME" in message


def test_models_are_listed_and_found(agent: Agent) -> None:
    listed = agent("models", "list")
    assert listed.code == 0
    assert {"tiny", "gpt-oss-20b", "gpt-oss-120b"} <= set(listed.out.split())
    path = agent("models", "path", "tiny")
    assert path.code == 0 and Path(path.out.strip()).read_bytes()[:4] == b"GGUF"
    assert agent("models", "path", "gpt-oss-20b").code == 2


def test_the_users_own_entry_wins(agent: Agent, home: Path, tiny_gguf: Path) -> None:
    (home / "config").mkdir()
    entry = f'[mine]\npath = "{tiny_gguf}"\ncontext = 4096\nsampling = {{ temperature = 0.0 }}\n'
    (home / "config" / "models.toml").write_text(entry)
    ran = agent("run", "hello", "--json-events")
    assert ran.events[0]["model"] == "mine" and ran.events[0]["context_length"] == 4096
    (home / "config" / "models.toml").write_text("[mine\n")
    broken = agent("run", "hello")
    assert broken.code == 2 and "models.toml" in broken.err
