"""Refusals over HTTP that demand a login, or one with more scopes. The transport replaces them by a
JSON-RPC error, which the SDK raises in the very request that was refused."""

from __future__ import annotations

import json
import re
import secrets

import httpx2
from mcp import MCPError
from mcp.client.auth.utils import (
    extract_field_from_www_auth,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
)

from tools.mcp.login import LoginChallenge

LOGIN_REQUIRED_CODE = -32401
"""The code of the JSON-RPC error that stands for a challenge; it never leaves this process."""
MAX_SCOPE_CHARS = 1000
"""Characters of all scopes that a server may name; more are as good as none."""
MAX_CHALLENGES = 16
"""Challenges that are kept for their requests; those of notifications are never fetched."""
_SCOPES = re.compile(r"[!#-\[\]-~]+( [!#-\[\]-~]+)*")


def read_challenge(response: httpx2.Response) -> LoginChallenge | None:
    """Return what a response asks for; None if a login would not change it."""
    error = extract_field_from_www_auth(response, "error")
    if response.status_code != 401 and not (
        response.status_code == 403 and error == "insufficient_scope"
    ):
        return None
    scope = extract_scope_from_www_auth(response) or ""
    if len(scope) > MAX_SCOPE_CHARS or not _SCOPES.fullmatch(scope):
        scope = ""
    metadata = extract_resource_metadata_from_www_auth(response)
    return LoginChallenge(response.status_code, scope, metadata)


class Challenges:
    """The challenges of one connection, by the tokens in the errors that stand for them."""

    def __init__(self) -> None:
        self._challenges: dict[str, LoginChallenge] = {}
        self.last: LoginChallenge | None = None
        """The latest one."""

    def replace(self, response: httpx2.Response) -> httpx2.Response | None:
        """Return the error that stands for a refusal; None if the response is not a refusal."""
        challenge = read_challenge(response)
        if challenge is None:
            return None
        self.last, token = challenge, secrets.token_hex()
        self._challenges[token] = challenge
        while len(self._challenges) > MAX_CHALLENGES:
            del self._challenges[next(iter(self._challenges))]
        error = {"code": LOGIN_REQUIRED_CODE, "message": "requires a login", "data": token}
        headers = {"Content-Type": "application/json"}
        if asked := response.headers.get("WWW-Authenticate"):
            headers["WWW-Authenticate"] = asked
        return httpx2.Response(
            response.status_code,
            headers=headers,
            content=json.dumps({"jsonrpc": "2.0", "id": None, "error": error}),
            request=response.request,
        )

    def find(self, error: BaseException) -> LoginChallenge | None:
        match error:
            case MCPError(code=code) if code == LOGIN_REQUIRED_CODE:
                return self._challenges.pop(str(error.error.data), None)
            case httpx2.HTTPStatusError():  # of the SSE transport
                return read_challenge(error.response)
        return None
