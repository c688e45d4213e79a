"""The rules that a command line needs: one for each command and for each file it writes."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tools.config.named_files import is_interpreter
from tools.policy import shell_parser
from tools.policy.programs import NEUTRAL_PROGRAMS, Word, changes_shell, is_neutral, rule_words
from tools.policy.rules import OnceOnlyError, command_rule, write_requirements
from tools.policy.shell_parser import SAFE_VARIABLES, ShellCommand, is_local_name
from tools.types import Requirement

SHELLS = ("sh", "bash", "dash", "/bin/sh", "/bin/bash", "/usr/bin/bash")
MAX_SCRIPT_DEPTH = 5
"""Scripts within scripts: ``bash -c "bash -c …"``."""
_SCRIPT_OPTION = re.compile(r"-[ceuxl]*c\Z")
_BASH_ONLY = re.compile(r"\$['\"]|[+\]]=")
_SET_OPTION = re.compile(r"-[eux]+(?:o)?\Z")
_FLAG = re.compile(r"-[0rt]\Z")
_COUNT_FLAG = re.compile(r"-[nPL]\Z")
_DURATION = re.compile(r"\d+(?:\.\d+)?[smh]?\Z")


def display_line(words: Sequence[str]) -> str:
    """Return a command as a person types it: the script of ``bash -lc SCRIPT`` without its quotes."""
    match words:
        case [("bash" | "sh"), ("-lc" | "-c"), script] if script.strip():
            return script.strip("\n")
    return shlex.join(words)


def command_requirements(words: Sequence[str], folder: Path, root: Path) -> list[Requirement]:
    """Return the needs of a command in ``folder`` (real, like ``root``). Raises OnceOnlyError."""
    script = shell_parser.ParsedScript()
    _collect(ShellCommand(tuple(map(Word, words))), script, 0)
    moves = any(command.words and command.words[0].value == "cd" for command in script.commands)
    commands = [c for c in script.commands if not _is_local_variable(c)]
    wanted = [c for c in commands if not c.words or c.variables or not is_neutral(c.words)]
    writes = [_target(target, folder, moves) for target in script.written]
    if not writes:
        wanted = wanted or commands
    elsewhere = moves or folder != root
    requirements = [Requirement(_rule(command, folder, moves, elsewhere)) for command in wanted]
    requirements += write_requirements(writes, root)
    if not requirements:
        raise OnceOnlyError("it runs nothing")
    return list(dict.fromkeys(requirements))


def _collect(command: ShellCommand, script: shell_parser.ParsedScript, depth: int) -> None:
    """Add a command to the script, or what is in it if it only starts others."""
    if depth > MAX_SCRIPT_DEPTH:
        raise OnceOnlyError("it is nested too deeply")
    if not command.words:
        script.commands.append(command)
        return
    inner = _unwrapped(command)
    if inner is not None:
        _collect(inner, script, depth + 1)
        return
    values = [word.value for word in command.words]
    match values:
        case [str(shell), str(flag), str(text)] if shell in SHELLS and _SCRIPT_OPTION.match(flag):
            for name, _ in command.variables:
                if name not in SAFE_VARIABLES:
                    raise OnceOnlyError(f"it sets {name} for a whole script")
            if "bash" not in shell and (found := _BASH_ONLY.search(text)):
                raise OnceOnlyError(f"sh reads {found[0]} in another way than bash")
            parsed = shell_parser.parse_script(text, fed=command.fed)
            script.written += parsed.written
            for part in parsed.commands:
                _collect(part, script, depth + 1)
        case ["set", *options] if options and all(
            o is not None and (_SET_OPTION.match(o) or o in ("pipefail", "errexit", "nounset"))
            for o in options
        ):
            pass  # how the script ends after a failure
        case _ if changes_shell(command.words):
            raise OnceOnlyError(f"{values[0]} may change what the commands after it mean")
        case _:
            script.commands.append(command)


def _unwrapped(command: ShellCommand) -> ShellCommand | None:
    """Return the command that another one starts; None if it starts none, or not in a known form."""
    words = command.words
    match [word.value for word in words]:
        case ["env", *rest]:
            names: list[tuple[str, str | None]] = []
            for value in rest:
                if value is None or not re.match(r"[A-Za-z_]\w*=", value):
                    break
                name, _, text = value.partition("=")
                names.append((name, text))
            inner = words[1 + len(names) :]
            if inner and not (inner[0].value or "-").startswith("-"):
                return replace(command, words=inner, variables=(*command.variables, *names))
        case ["timeout", str(time), str(program), *_] if _DURATION.match(
            time
        ) and not program.startswith("-"):
            return replace(command, words=words[2:])
        case ["nice", "-n", str(level), str(program), *_] if level.lstrip(
            "-"
        ).isdigit() and not program.startswith("-"):
            return replace(command, words=words[3:])
        case ["nice" | "nohup" | "command" | "time", str(name), *_] if not name.startswith("-"):
            return replace(command, words=words[1:])
        case ["xargs", *rest]:
            at = 0
            while at < len(rest) and (flag := rest[at]) is not None and flag.startswith("-"):
                count = at + 1 < len(rest) and (rest[at + 1] or "x").isdigit()
                if not _FLAG.match(flag) and not (_COUNT_FLAG.match(flag) and count):
                    return None
                at += 1 if _FLAG.match(flag) else 2
            if at < len(rest) and rest[at] is not None:
                # Its input becomes arguments, options among them.
                return replace(command, words=(*words[1 + at :], Word(None, maybe_option=True)))
    return None


def _rule(command: ShellCommand, folder: Path, moves: bool, elsewhere: bool) -> str:
    variables = [(n, v) for n, v in command.variables if n not in SAFE_VARIABLES]
    if not command.words:
        raise OnceOnlyError(f"it sets {variables[0][0]} for the commands after it")
    program = command.words[0].value or ""
    if variables and program in NEUTRAL_PROGRAMS:
        raise OnceOnlyError(f"it sets {variables[0][0]} for a part of the shell")
    if "/" in program:
        if moves and not program.startswith("/"):
            raise OnceOnlyError(f"which {program} it runs depends on its folder")
        program = str(_resolved(program, folder))
    elif not variables and (begin := rule_words(command.words)):
        return command_rule(begin, prefix=True)
    if command.fed:
        raise OnceOnlyError(f"what {program} does with its input is not known beforehand")
    arguments = [word.value for word in command.words[1:]]
    settings = [None if v is None else f"{n}={v}" for n, v in variables]
    words = [*settings, program, *arguments]
    known = [word for word in words if word is not None]
    operand = next((word for word in arguments if word and not word.startswith("-")), "")
    if elsewhere and is_interpreter(program) and not operand.startswith("/"):
        raise OnceOnlyError(f"which script {program} runs depends on its folder")
    if len(known) < len(words):
        raise OnceOnlyError(f"the arguments of {program} are known only once it runs")
    return command_rule(known, prefix=False)


def _is_local_variable(command: ShellCommand) -> bool:
    names = (name for name, _ in command.variables)
    return not command.words and all(is_local_name(n) or n in SAFE_VARIABLES for n in names)


def _target(target: str, folder: Path, moves: bool) -> Path:
    if moves and not target.startswith("/"):
        raise OnceOnlyError(f"which {shlex.quote(target)} it writes depends on its folder")
    return _resolved(target, folder)


def _resolved(path: str, folder: Path) -> Path:
    try:
        return (folder / path).resolve()
    except (OSError, ValueError, RuntimeError):  # a loop of links, a NUL
        raise OnceOnlyError(f"{shlex.quote(path)} is not a path") from None
