"""Asks whether the MCP servers of a project's .mcp.json may be started, before the app opens."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.util.sanitize import echo

if TYPE_CHECKING:
    from agent.config.launch import LaunchOptions

MAX_COMMAND_CHARACTERS = 4000
"""Longest command lines that are shown; of more, a person would see only the end."""


def confirm_project_servers(launch: LaunchOptions) -> LaunchOptions:
    """Ask for the project's unapproved servers, and return the options with the answer in them.

    It asks only on a terminal, and only where a server would be started.
    """
    from tools.config.project_files import PROJECT_FILES

    root = launch.root
    if launch.trust_project or launch.tools == "none":
        return launch
    if not any((root / name).is_file() for name in PROJECT_FILES):
        return launch
    from agent.config.paths import user_paths
    from tools.config.project import find_project
    from tools.policy.approval_store import ApprovalStore

    project = find_project(root.resolve())
    if project is None or not project.digest:
        return launch
    if (
        project.is_trusted(ApprovalStore(user_paths().approvals, root.resolve()))
        or not project.startable
    ):
        return launch
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return launch
    commands = project.command_lines()
    if sum(map(len, commands)) > MAX_COMMAND_CHARACTERS:
        echo(
            f"{project.path} says more of its MCP servers than could be read here, so they are not "
            "started; read it, and start them with --trust-project.",
            file=sys.stderr,
        )
        return launch
    echo(f"{project.path} wants to start these MCP servers on this machine:", file=sys.stderr)
    for command in commands:
        echo(f"  {command}", file=sys.stderr)
    print(
        "Start them, now and later, as long as they stay the same? [y/N] ", end="", file=sys.stderr
    )
    sys.stderr.flush()
    answer = sys.stdin.readline().strip().lower()
    # The digest, not True: the file may be another one by the time they are started.
    return replace(launch, trust_project=project.digest if answer in ("y", "yes") else False)
