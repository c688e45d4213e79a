"""``python -I -S fork_relay.py SOCKET …``: runs `agent …` as a fork, see `program_forks.py`."""

import _signal as signal  # the module signal takes longer to import than all of this, as pathlib does
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as link:
    link.connect(sys.argv[1])
    socket.send_fds(link, [b"."], [0, 1, 2])
    request = (sys.argv[2:], os.getcwd(), dict(os.environ))  # noqa: PTH109
    link.sendall(ascii(request).encode() + b"\n")
    pid = int(link.recv(16, socket.MSG_WAITALL))

    def pass_on(number, frame):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass  # it has ended

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)
    code = int(link.recv(16))
if code < 0:
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
