"""Pulling a model, from a server that speaks the hub's protocol."""

from __future__ import annotations

import hashlib
import http.server
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent.cli import models as shelf
from agent.config.settings import Places
from agent.models import catalog
from tests.support import shaped_gguf

FILES = {f"m-0000{i}-of-00002.gguf": bytes([i]) * 24_000_000 for i in (1, 2)}


@dataclass
class Hub:
    """What the server has, what it was asked, and how it misbehaves."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=lambda: dict(FILES))
    named: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    """What is claimed instead of a file's own size."""
    hold: int | None = None
    """Bytes after which the next download stands still, until its client gives up."""
    ranges: list[str | None] = field(default_factory=list)


@pytest.fixture
def hub() -> Iterator[Hub]:
    state = Hub()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None: ...

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, body: bool) -> None:
            name = self.path.split("/")[-1]
            data = state.files.get(name)
            if not self.path.startswith("/org/repo/resolve/main/") or data is None:
                self.send_response(404)
                self.send_header("X-Error-Code", "EntryNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            start = 0
            if body:
                asked = self.headers.get("Range")
                state.ranges.append(asked)
                if asked and not asked.startswith("bytes=0-"):
                    start = int(asked.removeprefix("bytes=").split("-")[0])
            self.send_response(206 if start else 200)
            self.send_header("X-Repo-Commit", "c" * 40)
            etag = state.named.get(name, hashlib.sha256(data).hexdigest())
            self.send_header("ETag", f'"{etag}"')
            self.send_header("Content-Length", str(state.sizes.get(name, len(data) - start)))
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            self.end_headers()
            if body:
                part = data[start:]
                held, state.hold = state.hold, None
                self.wfile.write(part[:held])
                if held is not None:
                    self.connection.recv(1)
                    self.close_connection = True

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    state.address = f"http://127.0.0.1:{server.server_port}"
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    entry = '[m]\nrepo = "org/repo"\nfile = "m-00001-of-00002.gguf"\n'
    (tmp_path / "config" / "models.toml").write_text(entry)
    return tmp_path


def command(*args: str) -> list[str]:
    return [sys.executable, "-I", "-m", "agent", "models", "pull", *args]


def environment(hub: Hub, home: Path) -> dict[str, str]:
    """Nobody's own models are found in it."""
    person = home / "person"
    caches = dict.fromkeys(("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "LLAMA_CACHE"), "")
    ours = {"AGENT_HOME": str(home), "HF_ENDPOINT": hub.address, "HOME": str(person)}
    return {**os.environ, **caches, "OLLAMA_MODELS": str(person / "none"), **ours}


def pull(hub: Hub, home: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*(args or ("m",))),
        env=environment(hub, home),
        capture_output=True,
        text=True,
        timeout=100,
    )


def places(home: Path) -> Places:
    return Places(home / "config", home / "cache", home / "state")


def installed(home: Path) -> bool:
    return catalog.known(places(home))["m"].installed


def test_all_parts_come_and_it_is_installed(hub: Hub, home: Path) -> None:
    assert not installed(home)
    done = pull(hub, home)
    assert done.returncode == 0, done.stderr
    first = Path(done.stdout.strip())
    assert {p.name: p.read_bytes() for p in first.parent.glob("*.gguf")} == FILES
    assert installed(home)
    asked = len(hub.ranges)
    assert pull(hub, home).returncode == 0 and len(hub.ranges) == asked, "nothing comes twice"


def test_a_download_whose_process_was_killed_goes_on(hub: Hub, home: Path) -> None:
    hub.hold = 15_000_000  # more than the client takes in one piece
    with subprocess.Popen(
        command("m"), env=environment(hub, home), stderr=subprocess.DEVNULL
    ) as run:
        while not any(path.stat().st_size for path in home.glob("cache/models/m/.*.part")):
            time.sleep(0.01)
        run.kill()
    assert not installed(home)
    assert pull(hub, home).returncode == 0 and installed(home)
    assert int(hub.ranges[1].strip("bytes=-")) > 0, "what had come was kept"


def test_a_damaged_file_is_removed(hub: Hub, home: Path) -> None:
    hub.named["m-00002-of-00002.gguf"] = "0" * 64
    done = pull(hub, home)
    assert done.returncode == 2 and "damaged" in done.stderr
    assert not installed(home)


def test_what_is_not_there_is_one_sentence(hub: Hub, home: Path) -> None:
    del hub.files["m-00002-of-00002.gguf"]
    done = pull(hub, home)
    assert done.returncode == 2 and "Pulling m from org/repo failed" in done.stderr
    assert "Traceback" not in done.stderr
    unknown = pull(hub, home, "nonsense")
    assert unknown.returncode == 2 and "gpt-oss-20b" in unknown.stderr


def test_a_disk_that_is_too_full_is_said_before_anything_is_fetched(hub: Hub, home: Path) -> None:
    hub.sizes["m-00001-of-00002.gguf"] = 1 << 60
    done = pull(hub, home)
    assert done.returncode == 2 and "GB free" in done.stderr and "AGENT_HOME" in done.stderr
    assert not hub.ranges


# --- the same model in another program's folder ---


@pytest.fixture
def theirs(home: Path) -> Path:
    """LM Studio's copy of the model, of which only the header is looked at."""
    path = home / "person/.lmstudio/models/pub/repo/m-Q8_0.gguf"
    path.parent.mkdir(parents=True)
    return shaped_gguf.write(path)


def test_a_copy_on_this_machine_is_told(hub: Hub, home: Path, theirs: Path) -> None:
    done = pull(hub, home)
    assert done.returncode == 2 and not hub.ranges
    assert f"LM Studio has m already: {theirs}" in done.stderr
    assert "--model m-Q8_0" in done.stderr and "agent models pull m --force" in done.stderr
    forced = pull(hub, home, "m", "--force")
    assert forced.returncode == 0, forced.stderr
    assert installed(home)


def shelf_keeps_the_rest(home: Path) -> bool:
    """A second entry is appended, the first is still what it was."""
    file = home / "config/models.toml"
    known = catalog.known(places(home))
    shelf._use(places(home), known["gpt-oss-20b"], Path("/some/where.gguf"))
    after = catalog.known(places(home))
    assert after["m"] == known["m"] and "[gpt-oss-20b]" in file.read_text()
    return after["gpt-oss-20b"].path == Path("/some/where.gguf")


@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_person_is_asked(hub: Hub, home: Path, theirs: Path, answer: str) -> None:
    ours, terminal = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    with subprocess.Popen(
        command("m"),
        env=environment(hub, home),
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
    ) as running:
        os.close(terminal)
        out, _ = running.communicate(timeout=100)
    os.close(ours)
    assert running.returncode == 0
    (model,) = (m for m in catalog.known(places(home)).values() if m.name == "m")
    assert out.strip() == str(model.path) and model.installed
    if answer == "y":
        assert shelf_keeps_the_rest(home)
    assert (model.path == theirs) is (answer == "y") and bool(hub.ranges) is (answer == "n")


def test_a_path_of_ones_own_is_not_pulled(hub: Hub, home: Path, theirs: Path) -> None:
    file = home / "config/models.toml"
    file.write_text(file.read_text() + f'path = "{theirs}"\n')
    done = pull(hub, home)
    assert done.returncode == 2 and f"m is the file {theirs}" in done.stderr
