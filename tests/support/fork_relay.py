"""``python -I -S fork_relay.py SOCKET …``: runs `agent …` as a fork, see `program_forks.py`."""

import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as link:
    link.connect(sys.argv[1])
    socket.send_fds(link, [b"."], [0, 1, 2])
    folder = os.getcwd()  # noqa: PTH109 (pathlib takes longer to import than all of this)
    request = (sys.argv[2:], folder, dict(os.environ))
    link.sendall(ascii(request).encode() + b"\n")
    code = int(link.recv(16))
if code < 0:
    os.kill(os.getpid(), -code)
os._exit(code)
