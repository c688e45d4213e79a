"""Asking whether the servers that a folder brings along may be started, before the app is."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.shared import Shared


def asked(shared: Shared) -> Shared:
    """The options, with the person's answer in them; asks only where there is something to ask."""
    from tools.project import FILES  # light; what reads the file comes where there is one

    root = shared.root.expanduser()
    if shared.trust_project or shared.tools == "none":
        return shared
    if not any((root / name).is_file() for name in FILES):
        return shared
    from agent.config import places
    from tools.memory import Memory
    from tools.project import find

    project = find(root.resolve())
    if project is None or not project.digest:
        return shared
    if project.trusted(Memory(places().approvals, root.resolve())) or not project.commands():
        return shared
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return shared
    print(f"{project.path} wants to start these MCP servers on this machine:", file=sys.stderr)
    for command in project.commands():
        print(f"  {command}", file=sys.stderr)
    print(
        "Start them, now and later, as long as they stay the same? [y/N] ", end="", file=sys.stderr
    )
    sys.stderr.flush()
    answer = sys.stdin.readline().strip().lower()
    return replace(shared, trust_project=answer in ("y", "yes"))
