"""The person's own turn, as the controllers run it and the screen displays it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.turn.context import RunningTurn
    from tui.state.turn_view import TurnView


@dataclass(slots=True)
class OwnTurn:
    """The turn that is running, or that ran last in the open conversation."""

    running: RunningTurn | None = None
    view: TurnView | None = None
    """The view of the turn that is running, or that ran last."""
    latest: RunningTurn | None = None
    """The turn of ``view``; None also after the prompt has changed: its tokens are outdated."""
