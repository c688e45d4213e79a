"""Logins that servers want: said, offered, done, and done again when it is time."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.hosts import MakeHost, free_port, tool
from tests.support.oauth import open_page
from tests.support.oauth_server import OAuthServer, run_oauth_server
from tools.config.servers import OAuthSettings, ServerConfig
from tools.mcp.credentials import CredentialStore
from tools.mcp.host import Host
from tools.mcp.login import LoginChallenge, LoginDialog, LoginError, LoginRequest
from tools.mcp.oauth import log_in
from tools.types import ToolResult

pytestmark = pytest.mark.slow
LOGIN = "agent mcp login guarded"


@pytest.fixture
async def oauth() -> AsyncIterator[OAuthServer]:
    async with run_oauth_server() as server:
        yield server


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "logins.json"


class Person:
    """Opens the pages of logins, and counts the offers."""

    def __init__(self) -> None:
        self.offers: list[str] = []
        self.errors: list[str] = []
        self.pages: list[tuple[str, str]] = []
        self._opened: list[asyncio.Task[int]] = []

    def dialog(self, **settings: bool) -> LoginDialog:
        def show(url: str, code: str) -> None:
            self.pages.append((url, code))
            if not code:
                self._opened.append(asyncio.create_task(open_page(url)))

        return LoginDialog(show, browser=False, **settings)

    async def log_in(self, request: LoginRequest) -> bool:
        self.offers.append(request.message)
        try:
            await request.log_in(self.dialog())
        except LoginError as error:
            self.errors.append(str(error))
            return False
        return True


async def start(make_host: MakeHost, config: ServerConfig, store: Path) -> Host:
    host = make_host(config, credentials_file=store)
    await host.start()
    await host.wait_started()
    return host


async def call(
    host: Host, name: str, on_login: Callable[[LoginRequest], Awaitable[bool]] | None = None
) -> ToolResult:
    return await host.call(tool(host, f"guarded__{name}"), {}, on_login=on_login)


def only_calls(method: str) -> bool:
    return method == "tools/call"


async def test_login_refusal_is_not_overwritten(
    oauth: OAuthServer, make_host: MakeHost, store: Path
) -> None:
    """The server answers a GET, by which older servers are found, with HTTP 405."""
    host = await start(make_host, oauth.config, store)
    (state,) = host.server_states()
    assert state.error == f"requires a login (HTTP 401): {LOGIN}" and state.needs_login
    named = replace(oauth.config, trusted=True)  # by --mcp: the name is in no file
    (state,) = (await start(make_host, named, store)).server_states()
    assert state.error == f"requires a login (HTTP 401): agent mcp login {oauth.config.url}"


@pytest.mark.parametrize("method", ["tools/list", "tools/call"])
async def test_login_wanted_late_is_offered(
    oauth: OAuthServer, make_host: MakeHost, store: Path, method: str
) -> None:
    oauth.protects = method.__eq__
    host, person = await start(make_host, oauth.config, store), Person()
    if method == "tools/list":
        assert LOGIN in (host.server_states()[0].error or "")
        assert await host.offer_login("guarded", person.log_in)
        await host.wait_started()
    else:
        refused = await call(host, "read")
        assert f"requires a login (HTTP 401): {LOGIN}" in refused.text
    assert (await call(host, "read", person.log_in)).text == "read is done"
    assert person.offers == ["The server guarded requires a login."]


async def test_login_declined_fails_call(
    oauth: OAuthServer, make_host: MakeHost, store: Path
) -> None:
    oauth.protects = only_calls
    host = await start(make_host, oauth.config, store)
    offers = 0

    async def decline(request: LoginRequest) -> bool:
        nonlocal offers
        offers += 1
        return False

    results = await asyncio.gather(*(call(host, "read", decline) for _ in range(3)))
    assert all(result.failure == "protocol" and LOGIN in result.text for result in results)
    assert offers == 1  # the others waited for the same answer
    assert (await call(host, "read", decline)).failure == "protocol" and offers == 2


async def test_login_is_not_offered_where_settings_authorize(
    oauth: OAuthServer, make_host: MakeHost, store: Path
) -> None:
    config = replace(oauth.config, headers={"Authorization": "Bearer wrong"})
    (state,) = (await start(make_host, config, store)).server_states()
    assert state.error == "rejects the Authorization of its settings (HTTP 401)"
    assert not state.needs_login


async def test_login_of_another_process_is_used(
    oauth: OAuthServer, make_host: MakeHost, store: Path
) -> None:
    oauth.protects = only_calls
    host, other = [await start(make_host, oauth.config, store) for _ in range(2)]
    assert LOGIN in (await call(host, "read")).text
    await other.log_in("guarded", Person().dialog())
    assert (await call(host, "read")).text == "read is done"


async def test_login_parallel_calls_ask_once(
    oauth: OAuthServer, make_host: MakeHost, store: Path
) -> None:
    oauth.protects = only_calls
    host, person = await start(make_host, oauth.config, store), Person()
    results = await asyncio.gather(*(call(host, "read", person.log_in) for _ in range(4)))
    assert {result.text for result in results} == {"read is done"} and len(person.offers) == 1


async def test_step_up_asks_for_all_scopes(
    oauth: OAuthServer, make_host: MakeHost, store: Path
) -> None:
    oauth.challenge_scope, oauth.scopes = "read", {"read": "read", "write": "write"}
    host, person = await start(make_host, oauth.config, store), Person()
    assert await host.offer_login("guarded", person.log_in)
    await host.wait_started()
    refused = await call(host, "write")
    assert f"with the scope write (HTTP 403): {LOGIN} --scope write" in refused.text
    assert (await call(host, "write", person.log_in)).text == "write is done"
    assert (await call(host, "read")).text == "read is done"
    asked = [request["scope"] for request in oauth.issuer.requests if "scope" in request]
    assert asked == ["read", "read write"]
    assert len(oauth.issuer.clients) == 1  # the second login is the first client's


async def test_scope_of_401_at_call_is_in_command(
    oauth: OAuthServer, make_host: MakeHost, store: Path
) -> None:
    """The command makes no call, so it could not learn the scope by itself."""
    oauth.protects, oauth.challenge_scope = only_calls, "read"
    host = await start(make_host, oauth.config, store)
    assert (await call(host, "read")).text.endswith(f"(HTTP 401): {LOGIN} --scope read")
    await host.log_in("guarded", Person().dialog(), scopes=["read"])
    assert oauth.issuer.requests[0]["scope"] == "read"
    assert (await call(host, "read")).text == "read is done"


async def test_login_with_scope_joins_what_the_server_names(
    make_host: MakeHost, store: Path
) -> None:
    """Without a login so far the scope comes on top of the server's own, and its metadata are used."""
    async with run_oauth_server(metadata_path="/about", challenge_scope="read") as oauth:
        host = await start(make_host, oauth.config, store)
        await host.log_in("guarded", Person().dialog(), scopes=["write"])
        assert oauth.issuer.requests[0]["scope"].split() == ["write", "read"]
        await host.wait_started()
        assert (await call(host, "read")).text == "read is done"
        oauth.grants = lambda scope: "read"
        with pytest.raises(LoginError, match="the scope write was not granted"):
            await host.log_in("guarded", Person().dialog(), scopes=["write"])


