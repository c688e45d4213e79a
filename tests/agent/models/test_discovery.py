"""Models of other programs are discovered in their folders and told apart by name."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import gguf
import pytest

from agent.config.paths import Paths
from agent.engine.protocol import EngineError
from agent.errors import UserError
from agent.models import catalog, discovery, resolve
from tests.support import sparse_gguf


@pytest.fixture(autouse=True)
def user_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with nothing in it."""
    home = tmp_path / "person"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "OLLAMA_MODELS", "LLAMA_CACHE"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "config", tmp_path / "cache", tmp_path / "state")


def model(path: Path, architecture: str = "gpt-oss", name: str = "gpt-oss-20b") -> Path:
    """A model's file of gigabytes that take no place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = replace(sparse_gguf.SMALL, architecture=architecture, name=name)
    return sparse_gguf.write_model(path, shape)


def discovered(paths: Paths) -> dict[str, catalog.Model]:
    return {each.name: each for each in discovery.discover(catalog.load_catalog(paths))}


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


HF = ".cache/huggingface/hub/models--a--b"


@pytest.mark.parametrize(
    ("source", "file", "name"),
    [
        ("LM Studio", ".lmstudio/models/pub/repo/Some-Model-MXFP4.gguf", "Some-Model-MXFP4"),
        ("LM Studio", ".cache/lm-studio/models/pub/repo/Some.gguf", "Some"),
        ("llama.cpp", ".cache/llama.cpp/pub_repo_Some.gguf", "pub_repo_Some"),
        ("Hugging Face", f"{HF}/snapshots/0/Some.gguf", "Some"),
    ],
)
def test_discover_lists_files_of_programs(
    paths: Paths, user_home: Path, source: str, file: str, name: str
) -> None:
    path = model(user_home / file)
    (found,) = discovery.discover(catalog.load_catalog(paths))
    assert (found.program, found.path, found.name) == (source, path, name)
    assert found.size == path.stat().st_size
    assert found.description == "gpt-oss-20b" and found.problem is None
    chosen = resolve.resolve_model(name.upper(), paths)
    assert chosen.path == path and chosen.installed


@pytest.mark.parametrize(
    ("variable", "file", "source"),
    [
        ("LLAMA_CACHE", "x.gguf", "llama.cpp"),
        ("HF_HOME", "hub/models--a--b/snapshots/0/x.gguf", "Hugging Face"),
        ("HF_HUB_CACHE", "models--a--b/snapshots/0/x.gguf", "Hugging Face"),
    ],
)
def test_discover_folders_follow_environment(
    paths: Paths,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    file: str,
    source: str,
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "elsewhere"))
    model(tmp_path / "elsewhere" / file)
    assert discovered(paths)["x"].program == source


def test_discover_names_ollama_blobs(
    paths: Paths, user_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = ollama(user_home / ".ollama/models", "qwen3", "4b", "qwen3")
    ollama(user_home / ".ollama/models", "phi", "latest", "phi3")
    (user_home / ".ollama/models/manifests/broken").write_text("{")
    rows = discovered(paths)
    assert set(rows) == {"qwen3:4b", "phi"}
    assert rows["qwen3:4b"].path == blob and rows["qwen3:4b"].program == "Ollama"
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "none"))
    assert not discovered(paths)


def test_ollama_gpt_oss_has_problem(paths: Paths, user_home: Path) -> None:
    ollama(user_home / ".ollama/models", "gpt-oss", "20b", "gptoss")
    found = discovered(paths)["gpt-oss:20b"]
    assert found.problem and "Ollama's own form" in found.problem
    with pytest.raises(EngineError, match="Ollama's own form"):
        resolve.resolve_model("gpt-oss:20b", paths)
    entries = catalog.load_catalog(paths)
    assert not discovery.find_copy(entries["gpt-oss-20b"], entries)


def test_discover_skips_other_and_incomplete_files(paths: Paths, user_home: Path) -> None:
    folder = user_home / ".lmstudio/models/p/r"
    model(folder / "mmproj.gguf", architecture="clip")
    (folder / "half.gguf").write_bytes(b"GGUF")
    (folder / "letter.gguf").write_text("Dear reader")
    adapter = gguf.GGUFWriter(folder / "adapter.gguf", "llama")
    adapter.add_type("adapter")
    adapter.write_header_to_file()
    adapter.write_kv_data_to_file()
    adapter.close()
    model(folder / "m-00001-of-00002.gguf")
    assert not discovered(paths), "nor a split model of which parts are missing"
    model(folder / "m-00002-of-00002.gguf")
    assert set(discovered(paths)) == {"m"}


def test_discover_lists_linked_file_once(paths: Paths, user_home: Path) -> None:
    path = model(user_home / ".lmstudio/models/p/r/one.gguf")
    link = user_home / ".cache/llama.cpp/two.gguf"
    link.parent.mkdir(parents=True)
    link.symlink_to(path)
    assert set(discovered(paths)) == {"one"}


def test_discover_taken_name_gets_program_suffix(paths: Paths, user_home: Path) -> None:
    model(user_home / ".lmstudio/models/p/r/tiny.gguf")
    model(user_home / ".lmstudio/models/p/r/one.gguf")
    model(user_home / ".cache/llama.cpp/One.gguf")
    for folder in "bc":
        model(user_home / f".lmstudio/models/{folder}/r/one.gguf")
        model(user_home / f".lmstudio/models/{folder}/r/three.gguf")
    model(user_home / ".lmstudio/models/d/r/three.gguf")
    names = {"tiny@lmstudio", "one", "one@lmstudio", "one@lmstudio-2", "One@llamacpp"}
    assert set(discovered(paths)) == names | {"three", "three@lmstudio", "three@lmstudio-2"}


def test_resolve_name_comes_before_file_of_this_folder(
    paths: Paths, user_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = model(user_home / ".lmstudio/models/p/r/gemma3.gguf")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Path("gemma3").mkdir()
    assert resolve.resolve_model("gemma3", paths).path == theirs
    Path("gemma3").rmdir()
    mine = model(Path("gemma3"))
    assert resolve.resolve_model("gemma3", paths).path == theirs
    assert resolve.resolve_model("./gemma3", paths).path == mine
    assert resolve.resolve_model(str(mine.rename("other")), paths).path == Path("other")


@pytest.mark.parametrize("name", ["~nobody-here/x", "a" * 300, "a\0b", "a/" * 3000])
def test_resolve_impossible_path_is_one_sentence(paths: Paths, user_home: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"^'.+' cannot be used: .+\.$"):
        resolve.resolve_model(name, paths)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("gpt-oss-20b-MXFP4", "gpt-oss-20b"),
        ("gpt-oss-20b-mxfp4", "gpt-oss-20b"),
        ("ggml-org_gpt-oss-20b-GGUF_gpt-oss-20b-mxfp4", None),
        ("gpt_oss_20b.Q4_K_M", "gpt-oss-20b"),
        ("gpt-oss-20b-abliterated-Q8_0", None),
        ("gpt-oss-safeguard-120b-MXFP4", None),
        ("Qwen3-4B-Q8_0", "qwen3-4b"),
        ("Qwen3-4B-Thinking-2507-Q4_K_M", None),
        ("Qwen3-Coder-30B-A3B-Instruct-UD-Q4_K_XL", "qwen3-coder-30b-a3b"),
    ],
)
def test_find_copy_compares_names_without_quantisation(
    paths: Paths, user_home: Path, name: str, same: str | None
) -> None:
    model(user_home / f".lmstudio/models/p/r/{name}.gguf")
    entries = catalog.load_catalog(paths)
    assert [m.name for m in entries.values() if discovery.find_copy(m, entries)] == (
        [same] if same else []
    )
    if same:
        chosen = resolve.resolve_model(name, paths)
        assert chosen.sampling == entries[same].sampling and chosen.format == entries[same].format
        with pytest.raises(EngineError, match=f"LM Studio has it: --model {name} runs"):
            resolve.resolve_model(same, paths)
