"""Pulling a model from a server that speaks the hub's protocol."""

import fcntl
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.cli import models as commands
from agent.config.paths import Paths
from agent.models import catalog
from tests.support import forks, sparse_gguf
from tests.support.model_hub import FILES, ModelHub
from tests.support.waiting import HANG_SECONDS


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    entry = '[m]\nrepo = "org/repo"\nfile = "m-00001-of-00002.gguf"\n'
    (tmp_path / "config" / "models.toml").write_text(entry)
    return tmp_path


COMMAND = [sys.executable, "-P", "-m", "agent", "models", "pull"]


def environment(model_hub: ModelHub, home: Path) -> dict[str, str]:
    """Nobody's own models are found in it."""
    person = home / "person"
    caches = dict.fromkeys(("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "LLAMA_CACHE"), "")
    ours = {"AGENT_HOME": str(home), "HF_ENDPOINT": model_hub.address, "HOME": str(person)}
    return {**os.environ, **caches, "OLLAMA_MODELS": str(person / "none"), **ours}


def pull(model_hub: ModelHub, home: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*forks.relay(), "models", "pull", *(args or ("m",))],
        env=environment(model_hub, home),
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )


def paths_below(home: Path) -> Paths:
    return Paths(home / "config", home / "cache", home / "state")


def installed(home: Path) -> bool:
    return catalog.load_catalog(paths_below(home))["m"].installed


def test_pull_split_model_installs_all_parts(model_hub: ModelHub, home: Path) -> None:
    assert not installed(home)
    done = pull(model_hub, home)
    assert done.returncode == 0, done.stderr
    first = Path(done.stdout.strip())
    assert {p.name: p.read_bytes() for p in first.parent.glob("*.gguf")} == FILES
    assert installed(home)
    assert "Downloading m from org/repo\nSize     48 MB; " in done.stderr
    assert "of disk free\nMemory   " in done.stderr and "\nSpeed    " in done.stderr
    requests = len(model_hub.ranges)
    assert pull(model_hub, home).returncode == 0
    assert len(model_hub.ranges) == requests, "nothing is downloaded twice"


def test_pull_file_in_folder_is_installed(model_hub: ModelHub, home: Path) -> None:
    model_hub.files = {f"Q4/{name}": data[:1000] for name, data in FILES.items()}
    models = home / "config" / "models.toml"
    models.write_text(models.read_text().replace("m-0", "Q4/m-0"))
    done = pull(model_hub, home)
    assert done.returncode == 0 and installed(home), done.stderr
    assert Path(done.stdout.strip()) == home / "cache/models/m/Q4/m-00001-of-00002.gguf"


@pytest.mark.parametrize("file", ["../m.gguf", "/etc/m.gguf", "a/../../m.gguf"])
def test_pull_file_outside_repository_refused(model_hub: ModelHub, home: Path, file: str) -> None:
    (home / "config" / "models.toml").write_text(f'[m]\nrepo = "org/repo"\nfile = "{file}"\n')
    done = pull(model_hub, home)
    assert done.returncode == 2 and "file must be a path in its repository" in done.stderr
    assert not model_hub.ranges


@pytest.mark.long
def test_pull_after_kill_resumes(model_hub: ModelHub, home: Path) -> None:
    model_hub.hold = 15_000_000  # more than the client takes in one piece
    with subprocess.Popen(
        [*COMMAND, "m"], env=environment(model_hub, home), stderr=subprocess.DEVNULL
    ) as run:
        while not any(path.stat().st_size for path in home.glob("cache/models/m/.*.part")):
            time.sleep(0.01)
        run.kill()
    assert not installed(home)
    assert pull(model_hub, home).returncode == 0 and installed(home)
    assert int(model_hub.ranges[1].strip("bytes=-")) > 0, "the download was resumed"


def test_pull_damaged_file_is_removed(model_hub: ModelHub, home: Path) -> None:
    model_hub.etags["m-00002-of-00002.gguf"] = "0" * 64
    done = pull(model_hub, home)
    assert done.returncode == 1 and "damaged" in done.stderr
    assert not installed(home)


def content(home: Path) -> dict[str, bytes]:
    """What the model's folder has, parts of downloads included."""
    folder = home / "cache/models/m"
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".checked"}


def small(number: int) -> dict[str, bytes]:
    return {name: bytes([number]) * 1000 for name in FILES}


def test_pull_of_new_version_replaces_when_all_is_verified(model_hub: ModelHub, home: Path) -> None:
    model_hub.files = small(1)
    assert pull(model_hub, home).returncode == 0
    model_hub.files = small(2)  # of the same size, as uploads of a quantisation are
    model_hub.etags["m-00002-of-00002.gguf"] = "0" * 64
    failed = pull(model_hub, home)
    assert failed.returncode == 1 and "damaged" in failed.stderr
    parts = {n: data for n, data in content(home).items() if not n.endswith(".part")}
    assert parts == small(1), "the installed version stays until all of the new one is verified"
    del model_hub.etags["m-00002-of-00002.gguf"]
    requests = len(model_hub.ranges)
    assert pull(model_hub, home).returncode == 0 and content(home) == small(2)
    assert len(model_hub.ranges) == requests + 1, "the first part was here"