async def test_step_up_without_end_is_bounded(
    oauth: OAuthServer, make_host: MakeHost, store: Path
) -> None:
    oauth.protects, oauth.scopes = only_calls, {"write": "write"}
    host, person = await start(make_host, oauth.config, store), Person()

    async def log_in_for_nothing(request: LoginRequest) -> bool:
        done = await person.log_in(request)
        oauth.tokens.update(dict.fromkeys(oauth.tokens, ""))
        return done

    result = await call(host, "write", log_in_for_nothing)
    assert "refuses this, though the login has the scope write (HTTP 403)" in result.text
    assert len(person.offers) == 2
    again = await call(host, "write", log_in_for_nothing)
    assert again.text == result.text and len(person.offers) == 2
    oauth.grants = lambda scope: "read"
    oauth.scopes = {"write": "admin"}
    result = await call(host, "write", person.log_in)
    assert "--scope admin" in result.text
    assert person.errors == [
        "the login to guarded failed: it was done, but the scope admin was not granted"
    ]


async def test_revoked_token_is_renewed_or_wanted_again(
    oauth: OAuthServer, make_host: MakeHost, store: Path
) -> None:
    host, person = await start(make_host, oauth.config, store), Person()
    await host.log_in("guarded", person.dialog())
    await host.wait_started()
    oauth.tokens.clear()
    assert (await call(host, "read")).text == "read is done"
    oauth.tokens.clear()
    oauth.refresh_tokens.clear()
    assert f"requires a login (HTTP 401): {LOGIN}" in (await call(host, "read")).text
    assert "tokens" not in json.loads(store.read_text())[oauth.config.url]
    (state,) = (await start(make_host, oauth.config, store)).server_states()
    assert state.error == f"requires a login (HTTP 401): {LOGIN}"
    assert (await call(host, "read", person.log_in)).text == "read is done"


