"""Describes what the model can do right now through its tools, in sentences for a person."""

from collections.abc import Iterable, Sequence

from tools.config.servers import ServerConfig
from tools.mcp.host import Host
from tools.policy.approvals import Policy
from tools.types import MODES, Access, Decision, Mode, Tool

DECISION_HEADINGS: dict[Decision, str] = {
    "allow": "Runs without asking",
    "ask": "Asks first",
    "deny": "Is denied",
}


def safety_report(host: Host, policy: Policy, mode: Mode = "ask") -> dict[str, list[str]]:
    """Return the lines of each heading; blocks while isolations are tried out the first time."""
    by_server: dict[str, list[Tool]] = {}
    for tool in host.tools():
        by_server.setdefault(tool.server, []).append(tool)
    configs = [(c, by_server[name]) for name in by_server if (c := host.server_config(name))]
    accesses = [_access(config, tools) for config, tools in configs]
    decisions: dict[Decision, list[str]] = {}
    for config, tools in configs:
        for tool in tools:
            decision = policy.decide(tool, config, mode=mode).decision
            decisions.setdefault(decision, []).append(_label(config, tool))
    rules = sorted(policy.granted_rules())
    hosts = [rule.removeprefix("reach ") for rule in rules if rule.startswith("reach ")]
    by_rule = [f"{host}, by your rule" for host in hosts if "shell" in by_server]
    report = {
        "Mode": [f"{mode}: {MODES[mode]}"],
        "Can read": _lines(access.read for access in accesses),
        "Can change": _lines(access.change for access in accesses),
        "Can run": _lines(access.run for access in accesses),
        "Can reach": _lines([*(access.reach for access in accesses), *by_rule]),
    }
    if running := [line for access in accesses for line in access.running]:
        report["Runs in the background"] = running
    if reached := [line for access in accesses for line in access.reached]:
        report["Reached so far"] = reached
    for decision, heading in DECISION_HEADINGS.items():
        if tools_of := decisions.get(decision):
            report[heading] = [", ".join(tools_of)]
    if rules:
        report["Allowed by your rules"] = rules
    return report


def _lines(phrases: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(filter(None, phrases))) or ["nothing"]


def _label(config: ServerConfig, tool: Tool) -> str:
    """Return the name of a tool as options spell it; a server's only tool has the server's name."""
    server = config.builtin.alias if config.builtin else config.name
    alone = config.builtin is not None and len(config.builtin.tools) == 1
    return server if alone else f"{server}.{tool.name}"


def _access(config: ServerConfig, tools: Sequence[Tool]) -> Access:
    """Return what a server can do; unknown for servers other than ours."""
    if config.builtin is not None:
        return config.builtin.access({tool.name for tool in tools})
    if config.url is not None:
        return Access(reach=f"{config.name}, a server at {config.command_line or config.url}")
    if (sandbox := config.sandbox) is not None:
        return Access(
            read=f"what the settings of {config.name} name, by that server",
            change=f"{', '.join(sandbox.write)}, by {config.name}" if sandbox.write else "",
            run=f"{config.name}, a server in a sandbox",
            reach=f"{sandbox.reach}, by {config.name}" if sandbox.reach else "",
        )
    everything = f"everything that you can: {config.name} is a program that runs with your rights"
    return Access(everything, everything, everything, everything)
