"""Models in the program: wrong files, models.toml, placement, `agent models` and `agent doctor`."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import pytest

from tests.support import random_qwen_gguf, sparse_gguf
from tests.support.invariants import check
from tests.support.program import RunAgent
from tests.support.waiting import HANG_SECONDS


def load_error(agent: RunAgent, *args: str, env: dict[str, str] | None = None) -> str:
    """Run with a model that cannot be loaded; checks exit code and stream, returns the error."""
    ran = agent("run", "go", *args, "--json-events", env=env)
    final = check(ran.events)
    assert (ran.code, final["status"], final["error"]["code"]) == (1, "failed", "server_error")
    message: str = final["error"]["message"]
    assert "\n" not in message
    plain = agent("run", "go", *args, env=env)
    assert plain.code == 1 and plain.out == "" and message in plain.err
    return message


def test_model_missing_is_usage_error(agent: RunAgent) -> None:
    ran = agent("run", "go", "--model", "nowhere.gguf", "--json-events")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "agent: There is no model file nowhere.gguf.\n"


def test_model_not_a_gguf_fails(agent: RunAgent, tmp_path: Path) -> None:
    (tmp_path / "letter.gguf").write_text("Dear reader, this is not a model." * 100)
    assert "letter.gguf" in load_error(agent, "--model", str(tmp_path / "letter.gguf"))


def test_model_truncated_fails(agent: RunAgent, tmp_path: Path, tiny_gguf: Path) -> None:
    content = tiny_gguf.read_bytes()
    (tmp_path / "half.gguf").write_bytes(content[: len(content) // 2])
    assert "half.gguf" in load_error(agent, "--model", str(tmp_path / "half.gguf"))


def test_model_incomplete_vocabulary_fails(agent: RunAgent, tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list([f"t{i}" for i in range(100)])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert "vocabulary of" in load_error(agent, "--model", str(path))


def test_model_by_path_uses_its_vocabulary(agent: RunAgent, tiny_gguf: Path) -> None:
    """A GGUF of GPT-OSS is chosen by its path; its vocabulary comes from the file."""
    ran = agent("run", "hello", "--model", str(tiny_gguf), "--temperature", "0", "--json-events")
    assert ran.code == 0 and check(ran.events)["status"] == "completed"


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc/self").exists(), reason="needs /proc")
def test_cache_unwritable_names_agent_home(agent: RunAgent) -> None:
    # Nobody can make a folder below /proc, not even root.
    message = load_error(agent, env={"AGENT_HOME": "/proc/self/nowhere"})
    assert "AGENT_HOME" in message


def test_models_list_and_path(agent: RunAgent) -> None:
    listed = agent("models", "list")
    assert listed.code == 0
    assert {"tiny", "gpt-oss-20b", "gpt-oss-120b"} <= set(listed.out.split())
    path = agent("models", "path", "tiny")
    assert path.code == 0 and Path(path.out.strip()).read_bytes()[:4] == b"GGUF"
    assert agent("models", "path", "gpt-oss-20b").code == 2


def test_models_toml_user_entry_wins(agent: RunAgent, home: Path, tiny_gguf: Path) -> None:
    (home / "config").mkdir()
    entry = f'[mine]\npath = "{tiny_gguf}"\ncontext = 4096\nsampling = {{ temperature = 0.0 }}\n'
    (home / "config" / "models.toml").write_text(entry)
    ran = agent("run", "hello", "--json-events")
    assert ran.events[0]["model"] == "mine" and ran.events[0]["context_length"] == 4096
    (home / "config" / "models.toml").write_text("[mine\n")
    broken = agent("run", "hello")
    assert broken.code == 2 and "models.toml" in broken.err


def test_models_toml_wrong_entry_warns_only(agent: RunAgent, home: Path) -> None:
    (home / "config").mkdir()
    (home / "config" / "models.toml").write_text("[bad]\ncontxt = 4096\n")
    warning = "The entry [bad] of "
    ran = agent("run", "hello", "--temperature", "0")
    assert ran.code == 0 and ran.out and ran.err.count(warning) == 1
    named = agent("run", "hello", "--model", "bad")
    assert (named.code, named.out) == (2, "") and "there is no setting contxt" in named.err
    listed = agent("models", "list")
    assert listed.code == 0 and warning in listed.out and "gpt-oss-120b" in listed.out
    doctor = agent("doctor").out
    assert f"WRONG      model          {warning}" in doctor and "memory" in doctor


@pytest.mark.long
def test_load_interrupted_leaves_no_file(tmp_path: Path) -> None:
    """SIGINT while the embedded model is expanded for the first time."""
    home = tmp_path / "fresh"
    with subprocess.Popen(
        [sys.executable, "-I", "-m", "agent", "run", "hello", "--json-events"],
        env={**os.environ, "AGENT_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout and running.stderr
        lines = []
        for line in running.stdout:
            lines.append(json.loads(line))
            if lines[-1]["type"] == "agent.load":
                running.send_signal(signal.SIGINT)
                break
        lines += [json.loads(line) for line in running.stdout]
        assert running.wait(HANG_SECONDS) == 130 and running.stderr.read() == ""
    assert check(lines)["status"] == "cancelled"
    assert not list(home.rglob("*.gguf")) and not list(home.rglob("loading-*"))


# --- models that are larger than the machine ---


@pytest.fixture
def vast_gguf(tmp_path: Path) -> Path:
    """A model of a terabyte in a sparse file, ``vast.gguf``."""
    shape = replace(sparse_gguf.LARGE, experts=2048)
    return sparse_gguf.write_model(tmp_path / "vast.gguf", shape)


def test_model_too_large_says_memory_needed(agent: RunAgent, vast_gguf: Path) -> None:
    ran = agent("run", "go", "--model", str(vast_gguf), "-q")
    message = r"agent: vast needs [\d.]+ GB and [\d.]+ [GM]B of memory is free: .*\n"
    assert ran.code == 1 and ran.out == "" and re.fullmatch(message, ran.err)


def test_doctor_model_shows_placement(agent: RunAgent, vast_gguf: Path, tiny_gguf: Path) -> None:
    fits = agent("doctor", "--model", str(tiny_gguf))
    assert fits.code == 0
    assert re.search(r"placement .* tokens of context, KV cache f16, .* of memory; on ", fits.out)
    assert re.search(r"device .*cpu", fits.out) and re.search(r"memory .* GB free", fits.out)
    wrong = agent("doctor", "--model", str(vast_gguf))
    assert wrong.code == 1 and re.search(r"WRONG +placement +vast needs", wrong.out)


def test_speculation_drafts_tokens_where_models_toml_says_so(
    agent: RunAgent, home: Path, tmp_path: Path
) -> None:
    (home / "config").mkdir()
    (home / "config" / "models.toml").write_text('[tiny]\nspeculation = "lookup"\n')
    assert "speculation lookup" in agent("doctor").out
    trace = tmp_path / "trace.json"
    words = "one two three four five six seven eight nine ten " * 3
    ran = agent("run", f"Repeat: {words}", "--json-events", "--trace", str(trace))
    assert check(ran.events)["status"] == "completed"
    (stats,) = (event for event in ran.events if event["type"] == "agent.stats")
    assert stats["drafted_tokens"] >= stats["accepted_tokens"] and stats["drafted_tokens"] > 0
    decodes = [
        entry["args"]
        for entry in json.loads(trace.read_text())
        if entry["ph"] == "e" and entry["name"] == "decode"
    ]
    assert sum(args.get("drafted", 0) for args in decodes) == stats["drafted_tokens"]


@pytest.mark.long
def test_draft_model_drafts_tokens_where_models_toml_names_one(
    agent: RunAgent, home: Path, tiny_gguf: Path
) -> None:
    """A copy of the embedded model, with itself as the draft model."""
    entry = f'path = "{tiny_gguf}"\nsampling = {{ temperature = 0.0 }}\n'
    (home / "config").mkdir()
    (home / "config" / "models.toml").write_text(
        f'[plain]\n{entry}[drafted]\n{entry}draft = "tiny"\n[lost]\n{entry}draft = "gone"\n'
    )
    assert re.search(r"placement .*draft model tiny on", agent("doctor", "--model", "drafted").out)
    assert list_models(agent)["drafted"]["draft"] == "tiny"
    assert re.search(r"drafted .* \(draft model: tiny\)", agent("models", "list").out)
    plain = agent("run", "Hello! Who are you?", "-q", "--model", "plain")
    drafted = agent("run", "Hello! Who are you?", "--model", "drafted", "--json-events")
    assert check(drafted.events)["status"] == "completed" and drafted.code == plain.code == 0
    deltas = (e["delta"] for e in drafted.events if e["type"] == "response.output_text.delta")
    assert "".join(deltas).strip() == plain.out.strip()
    (stats,) = (event for event in drafted.events if event["type"] == "agent.stats")
    assert stats["drafted_tokens"] > 0
    lost = agent("run", "hi", "--model", "lost")
    assert lost.code == 1 and "gone cannot be the draft model of lost. There is no" in lost.err
    wrong = agent("doctor", "--model", "lost")
    assert wrong.code == 1 and "WRONG" in wrong.out


@pytest.mark.long
def test_doctor_bench_prints_speeds(agent: RunAgent) -> None:
    ran = agent("doctor", "--bench")
    assert ran.code == 0
    assert re.search(r"reads [\d,]+ tokens/s .*writes [\d,.]+ tokens/s", ran.out)


# --- the list, the default, removing ---


def list_models(agent: RunAgent, env: dict[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """The rows of ``agent models list --json`` by the models' names."""
    ran = agent("models", "list", "--json", env=env)
    assert ran.code == 0
    return {row["name"]: row for row in json.loads(ran.out)}


