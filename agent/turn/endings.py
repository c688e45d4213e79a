"""The ends of turns that do not complete."""

from enum import Enum
from typing import Literal

from agent.errors import AgentError

StopReason = Literal["cancelled", "timeout"]

RATE_LIMIT = "rate_limit_exceeded"
"""Error code of a turn for which the engine had no place."""


class EndReason(Enum):
    """The reason for a generation's end; except for `STOP`, its output is incomplete."""

    STOP = "stop"
    LENGTH = "length"
    CONTEXT = "context"
    CANCELLED = "cancelled"
    LOOP = "loop"
    CUT_CALL = "cut call"
    UNFINISHED = "unfinished"
    UNANSWERED = "unanswered"


CUT_OFF = {
    EndReason.LENGTH: "The answer was cut off: --max-output-tokens is used up.",
    EndReason.CONTEXT: "The answer was cut off: the context is full.",
    EndReason.CUT_CALL: "The answer was cut off: the model ended a call within an argument.",
    EndReason.UNFINISHED: "The model ended in the middle of its answer.",
    EndReason.UNANSWERED: "The model ended without an answer, also when it was asked to continue.",
    EndReason.LOOP: "The model repeated itself and was stopped; what it wrote is kept. Try again, or"
    " allow it with --no-loop-guard.",
}
TIMED_OUT = "The time of --timeout is over; the partial answer is kept."


class TurnCancelledError(AgentError):
    """The turn was asked to end."""


class TurnFailedError(AgentError):
    """The turn cannot continue; ``code``: of the response's error, ``exit_code``: of a command."""

    def __init__(self, code: str, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.code, self.exit_code = code, exit_code
