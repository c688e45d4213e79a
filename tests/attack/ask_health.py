"""Asks for /health every 50 ms until stdin ends, then prints how many seconds the latest answer took.

A refused question is asked again at once, as clients do: what counts is when the answer comes.

python ask_health.py HOST PORT
"""

import contextlib
import socket
import sys
import threading
import time

LOST_SECONDS = 20.0
"""What a question counts as that has no answer by then."""


def main() -> None:
    host, port, latest = sys.argv[1], int(sys.argv[2]), 0.0
    request = f"GET /health HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode()
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end).start()
    print(flush=True)
    while not ended.wait(0.05):
        began, answered, seconds = time.monotonic(), False, 0.0
        while not answered and seconds < LOST_SECONDS:
            with (
                contextlib.suppress(OSError),
                socket.create_connection((host, port), LOST_SECONDS) as client,
            ):
                client.sendall(request)
                answered = b" 200 " in client.recv(64)
            seconds = time.monotonic() - began
            if not answered:
                time.sleep(0.05)
        latest = max(latest, seconds)
    print(latest)


if __name__ == "__main__":
    main()
