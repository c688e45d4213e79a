"""Performs the `agent mcp` commands; the functions return exit codes and raise UserError."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from agent.cli import login_prompt
from agent.cli.mcp_forms import FormAnswers
from agent.cli.mcp_json import inspection_object, print_json, result_object, server_object
from agent.cli.trust import agrees, can_ask
from agent.config.paths import user_paths
from agent.errors import UserError, user_errors
from agent.util.process import EXIT_DONE, EXIT_FAILED
from agent.util.sanitize import echo
from tools.config import edit
from tools.config.importers import plan_import
from tools.config.servers import ConfigError, ServerConfig
from tools.factory import ToolboxOptions, build_toolbox
from tools.mcp.host import Host
from tools.results import protocol_failure
from tools.sandbox.isolation import best_isolation
from tools.sanitize import clean_line, clean_text
from tools.types import Prompt, Resource, ServerState, Tool

UNCONFINED_PROGRAMS = ("docker", "podman", "nerdctl")
"""Commands that start a server where this program's sandbox does not reach."""
MAX_RESULT_CHARS, MAX_PIPED_CHARS = 32_000, 1 << 30
"""Characters of a result on a terminal, and in a pipe: no message of a server is longer."""


def create_host(root: Path, trust: bool, max_result_chars: int = MAX_RESULT_CHARS) -> Host:
    """A host of the person's servers and those of ``root``; nothing is connected yet."""
    paths = user_paths()
    if not root.is_dir():
        raise UserError(f"--root: {root} is not a folder.")
    with user_errors(ConfigError, ending="."):
        return build_toolbox(
            ToolboxOptions(
                root=root,
                max_result_chars=max_result_chars,
                results_folder=paths.cache / "results",
                server_homes=paths.cache / "mcp",
                user_config=paths.mcp_json,
                approvals_file=paths.approvals,
                credentials_file=paths.credentials,
                own_folders=paths.folders,
                trust_project=trust,
            )
        ).host


def require_config(host: Host, name: str) -> ServerConfig:
    """Return the settings of a server; raises UserError if there is none of this name."""
    config = host.server_config(name)
    if config is None:
        known = ", ".join(configured_names(host)) or "none"
        raise UserError(f"There is no server {name!r}; known: {known}.")
    return config


def configured_names(host: Host) -> list[str]:
    """The servers of the configuration files, without the built-in ones."""
    names = [state.name for state in host.server_states()]
    return [n for n in names if (config := host.server_config(n)) and config.builtin is None]


def run_with(host: Host, work: Callable[[Host], Awaitable[int]]) -> int:
    async def run() -> int:
        try:
            return await work(host)
        finally:
            await host.close()

    return asyncio.run(run())


# --- list, inspect ---


def list_servers(root: Path, trust: bool, *, as_json: bool = False) -> int:
    """Print each server once it has started or failed; exit code 1 if an enabled one fails."""
    host = create_host(root, trust)

    async def work(host: Host) -> int:
        names = configured_names(host)
        for name in names:
            host.connect(name)
        width = max(map(len, names), default=0)
        async for name in host.iter_started(names):
            if not as_json:
                echo(_status_line(_state(host, name), require_config(host, name), width))
        states = [state for state in host.server_states() if state.name in names]
        if as_json:
            print_json([server_object(s, require_config(host, s.name)) for s in states])
        elif not states:
            echo("No server is configured: agent mcp add NAME -- COMMAND, or agent mcp import.")
        return EXIT_FAILED if any(state.status == "failed" for state in states) else EXIT_DONE

    return run_with(host, work)


def _state(host: Host, name: str) -> ServerState:
    return next(state for state in host.server_states() if state.name == name)


def _status_line(state: ServerState, config: ServerConfig, width: int) -> str:
    summary = clean_line(config.command_line)
    if state.status == "ready":
        summary = f"{len(state.tools)} tools  MCP {state.protocol}  {summary}"
    elif state.error:
        summary = _indented(state.error)
    origin = "  (this folder's)" if config.from_project else ""
    return f"{clean_text(state.name):{width}}  {state.status:8}  {summary}{origin}"


def _indented(text: str) -> str:
    """Indent all lines but the first: only this program's own begin at the margin."""
    return "\n  ".join(text.splitlines())


