"""Commands that change what the turns from now on are told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, cast

from tui.commands.registry import Choice, Command

if TYPE_CHECKING:
    from tui.app import AgentApp

EFFORTS = {"low": "answers soon", "medium": "the default", "high": "thinks long"}


async def effort(app: AgentApp, level: str) -> None:
    from agent.errors import UserError

    session = app.session
    if level and level not in EFFORTS:
        raise UserError(f"/effort takes {', '.join(EFFORTS)}, not {level}.")
    if level:
        chosen = cast(Literal["low", "medium", "high"], level)
        session.options = replace(session.options, effort=chosen)
    app.notify(f"Effort: {session.options.effort}", markup=False)


def efforts(app: AgentApp, written: str) -> Iterable[Choice]:
    return (Choice(level, about) for level, about in EFFORTS.items())


async def system(app: AgentApp, text: str) -> None:
    from agent.setup import text_of

    session = app.session
    if text:
        told = None if text == "off" else text_of(text, "/system")
        session.options = replace(session.options, instructions=told)
    now = session.options.instructions
    app.chat.say(f"The model is told: {now}" if now else "The model is told no instructions.")


COMMANDS = (
    Command("effort", "how long the model thinks", effort, "low|medium|high", efforts),
    Command("system", "instructions for the model", system, "[TEXT|@FILE|off]"),
)
