"""A fixture that serves model files as the Hugging Face hub does, and misbehaves on demand."""

import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import pytest

FILES = {f"m-0000{i}-of-00002.gguf": bytes([i]) * 24_000_000 for i in (1, 2)}
"""The parts of a model of 48 MB, in the repository ``org/repo``."""


@dataclass
class ModelHub:
    """The files of the server, the ranges that clients requested, and how it misbehaves."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=lambda: dict(FILES))
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """The files of further repositories."""
    cards: dict[str, dict[str, object]] = field(default_factory=dict)
    """What the API tells of repositories, by name."""
    etags: dict[str, str] = field(default_factory=dict)
    """What is claimed instead of a file's own SHA-256."""
    sizes: dict[str, int] = field(default_factory=dict)
    """What is claimed instead of a file's own size, in bytes."""
    hold: int | None = None
    """Bytes after which the next download pauses until its client disconnects."""
    ranges: list[str | None] = field(default_factory=list)
    """The Range header of each download."""
    error: tuple[int, str] | None = None
    """Status and X-Error-Code of every answer, instead of what was requested."""
    answers: object = None
    """What every list is, instead of what was requested; None: what it is."""
    telemetry: list[str] = field(default_factory=list)
    """Paths that clients requested and that no download needs."""
    searches: list[str] = field(default_factory=list)
    """The words that clients searched for; each finds ``org/repo`` if ``repo`` is among them."""

    def repository(self, path: str) -> dict[str, bytes] | None:
        """The files of the repository that a path on the server begins with; None: there is none."""
        repo = "/".join(path.split("/")[1:3])
        return self.files if repo == "org/repo" else self.repositories.get(repo)

    def tree(self, files: dict[str, bytes]) -> list[dict[str, object]]:
        """The list of files as the hub's API returns it."""
        return [
            {"type": "file", "path": path, "oid": "0" * 40, "size": self.sizes.get(path, len(data))}
            for path, data in files.items()
        ]


@pytest.fixture
def model_hub() -> Iterator[ModelHub]:
    """A hub on a loopback port, for HF_ENDPOINT."""
    state = ModelHub()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None: ...

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _send_json(self, value: object) -> None:
            data = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _refuse(self, status: int, code: str) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _answer(self, body: bool) -> None:
            url = urlsplit(self.path)
            if state.error is not None:
                self._refuse(*state.error)
                return
            if url.path.startswith("/api/") and not url.path.startswith("/api/models"):
                state.telemetry.append(url.path)
            if url.path.startswith("/api/") and state.answers is not None:
                self._send_json(state.answers)
                return
            if url.path == "/api/models":
                words = parse_qs(url.query)["search"][0]
                state.searches.append(words)
                # Fields that are not named in "expand" are left out, as of the hub.
                known = {"downloads": 12_345, **state.cards.get("org/repo", {})}
                named = parse_qs(url.query).get("expand", [])
                model = {"id": "org/repo", **{k: v for k, v in known.items() if k in named}}
                self._send_json([model] if "repo" in words else [])
                return
            listed = url.path.startswith("/api/models/")
            files = state.repository(url.path.removeprefix("/api/models" if listed else ""))
            if listed and "/tree/" not in url.path:
                self._send_json(state.cards.get(url.path.removeprefix("/api/models/"), {}))
                return
            if files is not None and listed:
                self._send_json(state.tree(files))
                return
            name = url.path.partition("/resolve/main/")[2]
            data = None if files is None else files.get(name)
            if data is None:
                self._refuse(404, "RepoNotFound" if files is None else "EntryNotFound")
                return
            start = 0
            if body:
                requested = self.headers.get("Range")
                state.ranges.append(requested)
                if requested and not requested.startswith("bytes=0-"):
                    start = int(requested.removeprefix("bytes=").split("-")[0])
            self.send_response(206 if start else 200)
            self.send_header("X-Repo-Commit", "c" * 40)
            etag = state.etags.get(name, hashlib.sha256(data).hexdigest())
            self.send_header("ETag", f'"{etag}"')
            self.send_header("Content-Length", str(state.sizes.get(name, len(data) - start)))
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            self.end_headers()
            if body:
                part = data[start:]
                limit, state.hold = state.hold, None
                self.wfile.write(part[:limit])
                if limit is not None:
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
