"""Hints for the common reasons why a server's command does not start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath

_INSTALL = {
    "uv": "install uv: https://docs.astral.sh/uv",
    "node": "install Node.js: https://nodejs.org",
    "bun": "install Bun: https://bun.sh",
    "deno": "install Deno: https://deno.com",
    "docker": "install Docker: https://docs.docker.com/get-docker",
    "python": "write python3, or the path of a virtual environment's python",
}
_PROGRAMS = {"uvx": "uv", "npx": "node", "npm": "node", "bunx": "bun"}
_VARIABLE = r"\b([A-Z][A-Z0-9]*_[A-Z0-9_]+)\b"
_MISSING_VARIABLE = re.compile(
    rf"(?:environment variable|env var|missing|required|must set|set the)[^\n]{{0,60}}?{_VARIABLE}"
    rf"|{_VARIABLE}[^\n]{{0,60}}?(?:is required|is missing|not set|must be set|is not defined|unset"
    r"|environment variable|env var)"
    rf"|KeyError: '{_VARIABLE}'"
)
_OLD_SDK = re.compile(
    r"ImportError: cannot import name .* from 'mcp|No module named 'mcp\.|"
    r"AttributeError: .*(?:mcp|'Server' object|FastMCP)"
)


def missing_command_hint(command: str) -> str:
    """Return how to install a command that does not exist; empty for unknown ones."""
    program = PurePath(command).name
    hint = _INSTALL.get(_PROGRAMS.get(program, program), "")
    if not hint and " " in command:
        hint = "arguments belong into args, one by one"
    return f" ({hint})" if hint else ""


def exit_hint(stderr: str, env: Mapping[str, str], foreign_output: str) -> str:
    """Return a hint for a server that ended or did not answer; empty: unknown. ``env``: of its
    settings. ``foreign_output``: a line of its stdout that is not a message."""
    if _OLD_SDK.search(stderr):
        return " (an older server; try: uvx --with 'mcp<2' ...)"
    if "No module named 'mcp'" in stderr:
        return " (the mcp package is missing in the Python that runs it)"
    match = _MISSING_VARIABLE.search(stderr)
    name = next(filter(None, match.groups()), "") if match else ""
    if name and name not in env:
        # A server inherits few variables: that it is set here is not enough.
        return f' (add "env": {{"{name}": "${{{name}}}"}} to its settings)'
    if foreign_output:
        return f" (it writes to stdout, which is for MCP's messages alone: {foreign_output!r})"
    return ""
