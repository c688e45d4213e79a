"""Explains why a server cannot be used, in words for the person who has to fix it."""

from __future__ import annotations

import itertools

import httpx2
import mcp.types as T
from mcp import MCPError
from pydantic import ValidationError

from agent.util import private_files
from agent.util.programs import is_left_out
from tools.config.servers import ServerConfig
from tools.mcp.login import LoginChallenge
from tools.mcp.start_hints import exit_hint, missing_command_hint
from tools.mcp.stdio import StdioTransport

STDERR_EXCERPT_CHARS = 1500
MAX_STARTING_LINES, MAX_LAST_LINES = 5, 16
"""Lines of it: of a server that did not answer, and of one that ended, as long as a stack trace."""


def describe_exit(reason: str, process: StdioTransport, *, was_ready: bool) -> str:
    """Complete why a child cannot be used: exit code, stderr and, if it never was ready, stdout."""
    has_ended = reason.startswith("ended")
    if process.cutoff_reason:
        reason = f"was cut off: {process.cutoff_reason}"
    elif (code := process.returncode) is not None and has_ended:
        ending = f"ended with exit code {code}" if code >= 0 else f"was killed by signal {-code}"
        reason = ending + reason.removeprefix("ended")
    stderr = process.stderr()
    output = "" if was_ready else process.foreign_output
    reason += exit_hint(stderr, process.config.env, output)
    if stderr:
        excerpt = _last_lines(stderr, MAX_LAST_LINES if has_ended else MAX_STARTING_LINES)
        reason = f"{reason}; last on its stderr: {excerpt}"
    return reason


def _last_lines(text: str, count: int) -> str:
    """Return the last lines of a text, without empty ones and repetitions."""
    lines = filter(str.strip, text[-STDERR_EXCERPT_CHARS:].splitlines())
    return "\n".join([line for line, _ in itertools.groupby(lines)][-count:])


def describe_error(
    error: BaseException,
    config: ServerConfig,
    http_status: int | None,
    challenge: LoginChallenge | None = None,
) -> str:
    """The predicate of a sentence about a server, for an exception of connecting. ``http_status``: the
    last one that was an error. ``challenge``: the login that was asked for."""
    error = innermost(error)
    if challenge is not None or http_status in (401, 403):
        return _describe_refusal(config, http_status or 401, challenge)
    match error:
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
            return f"answered its start with HTTP {response.status_code} at {url}"
        case httpx2.HTTPError() | OSError() if config.url:
            why = str(error) or type(error).__name__
            return f"cannot be reached at {private_files.redact_url(config.url)}: {why}"
        case OSError():
            return f"cannot be started: {config.command}: {error.strerror or error}"
        case MCPError(code=T.CONNECTION_CLOSED, message="Connection closed"):
            return "ended"  # servers use the code for errors of their own, too
        case MCPError() if http_status:
            url = private_files.redact_url(config.url or "")
            return f"answered its start with HTTP {http_status} at {url}"
        case MCPError():
            return f"answered its start with an error: {error.message}"
        case ValidationError():
            return "sent a list of tools that is not valid MCP"
        case _:
            return f"failed: {error or type(error).__name__}"


def _describe_refusal(
    config: ServerConfig, http_status: int, challenge: LoginChallenge | None
) -> str:
    if config.client_network:
        return _describe_refused_client(config, http_status)
    if any(name.lower() == "authorization" for name in config.headers):
        return f"rejects the Authorization of its settings (HTTP {http_status})"
    if challenge is None:
        return f"refuses access (HTTP {http_status})"
    return challenge.describe(config)


def _describe_refused_client(config: ServerConfig, http_status: int) -> str:
    """The same about a server that a client's request brings, in the words of that request."""
    if any(name.lower() == "authorization" for name in config.headers):
        return f"rejects the request's authorization (HTTP {http_status}): send a valid token"
    return (
        f"requires a login (HTTP {http_status}): send an access token as 'authorization' of the"
        " request's mcp tool"
    )


def innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
