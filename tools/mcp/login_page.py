"""Waits for the end of a login in the browser: on a page of this machine, or by its pasted address."""

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

from mcp.client.auth.exceptions import OAuthFlowError
from mcp.shared.auth import AuthorizationCodeResult

from tools.mcp.login import LoginDialog

LOGIN_TIMEOUT_SECONDS = 300.0
CALLBACK_PATH = "/callback"


class LoginPage:
    """The page; ``url`` is its address."""

    def __init__(self) -> None:
        self.port = 0
        """The local port, once the page is served."""
        self.result = asyncio.Future[AuthorizationCodeResult]()
        self.authorization_url = ""
        """The page that the person opens."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{CALLBACK_PATH}"

    async def wait(self, dialog: LoginDialog) -> AuthorizationCodeResult:
        """Return the code, from the browser or pasted. Raises TimeoutError and OAuthFlowError."""
        paste, warn = dialog.paste, dialog.warn
        pasting = asyncio.ensure_future(self._read_pasted(paste, warn)) if paste else None
        try:
            async with asyncio.timeout(LOGIN_TIMEOUT_SECONDS):
                return await asyncio.shield(self.result)
        finally:
            if pasting is not None:
                pasting.cancel()
                await asyncio.gather(pasting, return_exceptions=True)

    async def _read_pasted(
        self, paste: Callable[[], Awaitable[str]], warn: Callable[[str], None] | None
    ) -> None:
        while not self.result.done():
            text = (await paste()).strip()
            problem = self._take_pasted(text) if text else None
            if problem and warn:
                warn(problem)
            elif problem and not self.result.done():
                self.result.set_exception(OAuthFlowError(problem))

    def _take_pasted(self, text: str) -> str | None:
        """Take the address of this page, or only the code of it; return why that is impossible."""
        query = _query(text)
        if "code" not in query and "error" not in query:
            if text == self.authorization_url:
                return "that is the login page: log in there, and paste the address that it ends at"
            if "://" in text or len(text.split()) > 1:
                return "there is no code in that: paste the address that the login page ends at"
            # The state that belongs to a code without its address is our own: the code's PKCE
            # challenge is checked by the server all the same.
            query = {"code": text, "state": self._state}
        return None if self._resolve(query) else "that is the end of another login"

    @property
    def _state(self) -> str:
        """The secret that only the login's own redirect contains."""
        return _query(self.authorization_url).get("state", "")

    def _resolve(self, query: dict[str, str]) -> bool:
        """Complete the login with the query parameters of the redirect; False: they are not its."""
        if not self._state or query.get("state") != self._state:
            return False
        if self.result.done():
            return True
        if "error" in query:
            reason = query.get("error_description") or query["error"]
            self.result.set_exception(OAuthFlowError(f"it was refused: {reason[:300]}"))
        else:
            fields = {key: query.get(key) for key in ("code", "state", "iss")}
            self.result.set_result(AuthorizationCodeResult.model_validate(fields))
        return True

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            line = (await asyncio.wait_for(reader.readline(), 10)).decode("latin-1").split(" ")
            target = line[1] if len(line) > 1 else ""
            query = _query(target)
            good = urlsplit(target).path == CALLBACK_PATH and ("code" in query or "error" in query)
            good = good and self._resolve(query)
            text = "You can close this page." if good else "There is nothing here."
            status = "200 OK" if good else "404 Not Found"
            head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}"
            writer.write(f"{head}\r\nConnection: close\r\n\r\n{text}".encode())
            await writer.drain()
        writer.close()


@asynccontextmanager
async def serve_login_page(port: int, *, required: bool) -> AsyncIterator[LoginPage]:
    """Serve it on a local port (0: any), or on another unless it is ``required``. Raises OSError."""
    page = LoginPage()
    try:
        server = await asyncio.start_server(page.answer, "127.0.0.1", port)
    except OSError as error:
        if required or error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        server = await asyncio.start_server(page.answer, "127.0.0.1", 0)
    page.port = server.sockets[0].getsockname()[1]
    try:
        yield page
    finally:
        server.close()
        page.result.cancel()


def _query(url: str) -> dict[str, str]:
    return {key: values[0] for key, values in parse_qs(urlsplit(url).query).items()}
