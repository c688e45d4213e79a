"""The stored part of a login, which the SDK's OAuth provider reads and writes."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.shared import auth
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken, ProtectedResourceMetadata
from pydantic import AnyUrl
from pydantic_core import from_json

from tools.config.servers import ServerConfig
from tools.mcp.credentials import CredentialStore

AuthFlow = AsyncGenerator[httpx2.Request, httpx2.Response]
RENEWAL_MARGIN_SECONDS = 30.0
"""Time before its expiry at which a token is renewed."""
RENEWAL_WAITS, RENEWAL_WAIT_SECONDS = 300, 0.1
"""Number and length of waits for another program that renews a token."""


class StoredLogin(OAuthClientProvider):
    """An OAuth provider that is its own ``TokenStorage``. It also stores what the SDK keeps in memory
    only and a later process needs: when the token expires, and the server's OAuth metadata."""

    def __init__(
        self,
        config: ServerConfig,
        credentials: CredentialStore,
        redirect_url: str = "http://127.0.0.1/callback",
        grant_type: str = "authorization_code",
        **settings: Any,
    ) -> None:
        assert config.url is not None
        self._config, self._url, self._credentials = config, config.url, credentials
        self.stored: dict[str, Any] = {}
        metadata = auth.OAuthClientMetadata(
            client_name="agent",
            redirect_uris=[AnyUrl(redirect_url)],
            grant_types=[grant_type, "refresh_token"],
            response_types=["code"],
        )
        super().__init__(config.url, metadata, self, **settings)

    @property
    def granted_scopes(self) -> frozenset[str]:
        tokens = self.context.current_tokens
        return frozenset(((tokens and tokens.scope) or "").split())

    async def reload(self) -> None:
        """Read the login and give the provider what it does not ask for."""
        self.stored = await asyncio.to_thread(self._credentials.load, self._url)
        await self._initialize()
        context = self.context
        with contextlib.suppress(ValueError):
            context.token_expiry_time = self.stored.get("expires_at")
            if (metadata := self.stored.get("metadata")) is not None:
                context.oauth_metadata = auth.OAuthMetadata.model_validate(metadata)
            if (data := self.stored.get("resource")) is not None:
                context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(data)

    async def _save(self) -> None:
        await asyncio.to_thread(self._credentials.save, self._url, self.stored)

    @contextlib.asynccontextmanager
    async def renewing(self) -> AsyncIterator[None]:
        """Renew the token alone: a server may take each refresh token once. Other programs wait."""
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(RENEWAL_WAITS):
                try:
                    stack.enter_context(self._credentials.renewing())
                    break
                except BlockingIOError:
                    await asyncio.sleep(RENEWAL_WAIT_SECONDS)
                except OSError:
                    break  # where nothing can be written, nothing is stored either
            yield

    async def drop_tokens(self) -> None:
        """Forget tokens that are not valid any more; the registration of the client stays."""
        self.context.clear_tokens()
        for key in ("tokens", "expires_at"):
            self.stored.pop(key, None)
        await self._save()

    async def get_tokens(self) -> OAuthToken | None:
        tokens = self.stored.get("tokens")
        return OAuthToken.model_validate(tokens) if tokens else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.stored["tokens"] = tokens.model_dump(mode="json", exclude_none=True)
        lifetime = tokens.expires_in
        self.stored["expires_at"] = (
            None if lifetime is None else time.time() + max(lifetime - RENEWAL_MARGIN_SECONDS, 0)
        )
        context = self.context
        # The secret of a client that someone registered stays where they wrote it.
        hidden = {"client_secret"} if self._config.oauth.client_id else None
        for key, part in (
            ("metadata", context.oauth_metadata),
            ("resource", context.protected_resource_metadata),
            ("client", context.client_info),
        ):
            dump = part and part.model_dump(mode="json", exclude_none=True, exclude=hidden)
            self.stored[key] = dump
        await self._save()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the client of the settings, or the one that was registered."""
        stored, oauth = self.stored.get("client") or {}, self._config.oauth
        if not oauth.client_id:
            return OAuthClientInformationFull.model_validate(stored) if stored else None
        if stored.get("client_id") != oauth.client_id:
            stored = {}
        return OAuthClientInformationFull(
            client_id=oauth.client_id,
            client_secret=oauth.client_secret or None,
            token_endpoint_auth_method=stored.get("token_endpoint_auth_method"),
            redirect_uris=[AnyUrl(uri) for uri in stored.get("redirect_uris") or ()] or None,
            # The authorization server that it has worked with; it is not shown to another one.
            issuer=stored.get("issuer"),
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Do nothing: it is written with the first token, and without one it is of no use."""


def json_object(body: bytes) -> dict[str, Any] | None:
    """Parse a body; None: it is not a JSON object."""
    try:
        value = from_json(body)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def oauth_error(body: bytes) -> tuple[str, str]:
    """Return error and description of an OAuth error (RFC 6749, section 5.2); empty without."""
    values = json_object(body) or {}
    return str(values.get("error") or ""), str(values.get("error_description") or "")
