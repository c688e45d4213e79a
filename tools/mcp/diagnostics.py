"""Why a server cannot be used, in the words of whoever has to mend it."""

from __future__ import annotations

import httpx2
import mcp.types as T
from mcp import MCPError
from mcp.client.auth.exceptions import OAuthFlowError
from pydantic import ValidationError

from tools import private_files
from tools.config.servers import ServerConfig
from tools.mcp.stdio import Child

SHOWN = 1500
"""Characters of stderr that go with the sentence."""


def explain(what: str, child: Child) -> str:
    """With what the child said last, and what may be done about it."""
    if child.complaint:
        what = f"was cut off: {child.complaint}"
    elif (code := child.returncode) is not None and what.startswith("ended"):
        how = f"ended with exit code {code}" if code >= 0 else f"was killed by signal {-code}"
        what = how + what.removeprefix("ended")
    stderr = child.stderr()
    if "ImportError" in stderr and "mcp" in stderr:
        what += " (an older server; try: uvx --with 'mcp<2' ...)"
    return f"{what}; its last words: {stderr[-SHOWN:]}" if stderr else what


def reason(error: BaseException, config: ServerConfig, refusal: int | None) -> str:
    """``refusal``: the last HTTP status that was an error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if refusal in (401, 403) or isinstance(error, OAuthFlowError):
        if any(name.lower() == "authorization" for name in config.headers):
            return f"does not take the Authorization that its settings give it (HTTP {refusal})"
        return f"wants a login (HTTP {refusal or 401}): agent mcp login {config.name}"
    match error:
        case FileNotFoundError() if config.cwd and error.filename == config.cwd:
            return f"cannot be started: no such folder: {config.cwd}"
        case FileNotFoundError():
            return f"cannot be started: no such command: {config.command}"
        case httpx2.HTTPError() | OSError() if config.url:
            status = f"HTTP {refusal}" if refusal else str(error) or type(error).__name__
            return f"cannot be reached at {private_files.address(config.url)}: {status}"
        case OSError():
            return f"cannot be started: {config.command}: {error.strerror or error}"
        case MCPError(code=T.CONNECTION_CLOSED):
            return "ended"
        case MCPError() if refusal:
            url = private_files.address(config.url or "")
            return f"answered its start with HTTP {refusal} at {url}"
        case MCPError():
            return f"answered its start with an error: {error.message}"
        case ValidationError():
            return "gave a list of tools that is not valid MCP"
        case _:
            return f"failed: {error or type(error).__name__}"