@pytest.fixture
def empty_user(tmp_path: Path) -> dict[str, str]:
    """An environment with an empty home folder, in which no models are discovered."""
    home = tmp_path / "person"
    home.mkdir()
    empty = dict.fromkeys(("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "LLAMA_CACHE"), "")
    return {**empty, "HOME": str(home), "OLLAMA_MODELS": str(home / "ollama")}


@pytest.fixture
def empty_home(tmp_path: Path) -> dict[str, str]:
    """An environment with an AGENT_HOME that does not exist yet; its cache is not shared."""
    return {"AGENT_HOME": str(tmp_path / "own")}


@pytest.mark.long
def test_models_list_json_rows(
    agent: RunAgent, empty_user: dict[str, str], tiny_gguf: Path
) -> None:
    file = Path(empty_user["HOME"], ".lmstudio/models/p/r/Some-Q8_0.gguf")
    file.parent.mkdir(parents=True)
    file.symlink_to(tiny_gguf)
    rows = list_models(agent, empty_user)
    assert (
        rows["tiny"]["default"] and rows["tiny"]["usable"] and rows["tiny"]["source"] == "embedded"
    )
    missing = rows["gpt-oss-20b"]
    assert (missing["usable"], missing["size"], missing["source"]) == (False, None, "hub")
    some = rows["Some-Q8_0"]
    assert (some["usable"], some["source"], some["path"]) == (True, "LM Studio", str(file))
    assert some["size"] == tiny_gguf.stat().st_size
    file.with_name("two\nlines.gguf").symlink_to(sparse_gguf.write_model(file.with_name("two.bin")))
    text = agent("models", "list", env=empty_user).out
    assert re.search(r"^  two lines +\d", text, re.M)
    assert re.search(r"^\* tiny .* embedded ", text, re.M)
    assert re.search(r"^  Some-Q8_0 +74 MB +LM Studio ", text, re.M)
    ran = agent("run", "hello", "-q", "--model", "some-q8_0", "--temperature", "0", env=empty_user)
    assert ran.code == 0 and ran.out.strip()


def test_models_default_reads_and_writes_config(
    agent: RunAgent, tmp_path: Path, tiny_gguf: Path
) -> None:
    env = {"AGENT_HOME": str(tmp_path / "own")}
    assert agent("models", "default", env=env).out == "tiny\n"
    config = tmp_path / "own/config/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('# mine\nmodel = "x"\nkeep_alive = 60\n')
    assert agent("models", "default", str(tiny_gguf), env=env).out == f"{tiny_gguf.resolve()}\n"
    assert config.read_text() == f'# mine\nmodel = "{tiny_gguf.resolve()}"\nkeep_alive = 60\n'
    ran = agent("run", "hello", "--json-events", "--temperature", "0", env=env)
    assert ran.events[0]["model"] == tiny_gguf.stem
    for wrong in ("nonsense", "gpt-oss-20b"):
        assert agent("models", "default", wrong, env=env).code == 2
    config.write_text("keep_alive = true\n")
    broken = agent("run", "hello", env=env)
    assert broken.code == 2 and "keep_alive must be a number of seconds" in broken.err
    config.write_text("keepalive = 3\n")
    assert "no setting named keepalive" in agent("run", "hello", env=env).err


@pytest.mark.long
def test_models_rm_pulled_model_removed(
    agent: RunAgent, empty_user: dict[str, str], empty_home: dict[str, str], tiny_gguf: Path
) -> None:
    env = empty_user | empty_home
    pulled = Path(env["AGENT_HOME"], "cache/models/gpt-oss-20b/gpt-oss-20b-mxfp4.gguf")
    pulled.parent.mkdir(parents=True)
    pulled.write_bytes(tiny_gguf.read_bytes())
    assert list_models(agent, env)["gpt-oss-20b"]["source"] == "pulled"
    refused = agent("models", "rm", "gpt-oss-20b", env=env)
    assert refused.code == 2 and "74 MB" in refused.err and "--yes" in refused.err
    assert pulled.exists()
    done = agent("models", "rm", "gpt-oss-20b", "--yes", env=env)
    assert done.code == 0 and "74 MB are free again" in done.out
    assert not pulled.parent.exists() and pulled.parent.parent.exists()
    assert "not installed" in agent("models", "rm", "gpt-oss-20b", "--yes", env=env).err


@pytest.mark.long
def test_models_rm_other_models_refused(
    agent: RunAgent,
    empty_user: dict[str, str],
    empty_home: dict[str, str],
    tmp_path: Path,
    tiny_gguf: Path,
) -> None:
    env = empty_user | empty_home
    theirs = Path(env["HOME"], ".lmstudio/models/p/r/Some.gguf")
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(b"")
    theirs.unlink()
    theirs.symlink_to(tiny_gguf)
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(b"GGUF")
    config = Path(env["AGENT_HOME"], "config/models.toml")
    config.parent.mkdir(parents=True)
    config.write_text(f'[mine]\npath = "{mine}"\n[linked]\nrepo = "a/b"\nfile = "x.gguf"\n')
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.gguf").write_bytes(b"GGUF")
    models = Path(env["AGENT_HOME"], "cache/models")
    models.mkdir(parents=True)
    (models / "linked").symlink_to(outside)
    for name, why in [
        ("tiny", "built in"),
        ("Some", "belongs to LM Studio"),
        ("mine", "not pulled by this program"),
        ("linked", "not pulled by this program"),
        ("../models", "no model"),
    ]:
        ran = agent("models", "rm", name, "--yes", env=env)
        assert ran.code == 2 and why in ran.err, (name, ran)
    assert theirs.exists() and mine.exists() and (outside / "x.gguf").exists()
    config.write_text('["../x"]\nrepo = "a/b"\nfile = "x.gguf"\n')
    assert "its name may have only" in agent("models", "rm", "../x", "--yes", env=env).err


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("gpu_layer = 3", "no setting gpu_layer"),
        ("gpu_layers = true", "gpu_layers must be a number"),
        ("gpu_layers = -1", "gpu_layers must be a number"),
        ('kv_type = "q5_1"', "kv_type must be one of f16"),
        ("overcommit = 1", "overcommit must be true or false"),
    ],
)
def test_models_toml_wrong_setting_named(
    agent: RunAgent, empty_home: dict[str, str], entry: str, why: str
) -> None:
    config = Path(empty_home["AGENT_HOME"], "config/models.toml")
    config.parent.mkdir(parents=True)
    config.write_text(f"[gpt-oss-20b]\n{entry}\n")
    ran = agent("models", "list", env=empty_home)
    assert ran.code == 0 and why in ran.out
    named = agent("models", "path", "gpt-oss-20b", env=empty_home)
    assert named.code == 2 and why in named.err


