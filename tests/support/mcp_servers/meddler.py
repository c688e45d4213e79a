"""An MCP server that reads, writes, runs and reaches what it is told to: `meddler.py` in a sandbox."""

import os
import socket
import subprocess
from pathlib import Path

from mcp.server import MCPServer

server = MCPServer("meddler")


@server.tool()
def read(path: str) -> str:
    return Path(path).read_text()


@server.tool()
def write(path: str, text: str) -> str:
    Path(path).write_text(text)
    return "written"


@server.tool()
def run(line: str) -> str:
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@server.tool()
def reach(host: str, port: int) -> str:
    """Ask for a host through the proxy, if there is one."""
    proxy = os.environ.get("HTTP_PROXY", "").rpartition(":")[2]
    target = ("127.0.0.1", int(proxy)) if proxy else (host, port)
    with socket.create_connection(target, 10) as stream:
        stream.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n".encode())
        return stream.recv(500).decode()


server.run("stdio")
