"""Logging in to a server, as with a browser, and what is kept of it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import httpx2
import pytest

from tests.support.hosts import SERVERS, Hosting, answers, tool, until
from tools.config.servers import ServerConfig
from tools.mcp.credentials import Tokens
from tools.mcp.oauth import LoginFailed, forget, log_in

pytestmark = pytest.mark.slow


def started(port: int, lasts: int) -> subprocess.Popen[bytes]:
    path = str(SERVERS / "guarded.py")
    return subprocess.Popen([sys.executable, "-I", path, str(port), str(lasts)])


@pytest.fixture(params=[3600, 1], ids=["lasting", "short"])
async def guarded(request: pytest.FixtureRequest, port: int) -> AsyncIterator[ServerConfig]:
    process = started(port, request.param)
    try:
        await until(lambda: answers(port))
        yield ServerConfig("guarded", url=f"http://127.0.0.1:{port}/mcp")
    finally:
        process.kill()
        process.wait()


async def browse(page: str) -> int:
    """What the person does: open the page, follow where it leads."""
    async with httpx2.AsyncClient(follow_redirects=True, timeout=60) as browser:
        return (await browser.get(page)).status_code


async def test_a_login_is_kept_and_renewed(
    guarded: ServerConfig,
    hosting: Hosting,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tools.mcp.oauth.EARLY", 0.0)
    file = tmp_path / "state" / "tokens.json"
    locked = hosting(guarded, tokens=file)
    await locked.start()
    await locked.settled()
    assert locked.servers()[0].error == "wants a login (HTTP 401): agent mcp login guarded"

    login = asyncio.create_task(log_in(guarded, Tokens(file), browser=False))
    seen = ""

    def page() -> bool:
        nonlocal seen
        seen += capsys.readouterr().err
        return "Log in here: " in seen and seen.endswith("\n")

    await until(page)
    assert await browse(seen.partition("Log in here: ")[2].strip()) == 200
    await login
    assert file.stat().st_mode & 0o777 == 0o600
    (kept,) = json.loads(file.read_text()).values()
    first = kept["tokens"]["access_token"]

    host = hosting(guarded, tokens=file)
    await host.start()
    if kept["tokens"]["expires_in"] == 1:
        await until(lambda: time.time() > kept["expires_at"])
    await host.settled()
    assert (await host.call(tool(host, "guarded__secret"), {})).text.startswith("the treasure")
    if kept["tokens"]["expires_in"] == 1:
        (renewed,) = json.loads(file.read_text()).values()
        assert renewed["tokens"]["access_token"] != first

    forget(guarded, Tokens(file))
    again = hosting(guarded, tokens=file)
    await again.start()
    await again.settled()
    assert "wants a login" in (again.servers()[0].error or "")


@pytest.mark.parametrize("guarded", [3600], indirect=True)
async def test_a_login_that_is_refused_or_not_wanted(
    guarded: ServerConfig,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    port: int,
) -> None:
    login = asyncio.create_task(log_in(guarded, Tokens(tmp_path / "t"), browser=False))
    seen = ""

    def page() -> bool:
        nonlocal seen
        seen += capsys.readouterr().err
        return "redirect_uri=" in seen and seen.endswith("\n")

    await until(page)
    address = httpx2.URL(seen.partition("Log in here: ")[2].strip()).params["redirect_uri"]
    await browse(f"{address}?error=access_denied&error_description=not+you")
    with pytest.raises(LoginFailed, match="refused: not you"):
        await login
    other = ServerConfig("other", url=f"http://127.0.0.1:{port}/nothing")
    with pytest.raises(LoginFailed, match="answers with HTTP 404"):
        await log_in(other, Tokens(tmp_path / "t"), browser=False)


def test_the_keyring_is_used_where_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: dict[tuple[str, str], str] = {}
    keyring = SimpleNamespace(
        get_keyring=lambda: SimpleNamespace(priority=5),
        get_password=lambda service, name: kept.get((service, name)),
        set_password=lambda service, name, text: kept.__setitem__((service, name), text),
        delete_password=lambda service, name: kept.pop((service, name)),
    )
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    file = tmp_path / "tokens.json"
    Tokens(file).save("https://a", {"tokens": 1})
    assert Tokens(file).load("https://a") == {"tokens": 1} and not file.exists()
    Tokens(file).save("https://a", {})
    assert not kept and Tokens(file).load("https://a") == {}
    keyring.set_password = lambda *_: 1 / 0  # locked, say
    Tokens(file).save("https://a", {"tokens": 2})
    assert Tokens(file).load("https://a") == {"tokens": 2}
    assert file.stat().st_mode & 0o777 == 0o600