async def test_expired_token_renewed_by_another_process_is_used(
    oauth: OAuthServer, make_host: MakeHost, store: Path
) -> None:
    host, other = [await start(make_host, oauth.config, store) for _ in range(2)]
    await host.log_in("guarded", Person().dialog())
    other.reconnect("guarded")
    await host.wait_started()
    await other.wait_started()
    oauth.tokens.clear()
    assert (await call(host, "read")).text == (await call(other, "read")).text == "read is done"
    renewals = [r for r in oauth.issuer.requests if r.get("grant_type") == "refresh_token"]
    assert len(renewals) == 1
    oauth.tokens.clear()
    both = await asyncio.gather(call(host, "read"), call(other, "read"))
    assert [result.text for result in both] == ["read is done"] * 2
    assert "tokens" in json.loads(store.read_text())[oauth.config.url]
    renewals = [r for r in oauth.issuer.requests if r.get("grant_type") == "refresh_token"]
    assert len(renewals) == 2, "a refresh token counts once"


async def test_authorization_server_change_registers_anew(
    oauth: OAuthServer, make_host: MakeHost, store: Path
) -> None:
    host, person = await start(make_host, oauth.config, store), Person()
    await host.log_in("guarded", person.dialog())
    await host.wait_started()
    (first,) = oauth.issuer.clients
    second = oauth.use_issuer("/as2")
    oauth.tokens.clear()
    oauth.refresh_tokens.clear()
    assert (await call(host, "read", person.log_in)).text == "read is done"
    assert second.clients and all(first not in r.values() for r in second.requests)


@pytest.mark.parametrize("methods", [None, ["client_secret_post"], ["none"]])
async def test_client_of_settings_is_used(
    oauth: OAuthServer, make_host: MakeHost, store: Path, methods: list[str] | None
) -> None:
    oauth.registers, oauth.auth_methods, port = False, methods, free_port()
    secret = "" if methods == ["none"] else "hush"
    oauth.issuer.clients["mine"] = {
        "redirect_uris": [f"http://127.0.0.1:{port}/callback"],
        **({"client_secret": secret} if secret else {}),
    }
    settings = OAuthSettings("mine", secret, ("extra",), port)
    config = replace(oauth.config, oauth=settings)
    host = await start(make_host, config, store)
    await host.log_in("guarded", Person().dialog())
    await host.wait_started()
    oauth.tokens.clear()
    assert (await call(host, "read")).text == "read is done"
    page, token, renewal = oauth.issuer.requests
    assert page["scope"] == "extra" and renewal["grant_type"] == "refresh_token"
    for request in (token, renewal):
        assert ("basic" in request) == (methods is None)
        assert request.get("client_secret", "") == secret
    assert "hush" not in store.read_text()
    # Its client is not shown to another authorization server.
    second = oauth.use_issuer("/as2")
    with pytest.raises(LoginError, match=r"is now .*/as2, but .* used at .*/as1"):
        await host.log_in("guarded", Person().dialog())
    assert not second.requests