def test_models_toml_entry_without_model_says_what_is_missing(
    agent: RunAgent, empty_home: dict[str, str]
) -> None:
    config = Path(empty_home["AGENT_HOME"], "config/models.toml")
    config.parent.mkdir(parents=True)
    config.write_text("[mine]\ncontext = 4096\n")
    ran = agent("run", "go", "--model", "mine", env=empty_home)
    assert ran.code == 2 and "[mine] of models.toml has no model: give it a path" in ran.err


def test_models_toml_settings_merge_into_entry(
    agent: RunAgent, empty_home: dict[str, str], tiny_gguf: Path
) -> None:
    """An entry of the user replaces single settings: sampling and format stay as they are."""
    config = Path(empty_home["AGENT_HOME"], "config/models.toml")
    config.parent.mkdir(parents=True)
    config.write_text(f'[gpt-oss-20b]\npath = "{tiny_gguf}"\ncontext = 1024\nkv_type = "q8_0"\n')
    ran = agent("run", "hello", "--temperature", "0", "--json-events", env=empty_home)
    assert ran.code == 0 and check(ran.events)["temperature"] == 0
    assert (ran.events[0]["model"], ran.events[0]["context_length"]) == ("gpt-oss-20b", 1024)


def test_models_show_gives_syntax_of_messages(agent: RunAgent, tmp_path: Path) -> None:
    facts = json.loads(agent("models", "show", "tiny", "--json").out)
    assert (facts["name"], facts["calls"]) == ("tiny", "can be parsed")
    assert facts["response_template"] == "built in"
    assert (
        'to=functions.add <|constrain|>json<|message|>{"a": 1, "b": 2}<|call|>' in facts["example"]
    )
    path = random_qwen_gguf.write_model(tmp_path / "small.gguf", random_qwen_gguf.SPECIALS, None)
    shown = agent("models", "show", str(path)).out
    assert re.search(r"^Calls +cannot be parsed: no tools\nResponse template  none\n", shown, re.M)
    assert "I compute it." in shown


def test_models_show_of_model_that_is_not_here(agent: RunAgent) -> None:
    shown = agent("models", "show", "gpt-oss-20b").out
    assert "ggml-org/gpt-oss-20b-GGUF" in shown and "Calls" not in shown
    assert agent("models", "show", "nope").code == 2
