"""Asks the person on a terminal to log in to an MCP server."""

import asyncio
import os
import sys
from contextlib import suppress

from agent.util.sanitize import echo
from tools.mcp.login import LoginDialog, LoginError, LoginRequest
from tools.sanitize import clean_line


def terminal_dialog(*, browser: bool = True, device: bool = False) -> LoginDialog:
    def show(url: str, code: str) -> None:
        with_code = f"  and type the code {clean_line(code)}" if code else ""
        echo(f"Log in here: {clean_line(url)}{with_code}", file=sys.stderr)
        if not code and _has_input():
            echo(
                "If that browser is on another machine, paste the address that it ends at here:",
                file=sys.stderr,
            )

    def warn(problem: str) -> None:
        echo(f"agent: {problem}.", file=sys.stderr)

    return LoginDialog(show, _wait_for_line if _has_input() else None, browser, device, warn)


async def ask_login(request: LoginRequest) -> bool:
    echo(f"\n{request.message} Log in now? [Y/n] ", end="", file=sys.stderr)
    if (await _wait_for_line()).strip().lower() not in ("", "y", "yes"):
        return False
    try:
        await request.log_in(terminal_dialog())
    except LoginError as error:
        echo(f"agent: {error}", file=sys.stderr)
        return False
    echo(f"Logged in to {request.server}.", file=sys.stderr)
    return True


def _has_input() -> bool:
    if sys.stdin is None or sys.stdin.closed:
        return False
    try:
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), lambda: None)
        loop.remove_reader(sys.stdin.fileno())
    except (OSError, RuntimeError, ValueError):
        return False  # a file, which is always ready
    return True


async def _wait_for_line() -> str:
    """Read a line; at the end of stdin wait for good, as the login may end in the browser."""
    try:
        return await read_line()
    except EOFError:
        await asyncio.Event().wait()
        raise


async def read_line() -> str:
    """Read a line from stdin without a thread, which could not be ended. Raises EOFError at its end."""
    loop, file = asyncio.get_running_loop(), sys.stdin.fileno()
    line = bytearray()
    while not line.endswith(b"\n"):
        ready = asyncio.Event()
        with suppress(PermissionError):  # a file, which is always ready
            loop.add_reader(file, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_reader(file)
        if not (data := os.read(file, 1)):
            if line:
                break
            raise EOFError
        line += data
    return line.decode("utf-8", "replace")
