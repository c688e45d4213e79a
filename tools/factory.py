"""From the options of a command to the host and the policy that they mean."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tools.builtin.base import HandError
from tools.builtin.browser.server import Browser
from tools.builtin.browser.settings import BrowserSettings
from tools.builtin.files.server import Files
from tools.builtin.python.server import Python
from tools.builtin.shell.server import Shell
from tools.config.project import admitted, find
from tools.config.servers import ServerConfig, merge, parse_server, read_file, read_servers
from tools.mcp.host import Host
from tools.policy.approval_store import Memory
from tools.policy.approvals import Policy
from tools.policy.audit import Audit
from tools.selection import left_out, select
from tools.types import Tool, ToolResult


@dataclass(frozen=True, slots=True)
class Toolbox:
    """What a turn needs to call tools."""

    host: Host
    policy: Policy


def assemble(
    *,
    tools: str = "all",
    mcp_config: Sequence[Path] = (),
    mcp: Sequence[str] = (),
    approve: str = "",
    root: Path | None = None,
    allow_unsandboxed: bool = False,
    browser: BrowserSettings | None = None,
    limit: int = 32_000,
    results: Path | None = None,
    work: Path | None = None,
    user: Path | None = None,
    approvals: Path | None = None,
    calls: Path | None = None,
    tokens: Path | None = None,
    trust_project: bool | str = False,
) -> Toolbox:
    """``--tools --mcp-config --mcp --approve --root --trust-project``, as given. Starts nothing.

    ``work``: where the hands keep their folders (None: temporary ones). ``user``: the person's own
    mcp.json, if it is there. ``approvals``, ``calls``, ``tokens``: the files of what was allowed for
    good, of every decision, and of logins (None: not kept).

    A server of the operator's takes the place of a hand of the same name; one of the folder's does
    of nothing. Raises ConfigError.
    """
    folder = (root or Path.cwd()).resolve()
    memory = Memory(approvals, folder)
    files = Files(root, work=work and work / "changes")
    browsing = Browser(browser, work=work and work / "pages")
    hands = (
        Python(allow_unsandboxed=allow_unsandboxed, work=work and work / "python"),
        files,
        Shell(root, files=files),
        browsing,
    )
    own = read_file(user) if user and user.exists() and tools != "none" else None
    servers = merge(
        [ServerConfig(hand.name, hand=hand) for hand in hands],
        own.servers if own else [],
        # Naming a file on the command line trusts its servers, as naming a command there does.
        *([replace(one, trusted=True) for one in read_servers(path)] for path in mcp_config),
        [parse_server(option) for option in mcp],
    )
    if user is not None and tools != "none":
        taken = {one.name for one in servers} | {hand.short for hand in hands}
        brought = admitted(find(folder), memory, trust=trust_project)
        servers += [one for one in brought if one.name not in taken]
    chosen = select(tools, servers)
    host = Host(chosen, limit=limit, results=results, roots=[folder], tokens=tokens)
    host.left_out = left_out(servers, chosen)
    policy = Policy.parse(
        approve,
        servers,
        settings=own.approve if own else {},
        memory=memory,
        audit=Audit(calls),
    )
    browsing.search_with(host.tool, partial(_search, Toolbox(host, policy)))
    return Toolbox(host, policy)


async def _search(toolbox: Toolbox, tool: Tool, arguments: dict[str, Any]) -> ToolResult:
    """With the tool that the person named to search with: that answers what the rules would ask,
    but not for a folder's server, and never what they deny. Raises HandError."""
    host, policy = toolbox.host, toolbox.policy
    config = host.config(tool.server)
    decision = policy.decide(tool, config).decision if config else "deny"
    said = json.dumps(arguments, ensure_ascii=False)
    if config is None or decision == "deny" or (decision == "ask" and config.project):
        policy.note(tool, said, "refused", "policy", why="searching with it is not allowed")
        raise HandError(f"Error: searching with {tool.server}.{tool.name} is not allowed")
    policy.note(tool, said, "allowed", "policy", why="it is named to search with")
    return await host.call(tool, arguments)
