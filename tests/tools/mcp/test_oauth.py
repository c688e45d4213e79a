"""Logging in to a server, as with a browser, and what is stored of it."""

import asyncio
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import httpx2
import pytest

from tests.support.hosts import MakeHost, tool
from tests.support.oauth import open_page
from tests.support.waiting import wait_until
from tools.config.servers import ServerConfig
from tools.mcp.credentials import CredentialStore
from tools.mcp.login import LoginDialog, LoginError
from tools.mcp.oauth import log_in, log_out

pytestmark = pytest.mark.slow


async def test_login_stored_and_renewed(
    oauth_server: ServerConfig, make_host: MakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.mcp.stored_login.RENEWAL_MARGIN_SECONDS", 0.0)
    file = tmp_path / "state" / "tokens.json"
    locked = make_host(oauth_server, credentials_file=file)
    await locked.start()
    await locked.wait_started()
    assert locked.server_states()[0].error == "requires a login (HTTP 401): agent mcp login guarded"

    pages: list[str] = []
    dialog = LoginDialog(lambda url, code: pages.append(url), browser=False)
    login = asyncio.create_task(log_in(oauth_server, CredentialStore(file), dialog))
    await wait_until(lambda: pages)
    assert await open_page(pages[0]) == 200
    await login
    assert file.stat().st_mode & 0o777 == 0o600
    (stored,) = json.loads(file.read_text()).values()
    first = stored["tokens"]["access_token"]

    host = make_host(oauth_server, credentials_file=file)
    await host.start()
    if stored["tokens"]["expires_in"] == 1:
        await wait_until(lambda: time.time() > stored["expires_at"])
    await host.wait_started()
    assert (await host.call(tool(host, "guarded__secret"), {})).text.startswith("the treasure")
    if stored["tokens"]["expires_in"] == 1:
        (renewed,) = json.loads(file.read_text()).values()
        assert renewed["tokens"]["access_token"] != first

    log_out(oauth_server, CredentialStore(file))
    again = make_host(oauth_server, credentials_file=file)
    await again.start()
    await again.wait_started()
    assert "requires a login" in (again.server_states()[0].error or "")


@pytest.mark.parametrize("oauth_server", [3600], indirect=True)
async def test_login_refused(oauth_server: ServerConfig, tmp_path: Path, port: int) -> None:
    pages: list[str] = []
    dialog = LoginDialog(lambda url, code: pages.append(url), browser=False)
    login = asyncio.create_task(log_in(oauth_server, CredentialStore(tmp_path / "t"), dialog))
    await wait_until(lambda: pages)
    query = httpx2.URL(pages[0]).params
    address, state = query["redirect_uri"], query["state"]
    for strangers in ("error=x&error_description=evil", "code=x&state=", "error=x&state=x"):
        assert await open_page(f"{address}?{strangers}") == 404
    await open_page(f"{address}?error=access_denied&error_description=not+you&state={state}")
    with pytest.raises(LoginError, match="refused: not you"):
        await login


def test_keyring_used_if_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored: dict[tuple[str, str], str] = {}
    keyring = SimpleNamespace(
        get_keyring=lambda: SimpleNamespace(priority=5),
        get_password=lambda service, name: stored.get((service, name)),
        set_password=lambda service, name, text: stored.__setitem__((service, name), text),
        delete_password=lambda service, name: stored.pop((service, name)),
    )
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    file = tmp_path / "tokens.json"
    CredentialStore(file).save("https://a", {"tokens": 1})
    assert CredentialStore(file).load("https://a") == {"tokens": 1} and not file.exists()
    CredentialStore(file).save("https://a", {})
    assert not stored and CredentialStore(file).load("https://a") == {}
    keyring.set_password = lambda *_: 1 / 0  # locked, say
    CredentialStore(file).save("https://a", {"tokens": 2})
    assert CredentialStore(file).load("https://a") == {"tokens": 2}
    assert file.stat().st_mode & 0o777 == 0o600
