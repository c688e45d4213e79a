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
    from agent.bootstrap import text_of

    session = app.session
    if text:
        told = None if text == "off" else text_of(text, "/system")
        session.options = replace(session.options, instructions=told)
    now = session.options.instructions
    app.chat.say(f"The model is told: {now}" if now else "The model is told no instructions.")


async def tools(app: AgentApp, said: str) -> None:
    known, chosen = app.session.runtime.host.tools(), app.session.toolset
    if said:
        chosen.choose(said, known)
    names = [f"{one.server}.{one.name}" for one in known]
    used = [name for name, one in zip(names, known, strict=True) if chosen.offers(one)]
    unused = [name for name in names if name not in used]
    lines = [f"The model has: {', '.join(used) or 'no tools'}."]
    if unused:
        lines.append(f"Not offered: {', '.join(unused)}.")
    app.chat.say("\n".join(lines))


def toolsets(app: AgentApp, written: str) -> Iterable[Choice]:
    """The last name of a list that is being written."""
    before = written.rpartition(",")[0]
    yield Choice("all", "everything there is")
    yield Choice("none", "the model answers by itself")
    for server in dict.fromkeys(tool.server for tool in app.session.runtime.host.tools()):
        yield Choice(f"{before},{server}" if before else server)


COMMANDS = (
    Command("effort", "how long the model thinks", effort, "low|medium|high", efforts),
    Command("tools", "what the model may use", tools, "[all|none|NAME,…]", toolsets),
    Command("system", "instructions for the model", system, "[TEXT|@FILE|off]"),
)
