"""What the `agent mcp` commands do."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.config.settings import places
from agent.errors import UserError
from agent.util.sanitize import say
from tools.config import edit
from tools.config.servers import ConfigError, ServerConfig
from tools.factory import assemble
from tools.mcp.client_requests import Elicitation, Elicited
from tools.mcp.credentials import Tokens
from tools.mcp.host import Host
from tools.sanitize import clean
from tools.types import ServerState

DONE, FAILED = 0, 1


def _host(root: Path, trust: bool) -> Host:
    where = places()
    if not root.is_dir():
        raise UserError(f"--root: {root} is not a folder.")
    try:
        return assemble(
            root=root,
            results=where.cache / "results",
            user=where.servers,
            approvals=where.approvals,
            tokens=where.tokens,
            trust_project=trust,
        ).host
    except ConfigError as error:
        raise UserError(f"{error}.") from error


def _config(host: Host, name: str) -> ServerConfig:
    config = host.config(name)
    if config is None:
        own = [s.name for s in host.servers() if (c := host.config(s.name)) and c.hand is None]
        raise UserError(f"No server is called {name!r}; known: {', '.join(own) or 'none'}.")
    return config


def _with(host: Host, work: Callable[[Host], Awaitable[int]]) -> int:
    async def run() -> int:
        try:
            return await work(host)
        finally:
            await host.close()

    return asyncio.run(run())


# --- list, inspect ---


def show_all(root: Path, trust: bool) -> int:
    """A line a server; 1 where one that is enabled does not work."""
    host = _host(root, trust)

    async def work(host: Host) -> int:
        for state in host.servers():
            if (config := host.config(state.name)) and config.hand is None:
                host.begin(state.name)
        shown = [s for s in host.servers() if (c := host.config(s.name)) and c.hand is None]
        await host.settled({state.name for state in shown})
        shown = [state for state in host.servers() if state.name in {one.name for one in shown}]
        if not shown:
            say("No server is configured: agent mcp add NAME -- COMMAND, or agent mcp import.")
        width = max((len(state.name) for state in shown), default=0)
        for state in shown:
            say(_line(state, _config(host, state.name), width))
        return FAILED if any(state.status == "failed" for state in shown) else DONE

    return _with(host, work)


def _line(state: ServerState, config: ServerConfig, width: int) -> str:
    about = clean(config.origin)
    if state.status == "ready":
        about = f"{len(state.tools)} tools  MCP {state.protocol}  {about}"
    elif state.error:
        about = state.error
    where = "  (this folder's)" if config.project else ""
    return f"{clean(state.name):{width}}  {state.status:8}  {about}{where}"


def inspect(name: str, root: Path, trust: bool) -> int:
    host = _host(root, trust)
    _config(host, name)

    async def work(host: Host) -> int:
        host.begin(name)
        await host.settled({name})
        state = next(one for one in host.servers() if one.name == name)
        say(_line(state, _config(host, name), len(name)))
        for tool in host.tools():
            if tool.server == name:
                about = " ".join(tool.description.split())
                only = " (only reads)" if tool.read_only else ""
                say(f"\n{clean(tool.name)}{only}: {about}")
                say(f"  {json.dumps(tool.parameters, ensure_ascii=False)}")
        if state.status == "ready" and not _config(host, name).hand:
            for resource in await host.resources(name):
                say(f"\nresource {clean(resource.uri)}  {resource.name}")
            for prompt in await host.prompts(name):
                names = ", ".join(f"{key}{'' if must else '?'}" for key, must in prompt.arguments)
                say(f"\nprompt {clean(prompt.name)}({names})  {prompt.description}")
        if state.stderr:
            say(f"\nLast on its stderr:\n{state.stderr}")
        return DONE if state.status == "ready" else FAILED

    return _with(host, work)


# --- call ---


def call(name: str, tool: str, arguments: str, root: Path, trust: bool) -> int:
    """The result on stdout; progress, logs and failures on stderr."""
    try:
        given = json.loads(arguments)
    except ValueError as error:
        raise UserError(f"The arguments are not valid JSON: {error}.") from error
    if not isinstance(given, dict):
        raise UserError("The arguments must be one JSON object.")
    host = _host(root, trust)
    _config(host, name)

    async def work(host: Host) -> int:
        host.begin(name)
        await host.settled({name})
        found = next((t for t in host.tools() if (t.server, t.name) == (name, tool)), None)
        if found is None:
            state = next(one for one in host.servers() if one.name == name)
            why = state.error or f"it has {', '.join(state.tools) or 'none'}"
            say(f"agent: the server {name} has no tool {tool!r}: {why}", file=sys.stderr)
            return FAILED
        result = await host.call(
            found, given, on_progress=_progress, on_output=_output, on_elicitation=_ask
        )
        failed = result.failure != "none"
        say(result.text, file=sys.stderr if failed else sys.stdout)
        return FAILED if failed else DONE

    return _with(host, work)


def _progress(progress: float, total: float | None, message: str | None) -> None:
    of = f"/{total:g}" if total is not None else ""
    say(f"… {progress:g}{of} {clean(message or '')}", file=sys.stderr)


def _output(stream: str, text: str) -> None:
    say(clean(text), file=sys.stderr)


async def _ask(question: Elicitation) -> Elicited:
    """On a terminal: each of the form's fields; elsewhere nobody is there."""
    if not (sys.stdin and sys.stdin.isatty()):
        return Elicited("decline")
    say(f"{question.server} asks: {question.message}", file=sys.stderr)
    if question.url is not None:
        say(f"  {clean(question.url)}", file=sys.stderr)
        typed = await _typed("Have you been there? [y/N] ")
        return Elicited("accept" if typed.lower() in ("y", "yes") else "decline")
    content: dict[str, Any] = {}
    for key, about in (question.schema or {}).get("properties", {}).items():
        typed = await _typed(f"  {clean(str(key))} ({about.get('type', 'string')}): ")
        if not typed:
            continue
        content[key] = typed if about.get("type", "string") == "string" else _value(typed)
    return Elicited("accept", content) if content else Elicited("decline")


