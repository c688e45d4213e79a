"""A proxy between a client and the server that counts signs of life."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit


@contextmanager
def tap(url: str, count: int, then: Path) -> Iterator[str]:
    """The URL of a proxy to ``url`` that creates the file ``then`` after ``count`` signs of life."""
    parts, seen = urlsplit(url), [0]

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((parts.hostname, parts.port)) as server:
                sending = threading.Thread(target=_copy, args=(self.request, server), daemon=True)
                sending.start()
                with suppress(OSError):
                    while data := server.recv(65536):
                        seen[0] += data.count(b'"type":"keepalive"')
                        if seen[0] >= count:
                            then.touch()
                        self.request.sendall(data)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as proxy:
        proxy.daemon_threads = True
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{proxy.server_address[1]}{parts.path}"
        proxy.shutdown()
    assert seen[0] >= count


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
