"""Models that other programs keep are found in their folders and told apart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gguf
import pytest

from agent.config.settings import Places
from agent.engine.protocol import EngineError
from agent.models import catalog, discovery
from tests.support import shaped_gguf


@pytest.fixture(autouse=True)
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with nothing in it."""
    home = tmp_path / "person"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "OLLAMA_MODELS", "LLAMA_CACHE"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def where(tmp_path: Path) -> Places:
    return Places(tmp_path / "config", tmp_path / "cache", tmp_path / "state")


def model(path: Path, architecture: str = "gpt-oss", name: str = "gpt-oss-20b") -> Path:
    """A model's file of gigabytes that take no place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return shaped_gguf.write(path, replace(shaped_gguf.SMALL, architecture=architecture, name=name))


def listed(where: Places) -> dict[str, discovery.Found]:
    return {each.name: each for each in discovery.models(catalog.known(where))}


def ollama(folder: Path, name: str, tag: str, architecture: str) -> Path:
    """As Ollama lays it out: a manifest that names a blob by its hash."""
    digest = hashlib.sha256(f"{name}{tag}".encode()).hexdigest()
    blob = model(folder / "blobs" / f"sha256-{digest}", architecture, name)
    manifest = folder / "manifests/registry.ollama.ai/library" / name / tag
    manifest.parent.mkdir(parents=True, exist_ok=True)
    layers = [
        {"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:0"},
        {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}"},
    ]
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    return blob


Lay = Callable[[Path], Path]
HF = ".cache/huggingface/hub/models--a--b"


@pytest.mark.parametrize(
    ("source", "place", "name"),
    [
        ("LM Studio", ".lmstudio/models/pub/repo/Some-Model-MXFP4.gguf", "Some-Model-MXFP4"),
        ("LM Studio", ".cache/lm-studio/models/pub/repo/Some.gguf", "Some"),
        ("llama.cpp", ".cache/llama.cpp/pub_repo_Some.gguf", "pub_repo_Some"),
        ("Hugging Face", f"{HF}/snapshots/0/Some.gguf", "Some"),
    ],
)
def test_files_are_found(where: Places, person: Path, source: str, place: str, name: str) -> None:
    path = model(person / place)
    (one,) = discovery.models(catalog.known(where))
    assert (one.source, one.path, one.name) == (source, path, name)
    assert (one.size, one.architecture) == (path.stat().st_size, "gpt-oss")
    assert one.title == "gpt-oss-20b" and one.problem is None
    chosen = catalog.choose(name.upper(), where)
    assert chosen.path == path and chosen.installed


@pytest.mark.parametrize(
    ("variable", "place", "source"),
    [
        ("LLAMA_CACHE", "x.gguf", "llama.cpp"),
        ("HF_HOME", "hub/models--a--b/snapshots/0/x.gguf", "Hugging Face"),
        ("HF_HUB_CACHE", "models--a--b/snapshots/0/x.gguf", "Hugging Face"),
    ],
)
def test_folders_follow_the_environment(
    where: Places,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    place: str,
    source: str,
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "elsewhere"))
    model(tmp_path / "elsewhere" / place)
    assert listed(where)["x"].source == source


def test_ollamas_blobs_are_found_by_their_names(
    where: Places, person: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = ollama(person / ".ollama/models", "qwen3", "4b", "qwen3")
    ollama(person / ".ollama/models", "phi", "latest", "phi3")
    (person / ".ollama/models/manifests/broken").write_text("{")
    rows = listed(where)
    assert set(rows) == {"qwen3:4b", "phi"}
    assert rows["qwen3:4b"].path == blob and rows["qwen3:4b"].source == "Ollama"
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "none"))
    assert not listed(where)


def test_ollamas_own_gpt_oss_is_not_usable(where: Places, person: Path) -> None:
    ollama(person / ".ollama/models", "gpt-oss", "20b", "gptoss")
    one = listed(where)["gpt-oss:20b"]
    assert one.problem and "Ollama's own form" in one.problem
    with pytest.raises(EngineError, match="Ollama's own form"):
        catalog.choose("gpt-oss:20b", where)
    known = catalog.known(where)
    assert not discovery.like(known["gpt-oss-20b"], known)


def test_what_is_no_language_model_is_passed_over(where: Places, person: Path) -> None:
    folder = person / ".lmstudio/models/p/r"
    model(folder / "mmproj.gguf", architecture="clip")
    (folder / "half.gguf").write_bytes(b"GGUF")
    (folder / "letter.gguf").write_text("Dear reader")
    adapter = gguf.GGUFWriter(folder / "adapter.gguf", "llama")
    adapter.add_type("adapter")
    adapter.write_header_to_file()
    adapter.write_kv_data_to_file()
    adapter.close()
    model(folder / "m-00001-of-00002.gguf")
    assert not listed(where), "nor a split model of which parts are missing"
    model(folder / "m-00002-of-00002.gguf")
    assert set(listed(where)) == {"m"}


def test_one_file_under_two_names_is_one(where: Places, person: Path) -> None:
    path = model(person / ".lmstudio/models/p/r/one.gguf")
    link = person / ".cache/llama.cpp/two.gguf"
    link.parent.mkdir(parents=True)
    link.symlink_to(path)
    assert set(listed(where)) == {"one"}


def test_a_taken_name_gets_the_programs(where: Places, person: Path) -> None:
    model(person / ".lmstudio/models/p/r/tiny.gguf")
    model(person / ".lmstudio/models/p/r/one.gguf")
    model(person / ".cache/llama.cpp/One.gguf")
    assert set(listed(where)) == {"tiny@lmstudio", "one", "One@llamacpp"}


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("gpt-oss-20b-MXFP4", "gpt-oss-20b"),
        ("gpt-oss-20b-mxfp4", "gpt-oss-20b"),
        ("ggml-org_gpt-oss-20b-GGUF_gpt-oss-20b-mxfp4", None),
        ("gpt_oss_20b.Q4_K_M", "gpt-oss-20b"),
        ("gpt-oss-20b-abliterated-Q8_0", None),
        ("gpt-oss-safeguard-20b-MXFP4", None),
        ("Qwen3-4B-Q8_0", "qwen3-4b"),
        ("Qwen3-4B-Thinking-2507-Q4_K_M", None),
        ("Qwen3-Coder-30B-A3B-Instruct-UD-Q4_K_XL", "qwen3-coder-30b-a3b"),
    ],
)
def test_the_same_model_is_known_by_its_name(
    where: Places, person: Path, name: str, same: str | None
) -> None:
    model(person / f".lmstudio/models/p/r/{name}.gguf")
    known = catalog.known(where)
    assert [m.name for m in known.values() if discovery.like(m, known)] == ([same] if same else [])
    if same:
        chosen = catalog.choose(name, where)
        assert chosen.sampling == known[same].sampling and chosen.format == known[same].format
        with pytest.raises(EngineError, match=f"LM Studio has it: --model {name} runs"):
            catalog.choose(same, where)
