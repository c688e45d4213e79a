"""A person with the command line, as the suite's client: follows what the program says, no more.

The suite runs this module for each scenario; the last argument is the URL of the scenario's server,
which is in a configuration of its own. Each tool is called once. Wherever the program names a command
that logs in, that command is run, and what failed is tried again.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SECONDS = 100
"""Timeout of each command."""
MAX_LOGINS = 4
"""How often the person follows a command that logs in before they give up."""
ARGUMENTS = {"add_numbers": {"a": 5, "b": 3}}
"""Of a tool that needs some, for which the suite names none."""
LOGIN = re.compile(r'agent (mcp login [^\n;`"]*)')


class Person:
    """Runs commands of the program in folders of its own."""

    def __init__(self, home: Path) -> None:
        browser = f"{sys.executable} -m tests.conformance.browser %s"
        self._env = dict(os.environ, AGENT_HOME=str(home), BROWSER=browser)

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run a command with nobody at its stdin; it goes to stderr, and what came of it."""
        done = subprocess.run(
            [sys.executable, "-m", "agent", *args],
            env=self._env,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=SECONDS,
        )
        print(f"$ agent {shlex.join(args)}: exit code {done.returncode}", file=sys.stderr)
        print(done.stdout[-2000:] + done.stderr[-2000:], file=sys.stderr, flush=True)
        return done

    def persist(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run a command again after each login that it asked for and that succeeded."""
        done = self.run(*args)
        for _ in range(MAX_LOGINS):
            wanted = LOGIN.search(done.stdout + done.stderr)
            if not wanted or self.run(*shlex.split(wanted[1].strip().rstrip("."))).returncode:
                break
            done = self.run(*args)
        return done


def entry(url: str, scenario: str, context: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the scenario's server: what a person would have to know beforehand."""
    if "pre-registration" in scenario:
        oauth = {key: context[key] for key in ("client_id", "client_secret")}
        return {"url": url, "oauth": oauth}
    if "cimd" in scenario:
        address = "https://conformance-test.local/client-metadata.json"
        return {"url": url, "oauth": {"client_metadata_url": address}}
    return {"url": url}


def main(url: str, scenario: str, context: dict[str, Any]) -> int:
    """Inspect the server and call its tools; returns the exit code of the last command."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        config = Path(folder, "config", "mcp.json")
        config.parent.mkdir()
        config.write_text(json.dumps({"mcpServers": {"s": entry(url, scenario, context)}}))
        person = Person(Path(folder))
        done = person.persist("mcp", "inspect", "s", "--json")
        server = json.loads(done.stdout or "{}")
        if "ref-no-deref" in scenario:
            return done.returncode
        calls = context.get("toolCalls") or [
            {"name": tool["name"], "arguments": arguments(tool["name"], server)}
            for tool in server.get("tools", [])
        ]
        answer = ("--answer", "{}") if "elicitation" in scenario else ()
        for call in calls:
            words = json.dumps(call["arguments"])
            done = person.persist("mcp", "call", "s", call["name"], words, *answer)
    return done.returncode


def arguments(name: str, server: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call, of what `agent mcp inspect --json` says of the server."""
    if name == "read_resource" and server["resources"]:
        return {"uri": server["resources"][0]["uri"]}
    if name == "json_schema_echo":  # it takes a schema as it was listed
        schemas = {tool["name"]: tool["inputSchema"] for tool in server["tools"]}
        return {"schema": schemas["json_schema_2020_12_tool"]}
    return ARGUMENTS.get(name, {})


if __name__ == "__main__":
    sys.exit(
        main(
            sys.argv[-1],
            os.environ.get("MCP_CONFORMANCE_SCENARIO", ""),
            json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}"),
        )
    )
