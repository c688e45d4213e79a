"""Rules: what a person allows of a tool whose calls can do very different things.

A rule is one line of text, stored as it is displayed::

    run git status …            commands that begin so, without options that run or write something else
    run make test               exactly this command
    type to python3 -i          texts for this command while it runs in the background
    write /home/me/project/src/…  files in this folder and below
    open example.org            pages of this host, whatever was read before
    reach example.org by make …   connections of these commands to this host, likewise
    reach example.org           connections of all commands to this host, likewise

A call has requirements, and runs without a question once rules meet all of them. No pattern is
ever matched: each requirement names the rules that meet it, so only a line that a person read
counts.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from agent.errors import AgentError
from tools.types import Requirement

ELLIPSIS = "…"
"""Ends a rule that covers more than one command or file; a word of a command is quoted instead."""

MAX_RULES_CHARS = 400
"""Characters of the rules that one answer gives: a question shows them all."""
_HIDDEN = re.compile(
    "[^\\n\\t -~\u00a1-\ud7ff\ue000-\U0010ffff]|[\u00ad\u061c\u115f\u1160\u1680\u180e\u2000-\u200f"
    "\u2028-\u202f\u205f-\u206f\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]"
)


class OnceOnlyError(AgentError):
    """No rule can cover the call; the message says why, as the end of a sentence."""


def command_rule(words: Sequence[str], *, prefix: bool) -> str:
    """The rule for one command, or for all that begin so. Raises OnceOnlyError: it is not readable."""
    rule = f"run {shlex.join(words)}{f' {ELLIPSIS}' if prefix else ''}"
    check_characters(rule)
    if "\n" in rule:
        raise OnceOnlyError("it has several lines")
    return rule


def check_characters(text: str) -> None:
    """Refuse characters that are not seen, or that programs take differently. Raises OnceOnlyError."""
    if match := _HIDDEN.search(text):
        raise OnceOnlyError(f"it has the character {match[0]!a}")


def reach_requirements(host: str, commands: Iterable[str]) -> tuple[Requirement, ...]:
    """Return what commands (rules ``run …``) need to reach a host; none: one that no rule covers."""
    parents = len(host.split(".")[1:-1]) if host[0] != "*" else 0
    wide = [f"reach {host}", *(f"reach *.{host.split('.', n + 1)[-1]}" for n in range(parents))]
    by = [f"{wide[0]} by {command.removeprefix('run ')}" for command in commands]
    if not by:
        return (Requirement(wide[0], tuple(wide[1:])),)
    return tuple(Requirement(rule, tuple(wide)) for rule in by)


def write_requirements(paths: Iterable[Path], root: Path) -> list[Requirement]:
    """Return what changing these files (real paths) needs; raises OnceOnlyError."""
    requirements = []
    for folder in dict.fromkeys(path.parent for path in paths):
        if not folder.is_relative_to(root):
            raise OnceOnlyError(f"it writes outside of {root}")
        if ".git" in map(str.casefold, folder.relative_to(root).parts):
            raise OnceOnlyError("it writes files of git itself")
        parents = [p for p in (folder, *folder.parents) if p.is_relative_to(root)]
        rule, *broader = (f"write {parent.as_posix().rstrip('/')}/{ELLIPSIS}" for parent in parents)
        requirements.append(Requirement(rule, tuple(broader)))
    return requirements


def explain_rule(rule: str) -> str:
    verb, _, scope = rule.partition(" ")
    many = scope.endswith(ELLIPSIS)
    match verb:
        case "run" if many:
            return "commands that begin so, without options that run or write something else"
        case "run":
            return "exactly this command"
        case "type":
            return "texts for this command while it runs in the background"
        case "write":
            return "changes of files in this folder and below"
        case "open":
            return "pages of this host, also after something private was read"
        case "reach" if scope == "loopback":
            return "commands open ports of their own sandbox"
        case "reach":
            commands = "these commands connect" if " by " in scope else "commands connect"
            return f"{commands} to this host, also after something private was read"
    return "a rule of another version; it allows nothing here"