async def test_no_registration_is_tried_where_none_is_advertised(
    oauth: OAuthServer, store: Path
) -> None:
    oauth.registers = False
    with pytest.raises(LoginError, match=r'registers no clients.*"oauth": {"client_id"'):
        await log_in(oauth.config, CredentialStore(store), Person().dialog(), LoginChallenge())
    assert not any("register" in path for path in oauth.seen)


async def test_refused_registration_names_client_of_settings(
    oauth: OAuthServer, store: Path
) -> None:
    oauth.refuses_clients = True
    with pytest.raises(LoginError) as failed:
        await log_in(oauth.config, CredentialStore(store), Person().dialog(), LoginChallenge())
    assert "does not register this program (HTTP 403): access_denied; " in str(failed.value)
    assert '"oauth": {"client_id": …' in str(failed.value)


@pytest.mark.parametrize(
    ("root", "problem"),
    [
        (("", "/", "/"), None),
        (("/", "", ""), None),
        (("", "/", ""), "iss mismatch"),
        (("", "/as1", "/as1"), "issuer mismatch"),
        (("/as1", "/as1/", "/as1/"), "issuer mismatch"),
    ],
)
async def test_issuer_of_a_root_with_and_without_slash_is_one(
    oauth: OAuthServer, store: Path, root: tuple[str, str, str], problem: str | None
) -> None:
    oauth.root = root
    login = log_in(oauth.config, CredentialStore(store), Person().dialog(), LoginChallenge())
    if problem is None:
        await login
        assert oauth.tokens
    else:
        with pytest.raises(LoginError, match=problem):
            await login


async def test_query_of_authorization_endpoint_stays(oauth: OAuthServer, store: Path) -> None:
    for oauth.page_query in ("?tenant=7", "?", "?p=a%20b&"):
        person = Person()
        await log_in(oauth.config, CredentialStore(store), person.dialog(), LoginChallenge())
        page = oauth.issuer.requests[-2]
        assert page["response_type"] == "code" and person.pages[0][0].count("?") == 1
    assert page["p"] == "a b"


async def test_token_in_other_forms(oauth: OAuthServer, store: Path) -> None:
    oauth.token_answer = "form"
    await log_in(oauth.config, CredentialStore(store), Person().dialog(), LoginChallenge())
    tokens = CredentialStore(store).load(f"{oauth.base}/mcp")["tokens"]
    assert tokens["access_token"] in oauth.tokens and tokens["expires_in"] == 3600
    oauth.token_answer = "error"
    with pytest.raises(LoginError, match=r"no token \(HTTP 200\): bad_code The code is spent\.$"):
        await log_in(oauth.config, CredentialStore(store), Person().dialog(), LoginChallenge())


@pytest.mark.parametrize("scopes", [(), ("all",)])
async def test_client_credentials_need_nobody(
    oauth: OAuthServer, make_host: MakeHost, store: Path, scopes: tuple[str, ...]
) -> None:
    oauth.registers, oauth.challenge_scope = False, "read"
    oauth.issuer.clients["ci"] = {"client_secret": "hush"}
    settings = OAuthSettings("ci", "hush", scopes, grant_type="client_credentials")
    config = replace(oauth.config, oauth=settings)
    host = await start(make_host, config, store)
    assert (await call(host, "read")).text == "read is done"
    oauth.tokens.clear()
    oauth.refresh_tokens.clear()
    assert (await call(host, "read")).text == "read is done"
    scope = "all" if scopes else "read"
    for request in oauth.issuer.requests:
        assert (request["grant_type"], request["scope"]) == ("client_credentials", scope)
        assert request["client_secret"] == "hush" and request["resource"] == config.url
    assert len(oauth.issuer.requests) == 2 and "hush" not in store.read_text()
    # Its secret is not shown to another authorization server.
    second = oauth.use_issuer("/as2")
    oauth.tokens.clear()
    assert (await call(host, "read")).failed and not second.requests


async def test_wrong_client_credentials_are_reported(
    oauth: OAuthServer, make_host: MakeHost, store: Path
) -> None:
    settings = OAuthSettings("ci", "wrong", grant_type="client_credentials")
    host = await start(make_host, replace(oauth.config, oauth=settings), store)
    (state,) = host.server_states()
    assert "gives no token (HTTP 401): invalid_client" in str(state.error)


