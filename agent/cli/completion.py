"""Completes words of the command line in bash, zsh and fish for typer. Imports are late, and whatever
fails means no proposal: the shell would print it in the middle of a line."""

import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import wraps
from pathlib import Path

from agent.config.paths import user_paths
from agent.config.settings import DEFAULTS
from agent.store.lookup import recent_titles, short_id
from agent.util.sanitize import sanitize

COMPLETION_VARIABLE = "_AGENT_COMPLETE"
"""Set by the shell's completion function when it asks this program."""
WORDS_VARIABLES = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
"""The command line so far, in bash and in the other shells."""
BUILT_IN = ("python", "files", "browser", "shell")

Proposals = list[tuple[str, str]]
"""Words, each with a description that a shell may show."""


def _completer(find: Callable[[], Iterable[tuple[str, str]]]) -> Callable[[str], Proposals]:
    @wraps(find)
    def complete(incomplete: str) -> Proposals:
        with suppress(Exception):
            return [pair for pair in find() if pair[0].startswith(incomplete)]
        return []

    # typer reads the parameters off the signature.
    del complete.__wrapped__
    return complete


@_completer
def complete_model() -> Iterable[tuple[str, str]]:
    from agent.models.listing import list_models

    for row in list_models(user_paths()):
        yield row.name, _as_help(row.state)


@_completer
def complete_client() -> Iterable[tuple[str, str]]:
    from agent.cli.launch import profiles

    for name, profile in profiles().items():
        yield name, profile.title


@_completer
def complete_session() -> Iterable[tuple[str, str]]:
    for name, title in recent_titles(user_paths().store):
        yield short_id(name), _as_help(title)


@_completer
def complete_server() -> Iterable[tuple[str, str]]:
    for name in _servers():
        yield name, "MCP server"


@_completer
def complete_approval() -> Iterable[tuple[str, str]]:
    from tools.policy.approval_store import ApprovalStore

    for approval in ApprovalStore(user_paths().approvals, Path.cwd().resolve()).approvals():
        yield approval.id, _as_help(approval.title)


@_completer
def complete_setting() -> Iterable[tuple[str, str]]:
    for name, default in DEFAULTS.items():
        yield name, _as_help(f"default: {default}")


def complete_tools(incomplete: str) -> Proposals:
    before, comma, name = incomplete.rpartition(",")
    names = [*BUILT_IN, *_servers()] if comma else ["all", "none", *BUILT_IN, *_servers()]
    taken = before.split(",")
    return [(before + comma + n, "") for n in names if n.startswith(name) and n not in taken]


def complete_approve(incomplete: str) -> Proposals:
    return [pair for pair in complete_tools(incomplete) if pair[0] != "none"]


def name_app_command(environment: dict[str, str] | os._Environ[str], own: Iterable[str]) -> None:
    """Complete ``agent --mod`` as ``agent chat --mod``. ``own``: options of the program itself."""
    for variable in WORDS_VARIABLES:
        line = re.match(r"(\S+)(\s+)((-\S*).*)", environment.get(variable, ""), re.DOTALL)
        if line is None:
            continue
        program, blank, rest, first = line.groups()
        if first not in ("-", "--") and any(option.startswith(first) for option in own):
            continue
        environment[variable] = f"{program}{blank}chat{blank}{rest}"
        if "COMP_CWORD" in environment:
            environment["COMP_CWORD"] = str(int(environment["COMP_CWORD"]) + 1)


def _servers() -> list[str]:
    from tools.config.edit import server_names
    from tools.run_later import PROJECT_FILES

    names: set[str] = set()
    for path in (user_paths().mcp_json, *map(Path, PROJECT_FILES)):
        with suppress(Exception):  # a file with a mistake in it hides no other
            names |= server_names(path)
    return sorted(names)


def _as_help(text: str) -> str:
    """One line without control characters; typer would read brackets as rich's markup."""
    return sanitize(text).replace("\n", " ").replace("[", "\\[")
