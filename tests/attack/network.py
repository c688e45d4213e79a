"""Commands that may reach one host of this machine, and try to reach another, or to break the proxy."""

import asyncio
import contextlib
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Collection
from pathlib import Path

from agent.util.temporary_folders import process_folder
from tests.attack.measure import (
    Attempt,
    left_processes,
    measured,
    started_processes,
)
from tools.builtin.shell.server import ShellServer
from tools.builtin_server import StructuredText, ToolError
from tools.sandbox import isolation
from tools.sandbox.isolation import NETWORK_ISOLATION, Isolation

TIMEOUT_SECONDS = 20.0
HEAD = """
import ctypes, os, signal, socket, struct, subprocess, sys, threading, time
GOOD, BAD, NAME = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
PROXY = int(os.environ["HTTP_PROXY"].rpartition(":")[2])
def escaped():
    print("ESC" + "APED")
def proxy():
    return socket.create_connection(("127.0.0.1", PROXY), 5)
def send(*parts):
    with proxy() as s:
        for part in parts:
            s.sendall(part if isinstance(part, bytes) else part.encode())
            try: print(s.recv(300))
            except OSError as error: print(error)
def connect(family, address, kind=socket.SOCK_STREAM, protocol=0):
    with socket.socket(family, kind, protocol) as s:
        s.settimeout(3)
        s.connect(address)
        s.send(b"out")
def http(line, *more):
    send(f"{line} HTTP/1.1\\r\\n\\r\\n", *more)
def socks(command, kind, address, port):
    send(b"\\5\\1\\0", bytes((5, command, 0, kind)) + address + port.to_bytes(2, "big"))
"""
"""What each attack begins with: the ports of the host that may be reached, and of the other, which is
also behind the Unix sockets ``stream`` and ``\\0NAME``."""
ATTACKS = {
    "connect without the proxy": "connect(socket.AF_INET, ('127.0.0.1', BAD))",
    "connect over IPv6": "connect(socket.AF_INET6, ('::ffff:127.0.0.1', BAD))",
    "connect by MPTCP": "connect(socket.AF_INET, ('127.0.0.1', BAD), protocol=262)",
    "connect by SCTP": "connect(socket.AF_INET, ('127.0.0.1', BAD), protocol=132)",
    "send in the first packet": "s = socket.socket(); s.sendto(b'out', 0x20000000, ('127.0.0.1', BAD))",
    "send a datagram": "connect(socket.AF_INET, ('127.0.0.1', BAD), socket.SOCK_DGRAM)",
    "a Unix socket of the folder": "connect(socket.AF_UNIX, 'stream')",
    "an abstract Unix socket": "connect(socket.AF_UNIX, '\\0' + NAME)",
    "a datagram to a Unix socket": "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
    "a.sendto(b'out', 'stream')",
    "a pair that is connected again": "for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):\n"
    "    a, b = socket.socketpair(socket.AF_UNIX, kind); b.close()\n"
    "    for address in ('stream', '\\0' + NAME):\n"
    "        try: a.connect(address); escaped()\n"
    "        except OSError as error: print(error)",
    "a packet to another Unix socket": "a, b = socket.socketpair(1, socket.SOCK_SEQPACKET)\n"
    "a.sendto(b'out', 'stream')",
    "a raw socket": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 6); escaped()",
    "a packet socket": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW); escaped()",
    "a netlink socket": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW); escaped()",
    "a socket of the virtual machine": "socket.socket(40, socket.SOCK_STREAM); escaped()",
    "another type by a high bit": "socket.socket(2, 3 | 0x800, 6); escaped()",
    "no variables": "os.environ.clear()\nsubprocess.run(['curl', '-sm3', f'http://127.0.0.1:{BAD}/'])",
    "own variables": "os.environ['NO_PROXY'] = os.environ['no_proxy'] = '*'\n"
    "subprocess.run(['curl', '-sm3', f'http://127.0.0.1:{BAD}/'])",
    "the network of another process": "for p in (1, os.getppid()):\n"
    "    os.setns(os.open(f'/proc/{p}/ns/net', 0)) if hasattr(os, 'setns') else "
    "ctypes.CDLL(None).setns(os.open(f'/proc/{p}/ns/net', 0), 0)\n"
    "connect(socket.AF_INET, ('127.0.0.1', BAD))",
    "a new network": "ctypes.CDLL(None).unshare(0x50000000)\n"
    "connect(socket.AF_INET, ('127.0.0.1', BAD))",
    "inherited descriptors": "for n in range(3, 300):\n"
    '    try: os.write(n, b\'{"host": "x"}\\n\'); escaped()\n'
    "    except OSError: pass",
    "descriptors of other processes": "for p in os.listdir('/proc'):\n"
    "    if p.isdigit() and p != str(os.getpid()):\n"
    "        for n in range(3, 30):\n"
    "            try: fd = os.open(f'/proc/{p}/fd/{n}', os.O_RDWR)\n"
    "            except OSError: continue\n"
    "            if b'socket' in os.readlink(f'/proc/{p}/fd/{n}').encode(): escaped()",
    "another listener at the proxy's port": "s = socket.socket()\n"
    "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1); s.bind(('127.0.0.1', PROXY))\n"
    "s.listen(); escaped()",
    "CONNECT to another port": "http(f'CONNECT 127.0.0.1:{BAD}', 'out')",
    "CONNECT to a number": "http(f'CONNECT 2130706433:{BAD}', 'out')",
    "CONNECT to an octal number": "http(f'CONNECT 0177.0.0.1:{BAD}', 'out')",
    "CONNECT to a short address": "http(f'CONNECT 127.1:{BAD}', 'out')",
    "CONNECT to no address": "http(f'CONNECT 0.0.0.0:{BAD}', 'out')",
    "CONNECT to a name of this machine": "http(f'CONNECT localhost:{BAD}', 'out')",
    "CONNECT to a mapped address": "http(f'CONNECT [::ffff:127.0.0.1]:{BAD}', 'out')",
    "CONNECT to two ports": "http(f'CONNECT 127.0.0.1:{GOOD}:{BAD}', 'out')",
    "CONNECT with a user": "http(f'CONNECT 127.0.0.1:{GOOD}@127.0.0.1:{BAD}', 'out')",
    "CONNECT to other digits": "http(f'CONNECT 127.0.0.1:{GOOD}\\u0661')",
    "two CONNECT in a connection": "http(f'CONNECT 127.0.0.1:{GOOD}', "
    "f'CONNECT 127.0.0.1:{BAD} HTTP/1.1\\r\\n\\r\\n', 'out')",
    "GET of another port": "http(f'GET http://127.0.0.1:{BAD}/')",
    "GET with another host in a header": "send(f'GET / HTTP/1.1\\r\\nHost: 127.0.0.1:{BAD}"
    "\\r\\n\\r\\n')",
    "two GET in a packet": "send(f'GET http://127.0.0.1:{GOOD}/ HTTP/1.1\\r\\n\\r\\n"
    "GET http://127.0.0.1:{BAD}/ HTTP/1.1\\r\\n\\r\\n', '')",
    "GET with a fragment": "http(f'GET http://127.0.0.1:{BAD}#@127.0.0.1:{GOOD}/')",
    "GET with a backslash": "http(f'GET http://127.0.0.1:{BAD}\\\\@127.0.0.1:{GOOD}/')",
    "GET with a line break in it": "send(f'GET http://127.0.0.1:{BAD}/\\nhttp://127.0.0.1:{GOOD}/ "
    "HTTP/1.1\\r\\n\\r\\n')",
    "GET by FTP": "http(f'GET ftp://127.0.0.1:{BAD}/')",
    "SOCKS5 to another port": "socks(1, 1, b'\\x7f\\0\\0\\1', BAD)",
    "SOCKS5 to a name": "socks(1, 3, b'\\x09localhost', BAD)",
    "SOCKS5 to a name with a NUL": "socks(1, 3, b'\\x0d127.0.0.1\\0.ab', BAD)",
    "SOCKS5 over IPv6": "socks(1, 4, bytes(10) + b'\\xff\\xff\\x7f\\0\\0\\1', BAD)",
    "SOCKS5 BIND": "socks(2, 1, b'\\x7f\\0\\0\\1', BAD)",
    "SOCKS5 UDP": "socks(3, 1, b'\\x7f\\0\\0\\1', BAD)",
    "SOCKS4": "send(b'\\4\\1' + BAD.to_bytes(2, 'big') + b'\\x7f\\0\\0\\1\\0')",
    "signal the supervisor": "[os.kill(p, 9) for p in (1, -1)]",
    "a thousand connections": "a = []\n"
    "for n in range(1000):\n"
    "    try: a.append(proxy())\n"
    "    except OSError: pass\n"
    "time.sleep(2)",
    "a head without end": "s = proxy()\nfor n in range(2000): s.sendall(b'A' * 65536)",
    "a head a byte at a time": "a = [proxy() for n in range(64)]\n"
    "for n in range(30):\n"
    "    for s in a: s.send(b'A')\n"
    "    time.sleep(0.05)",
    "a flood that nobody reads": "a = []\n"
    "for n in range(40):\n"
    "    s = proxy(); a.append(s); s.setblocking(False)\n"
    "    s.send(f'CONNECT 127.0.0.1:{GOOD} HTTP/1.1\\r\\n\\r\\n'.encode())\n"
    "end = time.monotonic() + 4\n"
    "while time.monotonic() < end:\n"
    "    for s in a:\n"
    "        try: s.send(b'x' * 65536)\n"
    "        except OSError: pass",
    "a thousand refused hosts": "for n in range(1000): http(f'CONNECT h{n}.example:443')",
    "a fork bomb": "while True:\n    try: os.fork()\n    except OSError: pass",
    "processes that stay": "for n in range(5):\n"
    "    if os.fork() == 0:\n"
    "        os.setsid()\n"
    "        if os.fork() == 0:\n"
    "            signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)",
}
NAMES = [*ATTACKS, "connect to the proxy from outside"]


