"""Logging in to a server, as with a browser, and what is stored of it."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import httpx2
import pytest

from tests.support.hosts import MakeHost, tool, wait_until
from tests.support.oauth import open_page
from tools.config.servers import ServerConfig
from tools.mcp.credentials import CredentialStore
from tools.mcp.oauth import LoginError, log_in, log_out

pytestmark = pytest.mark.slow


async def test_login_stored_and_renewed(
    oauth_server: ServerConfig,
    make_host: MakeHost,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tools.mcp.oauth.RENEWAL_MARGIN_SECONDS", 0.0)
    file = tmp_path / "state" / "tokens.json"
    locked = make_host(oauth_server, credentials_file=file)
    await locked.start()
    await locked.wait_settled()
    assert locked.server_states()[0].error == "requires a login (HTTP 401): agent mcp login guarded"

    login = asyncio.create_task(log_in(oauth_server, CredentialStore(file), browser=False))
    seen = ""

    def page() -> bool:
        nonlocal seen
        seen += capsys.readouterr().err
        return "Log in here: " in seen and seen.endswith("\n")

    await wait_until(page)
    assert await open_page(seen.partition("Log in here: ")[2].strip()) == 200
    await login
    assert file.stat().st_mode & 0o777 == 0o600
    (stored,) = json.loads(file.read_text()).values()
    first = stored["tokens"]["access_token"]

    host = make_host(oauth_server, credentials_file=file)
    await host.start()
    if stored["tokens"]["expires_in"] == 1:
        await wait_until(lambda: time.time() > stored["expires_at"])
    await host.wait_settled()
    assert (await host.call(tool(host, "guarded__secret"), {})).text.startswith("the treasure")
    if stored["tokens"]["expires_in"] == 1:
        (renewed,) = json.loads(file.read_text()).values()
        assert renewed["tokens"]["access_token"] != first

    log_out(oauth_server, CredentialStore(file))
    again = make_host(oauth_server, credentials_file=file)
    await again.start()
    await again.wait_settled()
    assert "requires a login" in (again.server_states()[0].error or "")


@pytest.mark.parametrize("oauth_server", [3600], indirect=True)
async def test_login_refused_or_not_needed(
    oauth_server: ServerConfig,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    port: int,
) -> None:
    login = asyncio.create_task(
        log_in(oauth_server, CredentialStore(tmp_path / "t"), browser=False)
    )
    seen = ""

    def page() -> bool:
        nonlocal seen
        seen += capsys.readouterr().err
        return "redirect_uri=" in seen and seen.endswith("\n")

    await wait_until(page)
    address = httpx2.URL(seen.partition("Log in here: ")[2].strip()).params["redirect_uri"]
    await open_page(f"{address}?error=access_denied&error_description=not+you")
    with pytest.raises(LoginError, match="refused: not you"):
        await login
    other = ServerConfig("other", url=f"http://127.0.0.1:{port}/nothing")
    with pytest.raises(LoginError, match="answers with HTTP 404"):
        await log_in(other, CredentialStore(tmp_path / "t"), browser=False)


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
