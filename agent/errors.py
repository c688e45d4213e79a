"""The root of the program's exceptions. Imports nothing: every package may import it."""

from __future__ import annotations


class AgentError(Exception):
    """Base class of every exception that this program defines."""


class UserError(AgentError):
    """Wrong options or files; a command prints the message on stderr and exits with code 2."""
