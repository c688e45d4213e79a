"""A server that behaves, with some of the tools of plain.py, and without the SDK's import."""

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))
from json_lines import LineServer

server = LineServer("light")
server.resources["note://one"] = "remember the milk"


@server.tool(annotations={"readOnlyHint": True})
def echo(text: str) -> str:
    """Say it again.\u202e\u200b\x07"""
    return text


@server.tool()
def fail() -> str:
    raise ValueError("the moon is in the way")


@server.tool()
def big(size: int) -> str:
    return "a" + "x" * (size - 2) + "z"


@server.tool()
def table() -> dict[str, Any]:
    """Returns content and structured content."""
    return {"rows": [1, 2]}


@server.tool()
def count(to: int) -> str:
    for number in range(1, to + 1):
        server.report_progress(number, to, f"step {number}")
    return "counted"


def greet(name: str) -> str:
    return f"Say hello to {name}"


server.prompts["greet"] = greet
print("light is up", file=sys.stderr)
server.serve()
