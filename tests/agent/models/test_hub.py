"""Pulling from any GGUF repository, and searching, on a server that speaks the hub's protocol."""

import json
import os
import pty
import subprocess
import tomllib
from pathlib import Path

import pytest

from agent.config.paths import Paths
from agent.errors import UserError
from agent.formats.detect import response_template_path
from agent.models import catalog, hub
from agent.models.machine import Machine
from tests.support import forks
from tests.support.model_hub import ModelHub
from tests.support.waiting import HANG_SECONDS

GB = 10**9
FILES = {
    "Qwen3-4B-Q2_K.gguf": b"2" * 2000,
    "Qwen3-4B-Q4_K_M.gguf": b"4" * 4000,
    "Q8_0/Qwen3-4B-Q8_0-00001-of-00002.gguf": b"8" * 4000,
    "Q8_0/Qwen3-4B-Q8_0-00002-of-00002.gguf": b"9" * 4000,
    "BF16/Qwen3-4B-BF16-00001-of-00002.gguf": b"0" * 9000,
    "mmproj-Qwen3-4B-F16.gguf": b"m",
    "../Qwen3-4B-Q6_K.gguf": b"6",
    "README.md": b"# Qwen3",
}
"""The parts of BF16 are incomplete."""


@pytest.fixture
def repository(model_hub: ModelHub) -> ModelHub:
    """The hub with a repository of several quantisations, ``org/repo``."""
    model_hub.files = dict(FILES)
    return model_hub


