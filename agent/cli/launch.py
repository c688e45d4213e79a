"""`agent launch`: runs a coding agent on a server of its own; `clients.toml` configures each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import termios
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from agent.config.launch import LaunchOptions
from agent.errors import UserError, user_errors
from agent.server.http.options import DEFAULT_HOST, DEFAULT_PORT, ServerOptions
from agent.util import private_files, process, programs
from agent.util.sanitize import echo
from agent.util.temporary_folders import make_temporary_folder

if TYPE_CHECKING:
    from agent.runtime.runtime import Runtime

CLIENTS_FILE = Path(__file__).with_name("clients.toml")
TIMEOUT_MS = 3_600_000
"""Timeout of clients: a long prompt on a CPU takes longer than they usually wait."""
CLAUDE_CODE_WINDOW = 100_000
"""The smallest window that Claude Code takes; a percentage of it stands for a smaller context."""
NUMBERS = ("context", "prompt", "output", "ms", "window", "percent")
SMALL_CONTEXT = 24_000
"""Tokens; the first prompt of coding agents has 7,000 to 20,000."""
KILL_SECONDS = 5.0
"""Time that a client has to end after a termination signal."""
_LIKE = "gpt-5.5"
"""The model of Codex's catalog whose tools the local one gets."""
_LEAVE_SCREEN = "\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[<u\x1b[?25h"
"""Ends the alternate screen, the mouse, pastes and keys that a killed client has left on."""


@dataclass(frozen=True, slots=True)
class ClientProfile:
    """A table of clients.toml, which explains the fields."""

    title: str
    install: str
    api: str
    environment: Mapping[str, Any]
    arguments: list[str] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    files: Mapping[str, Any] = field(default_factory=dict)
    wrap: list[str] = field(default_factory=lambda: ["", ""])
    path: str = ""
    use: str = ""
    saved: Mapping[str, Any] = field(default_factory=dict)


@cache
def profiles() -> dict[str, ClientProfile]:
    """The clients by the names of their programs."""
    tables = tomllib.loads(CLIENTS_FILE.read_text("utf-8"))
    return {name: ClientProfile(**table) for name, table in tables.items()}


def fields_of(
    root: str, key: str, model: str, context: int | None, folder: object
) -> dict[str, Any]:
    """The values of the texts' names. ``context``: tokens; None: not known yet."""
    numbers: dict[str, Any] = {"context": context, "ms": TIMEOUT_MS}
    if context is not None:
        output = context // 4
        numbers |= {"output": output, "prompt": context - output}
        numbers["window"] = max(CLAUDE_CODE_WINDOW, context)
        numbers["percent"] = 80 * context // numbers["window"]
    fields: dict[str, Any] = {name: numbers.get(name) or f"<{name}>" for name in NUMBERS}
    fields |= {f"{name}_text": str(number) for name, number in fields.items()}
    texts = {"url": f"{root}/v1", "root": root, "key": key, "model": model, "folder": folder}
    return fields | texts


def filled(value: Any, fields: Mapping[str, Any]) -> Any:
    """Put the fields into the texts of a value; a text that is only a number's name becomes it."""
    match value:
        case str() if value[1:-1] in NUMBERS and value == f"{{{value[1:-1]}}}":
            return fields[value[1:-1]]
        case str():
            return value.format_map(fields)
        case dict():
            return {filled(key, fields): filled(each, fields) for key, each in value.items()}
        case list():
            return [filled(each, fields) for each in value]
        case _:
            return value