def _value(typed: str) -> Any:
    try:
        return json.loads(typed)
    except ValueError:
        return typed


async def _typed(prompt: str) -> str:
    say(prompt, end="", file=sys.stderr)
    line: str = await asyncio.to_thread(sys.stdin.readline)
    return line.strip()


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
) -> None:
    entry: dict[str, Any] = {}
    if command[0].startswith(("http://", "https://")):
        if len(command) > 1 or env or cwd:
            raise UserError("A URL takes no arguments, --env or --cwd.")
        entry = {"type": transport or None, "url": command[0], "headers": _pairs(headers, ":")}
    else:
        if headers or transport:
            raise UserError("--header and --transport are for URLs.")
        words = _words(command)
        entry = {"command": words[0], "args": words[1:], "env": _pairs(env, "=")}
        entry["cwd"] = str(cwd.absolute()) if cwd else None
    entry = {key: value for key, value in entry.items() if value}
    path = places().servers
    try:
        edit.put(path, {name: entry}, replace=force)
    except ConfigError as error:
        raise UserError(f"{error}.") from error
    say(f"{name} is in {path}; agent mcp inspect {shlex.quote(name)} shows what it offers.")


def _words(command: list[str]) -> list[str]:
    """A single word may be a whole line, unless there is a file of that name."""
    if len(command) > 1 or Path(command[0]).is_file():
        words = command
    else:
        try:
            words = shlex.split(command[0])
        except ValueError as error:
            raise UserError(f"{command[0]!r} is no command: {str(error).lower()}.") from None
    if not words or not words[0]:
        raise UserError("The command is empty; write it after --.")
    return words


def _pairs(options: list[str], sign: str) -> dict[str, str]:
    pairs = {}
    for option in options:
        key, found, value = option.partition(sign)
        if not found or not key.strip():
            raise UserError(f"{option!r} must be KEY{sign}VALUE.")
        pairs[key.strip()] = value.strip() if sign == ":" else value
    return pairs


def remove(name: str) -> None:
    path = places().servers
    try:
        edit.take(path, name)
    except ConfigError as error:
        raise UserError(f"{error}.") from error
    say(f"{name} is no longer in {path}.")


@dataclass
class News:
    """Other programs' servers, against those that a person has."""

    entries: dict[str, Any] = field(default_factory=dict)
    """The new ones."""
    lines: list[str] = field(default_factory=list)
    """All, for the person: what each is, or why it is left out."""
    troubles: list[str] = field(default_factory=list)


def news(home: Path, path: Path) -> News:
    """What lies below this home folder and is not in the file at ``path``. Raises UserError."""
    from tools.config.importers import found

    try:
        known = edit.names(path)
    except ConfigError as error:
        raise UserError(f"{error}.") from error
    made = News()
    for source in found(home):
        for name, entry in source.entries.items():
            if name in known or name in made.entries:
                what = f"left out, for you have one of that name ({source.client})"
            else:
                made.entries[name] = entry
                what = f"{clean(edit.shown(entry))}  ({source.client})"
            made.lines.append(f"{clean(name)}: {what}")
        made.troubles += source.troubles
    return made


def take_over(yes: bool) -> int:
    path = places().servers
    found = news(Path.home(), path)
    entries = found.entries
    for line in found.lines:
        say(f"  {line}")
    for trouble in found.troubles:
        say(f"  {trouble}", file=sys.stderr)
    if not entries:
        say("Nothing new was found.")
        return DONE
    if not yes and not _agreed(f"Add {len(entries)} to {path}? [y/N] "):
        say("Nothing was changed.")
        return DONE
    try:
        edit.put(path, entries)
    except ConfigError as error:
        raise UserError(f"{error}.") from error
    say(f"{len(entries)} added to {path}.")
    return DONE


def _agreed(question: str) -> bool:
    say(question, end="", file=sys.stderr)
    return sys.stdin is not None and sys.stdin.readline().strip().lower() in ("y", "yes")


# --- login ---


def login(name: str, root: Path, trust: bool, *, browser: bool) -> int:
    from tools.mcp.oauth import LoginFailed, log_in

    config = _config(_host(root, trust), name)
    if config.problem or not config.enabled:
        # Its headers may hold what only a server that somebody agreed to should see.
        raise UserError(f"{name} {config.problem or 'is disabled'}.")
    if config.url is None:
        raise UserError(f"{name} is no server over HTTP: it needs no login.")
    try:
        asyncio.run(log_in(config, Tokens(places().tokens), browser=browser))
    except LoginFailed as error:
        say(f"agent: {error}", file=sys.stderr)
        return FAILED
    say(f"You are logged in to {name}.")
    return DONE


def logout(name: str, root: Path) -> None:
    from tools.mcp.oauth import forget

    config = _config(_host(root, trust=False), name)
    forget(config, Tokens(places().tokens))
    say(f"The tokens of {name} are forgotten.")
