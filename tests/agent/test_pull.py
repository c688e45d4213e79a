"""Pulling a model, from a server that speaks the hub's protocol."""

from __future__ import annotations

import hashlib
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent import models
from agent.config import Places

FILES = {f"m-0000{i}-of-00002.gguf": bytes([i]) * 24_000_000 for i in (1, 2)}


@dataclass
class Hub:
    """What the server has, what it was asked, and how it misbehaves."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=lambda: dict(FILES))
    named: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    """Bytes after which the next download breaks off, once."""
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
            self.send_header("Content-Length", str(len(data) - start))
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            self.end_headers()
            if body:
                part = data[start:]
                if state.cut is not None:
                    part, state.cut = part[: state.cut], None
                    self.close_connection = True
                self.wfile.write(part)

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


def pull(hub: Hub, home: Path, name: str = "m") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-m", "agent.cli", "models", "pull", name],
        env={**os.environ, "AGENT_HOME": str(home), "HF_ENDPOINT": hub.address},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def installed(home: Path) -> bool:
    return models.known(Places(home / "config", home / "cache", home / "state"))["m"].installed


def test_all_parts_come_and_it_is_installed(hub: Hub, home: Path) -> None:
    assert not installed(home)
    done = pull(hub, home)
    assert done.returncode == 0, done.stderr
    first = Path(done.stdout.strip())
    assert {p.name: p.read_bytes() for p in first.parent.glob("*.gguf")} == FILES
    assert installed(home)
    asked = len(hub.ranges)
    assert pull(hub, home).returncode == 0 and len(hub.ranges) == asked, "nothing comes twice"


def test_a_download_that_broke_off_goes_on(hub: Hub, home: Path) -> None:
    hub.cut = 15_000_000  # more than the client takes in one piece
    done = pull(hub, home)
    if done.returncode:  # it gave up; otherwise it went on by itself
        assert "Run it again" in done.stderr and "Traceback" not in done.stderr
        assert not installed(home)
        assert pull(hub, home).returncode == 0
    assert installed(home)
    assert any(asked and not asked.startswith("bytes=0-") for asked in hub.ranges)


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
