"""An MCP server that misbehaves as its first argument says."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))
from json_lines import LineServer

behaviour = sys.argv[1]

if behaviour == "hang":
    time.sleep(600)
elif behaviour == "refuse":
    print("cannot find the database", file=sys.stderr)
    sys.exit(3)
elif behaviour == "once":  # fails at the first start only
    mark = Path(sys.argv[2])
    if not mark.exists():
        mark.touch()
        sys.exit("not yet")
elif behaviour == "change":  # says something else of its tool at the second start
    mark = Path(sys.argv[2])
    again = mark.exists()
    mark.touch()
elif behaviour == "junk":
    print("Welcome to the server!\n{}\n[1,2]\nnull\n\xff", flush=True)
elif behaviour == "orphan":  # leaves a child behind that ignores everything polite
    code = "import signal,time\nsignal.signal(signal.SIGTERM,signal.SIG_IGN)\ntime.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", code])
    Path(sys.argv[2]).write_text(str(child.pid))

elif behaviour == "deaf":  # to everything but SIGKILL
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

server = LineServer("hostile")
if behaviour == "many":
    for number in range(5001):
        server.add_tool(lambda: "x", name=f"tool_{number}")


@server.tool()
def die() -> str:
    print("out of cheese", file=sys.stderr, flush=True)
    os._exit(7)


@server.tool()
def suicide() -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@server.tool()
def hang() -> str:
    time.sleep(600)
    return "never"


@server.tool(description="Second." if behaviour == "change" and again else "First.")
def ping() -> str:
    return "pong"


@server.tool()
def process() -> str:
    return str(os.getpid())


@server.tool()
def shout() -> str:
    print("not a message", flush=True)
    return "said"


@server.tool()
def huge() -> str:
    return "h" * 7_000_000


@server.tool()
def flood() -> str:
    for number in range(3000):
        server.report_progress(number, None, "on and on")
        if number % 10 == 0:
            server.notify("message", level="info", data="x" * 2000)
            print("e" * 2000, file=sys.stderr)
    return "flooded"


@server.tool(outputSchema={"type": "object", "properties": {"number": {"type": "integer"}}})
def shapeless() -> dict[str, Any]:
    """Promises a number."""
    return {"number": "many"}


server.serve()
if behaviour in ("orphan", "deaf"):
    time.sleep(600)  # deaf to the end of stdin
