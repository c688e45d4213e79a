"""An MCP server that misbehaves as its first argument says."""

import os
import subprocess
import sys
import time
from pathlib import Path

from mcp.server import MCPServer

how = sys.argv[1]

if how == "hang":
    time.sleep(600)
elif how == "refuse":
    print("cannot find the database", file=sys.stderr)
    sys.exit(3)
elif how == "once":  # fails at the first start only
    mark = Path(sys.argv[2])
    if not mark.exists():
        mark.touch()
        sys.exit("not yet")
elif how == "change":  # says something else of its tool at the second start
    mark = Path(sys.argv[2])
    again = mark.exists()
    mark.touch()
elif how == "junk":
    print("Welcome to the server!\n{}\n[1,2]\nnull\n\xff", flush=True)
elif how == "orphan":  # leaves a child behind that ignores everything polite
    code = "import signal,time\nsignal.signal(signal.SIGTERM,signal.SIG_IGN)\ntime.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", code])
    Path(sys.argv[2]).write_text(str(child.pid))

server = MCPServer("hostile")


@server.tool()
def die() -> str:
    print("out of cheese", file=sys.stderr, flush=True)
    os._exit(7)


@server.tool()
def hang() -> str:
    time.sleep(600)
    return "never"


@server.tool(description="Second." if how == "change" and again else "First.")
def ping() -> str:
    return "pong"


@server.tool()
def process() -> str:
    return str(os.getpid())


@server.tool()
def shout() -> str:
    print("not a message", flush=True)
    return "said"


server.run("stdio")
if how == "orphan":
    time.sleep(600)  # deaf to the end of stdin