def test_pull_of_file_without_record_compares_it(model_hub: ModelHub, home: Path) -> None:
    model_hub.files = small(1)
    folder = home / "cache/models/m"
    folder.mkdir(parents=True)
    for name, data in small(1).items():
        (folder / name).write_bytes(data)
    assert pull(model_hub, home).returncode == 0 and not model_hub.ranges
    (folder / ".m-00001-of-00002.gguf.checked").unlink()
    (folder / "m-00001-of-00002.gguf").write_bytes(bytes([9]) * 1000)
    model_hub.etags["m-00001-of-00002.gguf"] = "0" * 64
    assert pull(model_hub, home).returncode == 1
    assert (folder / "m-00001-of-00002.gguf").read_bytes() == bytes([9]) * 1000
    model_hub.etags.clear()
    assert pull(model_hub, home).returncode == 0 and content(home) == small(1)


def test_pull_removes_what_was_begun_of_another_version(model_hub: ModelHub, home: Path) -> None:
    model_hub.files = small(1)
    folder = home / "cache/models/m"
    folder.mkdir(parents=True)
    old = folder / ".m-00001-of-00002.gguf.0123456789ab.part"
    old.write_bytes(b"old")
    with old.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # another process downloads it
        assert pull(model_hub, home).returncode == 0 and old.exists()
    for name in FILES:
        (folder / name).unlink()
    assert pull(model_hub, home).returncode == 0 and content(home) == small(1)


def test_pull_missing_file_is_one_sentence(model_hub: ModelHub, home: Path) -> None:
    del model_hub.files["m-00002-of-00002.gguf"]
    done = pull(model_hub, home)
    assert done.returncode == 1 and "Pulling m from org/repo failed" in done.stderr
    assert "Traceback" not in done.stderr
    unknown = pull(model_hub, home, "nonsense")
    assert unknown.returncode == 2 and "gpt-oss-20b" in unknown.stderr


def test_pull_full_disk_fails_before_download(model_hub: ModelHub, home: Path) -> None:
    model_hub.sizes["m-00001-of-00002.gguf"] = 1 << 60
    done = pull(model_hub, home)
    assert done.returncode == 1 and "GB free" in done.stderr and "AGENT_HOME" in done.stderr
    assert not model_hub.ranges


def test_pull_offline_is_one_sentence(home: Path) -> None:
    done = pull(ModelHub(address="http://127.0.0.1:9"), home)
    assert done.returncode == 1
    assert done.stderr == "agent: Cannot reach 127.0.0.1:9: are you online?\n"


# --- the same model in another program's folder ---


@pytest.fixture
def lm_studio_copy(home: Path) -> Path:
    """LM Studio's copy of the model, of which only the header is looked at."""
    path = home / "person/.lmstudio/models/pub/repo/m-Q8_0.gguf"
    path.parent.mkdir(parents=True)
    return sparse_gguf.write_model(path)


def test_pull_reports_copy_of_another_program(
    model_hub: ModelHub, home: Path, lm_studio_copy: Path
) -> None:
    done = pull(model_hub, home)
    assert done.returncode == 2 and not model_hub.ranges
    assert f"LM Studio has m already: {lm_studio_copy}" in done.stderr
    assert "--model m-Q8_0" in done.stderr and "agent models pull m --force" in done.stderr
    forced = pull(model_hub, home, "m", "--force")
    assert forced.returncode == 0, forced.stderr
    assert installed(home)


def use_file_leaves_the_rest(home: Path) -> bool:
    """Give another entry a file: it is appended, and the first one stays as it was."""
    file = home / "config/models.toml"
    before = catalog.load_catalog(paths_below(home))
    commands._use_file(paths_below(home), before["gpt-oss-20b"], Path("/some/where.gguf"))
    after = catalog.load_catalog(paths_below(home))
    assert after["m"] == before["m"] and "[gpt-oss-20b]" in file.read_text()
    return after["gpt-oss-20b"].path == Path("/some/where.gguf")


@pytest.mark.long
@pytest.mark.parametrize("answer", ["y", "n"])
def test_pull_offers_copy_on_a_terminal(
    model_hub: ModelHub, home: Path, lm_studio_copy: Path, answer: str
) -> None:
    ours, terminal = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    with subprocess.Popen(
        [*COMMAND, "m"],
        env=environment(model_hub, home),
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
    ) as running:
        os.close(terminal)
        out, _ = running.communicate(timeout=HANG_SECONDS)
    os.close(ours)
    assert running.returncode == 0
    (model,) = (m for m in catalog.load_catalog(paths_below(home)).values() if m.name == "m")
    assert out.strip() == str(model.path) and model.installed
    if answer == "y":
        assert use_file_leaves_the_rest(home)
    assert (model.path == lm_studio_copy) is (answer == "y")
    assert bool(model_hub.ranges) is (answer == "n")


def test_pull_entry_with_own_path_is_refused(
    model_hub: ModelHub, home: Path, lm_studio_copy: Path
) -> None:
    file = home / "config/models.toml"
    file.write_text(file.read_text() + f'path = "{lm_studio_copy}"\n')
    done = pull(model_hub, home)
    assert done.returncode == 2 and f"m is the file {lm_studio_copy}" in done.stderr
