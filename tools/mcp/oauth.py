"""Logs in to MCP servers over HTTP: OAuth 2.1 with a browser, or by device (RFC 8628). The SDK's
``OAuthClientProvider`` does it, begun with a challenge, not a request of MCP."""

import asyncio
import math
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.client.auth.utils import issuers_match, union_scopes
from mcp.shared.auth import AuthorizationCodeResult, OAuthMetadata

from agent.util.programs import open_in_browser
from tools.config.servers import ServerConfig
from tools.mcp.credentials import CredentialStore
from tools.mcp.login import LoginChallenge, LoginDialog, LoginError
from tools.mcp.login_page import LoginPage, serve_login_page
from tools.mcp.stored_login import AuthFlow, StoredLogin, json_object, oauth_error
from tools.sanitize import clean_line

MAX_REASON_CHARS, REQUEST_SECONDS = 300, 30.0
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
DEFAULT_INTERVAL_SECONDS = 5.0
"""Pause between two questions whether the login is done, if unnamed; and its growth (section 3.5)."""
MAX_LIFETIME_SECONDS = 1800.0
"""Upper limit for the lifetime of a login by device that the server sets."""
_METADATA_PATHS = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")


async def log_in(
    config: ServerConfig,
    credentials: CredentialStore,
    dialog: LoginDialog,
    challenge: LoginChallenge | None = None,
    scopes: Sequence[str] = (),
) -> None:
    """Log in and store the tokens. ``challenge``: what the server asks for, of status 403 for more
    scopes; None: its metadata say so. ``scopes``: further ones. Raises LoginError."""
    assert config.url is not None
    own_credentials = config.oauth.grant_type == "client_credentials"
    lacks_scope = challenge is not None and challenge.status == 403
    wanted = [*scopes, *(challenge.scope.split() if challenge and lacks_scope else ())]
    if wanted:
        challenge = challenge or LoginChallenge()
    stored = await asyncio.to_thread(credentials.load, config.url)
    more_scopes = "tokens" in stored and (lacks_scope or bool(wanted))
    granted = (stored.get("tokens") or {}).get("scope") if more_scopes else None
    port = config.oauth.redirect_port or (_stored_port(stored) if more_scopes else 0)
    try:
        async with AsyncExitStack() as stack:
            page = None
            if not dialog.device and not own_credentials:
                fixed = bool(config.oauth.redirect_port)
                page = await stack.enter_async_context(serve_login_page(port, required=fixed))
            if not config.oauth.client_id and (
                not more_scopes or (page is not None and _stored_port(stored) != page.port)
            ):
                # A registration is bound to its redirect address, and may have been deleted.
                stored.pop("client", None)
            scope = union_scopes(granted, " ".join([*config.oauth.scopes, *wanted]) or None)
            flow = _LoginFlow(config, credentials, dialog, page, challenge, scope)
            flow.stored = stored
            client = await stack.enter_async_context(httpx2.AsyncClient(timeout=REQUEST_SECONDS))
            await client.send(client.build_request("POST", config.url), auth=flow)
            flow.check_granted(wanted)
    except LoginError as error:
        raise LoginError(f"the login to {config.name} failed: {error}") from error
    except TimeoutError:
        raise LoginError("the login took too long; try again") from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise LoginError(f"the port {port} for the login page: {reason}") from error
    except (OAuthFlowError, httpx2.HTTPError, ValueError) as error:
        reason = clean_line(str(error))[:MAX_REASON_CHARS] or type(error).__name__
        raise LoginError(f"the login to {config.name} failed: {reason}") from error


def log_out(config: ServerConfig, credentials: CredentialStore) -> None:
    if config.url is not None:
        credentials.save(config.url, {})


def _stored_port(stored: dict[str, Any]) -> int:
    uris = (stored.get("client") or {}).get("redirect_uris") or [""]
    return urlsplit(str(uris[0])).port or 0


