"""A fixture that serves the packages that are installed here as wheels, as a package index does."""

import csv
import importlib.metadata
import io
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

LLAMA = "llama-cpp-python"
NOT_IN_WHEELS = ("..", "__pycache__", "INSTALLER", "REQUESTED", "RECORD", "direct_url.json")
"""Parts of the paths of installed files that pip wrote itself."""


@dataclass
class PackageIndex:
    """``/simple`` has all packages but `LLAMA`, ``/whl/cpu`` has that one."""

    address: str = ""
    paths: list[str] = field(default_factory=list)
    """What was requested."""


@pytest.fixture
def package_index() -> Iterator[PackageIndex]:
    """An index on a loopback port."""
    state = PackageIndex()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.paths.append(self.path)
            folder, name, file = self.path.rsplit("/", 2)
            try:
                if (name == LLAMA) != (folder == "/whl/cpu"):
                    raise importlib.metadata.PackageNotFoundError
                distribution = importlib.metadata.distribution(name)
            except importlib.metadata.PackageNotFoundError:
                self.send_error(404)
                return
            link = f'<a href="{wheel_name(distribution)}">it</a>'.encode()
            body = wheel_bytes(distribution) if file else link
            self.send_response(200)
            self.send_header("Content-Type", "application/zip" if file else "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


def wheel_name(distribution: importlib.metadata.Distribution) -> str:
    """The name of the wheel that a package was installed from, with one of its tags."""
    lines = (distribution.read_text("WHEEL") or "").splitlines()
    tags = [line.removeprefix("Tag: ") for line in lines if line.startswith("Tag: ")]
    tag = next(tag for tag in tags if not tag.startswith("py2"))
    return f"{distribution.name.replace('-', '_')}-{distribution.version}-{tag}.whl"


def wheel_bytes(distribution: importlib.metadata.Distribution) -> bytes:
    """A wheel of the files of an installed package."""
    out, record = io.BytesIO(), io.StringIO()
    with zipfile.ZipFile(out, "w") as wheel:
        writer = csv.writer(record, lineterminator="\n")
        files = distribution.files or []
        for file in files:
            if not set(file.parts) & set(NOT_IN_WHEELS):
                wheel.write(file.locate(), str(file))
                writer.writerow([file, "", ""])
        name = next(str(file) for file in files if file.name == "RECORD")
        writer.writerow([name, "", ""])
        wheel.writestr(name, record.getvalue())
    return out.getvalue()
