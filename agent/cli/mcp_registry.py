"""Performs `agent mcp search` and `agent mcp add --from`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence

from agent.cli.mcp_json import print_json
from agent.cli.trust import agrees
from agent.config.paths import user_paths
from agent.errors import user_errors
from agent.util.process import EXIT_DONE
from agent.util.sanitize import echo
from tools.config import edit, registry
from tools.config.servers import ConfigError

MAX_LIMIT = 100
"""Servers that `agent mcp search` lists at most."""


def search(words: Sequence[str], address: str, limit: int, *, as_json: bool) -> None:
    """Print the servers of the registry that have all words. Raises UserError."""
    with user_errors(ConfigError, ending="."):
        matches = registry.search(address, words, limit)
    servers = matches.servers
    for server in () if as_json else servers:
        status = "" if server.status == "active" else f"  ({server.status})"
        echo(f"{server.name}  {server.version}{status}\n  {server.description}")
    if as_json:
        print_json([server.data for server in servers])
    elif servers:
        echo(f"\nAdd one: agent mcp add NAME --from {servers[0].name}")
    elif matches.more:
        echo(f"No server for {' '.join(words)!r} is among those that were read.")
    else:
        echo(f"The registry has no server for {' '.join(words)!r}.")
    if matches.more:
        by_limit = f", or list up to {MAX_LIMIT} with --limit" if limit < MAX_LIMIT else ""
        echo(f"There may be more: add a word of the name{by_limit}.", file=sys.stderr)


def add(
    name: str,
    server_id: str,
    address: str,
    *,
    remote: bool,
    settings: dict[str, dict[str, str]],
    force: bool,
    yes: bool,
) -> int:
    """Add a server of the registry, once the person has seen what it runs; ``settings`` replace its env
    and headers. Raises UserError."""
    path = user_paths().mcp_json
    identifier, _, version = server_id.partition("@")
    with user_errors(ConfigError, ending="."):
        if not force and name in edit.server_names(path):
            raise ConfigError(f"{path} has a server {name!r} already; --force replaces it")
        server = registry.fetch(address, identifier, version or "latest")
        installation = registry.installation(server, remote=remote)
        entry = installation.entry
        for table, values in settings.items():
            if values:
                entry[table] = entry.get(table, {}) | values
        _print_installation(server, installation)
        if not yes and not agrees(f"Add it to {path} as {name}?"):
            echo("Nothing was changed.")
            return EXIT_DONE
        edit.add(path, {name: entry}, replace=force)
    echo(f"{name} is in {path}; agent mcp inspect {shlex.quote(name)} shows what it offers.")
    return EXIT_DONE


def _print_installation(
    server: registry.RegistryServer, installation: registry.Installation
) -> None:
    entry = installation.entry
    echo(f"{server.name}  {server.version}  {server.description}")
    if server.status != "active":
        echo(f"  The registry lists it as {server.status}.")
    if "url" in entry:
        echo(f"  connects to  {entry['url']}")
    else:
        echo(f"  runs  {shlex.join([entry['command'], *entry['args']])}")
    for table in ("env", "headers"):
        for key, value in entry.get(table, {}).items():
            echo(f"  {table}  {key}={json.dumps(value, ensure_ascii=False)}")
    text = json.dumps(entry)
    for variable, purpose in installation.variables.items():
        if f"${{{variable}}}" in text:
            echo(f"  set {variable} before it starts{f': {purpose}' if purpose else ''}")