async def test_html_errors_are_left_out(oauth: OAuthServer, store: Path) -> None:
    oauth.html_errors = True
    config = replace(oauth.config, oauth=OAuthSettings("unknown", "no", (), free_port()))
    oauth.issuer.clients["unknown"] = {
        "client_secret": "yes",
        "redirect_uris": [f"http://127.0.0.1:{config.oauth.redirect_port}/callback"],
    }
    with pytest.raises(LoginError) as failed:
        await log_in(config, CredentialStore(store), Person().dialog(), LoginChallenge())
    assert "gives no token (HTTP 401)" in str(failed.value) and "<" not in str(failed.value)


async def test_device_login(oauth: OAuthServer, make_host: MakeHost, store: Path) -> None:
    host, person = await start(make_host, oauth.config, store), Person()
    with pytest.raises(LoginError, match="has no device login"):
        await host.log_in("guarded", person.dialog(device=True))
    oauth.device, oauth.device_pending, oauth.challenge_scope = True, 2, "read"
    await host.log_in("guarded", person.dialog(device=True))
    await host.wait_started()
    assert person.pages == [(f"{oauth.base}/enter", "ABCD-EFGH")]
    assert (await call(host, "read")).text == "read is done"
    assert set(oauth.tokens.values()) == {"read"}


@pytest.mark.parametrize("pasted", ["address", "code"])
async def test_pasted_result_of_another_machine(
    oauth: OAuthServer, make_host: MakeHost, store: Path, pasted: str
) -> None:
    oauth.iss = pasted == "address"
    host = await start(make_host, oauth.config, store)
    lines: asyncio.Queue[str] = asyncio.Queue()

    async def visit(url: str) -> None:
        """Log in where the page that the browser is sent to cannot be reached."""
        import httpx2

        async with httpx2.AsyncClient() as browser:
            address = httpx2.URL((await browser.get(url)).headers["location"])
        lines.put_nowait(str(address) if pasted == "address" else address.params["code"])

    visits = []

    def show(url: str, code: str) -> None:
        visits.append(asyncio.create_task(visit(url)))

    await host.log_in("guarded", LoginDialog(show, lines.get, browser=False))
    await host.wait_started()
    assert (await call(host, "read")).text == "read is done"


async def test_pasted_text_without_code_does_not_end_login(
    oauth: OAuthServer, make_host: MakeHost, store: Path
) -> None:
    """Whoever can be warned pastes again; where nobody can, the error says what was wrong."""
    host = await start(make_host, oauth.config, store)
    lines: asyncio.Queue[str] = asyncio.Queue()
    pages: list[str] = []
    warnings: list[str] = []
    visits: list[asyncio.Task[int]] = []

    def show(url: str, code: str) -> None:
        pages.append(url)
        for text in (url, "no code"):
            lines.put_nowait(text)

    def warn(text: str) -> None:
        warnings.append(text)
        if len(warnings) == 2:
            visits.append(asyncio.create_task(open_page(pages[0])))

    await host.log_in("guarded", LoginDialog(show, lines.get, browser=False, warn=warn))
    await host.wait_started()
    assert (await call(host, "read")).text == "read is done"
    assert "that is the login page" in warnings[0] and "no code in that" in warnings[1]
    with pytest.raises(LoginError, match="the login to guarded failed: that is the login page"):
        await host.log_in("guarded", LoginDialog(show, lines.get, browser=False))


async def test_login_that_nobody_wants(
    oauth: OAuthServer, make_host: MakeHost, store: Path
) -> None:
    oauth.protects = lambda method: False
    other = ServerConfig("other", url=f"{oauth.base}/nothing")
    host = make_host(oauth.config, other, credentials_file=store)
    with pytest.raises(LoginError, match=r"the server other answered its start with HTTP 404"):
        await host.log_in("other", Person().dialog())
    await host.log_in("guarded", Person().dialog())  # its metadata offer one all the same
