"""Explains why a server cannot be used, in words for the person who has to fix it."""

import itertools
import re
from collections.abc import Mapping
from pathlib import PurePath

import httpx2
import mcp.types as T
from mcp import MCPError
from pydantic import ValidationError

from agent.util import private_files
from agent.util.programs import is_left_out
from tools.config.servers import ServerConfig
from tools.mcp.answers import ServerError
from tools.mcp.login import LoginChallenge
from tools.mcp.mending import invalid_part
from tools.safe_fetch import BlockedAddressError

STDERR_EXCERPT_CHARS = 1500
MAX_STARTING_LINES, MAX_LAST_LINES = 5, 16
"""Lines of it: of a server that did not answer, and of one that ended, as long as a stack trace."""
_INSTALL = {
    "uv": "install uv: https://docs.astral.sh/uv",
    "node": "install Node.js: https://nodejs.org",
    "bun": "install Bun: https://bun.sh",
    "deno": "install Deno: https://deno.com",
    "docker": "install Docker: https://docs.docker.com/get-docker",
    "python": "write python3, or the path of a virtual environment's python",
}
_PROGRAMS = {"uvx": "uv", "npx": "node", "npm": "node", "bunx": "bun"}
_VARIABLE = r"\b([A-Z][A-Z0-9]*_[A-Z0-9_]+)\b"
_MISSING_VARIABLE = re.compile(
    rf"(?:environment variable|env var|missing|required|must set|set the)[^\n]{{0,60}}?{_VARIABLE}"
    rf"|{_VARIABLE}[^\n]{{0,60}}?(?:is required|is missing|not set|must be set|is not defined|unset"
    r"|environment variable|env var)"
    rf"|KeyError: '{_VARIABLE}'"
)
_OLD_SDK = re.compile(
    r"ImportError: cannot import name .* from 'mcp|No module named 'mcp\.|"
    r"AttributeError: .*(?:mcp|'Server' object|FastMCP)"
)


def last_on_stderr(text: str, *, has_ended: bool) -> str:
    """Return the last lines of a server's stderr, without empty ones and repetitions."""
    count = MAX_LAST_LINES if has_ended else MAX_STARTING_LINES
    lines = filter(str.strip, text[-STDERR_EXCERPT_CHARS:].splitlines())
    return "\n".join([line for line, _ in itertools.groupby(lines)][-count:])


def describe_error(error: BaseException, config: ServerConfig, http_status: int | None) -> str:
    """The predicate for an exception of connecting; ``http_status``: the last one that was an error."""
    error = innermost(error)
    if http_status in (401, 403):
        refusal = describe_refusal(config, http_status)
        words = error.describe() if isinstance(error, ServerError) else ""
        return f"{refusal}: {words}" if words and not config.client_network else refusal
    match error:
        case BlockedAddressError() if config.client_network == "public":
            return f"failed: {error}, and the operator has not set --allow-private-urls"
        case FileNotFoundError() if config.cwd and error.filename == config.cwd:
            return f"cannot be started: no such folder: {config.cwd}"
        case FileNotFoundError():
            if is_left_out(config.command):
                return (
                    f"cannot be started: {config.command} is only in the folder that you work in, from"
                    " which no program is started by its name: write its path in the settings"
                )
            hint = missing_command_hint(config.command)
            return f"cannot be started: no such command: {config.command}{hint}"
        case httpx2.HTTPError() if config.url and "content type" in str(error):
            url = private_files.redact_url(config.url)
            return f"answered at {url}, but not as an MCP server does: {error}"
        case httpx2.HTTPStatusError(response=response) if config.url:
            url = private_files.redact_url(config.url)
            words = response.extensions.get("words", "")
            return _http_answer(response.status_code, words, " its start", url)
        case httpx2.HTTPError() | OSError() if config.url:
            why = str(error) or type(error).__name__
            return f"cannot be reached at {private_files.redact_url(config.url)}: {why}"
        case OSError():
            return f"cannot be started: {config.command}: {error.strerror or error}"
        case ServerError():
            return describe_answer(error, " its start", private_files.redact_url(config.url or ""))
        case MCPError(code=T.CONNECTION_CLOSED):
            return "ended"
        case MCPError():
            return f"answered its start with an error: {error.message}"
        case ValidationError():
            return describe_invalid(error)
    return f"failed: {error or type(error).__name__}"


def describe_invalid(error: ValidationError) -> str:
    """The predicate of a sentence about a server whose answer is not as MCP demands."""
    if error.title in ("InitializeResult", "DiscoverResult"):
        return f"answered its start with what is not valid MCP: {invalid_part(error)}"
    what = "list of tools" if error.title == "ListToolsResult" else "result"
    return f"sent a {what} that is not valid MCP: {invalid_part(error)}"


def describe_answer(error: ServerError, request: str = "", url: str = "") -> str:
    """The predicate of a sentence about a server that answered a request with an error."""
    words = error.describe()
    if error.predicate:
        return error.predicate
    if error.http_status is None:
        return f"answered{request} with an error: {words}"
    return _http_answer(error.http_status, words, request, url)


def _http_answer(status: int, words: str, request: str = "", url: str = "") -> str:
    where = f" at {url}" if url else ""
    return f"answered{request} with HTTP {status}{where}{f': {words}' if words else ''}"


def describe_refusal(
    config: ServerConfig, http_status: int, challenge: LoginChallenge | None = None
) -> str:
    """The predicate for a server that refuses access; ``challenge``: the login that it asks for. One
    that a client's request brings is described in the words of that request."""
    if config.client_network:
        if config.has_authorization:
            return f"rejects the request's authorization (HTTP {http_status}): send a valid token"
        return (
            f"requires a login (HTTP {http_status}): send an access token as 'authorization' of the"
            " request's mcp tool"
        )
    if config.has_authorization:
        return f"rejects the Authorization of its settings (HTTP {http_status})"
    if challenge is None:
        return f"refuses access (HTTP {http_status})"
    return challenge.describe(config)


def innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


# --- hints for the common reasons why a command does not start ---


def missing_command_hint(command: str) -> str:
    """Return how to install a command that does not exist; empty for unknown ones."""
    program = PurePath(command).name
    hint = _INSTALL.get(_PROGRAMS.get(program, program), "")
    if not hint and " " in command:
        hint = "arguments belong into args, one by one"
    return f" ({hint})" if hint else ""


def exit_hint(stderr: str, env: Mapping[str, str], foreign_output: str) -> str:
    """Return a hint for a server that ended or did not answer; empty: unknown. ``env``: of its
    settings. ``foreign_output``: a line of its stdout that is not a message."""
    if _OLD_SDK.search(stderr):
        return " (an older server; try: uvx --with 'mcp<2' ...)"
    if "No module named 'mcp'" in stderr:
        return " (the mcp package is missing in the Python that runs it)"
    match = _MISSING_VARIABLE.search(stderr)
    name = next(filter(None, match.groups()), "") if match else ""
    if name and name not in env:
        # A server inherits few variables: that it is set here is not enough.
        return f' (add "env": {{"{name}": "${{{name}}}"}} to its settings)'
    if foreign_output:
        return f" (it writes to stdout, which is for MCP's messages alone: {foreign_output!r})"
    return ""
