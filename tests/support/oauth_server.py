"""An MCP server with an authorization server beside it, in the test's own process, which behaves as a
test wants it: by the MCP specification's authorization chapter and the RFCs that it names."""

import asyncio
import base64
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.support.hosts import free_port, is_listening
from tests.support.waiting import wait_until
from tools.config.servers import ServerConfig

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("read", "write")]


@dataclass
class Issuer:
    """One authorization server, below a path of the one address."""

    path: str
    clients: dict[str, dict[str, Any]] = field(default_factory=dict)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    requests: list[dict[str, str]] = field(default_factory=list)
    """The parameters of the pages that were opened, and of the requests for tokens."""


@dataclass
class OAuthServer:
    """The settings of both servers, which a test may change at any time, and what they have seen."""

    port: int
    protects: Callable[[str], bool] = lambda method: True
    """Which methods of MCP need a token."""
    scopes: dict[str, str] = field(default_factory=dict)
    """The scope that a tool needs, by its name."""
    challenge_scope: str = ""
    """The scope that a 401 names."""
    names_metadata: bool = True
    """Whether a 401 says where the metadata are."""
    metadata_path: str = "/.well-known/oauth-protected-resource/mcp"
    """Where they are; clients that are not told look below /.well-known."""
    registers: bool = True
    refuses_clients: bool = False
    """Whether a registration is refused, though the metadata offer it."""
    html_errors: bool = False
    """Whether errors are pages for people."""
    grants: Callable[[str], str] = lambda scope: scope
    """The scope that a token gets, by the scope that was asked for."""
    auth_methods: list[str] | None = None
    device: bool = False
    device_pending: int = 0
    """How often a device login is not done yet."""
    lifetime: int = 3600
    iss: bool = True
    """Whether the redirect names the issuer."""
    root: tuple[str, str, str] | None = None
    """If set, the issuer is the server's root, and its metadata are there: the ends of the issuer where
    the resource, the metadata and the redirect name it."""
    page_query: str = ""
    """The query of the authorization endpoint."""
    token_answer: str = "json"
    """How tokens are sent: json, form, or an error of status 200 (error)."""
    issuer: Issuer = field(default_factory=lambda: Issuer("/as1"))
    """The authorization server that the metadata name."""
    issuers: dict[str, Issuer] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    """The scopes of valid access tokens."""
    refresh_tokens: dict[str, str] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    """Methods and paths of all requests."""

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def config(self) -> ServerConfig:
        return ServerConfig("guarded", url=f"{self.base}/mcp")

    def use_issuer(self, path: str) -> Issuer:
        """Make another authorization server the one that the metadata name."""
        self.issuer = self.issuers.setdefault(path, Issuer(path))
        return self.issuer

    def app(self) -> Starlette:
        self.issuers[self.issuer.path] = self.issuer
        metadata = "/.well-known/oauth-authorization-server/{issuer}"
        return Starlette(
            routes=[
                Route("/mcp", self._mcp, methods=["GET", "POST", "DELETE"]),
                Route(self.metadata_path, self._resource),
                Route(metadata, self._metadata),
                Route("/.well-known/oauth-authorization-server", self._root_metadata),
                Route("/{issuer}/authorize", self._authorize),
                Route("/{issuer}/register", self._register, methods=["POST"]),
                Route("/{issuer}/token", self._token, methods=["POST"]),
                Route("/{issuer}/device", self._device, methods=["POST"]),
                Route("/{path:path}", self._nothing, methods=["GET", "POST"]),
            ]
        )

    # --- the MCP server: versions up to 2025-11-25, without sessions ---

    async def _mcp(self, request: Request) -> Response:
        if request.method != "POST":
            return self._refuse(405)
        message = await request.json()
        method = message["method"]
        self.seen.append(method)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.protects(method) and token not in self.tokens:
            fields = {"scope": self.challenge_scope, "error": "invalid_token" if token else ""}
            return self._challenge(401, fields)
        if "id" not in message:
            return Response(status_code=202)
        match method:
            case "initialize":
                result: dict[str, Any] = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "guarded", "version": "1"},
                }
            case "tools/list":
                result = {"tools": TOOLS}
            case "tools/call":
                name = message["params"]["name"]
                needed = self.scopes.get(name)
                if needed and needed not in self.tokens.get(token, "").split():
                    return self._challenge(403, {"scope": needed, "error": "insufficient_scope"})
                result = {"content": [{"type": "text", "text": f"{name} is done"}]}
            case _:
                error = {"code": -32601, "message": "Method not found"}
                return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "error": error}, 404)
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def _challenge(self, status: int, fields: dict[str, str]) -> Response:
        if self.names_metadata:
            fields["resource_metadata"] = f"{self.base}{self.metadata_path}"
        header = ", ".join(f'{key}="{value}"' for key, value in fields.items() if value)
        return Response(status_code=status, headers={"WWW-Authenticate": f"Bearer {header}"})

    async def _resource(self, request: Request) -> Response:
        issuers = [self.base + self.issuer.path]
        if self.root is not None:
            issuers = [self.base + self.root[0]]
        return JSONResponse({"resource": f"{self.base}/mcp", "authorization_servers": issuers})

    # --- the authorization servers ---

    def _issuer(self, request: Request) -> Issuer:
        self.seen.append(request.url.path)
        return self.issuers[f"/{request.path_params['issuer']}"]

    async def _root_metadata(self, request: Request) -> Response:
        if self.root is None:
            return await self._nothing(request)
        request.path_params["issuer"] = self.issuer.path.removeprefix("/")
        return await self._metadata(request)

    async def _metadata(self, request: Request) -> Response:
        url = self.base + self._issuer(request).path
        metadata: dict[str, Any] = {
            "issuer": url if self.root is None else self.base + self.root[1],
            "authorization_endpoint": f"{url}/authorize{self.page_query}",
            "token_endpoint": f"{url}/token",
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": self.iss,
        }
        if self.registers:
            metadata["registration_endpoint"] = f"{url}/register"
        if self.device:
            metadata["device_authorization_endpoint"] = f"{url}/device"
        if self.auth_methods is not None:
            metadata["token_endpoint_auth_methods_supported"] = self.auth_methods
        return JSONResponse(metadata)

    async def _register(self, request: Request) -> Response:
        issuer = self._issuer(request)
        if not self.registers:
            return self._refuse(404)
        if self.refuses_clients:
            return self._refuse(403, "access_denied")
        client = {**await request.json(), "client_id": f"{issuer.path}-{len(issuer.clients)}"}
        issuer.clients[client["client_id"]] = client
        return JSONResponse(client, 201)

    async def _authorize(self, request: Request) -> Response:
        issuer, query = self._issuer(request), dict(request.query_params)
        issuer.requests.append(query)
        client = issuer.clients.get(query["client_id"])
        if client is None or query["redirect_uri"] not in client.get("redirect_uris", ()):
            return self._refuse(400)
        code = secrets.token_hex(8)
        issuer.codes[code] = query
        answer = {"code": code, "state": query["state"]}
        if self.iss:
            answer["iss"] = self.base + (issuer.path if self.root is None else self.root[2])
        return RedirectResponse(f"{query['redirect_uri']}?{urlencode(answer)}", 302)

    async def _device(self, request: Request) -> Response:
        issuer, form = self._issuer(request), await request.form()
        scope = str(form.get("scope", ""))
        issuer.codes["device-1"] = {"client_id": str(form["client_id"]), "scope": scope}
        page = {"verification_uri": f"{self.base}/enter", "user_code": "ABCD-EFGH"}
        return JSONResponse({"device_code": "device-1", "expires_in": 60, "interval": 0.01, **page})

    async def _token(self, request: Request) -> Response:
        issuer = self._issuer(request)
        form = {key: str(value) for key, value in (await request.form()).items()}
        basic = request.headers.get("Authorization", "")
        if basic.startswith("Basic "):
            pair = base64.b64decode(basic.removeprefix("Basic ")).decode().partition(":")
            form |= {"client_id": pair[0], "client_secret": pair[2], "basic": "yes"}
        issuer.requests.append(form)
        client = issuer.clients.get(form.get("client_id", ""))
        if client is None or client.get("client_secret") != form.get("client_secret"):
            return self._refuse(401, "invalid_client")
        match form["grant_type"]:
            case "refresh_token":
                scope = self.refresh_tokens.pop(form["refresh_token"], None)
                return self._refuse(400, "invalid_grant") if scope is None else self._issue(scope)
            case "client_credentials":
                return self._issue(self.grants(form.get("scope", "")))
            case "authorization_code":
                asked = issuer.codes.pop(form["code"], {})
                digest = hashlib.sha256(form["code_verifier"].encode()).digest()
                challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
                if asked.get("code_challenge") != challenge:
                    return self._refuse(400, "invalid_grant")
                return self._issue(self.grants(asked.get("scope", "")))
            case _:
                if self.device_pending > 0:
                    self.device_pending -= 1
                    return self._refuse(400, "authorization_pending")
                return self._issue(self.grants(issuer.codes.pop(form["device_code"])["scope"]))

    def _issue(self, scope: str) -> Response:
        access, refresh = secrets.token_hex(8), secrets.token_hex(8)
        self.tokens[access] = self.refresh_tokens[refresh] = scope
        token: dict[str, Any] = {
            "access_token": access,
            "refresh_token": refresh,
            "token_type": "Bearer",
        }
        token |= {"expires_in": self.lifetime, "scope": scope}
        if self.token_answer == "error":
            return JSONResponse({"error": "bad_code", "error_description": "The code is spent."})
        if self.token_answer == "form":
            return Response(urlencode(token), media_type="application/x-www-form-urlencoded")
        return JSONResponse(token)

    async def _nothing(self, request: Request) -> Response:
        self.seen.append(request.url.path)
        return self._refuse(404)

    def _refuse(self, status: int, error: str = "") -> Response:
        if self.html_errors or not error:
            return HTMLResponse(f"<!DOCTYPE html><h1>Error {status}</h1>", status)
        return JSONResponse({"error": error}, status)


@asynccontextmanager
async def run_oauth_server(**settings: Any) -> AsyncIterator[OAuthServer]:
    """Run both servers while the block lasts."""
    state = OAuthServer(free_port(), **settings)
    config = uvicorn.Config(state.app(), port=state.port, log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    try:
        await wait_until(lambda: is_listening(state.port))
        yield state
    finally:
        server.should_exit = True
        server.force_exit = True
        await task
