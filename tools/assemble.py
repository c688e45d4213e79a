"""From the options of a command to the host and the policy that they mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tools.approvals import Policy
from tools.config import ServerConfig, merge, parse_server, read_servers
from tools.files import Files
from tools.host import Host
from tools.python import Python
from tools.selection import select
from tools.shell import Shell


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
    limit: int = 32_000,
    results: Path | None = None,
    work: Path | None = None,
) -> Toolbox:
    """``--tools --mcp-config --mcp --approve --root``, as given. Starts nothing.

    ``work``: where the hands keep their folders (None: temporary ones). A server of the operator's
    takes the place of a hand of the same name. Raises ConfigError.
    """
    hands = (
        Python(allow_unsandboxed=allow_unsandboxed, work=work and work / "python"),
        Files(root),
        Shell(root),
    )
    servers = merge(
        [ServerConfig(hand.name, hand=hand) for hand in hands],
        # Naming a file on the command line trusts its servers, as naming a command there does.
        *([replace(one, trusted=True) for one in read_servers(path)] for path in mcp_config),
        [parse_server(option) for option in mcp],
    )
    host = Host(select(tools, servers), limit=limit, results=results)
    return Toolbox(host, Policy.parse(approve, servers))
