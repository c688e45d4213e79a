"""How a turn ends that does not run to its end."""

from __future__ import annotations

from typing import Literal

from agent.errors import AgentError

StopReason = Literal["cancelled", "timeout"]
"""Why a turn was asked to end."""

RATE_LIMIT = "rate_limit_exceeded"
"""Error code of a turn for which the engine had no place."""


class TurnCancelledError(AgentError):
    """The turn was asked to end."""


class TurnFailedError(AgentError):
    """The turn cannot go on.

    ``code`` and the message become the response's error; ``exit_code`` is that of a command.
    """

    def __init__(self, code: str, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.code, self.exit_code = code, exit_code
