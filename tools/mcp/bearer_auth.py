"""Sends the token of an earlier login with each request, and renews it; never starts a login, because
only callers can ask the person, unless the settings say that the client logs in by itself."""

import logging
import re

import httpx2
from mcp.client.auth import utils
from mcp.shared.auth import OAuthToken

from tools.mcp.login import LoginChallenge, LoginDialog
from tools.mcp.stored_login import AuthFlow, StoredLogin, oauth_error

log = logging.getLogger(__name__)

MAX_SCOPE_CHARS = 1000
"""Characters of all scopes that a server may name; more are as good as none."""
_SCOPES = re.compile(r"[!#-\[\]-~]+( [!#-\[\]-~]+)*")
LOST_ERRORS = ("invalid_grant", "invalid_client", "unauthorized_client", "bad_refresh_token")
"""Errors of RFC 6749, section 5.2, and GitHub's, after which only a new login helps."""


class BearerAuth(StoredLogin):
    """The authentication of the requests to one server; without a stored login it sends nothing."""

    async def _auth_flow(self, request: httpx2.Request) -> AuthFlow:
        context = self.context
        if not self._initialized:
            await self.reload()
        renews = not context.is_token_valid()
        logs_in_itself = self._config.oauth.grant_type == "client_credentials"
        for _ in range(2):
            used = context.current_tokens
            if renews and used is not None:
                async with context.lock, self.renewing():
                    if await self._is_current(used) and context.can_refresh_token():
                        await self._finish_renewal((yield await self._refresh_token()), used)
            request.headers.pop("Authorization", None)
            self._add_auth_header(request)
            response = yield request
            if response.status_code not in (401, 403):
                return
            if await self._is_current(used):
                if logs_in_itself and response.status_code == 401:
                    logs_in_itself = renews = False
                    await self._log_in(response, used)
                    continue
                if response.status_code == 403 or used is None or renews:
                    return
                renews = True  # it may have been revoked before its time

    async def _log_in(self, response: httpx2.Response, used: OAuthToken | None) -> None:
        """Get a token by the client's own credentials. Raises LoginError."""
        from tools.mcp.oauth import log_in

        async with self.renewing():
            if await self._is_current(used):
                dialog = LoginDialog(lambda _, __: None)
                await log_in(self._config, self._credentials, dialog, read_challenge(response))
        await self.reload()

    async def _is_current(self, token: OAuthToken | None) -> bool:
        """Return whether a token has not been replaced, here or in another process."""
        await self.reload()
        current = self.context.current_tokens
        return (current and current.access_token) == (token and token.access_token)

    async def _finish_renewal(self, response: httpx2.Response, used: OAuthToken) -> None:
        status, (error, _) = response.status_code, oauth_error(await response.aread())
        if status == 200 and not error:
            await self._handle_refresh_response(response)
            return
        log.warning("%s: renewing the token: HTTP %s", self.context.server_url, status)
        if error in LOST_ERRORS and await self._is_current(used):
            await self.drop_tokens()


def read_challenge(response: httpx2.Response) -> LoginChallenge | None:
    """Return the login that a response asks for; None if a login would not change it."""
    status, error = response.status_code, utils.extract_field_from_www_auth(response, "error")
    if status != 401 and (status, error) != (403, "insufficient_scope"):
        return None
    scope = utils.extract_scope_from_www_auth(response) or ""
    metadata = utils.extract_resource_metadata_from_www_auth(response)
    usable = len(scope) <= MAX_SCOPE_CHARS and _SCOPES.fullmatch(scope)
    return LoginChallenge(status, scope if usable else "", metadata)