class _LoginFlow(StoredLogin):
    """One login: a flow that answers its own first request with the challenge."""

    def __init__(
        self,
        config: ServerConfig,
        credentials: CredentialStore,
        dialog: LoginDialog,
        page: LoginPage | None,
        challenge: LoginChallenge | None,
        scope: str | None,
    ) -> None:
        self._dialog, self._page, self._challenge, self._scope = dialog, page, challenge, scope
        grant_type = config.oauth.grant_type or DEVICE_GRANT
        way = {"redirect_url": page.url} if page else {"grant_type": grant_type}
        handlers: dict[str, Any] = {"redirect_handler": self._open, "callback_handler": self._wait}
        url = config.oauth.client_metadata_url or None
        super().__init__(config, credentials, **way, **handlers, client_metadata_url=url)
        self._device_endpoint = ""
        self._device_request: httpx2.Request | None = None
        """The one that the server answers with the codes of a login by device."""
        self._bound_issuer: str | None = None

    # --- the flow ---

    async def _initialize(self) -> None:
        context = self.context
        context.client_info = await self.get_client_info()
        self._bound_issuer = context.client_info.issuer if context.client_info else None
        self._initialized = True

    async def _auth_flow(self, request: httpx2.Request) -> AuthFlow:
        flow = super()._auth_flow(request)
        try:
            await anext(flow)  # the request itself, which is not sent
            outgoing = await flow.asend(self._refusal(request))
            while outgoing is not request:
                if registers := outgoing.method == "POST" and self.context.client_info is None:
                    self._check_registration()
                outgoing.headers.setdefault("Accept", "application/json")
                response = yield outgoing
                await response.aread()
                if outgoing is self._device_request:
                    code, interval, seconds = self._begin_device_login(response)
                    fields = {"grant_type": DEVICE_GRANT, "device_code": code}
                    fields |= self._scope_and_resource()
                    error = "authorization_pending"
                    async with asyncio.timeout(seconds):
                        while error in ("authorization_pending", "slow_down"):
                            interval += DEFAULT_INTERVAL_SECONDS if error == "slow_down" else 0
                            await asyncio.sleep(interval)
                            url = self._get_token_endpoint()
                            response = yield self._client_request(url, fields)
                            error, _ = oauth_error(await response.aread())
                response = _in_json(response)
                self._check_response(outgoing, response, registers=registers)
                metadata = self._metadata_of_root(outgoing, response)
                if metadata is None:
                    outgoing = await flow.asend(response)
                    continue
                expected = {**metadata, "issuer": self._expected_issuer()}
                outgoing = await flow.asend(httpx2.Response(200, json=expected, request=outgoing))
                # A redirect's issuer has to be the one that is written there.
                self.context.oauth_metadata = OAuthMetadata.model_validate(metadata)
        finally:
            await flow.aclose()

    def _metadata_of_root(
        self, request: httpx2.Request, response: httpx2.Response
    ) -> dict[str, Any] | None:
        """Return metadata whose issuer differs from the expected one by the slash of an empty path
        alone: it is the same (RFC 3986, section 6.2.3), but not for the SDK."""
        if response.status_code != 200 or not _asks_for_metadata(request):
            return None
        values, expected = json_object(response.content) or {}, self._expected_issuer()
        issuer = str(values.get("issuer"))
        return values if issuer != expected and issuers_match(issuer, expected) else None

    def check_granted(self, wanted: Sequence[str]) -> None:
        """Raise LoginError where the token, which is stored, lacks one of these scopes."""
        if missing := [scope for scope in wanted if scope not in self.granted_scopes]:
            raise LoginError(f"it was done, but the scope {' and '.join(missing)} was not granted")

    def _refusal(self, request: httpx2.Request) -> httpx2.Response:
        challenge = self._challenge or LoginChallenge()
        scope = union_scopes(self._scope, challenge.scope or None)
        fields = {"scope": scope, "resource_metadata": challenge.resource_metadata}
        header = ", ".join(f'{key}="{value}"' for key, value in fields.items() if value)
        headers = {"WWW-Authenticate": f"Bearer {header}"}
        return httpx2.Response(401, headers=headers, request=request)

    def _check_registration(self) -> None:
        """Raise LoginError where the SDK would register, but should not."""
        metadata, server = self.context.oauth_metadata, self._expected_issuer()
        if self._config.oauth.client_id:
            raise LoginError(
                f"its authorization server is now {server}, but the client_id of its settings was used"
                f" at {self._bound_issuer}: set the one that you have at the new server; if it is the"
                f" same one, first: agent mcp logout {self._config.name}"
            )
        if metadata is None and self._challenge is None:
            raise LoginError("it does not ask for one")
        if metadata is not None and metadata.registration_endpoint is None:
            raise LoginError(
                f"its authorization server ({server}) registers no clients; {self._client_hint()}"
            )

    def _client_hint(self) -> str:
        """Return what to do where this program cannot register itself."""
        if self._page is None:
            address, settings = "", '"client_id": …'
        else:
            address = f" with the redirect address {self._page.url}"
            settings = f'"client_id": …, "redirect_port": {self._page.port}'
        return (
            f"register a client there yourself{address}, and name it at the server in mcp.json:"
            f' "oauth": {{{settings}}}'
        )

    def _check_response(
        self, request: httpx2.Request, response: httpx2.Response, *, registers: bool
    ) -> None:
        """Note where device logins begin; raise LoginError where an answer is an error or no JSON."""
        body = response.content
        if request.method == "GET":
            if response.status_code == 200 and _asks_for_metadata(request):
                values = json_object(body) or {}
                self._device_endpoint = str(values.get("device_authorization_endpoint") or "")
            return
        error, description = oauth_error(body)
        if response.status_code in (200, 201) and json_object(body) is not None and not error:
            return
        what = "does not register this program" if registers else "gives no token"
        reason = clean_line(f"{error} {description}".strip())[:MAX_REASON_CHARS]
        raise LoginError(
            f"its authorization server {what} (HTTP {response.status_code})"
            + (f": {reason}" if reason else "")
            + (f"; {self._client_hint()}" if registers else "")
        )

    # --- by browser ---

    async def _open(self, url: str) -> None:
        assert self._page is not None
        endpoint, _, query = url.rpartition("?")
        if "?" in endpoint:  # its own query stays (RFC 6749, section 3.1)
            url = f"{endpoint.rstrip('?&')}{'&' if '?' in endpoint.rstrip('?&') else '?'}{query}"
        self._page.authorization_url = url
        self._dialog.show(url, "")
        if self._dialog.browser:
            open_in_browser(url)

    async def _wait(self) -> AuthorizationCodeResult:
        assert self._page is not None
        return await self._page.wait(self._dialog)

    def _prepare_client(self) -> None:
        client, metadata = self.context.client_info, self.context.oauth_metadata
        if client is None or client.client_id != self._config.oauth.client_id:
            return
        methods = (metadata and metadata.token_endpoint_auth_methods_supported) or []
        posts = "client_secret_post" in methods and "client_secret_basic" not in methods
        method = "client_secret_post" if posts else "client_secret_basic"
        client.token_endpoint_auth_method = method if client.client_secret else "none"
        client.issuer = self._expected_issuer() if metadata else None

    # --- by device ---

    async def _perform_authorization(self) -> httpx2.Request:
        self._prepare_client()
        if self._config.oauth.grant_type == "client_credentials":
            fields = self._scope_and_resource()
            if self._config.oauth.scopes:  # no others, for some servers know one alone
                fields["scope"] = " ".join(self._config.oauth.scopes)
            url = self._get_token_endpoint()
            return self._client_request(url, {"grant_type": "client_credentials", **fields})
        if not self._dialog.device:
            return await super()._perform_authorization()
        if not self._device_endpoint.startswith(("https://", "http://")):
            raise LoginError(
                "its authorization server has no device login; without --device, the page can be opened"
                " on any machine, and its last address be pasted here"
            )
        fields = self._scope_and_resource()
        self._device_request = self._client_request(self._device_endpoint, fields)
        return self._device_request

    def _begin_device_login(self, response: httpx2.Response) -> tuple[str, float, float]:
        """Show the page and the code for it. Return the code by which this program asks for the token,
        the seconds between two questions, and those that are left. Raises LoginError."""
        values = json_object(response.content) or {}
        code, user_code = str(values.get("device_code") or ""), str(values.get("user_code") or "")
        page = str(values.get("verification_uri") or "")
        is_address = page.startswith(("https://", "http://")) and page.isprintable()
        if response.status_code != 200 or not code or not is_address:
            error = f": {values['error']}" if isinstance(values.get("error"), str) else ""
            raise LoginError(
                "its authorization server does not begin a device login"
                f" (HTTP {response.status_code}){error[:100]}"
            )
        self._dialog.show(page, user_code)
        interval = _seconds(values.get("interval"), DEFAULT_INTERVAL_SECONDS)
        lifetime = _seconds(values.get("expires_in"), math.inf)
        return code, interval, min(lifetime, MAX_LIFETIME_SECONDS)

    def _scope_and_resource(self) -> dict[str, str]:
        context, fields = self.context, {}
        if context.client_metadata.scope:
            fields["scope"] = context.client_metadata.scope
        if context.should_include_resource_param(context.protocol_version):
            fields["resource"] = context.get_resource_url()
        return fields

    def _client_request(self, url: str, fields: dict[str, str]) -> httpx2.Request:
        assert self.context.client_info is not None
        fields = {"client_id": self.context.client_info.client_id, **fields}
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        fields, headers = self.context.prepare_token_auth(fields, headers)
        return httpx2.Request("POST", url, data=fields, headers=headers)


def _asks_for_metadata(request: httpx2.Request) -> bool:
    return any(path in request.url.path for path in _METADATA_PATHS)


def _in_json(response: httpx2.Response) -> httpx2.Response:
    """Return a response whose form-encoded body, which GitHub has by default, is JSON."""
    if "form-urlencoded" not in response.headers.get("Content-Type", ""):
        return response
    values = dict(parse_qsl(response.text))
    return httpx2.Response(response.status_code, json=values, request=response.request)


def _seconds(value: Any, default: float) -> float:
    valid = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    return float(value) if valid else default