def inspect(name: str, root: Path, trust: bool, *, as_json: bool = False) -> int:
    host = create_host(root, trust)
    require_config(host, name)

    async def work(host: Host) -> int:
        host.connect(name)
        await host.wait_started({name})
        state, config = _state(host, name), require_config(host, name)
        tools = [tool for tool in host.tools() if tool.server == name]
        lists = state.status == "ready" and not config.builtin
        resources = await host.content.resources(name) if lists else []
        prompts = await host.content.prompts(name) if lists else []
        if as_json:
            server = server_object(state, config)
            print_json(inspection_object(server, tools, resources, prompts, state.stderr))
        else:
            echo(_status_line(state, config, len(name)))
            if state.protocol_reason:
                echo(f"MCP {state.protocol}: {state.protocol_reason}")
            _print_offers(tools, resources, prompts)
            if state.stderr:
                echo(f"\nLast on its stderr:\n  {_indented(state.stderr)}")
        return EXIT_DONE if state.status == "ready" else EXIT_FAILED

    return run_with(host, work)


def _print_offers(
    tools: Sequence[Tool], resources: Sequence[Resource], prompts: Sequence[Prompt]
) -> None:
    for tool in tools:
        description = " ".join(tool.description.split())
        only = " (only reads)" if tool.read_only else ""
        echo(f"\n{clean_text(tool.name)}{only}: {description}")
        echo(f"  {json.dumps(tool.parameters, ensure_ascii=False)}")
    for resource in resources:
        echo(f"\nresource {clean_text(resource.uri)}  {resource.name}")
    for prompt in prompts:
        names = ", ".join(f"{key}{'' if required else '?'}" for key, required in prompt.arguments)
        echo(f"\nprompt {clean_text(prompt.name)}({names})  {prompt.description}")


# --- call ---


def call(
    name: str,
    tool: str,
    arguments: str,
    answers: list[str],
    root: Path,
    trust: bool,
    *,
    as_json: bool = False,
) -> int:
    """Call a tool: its result goes to stdout; progress, output and failures to stderr."""
    forms = FormAnswers(answers)
    try:
        values = json.loads(arguments)
    except ValueError as error:
        raise UserError(f"The arguments are not valid JSON: {error}.") from error
    if not isinstance(values, dict):
        raise UserError("The arguments must be one JSON object.")
    piped = as_json or not (sys.stdout and sys.stdout.isatty())
    host = create_host(root, trust, MAX_PIPED_CHARS if piped else MAX_RESULT_CHARS)
    require_config(host, name)

    on_login = login_prompt.ask_login if can_ask() else None
    shown: list[str] = []

    def print_output(stream: str, text: str) -> None:
        shown.append(text)
        echo(clean_text(text), file=sys.stderr)

    async def work(host: Host) -> int:
        host.connect(name)
        await host.wait_started({name})
        if on_login and await host.offer_login(name, on_login):
            await host.wait_started({name})
        definition = next((t for t in host.tools() if (t.server, t.name) == (name, tool)), None)
        if definition is None:
            why = _missing_tool_reason(_state(host, name), tool)
            result = protocol_failure(f"the server {name} {why}", -32602)
        else:
            result = await host.call(
                definition,
                values,
                on_progress=_print_progress,
                on_output=print_output,
                on_elicitation=forms.answer,
                on_login=on_login,
            )
        failed = result.failed or forms.problem is not None
        if forms.problem is not None:
            echo(f"agent: {forms.problem}", file=sys.stderr)
        if as_json:
            print_json(result_object(result))
        elif piped or not sys.stderr.isatty() or "".join(shown).strip() != result.text.strip():
            echo(result.model_text, file=sys.stderr if failed else sys.stdout)
        return EXIT_FAILED if failed else EXIT_DONE

    return run_with(host, work)


def _missing_tool_reason(state: ServerState, tool: str) -> str:
    if state.status == "disabled":
        return "is disabled"
    if state.status == "failed" and state.error:
        return state.error
    return f"has no tool {tool!r}: it has {', '.join(state.tools) or 'none'}"


def _print_progress(progress: float, total: float | None, message: str | None) -> None:
    of = f"/{total:g}" if total is not None else ""
    echo(f"… {progress:g}{of} {clean_text(message or '')}", file=sys.stderr)


# --- add, remove, import ---