def as_text(value: Any) -> str:
    """A filled value as a variable or a file has it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class ClientCommand:
    """A client as it is started."""

    arguments: list[str]
    environment: dict[str, str]
    removed: list[str]
    """Variables that it must not see."""
    files: dict[Path, str]


def print_clients() -> None:
    """Print what each client would get, and how to install those that are missing."""
    for name, profile in profiles().items():
        installed = programs.find_program(name) is not None
        state = "installed" if installed else f"not installed: {profile.install}"
        echo(f"{name:<9} {profile.title}, {profile.api}; {state}")
        sets = [*profile.environment, *profile.arguments[::2], *profile.files]
        echo(f"{'':<9} sets {', '.join(dict.fromkeys(sets))}")


def main(
    client: str, arguments: list[str], launch: LaunchOptions, parallel: int | None, mode: str
) -> int:
    """Run a client and return its exit code. ``mode``: run, save or print. Raises UserError."""
    if (profile := profiles().get(client)) is None:
        raise UserError(f"No client {client!r} is known: {', '.join(profiles())}.")
    if mode == "print":
        model, folder = launch.model or "<model>", Path("<folder>")
        root = f"http://{DEFAULT_HOST}:<port>"
        fields = fields_of(root, "***", model, launch.context, folder)
        _print_command(_command(client, fields, arguments, folder))
        return process.EXIT_DONE
    program = programs.find_program(client)
    if program is None and mode == "run":
        raise UserError(f"{profile.title} is not installed: {profile.install}.")
    from agent import bootstrap

    runtime = bootstrap.create_runtime(launch, tools="none", parallel=parallel)
    return asyncio.run(_run(client, program, arguments, launch, runtime, mode))


async def _run(
    client: str,
    program: str | None,
    arguments: list[str],
    launch: LaunchOptions,
    runtime: Runtime,
    mode: str,
) -> int:
    from agent import bootstrap
    from agent.server.serve import base_url, listen, serve_in

    profile, key = profiles()[client], secrets.token_urlsafe(24)
    await runtime.start()
    serving: asyncio.Task[None] | None = None
    try:
        if sys.stderr.isatty():
            echo(f"Loading {runtime.model.name} …", file=sys.stderr)
        await runtime.ready()
        context = runtime.context_length
        if mode == "save":
            root = f"http://{DEFAULT_HOST}:{DEFAULT_PORT}"
            save(profile, fields_of(root, "none", runtime.model.name, context, ""))
            return process.EXIT_DONE
        if context < SMALL_CONTEXT:
            echo(
                f"agent: The context of {context:,} tokens is small for {profile.title}:"
                " --context raises it, where the model and the memory allow it.",
                file=sys.stderr,
            )
        # Its requests are not conversations of the person, and may have fields that are new.
        options = ServerOptions(port=0, api_keys=(key,), store=False, lenient=True)
        listener = listen(options.host, options.port, options.api_keys)
        defaults = bootstrap.turn_options(launch, runtime.model)
        serving = asyncio.create_task(serve_in(runtime, defaults, listener, options))
        root, folder = base_url(listener).removesuffix("/v1"), make_temporary_folder("launch-")
        fields = fields_of(root, key, runtime.model.name, context, folder)
        command = _command(client, fields, arguments, folder)
        assert program is not None
        if client == "codex":
            _add_catalog(program, command, fields, folder)
        for path, text in command.files.items():
            private_files.write_text(path, text)
        return await run_client(program, command)
    finally:
        if serving is not None:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
        await runtime.close()


def _command(
    client: str, fields: dict[str, Any], arguments: list[str], folder: Path
) -> ClientCommand:
    profile = profiles()[client]
    environment = {n: as_text(filled(v, fields)) for n, v in profile.environment.items()}
    local = f"{DEFAULT_HOST},localhost"
    for name in ("NO_PROXY", "no_proxy"):  # a proxy would get what is meant for this machine
        before = os.environ.get(name)
        environment[name] = f"{before},{local}" if before else local
    files = {
        folder / name: as_text(filled(value, fields)).join(profile.wrap)
        for name, value in profile.files.items()
    }
    words = [client, *filled(profile.arguments, fields), *arguments]
    return ClientCommand(words, environment, profile.remove, files)


def _add_catalog(
    program: str, command: ClientCommand, fields: dict[str, Any], folder: Path
) -> None:
    """Describe the model to Codex, which asks no server; without that it works, and warns."""
    try:
        known = [program, "debug", "models", "--bundled"]
        bundled = json.loads(subprocess.check_output(known, stderr=subprocess.DEVNULL))["models"]
        model = next(model for model in bundled if model["slug"] == _LIKE)
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, StopIteration):
        return
    model |= {"slug": fields["model"], "display_name": fields["model"]}
    model |= {"description": "Runs on this machine.", "input_modalities": ["text"]}
    model |= {"context_window": fields["context"], "max_context_window": fields["context"]}
    model |= {"supports_search_tool": False, "upgrade": None, "service_tiers": []}
    model |= {"additional_speed_tiers": []}
    catalog = folder / "models.json"
    command.files[catalog] = as_text({"models": [model]})
    command.arguments[1:1] = ["-c", f"model_catalog_json={json.dumps(str(catalog))}"]


def _print_command(command: ClientCommand) -> None:
    for name in command.removed:
        echo(f"unset {name}")
    for name, value in command.environment.items():
        echo(f"export {name}={shlex.quote(value)}")
    for path, text in command.files.items():
        echo(f"# {path}: {text}")
    echo(shlex.join(command.arguments))


async def run_client(program: str, command: ClientCommand) -> int:
    """Run a client in the foreground, while this process serves; its exit code, as a shell has it."""
    environment = {n: v for n, v in os.environ.items() if n not in command.removed}
    terminal = sys.stdin.fileno() if sys.stdin.isatty() else None
    modes = None if terminal is None else termios.tcgetattr(terminal)
    # By asyncio's own watcher a client that suspends itself would not be noticed.
    child = subprocess.Popen(  # noqa: ASYNC220
        [program, *command.arguments[1:]], env=environment | command.environment
    )
    kill: list[asyncio.TimerHandle] = []
    loop = asyncio.get_running_loop()

    def forward(number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT and terminal is not None:
            return  # the terminal sends it to the client too
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, number)
        if number != signal.SIGINT:
            kill.append(loop.call_later(KILL_SECONDS, child.kill))

    before = {n: signal.signal(n, forward) for n in process.termination_signals()}
    try:
        status = await asyncio.to_thread(_wait, child.pid)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for timer in kill:
            timer.cancel()
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode >= 0:
        return child.returncode
    if terminal is not None and modes is not None and not process.is_terminal_gone():
        termios.tcsetattr(terminal, termios.TCSADRAIN, modes)
        print(_LEAVE_SCREEN, end="", file=sys.stderr, flush=True)
    return 128 - child.returncode


def _wait(pid: int) -> int:
    """Wait for a process; while it is suspended, this one is too, and the shell has the terminal."""
    while os.WIFSTOPPED(status := os.waitpid(pid, os.WUNTRACED)[1]):
        os.kill(os.getpid(), signal.SIGSTOP)
    return status


def save(profile: ClientProfile, fields: dict[str, Any]) -> None:
    """Add a server at the default address to the client's own configuration. Raises UserError."""
    if not profile.path:
        raise UserError(f"{profile.title} has no file for this: its variables are its settings.")
    path = Path.home() / profile.path
    failure = f"{path} is not plain {path.suffix[1:].upper()}, so nothing was changed"
    with user_errors(ValueError, failure=failure):
        text = path.read_text("utf-8") if path.exists() else ""
        changed = _merged_text(text, filled(profile.saved, fields), toml=path.suffix == ".toml")
        private_files.make_folder(path.parent)
        backup = path.with_name(f"{path.name}.before-agent")
        if text and changed != text:
            private_files.write_text(backup, text)
        private_files.write_text(path, changed)
    before = f"; {backup} is as before" if text else ""
    echo(f"{path} has the server at {fields['root']} now{before}.")
    echo(f"Use it: agent serve --model {fields['model']}, then {profile.use.format_map(fields)}")


def _merged_text(text: str, values: dict[str, Any], *, toml: bool) -> str:
    """A configuration with these values, and all others as they were. Raises ValueError."""
    if not toml:
        document = json.loads(text) if text.strip() else {}
        merge(document, values)
        return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
    import tomlkit  # 30 ms

    tomllib.loads(text)
    parsed = tomlkit.parse(text)
    merge(parsed, values)
    return parsed.as_string()


def merge(document: Any, values: dict[str, Any]) -> None:
    """Put values into a document: in its tables by their keys, in its lists by ``id`` or ``name``.
    Raises ValueError where it has something else in their place."""
    for key, value in values.items():
        there = document.get(key)
        if there is None or not isinstance(value, (dict, list)):
            document[key] = value
        elif isinstance(value, dict) and isinstance(there, dict):
            merge(there, value)
        elif isinstance(value, list) and isinstance(there, list):
            for each in value:
                mark = "id" if "id" in each else "name"
                known = [i for i, other in enumerate(there) if other.get(mark) == each[mark]]
                if known:
                    there[known[0]] = each
                else:
                    there.append(each)
        else:
            raise ValueError(f"{key} has another form")
