"""The state of a login by device (RFC 8628): a page that any machine may open, and a code for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import httpx2
from pydantic_core import from_json

from tools.mcp.login import LoginError

DEFAULT_INTERVAL_SECONDS = 5.0
"""Pause between two questions whether the login is done, if unnamed; and its growth (section 3.5)."""
MAX_LIFETIME_SECONDS = 1800.0
"""Upper limit for the lifetime of a login that the server sets."""


class DeviceLogin:
    """One login by device."""

    def __init__(self, request: httpx2.Request) -> None:
        """``request``: the one that the server answers with the codes."""
        self.request = request
        self.code = ""
        """The code by which this program asks for the token."""
        self.interval = DEFAULT_INTERVAL_SECONDS
        """Seconds between two questions whether the login is done."""

    def begin(self, response: httpx2.Response, show: Callable[[str, str], None]) -> float:
        """Read the codes, show them and the page; return the seconds left. Raises LoginError."""
        values = _fields(response)
        self.code = str(values.get("device_code") or "")
        page, user_code = str(values.get("verification_uri") or ""), values.get("user_code")
        if response.status_code != 200 or not self.code or not _is_web_address(page):
            error = f": {values['error']}" if isinstance(values.get("error"), str) else ""
            raise LoginError(
                "its authorization server does not begin a device login"
                f" (HTTP {response.status_code}){error[:100]}"
            )
        self.interval = _seconds(values.get("interval"), DEFAULT_INTERVAL_SECONDS)
        show(page, str(user_code or ""))
        return min(_seconds(values.get("expires_in"), math.inf), MAX_LIFETIME_SECONDS)

    def is_pending(self, response: httpx2.Response) -> bool:
        """Return whether the token is to be asked for again, after ``interval`` seconds."""
        if response.request is self.request:
            return True
        error = _fields(response).get("error")
        if error == "slow_down":
            self.interval += DEFAULT_INTERVAL_SECONDS
        return error in ("authorization_pending", "slow_down")


def _fields(response: httpx2.Response) -> dict[str, Any]:
    try:
        values = from_json(response.content)
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


def _seconds(value: Any, default: float) -> float:
    valid = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    return float(value) if valid else default


def _is_web_address(text: str) -> bool:
    return text.startswith(("https://", "http://")) and text.isprintable()