def add(
    name: str,
    command: list[str],
    env: list[str],
    headers: list[str],
    *,
    transport: str | None,
    cwd: Path | None,
    force: bool,
    sandbox: bool,
) -> None:
    if not command:
        raise UserError("Name a command after --, a URL, or --from REGISTRY-ID.")
    entry: dict[str, Any] = {}
    if command[0].startswith(("http://", "https://")):
        if len(command) > 1 or env or cwd or sandbox:
            raise UserError("A URL takes no arguments, --env, --cwd or --sandbox.")
        entry = {
            "type": transport or None,
            "url": command[0],
            "headers": _key_value_pairs(headers, ":"),
        }
    else:
        if headers or transport:
            raise UserError("--header and --transport are for URLs.")
        executable, *args = _split_command(command)
        entry = {"command": executable, "args": args, "env": _key_value_pairs(env, "=")}
        entry["cwd"] = str(cwd.absolute()) if cwd else None
        entry["sandbox"] = sandbox
    entry = {key: value for key, value in entry.items() if value}
    path = user_paths().mcp_json
    with user_errors(ConfigError, ending="."):
        edit.add(path, {name: entry}, replace=force)
    echo(f"{name} is in {path}; agent mcp inspect {shlex.quote(name)} shows what it offers.")
    program = Path(str(entry.get("command", ""))).name
    if not program or sandbox or program in UNCONFINED_PROGRAMS or not best_isolation().ok:
        return
    question = "It runs with all your rights. Start it now, to see whether it runs in the sandbox?"
    if can_ask() and agrees(question):
        _move_to_sandbox(path, name, entry)
    else:
        echo("It runs with all your rights; --sandbox --force has it start in a sandbox instead.")


def _move_to_sandbox(path: Path, name: str, entry: dict[str, Any]) -> None:
    """Let a server start in the sandbox from now on, if it does so now."""
    edit.add(path, {name: entry | {"sandbox": True}}, replace=True)

    async def start(host: Host) -> int:
        host.connect(name)
        async for _ in host.iter_started([name]):
            pass
        state = _state(host, name)
        if state.status == "ready":
            echo(f"It runs in the sandbox from now on, with {len(state.tools)} tools.")
            return EXIT_DONE
        echo(f"It keeps all your rights; it does not start in the sandbox: {state.error}.")
        return EXIT_FAILED

    code = EXIT_FAILED
    try:
        code = run_with(create_host(Path(), trust=False), start)
    finally:
        if code != EXIT_DONE:  # also after Ctrl-C
            edit.add(path, {name: entry}, replace=True)


def _split_command(command: list[str]) -> list[str]:
    """Split a single argument like a shell, unless a file has that name."""
    if len(command) > 1 or Path(command[0]).is_file():
        words = command
    else:
        try:
            words = shlex.split(command[0])
        except ValueError as error:
            raise UserError(f"{command[0]!r} is not a command: {str(error).lower()}.") from None
    if not words or not words[0]:
        raise UserError("The command is empty; write it after --.")
    return words


def env_and_headers(env: list[str], headers: list[str]) -> dict[str, dict[str, str]]:
    return {"env": _key_value_pairs(env, "="), "headers": _key_value_pairs(headers, ":")}


def _key_value_pairs(options: list[str], separator: str) -> dict[str, str]:
    pairs = {}
    for option in options:
        key, present, value = option.partition(separator)
        if not present or not key.strip():
            raise UserError(f"{option!r} must be KEY{separator}VALUE.")
        pairs[key.strip()] = value.strip() if separator == ":" else value
    return pairs


def remove(name: str) -> None:
    path = user_paths().mcp_json
    with user_errors(ConfigError, ending="."):
        edit.remove(path, name)
    echo(f"Removed {name} from {path}.")


def import_servers(yes: bool) -> int:
    path = user_paths().mcp_json
    with user_errors(ConfigError, ending="."):
        plan = plan_import(Path.home(), path)
    entries = plan.entries
    for line in plan.lines:
        echo(f"  {line}")
    for problem in plan.problems:
        echo(f"  {problem}", file=sys.stderr)
    if not entries:
        echo("No new servers were found.")
        return EXIT_DONE
    if not yes and not agrees(f"Add {len(entries)} to {path}?"):
        echo("Nothing was changed.")
        return EXIT_DONE
    with user_errors(ConfigError, ending="."):
        edit.add(path, entries)
    echo(f"{len(entries)} added to {path}.")
    return EXIT_DONE