def environment(model_hub: ModelHub, home: Path) -> dict[str, str]:
    caches = dict.fromkeys(("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "LLAMA_CACHE"), "")
    ours = {"AGENT_HOME": str(home), "HF_ENDPOINT": model_hub.address, "HOME": str(home / "me")}
    return {**os.environ, **caches, **ours, "OLLAMA_MODELS": str(home / "none")}


def models(model_hub: ModelHub, home: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run ``agent models`` without a terminal."""
    return subprocess.run(
        [*forks.relay(), "models", *args],
        env=environment(model_hub, home), stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=HANG_SECONDS,
    )  # fmt: skip


def installed(home: Path, name: str) -> catalog.Model:
    model = catalog.load_catalog(Paths(home / "config", home / "cache", home / "state"))[name]
    assert model.installed
    return model


# --- listing and choosing ---


def test_list_quantisations_groups_parts(
    repository: ModelHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", repository.address)
    assert hub.list_quantisations("org/repo") == [
        hub.Quantisation("Q2_K", "Qwen3-4B-Q2_K.gguf", 2000),
        hub.Quantisation("Q4_K_M", "Qwen3-4B-Q4_K_M.gguf", 4000),
        hub.Quantisation("Q8_0", "Q8_0/Qwen3-4B-Q8_0-00001-of-00002.gguf", 8000),
    ]


def test_list_quantisations_of_several_models_have_file_names(
    repository: ModelHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", repository.address)
    repository.files = {"a-Q4_0.gguf": b"1", "b-Q4_0.gguf": b"22", "plain.gguf": b"333"}
    names = [quantisation.name for quantisation in hub.list_quantisations("org/repo")]
    assert names == ["a-Q4_0", "b-Q4_0", "plain"]


@pytest.mark.parametrize(
    ("memory", "expected"), [(30, "Q4_K_M"), (4.5, "Q3_K_M"), (3.4, "Q2_K"), (1, None)]
)
def test_best_quantisation_fits_in_memory(memory: float, expected: str | None) -> None:
    sizes = {"Q2_K": 2.5, "Q3_K_M": 3.5, "Q4_K_M": 5.0, "Q8_0": 8.5}
    choices = [
        hub.Quantisation(name, f"{name}.gguf", int(size * GB)) for name, size in sizes.items()
    ]
    machine = Machine(int(memory * GB), 0, shares_memory=False, bandwidth=40e9)
    best = hub.best_quantisation("o/r", choices, machine)
    assert (best and best.name) == expected


def test_parse_repository_reads_name_and_quantisation() -> None:
    assert hub.parse_repository("Qwen/Qwen3-4B-GGUF") == ("Qwen/Qwen3-4B-GGUF", None)
    assert hub.parse_repository("o/r.x:UD-Q4_K_XL") == ("o/r.x", "UD-Q4_K_XL")
    assert hub.parse_repository("https://huggingface.co/o/r") == ("o/r", None)
    assert hub.parse_repository("gpt-oss-20b") is None and hub.parse_repository("a/b/c") is None


# --- agent models pull ---


def test_pull_repository_takes_best_and_registers_it(repository: ModelHub, tmp_path: Path) -> None:
    config = tmp_path / "config/models.toml"
    config.parent.mkdir()
    config.write_text('# mine\n[other]\npath = "/x.gguf"\n')
    done = models(repository, tmp_path, "pull", "org/repo")
    assert done.returncode == 0, done.stderr
    assert "* Q4_K_M " in done.stderr and "Taking Q4_K_M, the best that fits" in done.stderr
    assert "Run it with --model Qwen3-4B-Q4_K_M" in done.stderr
    model = installed(tmp_path, "Qwen3-4B-Q4_K_M")
    assert done.stdout == f"{model.path}\n"
    assert model.path and model.path.read_bytes() == FILES["Qwen3-4B-Q4_K_M.gguf"]
    assert config.read_text().startswith("# mine\n[other]\n")
    entry = tomllib.loads(config.read_text())["Qwen3-4B-Q4_K_M"]
    assert entry["repo"] == "org/repo" and entry["download_size"] == 4000
    text = config.read_text()
    assert models(repository, tmp_path, "pull", "org/repo:q4_k_m").returncode == 0
    assert config.read_text() == text and len(repository.ranges) == 1, "nothing is done twice"


def test_pull_repository_split_quantisation(repository: ModelHub, tmp_path: Path) -> None:
    done = models(repository, tmp_path, "pull", "org/repo:Q8_0")
    assert done.returncode == 0, done.stderr
    assert installed(tmp_path, "Qwen3-4B-Q8_0").size == 8000
    rows = json.loads(models(repository, tmp_path, "list", "--json").stdout)
    assert {row["name"]: row["source"] for row in rows}["Qwen3-4B-Q8_0"] == "pulled"


def test_pull_files_of_one_name_are_models_of_their_own(
    model_hub: ModelHub, tmp_path: Path
) -> None:
    model_hub.repositories = {
        f"own/{letter}": {"m-Q4_K_M.gguf": letter.encode()} for letter in "abc"
    }
    model_hub.repositories["own/multi"] = {f"{q}/m.gguf": q.encode() for q in ("Q4", "Q5", "Q8")}
    for repo in ("own/a", "own/b", "own/c", "own/a"):
        assert models(model_hub, tmp_path, "pull", repo).returncode == 0
    for quantisation in ("Q4", "Q5", "Q8"):
        done = models(model_hub, tmp_path, "pull", f"own/multi:{quantisation}/m")
        assert done.returncode == 0, done.stderr
    names = {
        "m-Q4_K_M": b"a", "m-Q4_K_M@own": b"b", "m-Q4_K_M@own-c": b"c",
        "m": b"Q4", "m@own": b"Q5", "m@own-multi": b"Q8",
    }  # fmt: skip
    assert set(tomllib.loads((tmp_path / "config/models.toml").read_text())) == set(names)
    found = {name: installed(tmp_path, name).path for name in names}
    assert {name: path.read_bytes() for name, path in found.items() if path} == names


def test_register_name_that_was_just_taken_is_refused(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "config", tmp_path / "cache", tmp_path / "state")
    a, b = (
        hub.hub_model(repo, hub.Quantisation("Q8_0", "m-Q8_0.gguf", 1), paths)
        for repo in ("own/a", "own/b")
    )
    hub.register(a, paths)
    hub.register(a, paths)
    with pytest.raises(UserError, match="m-Q8_0 was just added for another file; pull it again"):
        hub.register(b, paths)


def test_pull_repository_of_catalog_entry_needs_no_other(
    repository: ModelHub, tmp_path: Path
) -> None:
    (tmp_path / "config").mkdir()
    config = tmp_path / "config/models.toml"
    config.write_text('[mine]\nrepo = "org/repo"\nfile = "Qwen3-4B-Q2_K.gguf"\n')
    text = config.read_text()
    assert models(repository, tmp_path, "pull", "org/repo:Q2_K").returncode == 0
    assert installed(tmp_path, "mine") and config.read_text() == text


def test_pull_repository_asks_on_a_terminal(repository: ModelHub, tmp_path: Path) -> None:
    ours, terminal = pty.openpty()
    os.write(ours, b"q2_k\n")
    with subprocess.Popen(
        [*forks.relay(), "models", "pull", "org/repo"],
        env=environment(repository, tmp_path), stdin=terminal, stdout=subprocess.PIPE,
        stderr=terminal, text=True,
    ) as running:  # fmt: skip
        os.close(terminal)
        out, _ = running.communicate(timeout=HANG_SECONDS)
    written = os.read(ours, 10_000).decode()
    os.close(ours)
    assert running.returncode == 0 and "Which one? [Q4_K_M]" in written
    assert out.strip() == str(installed(tmp_path, "Qwen3-4B-Q2_K").path)


@pytest.mark.parametrize(
    ("args", "code", "sentence"),
    [
        (("pull", "org/repo:Q5"), 2, "There is no Q5 in org/repo; there are Q2_K, Q4_K_M, Q8_0."),
        (("pull", "o/none"), 1, "There is no repository o/none on HOST; a private one needs HF_TOKEN."),
        (("search", "nonsense"), 2, "No GGUF repository matches 'nonsense'."),
    ],
)  # fmt: skip
def test_hub_wrong_name_is_one_sentence(
    repository: ModelHub, tmp_path: Path, args: tuple[str, ...], code: int, sentence: str
) -> None:
    done = models(repository, tmp_path, *args)
    host = repository.address.removeprefix("http://")
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr == f"agent: {sentence.replace('HOST', host)}\n"
    assert not (tmp_path / "config/models.toml").exists()


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "answers", [{"error": "no"}, ["x"], [{"type": "file"}], [None], "503"], ids=str
)
@pytest.mark.parametrize("command", [("pull", "org/repo"), ("search", "repo")])
def test_hub_odd_answer_is_one_sentence(
    repository: ModelHub, tmp_path: Path, command: tuple[str, ...], answers: object
) -> None:
    says = "does not answer as a hub does"
    if answers == "503":
        repository.error, says = (503, ""), "answered 503 Service Unavailable"
    else:
        repository.answers = answers
    done = models(repository, tmp_path, *command)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith(f" failed: {repository.address.removeprefix('http://')} {says}.\n")
    assert done.stderr.count("\n") == 1 and not repository.telemetry


def test_pull_repository_without_gguf(repository: ModelHub, tmp_path: Path) -> None:
    repository.files = {"model.safetensors": b"x"}
    done = models(repository, tmp_path, "pull", "org/repo")
    assert done.returncode == 2 and "There is no GGUF in org/repo" in done.stderr
    assert "agent models search repo" in done.stderr


@pytest.mark.parametrize("args", [("pull", "org/repo"), ("search", "repo")])
def test_hub_offline_is_one_sentence(tmp_path: Path, args: tuple[str, ...]) -> None:
    done = models(ModelHub(address="http://127.0.0.1:9"), tmp_path, *args)
    assert done.returncode == 1
    assert done.stderr == "agent: Cannot reach 127.0.0.1:9: are you online?\n"


def test_pull_gated_repository_says_what_to_do(repository: ModelHub, tmp_path: Path) -> None:
    repository.error = (403, "GatedRepo")
    done = models(repository, tmp_path, "pull", "org/repo:Q2_K")
    page = f"{repository.address}/org/repo"
    assert done.returncode == 1
    assert (
        done.stderr == f"agent: org/repo is gated: accept its terms at {page} and set HF_TOKEN.\n"
    )


def test_pull_repository_full_disk_is_not_registered(repository: ModelHub, tmp_path: Path) -> None:
    repository.sizes["Qwen3-4B-Q2_K.gguf"] = 1 << 60
    done = models(repository, tmp_path, "pull", "org/repo:Q2_K")
    assert done.returncode == 1 and "of disk" not in done.stdout and "GB free;" in done.stderr
    assert not (tmp_path / "config/models.toml").exists() and not repository.ranges


# --- agent models search ---


def test_search_lists_downloads_and_sizes(repository: ModelHub, tmp_path: Path) -> None:
    done = models(repository, tmp_path, "search", "some", "repo")
    assert done.returncode == 0, done.stderr
    assert repository.searches == ["some repo"]
    assert " ".join(done.stdout.split()) == "org/repo 12,345 downloads 0 MB * Q4_K_M 0 MB"
    rows = json.loads(models(repository, tmp_path, "search", "repo", "--json").stdout)
    assert [(row["id"], row["downloads"]) for row in rows] == [("org/repo", 12_345)]
    assert [q["name"] for q in rows[0]["quantisations"]] == ["Q2_K", "Q4_K_M", "Q8_0"]


@pytest.mark.parametrize(
    ("gguf", "expected"),
    [
        ({"architecture": "qwen3", "chat_template": "{{ tools }}<tool_call>"}, True),
        ({"architecture": "gpt-oss", "chat_template": "{{ tools }}"}, True),
        ({"architecture": "gemma", "chat_template": "{{ messages }}"}, False),
        ({"architecture": "gemma"}, None),
        ("none", None),
    ],
)
def test_search_says_whether_calls_can_be_parsed(
    repository: ModelHub, tmp_path: Path, gguf: object, expected: bool | None
) -> None:
    repository.cards["org/repo"] = {"gguf": gguf}
    [row] = json.loads(models(repository, tmp_path, "search", "repo", "--json").stdout)
    assert row["parses_calls"] is expected
    line = models(repository, tmp_path, "search", "repo").stdout.rstrip("\n")
    assert line.endswith({True: "MB  tools", False: "MB  no tools", None: "MB"}[expected])


# --- response templates ---

TEMPLATE = {"fields": {"content": {"open": "<a>"}}}


def pulled_template(hub: ModelHub, home: Path) -> object:
    """Pull the smallest quantisation, and read the response template next to it."""
    done = models(hub, home, "pull", "org/repo:Q2_K")
    assert (done.returncode, "tokenizer" in done.stderr) == (0, False), done.stderr
    path = response_template_path(Path(done.stdout.strip()))
    assert path.parent == Path(done.stdout.strip()).parent
    return json.loads(path.read_text()) if path.exists() else None


def config(template: object, padding: int = 0) -> bytes:
    """A tokenizer_config.json."""
    return json.dumps({"response_template": template, "padding": " " * padding}).encode()


def test_pull_keeps_response_template_until_model_is_removed(
    repository: ModelHub, tmp_path: Path
) -> None:
    repository.files["tokenizer_config.json"] = config(TEMPLATE)
    assert pulled_template(repository, tmp_path) == TEMPLATE
    assert models(repository, tmp_path, "rm", "Qwen3-4B-Q2_K", "--yes").returncode == 0
    assert not list((tmp_path / "cache/models").rglob("*"))


@pytest.mark.parametrize("base", ["other/base", ["other/base", "more/bases"]])
def test_pull_of_copy_keeps_response_template_of_its_base(
    repository: ModelHub, tmp_path: Path, base: object
) -> None:
    repository.cards["org/repo"] = {"cardData": {"base_model": base}}
    repository.repositories["other/base"] = {"tokenizer_config.json": config(TEMPLATE)}
    assert pulled_template(repository, tmp_path) == TEMPLATE


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("file", "card"),
    [
        (config("no table"), {}),
        (config(TEMPLATE, padding=16 << 20), {}),
        (b"[" * 100_000, {}),
        (b"\xff", {}),
        (b"[]", {"cardData": {"base_model": 5}}),
        (b"{}", {"cardData": {"base_model": "../../etc"}}),
        (b"{}", {"cardData": {"base_model": "no/where"}}),
        (b"{}", {"cardData": None}),
    ],
    ids=["no table", "long", "deep", "no text", "no object", "odd base", "no base", "no card"],
)
def test_pull_without_response_template_is_as_good(
    repository: ModelHub, tmp_path: Path, file: bytes, card: dict[str, object]
) -> None:
    repository.files["tokenizer_config.json"] = file
    repository.cards["org/repo"] = card
    assert pulled_template(repository, tmp_path) is None
