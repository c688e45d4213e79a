"""A login as those see it who ask the person for one; ``oauth`` performs it."""

import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agent.errors import AgentError
from tools.config.servers import ServerConfig


class LoginError(AgentError):
    """The login failed; the message is one sentence for the person, or the end of one."""


@dataclass(frozen=True, slots=True)
class LoginChallenge:
    """A server's demand for a login: the ``WWW-Authenticate`` header of its refusal (RFC 6750, section
    3; RFC 9728, section 5.1)."""

    status: int = 401
    """The HTTP status. 401: there is no valid token; 403: the token lacks a scope."""
    scope: str = ""
    """The scopes that the request needs, separated by spaces; empty if the server names none."""
    resource_metadata: str | None = None
    """The URL of the protected resource's metadata."""

    @property
    def wish(self) -> str:
        """The predicate of a sentence that says what the server wants."""
        if self.status != 403:
            return "requires a login"
        scopes = " and ".join(self.scope.split())
        return f"requires a login with {f'the scope {scopes}' if scopes else 'more rights'}"

    def describe(self, config: ServerConfig) -> str:
        # The name of a server of --mcp is in no file.
        target = (config.url if config.trusted else None) or config.name
        scopes = [word for scope in self.scope.split() for word in ("--scope", scope)]
        command = ["agent", "mcp", "login", target, *scopes]
        return f"{self.wish} (HTTP {self.status}): {shlex.join(command)}"


def logs_in(config: ServerConfig) -> bool:
    """Whether logins count: it has a URL, is the person's, and has no Authorization configured."""
    return config.url is not None and not config.client_network and not config.has_authorization


class LoginRequiredError(AgentError):
    """A request was refused until the person logs in."""

    def __init__(self, challenge: LoginChallenge) -> None:
        super().__init__(f"HTTP {challenge.status}")
        self.challenge = challenge


@dataclass(frozen=True, slots=True)
class LoginDialog:
    """Callbacks by which the person takes part in a login."""

    show: Callable[[str, str], None]
    """Gets the address of the page, and the code to type there (empty: none)."""
    paste: Callable[[], Awaitable[str]] | None = None
    """Returns what the person pastes: the address that the browser was sent to, or its code."""
    browser: bool = True
    """Whether to open the page here."""
    device: bool = False
    """Whether to log in by device: on a page that any machine may open."""
    warn: Callable[[str], None] | None = None
    """Gets a clause about a wrong paste, before ``paste`` is called again; None: the login fails."""


@dataclass(frozen=True, slots=True)
class LoginRequest:
    """A server wants a login before it continues."""

    server: str
    message: str
    """One sentence: what it wants."""
    log_in: Callable[[LoginDialog], Awaitable[None]]
    """Logs in; raises LoginError."""


OnLogin = Callable[[LoginRequest], Awaitable[bool]]
"""Asks the person whether to log in, and does it; returns whether it was done."""