async def attempts(names: Collection[str]) -> AsyncIterator[Attempt]:
    """Try each attack in a command that may reach one port of this machine."""
    if isolation.probe(NETWORK_ISOLATION) is not None:
        return
    for name in names:
        yield await _attempt(name)


async def _attempt(name: str) -> Attempt:
    faults, before = list[str](), started_processes()
    reached: list[str] = []

    def listener(target: str) -> asyncio.Protocol:
        class Listener(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                if target not in ("good", "UDP"):
                    reached.append(target)

            def datagram_received(self, data: bytes, address: object) -> None:
                reached.append(f"{target}: {data!r}")

        return Listener()

    loop = asyncio.get_running_loop()
    label = f"agent-network-{os.getpid()}"
    with tempfile.TemporaryDirectory(dir=process_folder()) as folder:
        good = await loop.create_server(lambda: listener("good"), "127.0.0.1", 0)
        bad = await loop.create_server(lambda: listener("another port"), "127.0.0.1", 0)
        port, other = (each.sockets[0].getsockname()[1] for each in (good, bad))
        path = await loop.create_unix_server(lambda: listener("a Unix socket"), f"{folder}/stream")
        hidden = await loop.create_unix_server(lambda: listener("an abstract socket"), f"\0{label}")
        udp, _ = await loop.create_datagram_endpoint(
            lambda: listener("UDP"), local_addr=("127.0.0.1", other)
        )
        shell = ShellServer(
            Path(folder), isolation=Isolation(NETWORK_ISOLATION, "", True), timeout=TIMEOUT_SECONDS
        )
        script = HEAD + ATTACKS.get(name, "open('port', 'w').write(str(PROXY)); time.sleep(600)")
        Path(folder, "attack.py").write_text(script)
        words = ["python3", "attack.py", str(port), str(other), label]
        call = shell.call("exec", {"cmd": words, "network": [f"127.0.0.1:{port}"]})
        async with measured() as load:
            if name in ATTACKS:
                answer = await _text(call)
            else:
                answer = await _from_outside(asyncio.ensure_future(call), Path(folder, "port"))
        text = await _text(shell.call("exec", {"cmd": ["echo", "here"]}))
        if "here" not in text:
            faults.append(f"the next command gave {text[:80]!r}")
        for each in (good, bad, path, hidden, udp):
            each.close()
    if "ESCAPED" in answer:
        faults.append(answer[-200:])
    faults += [f"{target} was reached" for target in dict.fromkeys(reached)]
    if left := left_processes(before):
        faults.append(f"left {', '.join(left)}")
    detail = "; ".join(faults) or " ".join(answer.split())[-200:]
    return Attempt(f"network, {NETWORK_ISOLATION}", name, not faults, detail, load)


async def _from_outside(call: asyncio.Task[object], file: Path) -> str:
    """Look for the proxy where every user of the machine could connect to it."""
    while not (file.exists() and file.read_text()) and not call.done():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    answer = "refused"
    with contextlib.suppress(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(file.read_text())), 5).close()
        answer = "ESCAPED: the proxy's port is one of this machine"
    call.cancel()
    await asyncio.wait([call])
    return answer


async def _text(call: object) -> str:
    try:
        result = await call  # type: ignore[misc]
    except ToolError as error:
        return str(error)
    return result.text if isinstance(result, StructuredText) else str(result)
