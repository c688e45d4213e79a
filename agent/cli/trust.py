"""Asking whether the servers that a folder brings along may be started, before the app is."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.util.sanitize import say

if TYPE_CHECKING:
    from agent.cli.shared import Shared

MAX_SHOWN = 4000
"""Characters; of more, a person would see only the end."""


def asked(shared: Shared) -> Shared:
    """The options, with the person's answer in them; asks only where there is something to ask."""
    from tools.config.project_files import FILES

    root = shared.root.expanduser()
    if shared.trust_project or shared.tools == "none":
        return shared
    if not any((root / name).is_file() for name in FILES):
        return shared
    from agent.config.settings import places
    from tools.config.project import find
    from tools.policy.approval_store import Memory

    project = find(root.resolve())
    if project is None or not project.digest:
        return shared
    if project.trusted(Memory(places().approvals, root.resolve())) or not project.possible:
        return shared
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return shared
    commands = project.commands()
    if sum(map(len, commands)) > MAX_SHOWN:
        say(
            f"{project.path} says more of its MCP servers than could be read here, so they are not "
            "started; read it, and start them with --trust-project.",
            file=sys.stderr,
        )
        return shared
    say(f"{project.path} wants to start these MCP servers on this machine:", file=sys.stderr)
    for command in commands:
        say(f"  {command}", file=sys.stderr)
    print(
        "Start them, now and later, as long as they stay the same? [y/N] ", end="", file=sys.stderr
    )
    sys.stderr.flush()
    answer = sys.stdin.readline().strip().lower()
    # What is there when they are started may be something else.
    return replace(shared, trust_project=project.digest if answer in ("y", "yes") else False)
