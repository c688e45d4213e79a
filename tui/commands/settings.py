"""Commands that change the options of later turns: reasoning effort, tools, instructions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal, cast

from tui.commands.registry import Command, CompletionItem

if TYPE_CHECKING:
    from tui.commands.context import CommandContext

EFFORTS = {"low": "answers soon", "medium": "the default", "high": "thinks long"}
"""The levels of reasoning effort and what each means."""


async def effort(app: CommandContext, level: str) -> None:
    """Set the reasoning effort; without a level, show it."""
    from agent.errors import UserError

    session = app.session
    if level and level not in EFFORTS:
        raise UserError(f"/effort takes {', '.join(EFFORTS)}, not {level}.")
    if level:
        chosen = cast(Literal["low", "medium", "high"], level)
        session.options = replace(session.options, effort=chosen)
    app.notify(f"Effort: {session.options.effort}", markup=False)


def efforts(app: CommandContext, written: str) -> Iterable[CompletionItem]:
    """Complete the level of effort."""
    return (CompletionItem(level, meaning) for level, meaning in EFFORTS.items())


async def system(app: CommandContext, text: str) -> None:
    """Set the instructions: a text, ``@FILE`` or ``off``; without one, show them."""
    from agent.bootstrap import read_text_option

    session = app.session
    if text:
        instructions = None if text == "off" else read_text_option(text, "/system")
        session.options = replace(session.options, instructions=instructions)
    current = session.options.instructions
    app.transcript.add_notice(
        f"The model is told: {current}" if current else "The model is told no instructions."
    )


async def tools(app: CommandContext, names: str) -> None:
    """Select the tools that the model may use, by names with commas; list the result."""
    available, selection = app.session.runtime.host.tools(), app.session.tool_selection
    if names:
        selection.select(names, available)
    used = [f"{tool.server}.{tool.name}" for tool in available if selection.includes(tool)]
    every = [f"{tool.server}.{tool.name}" for tool in available]
    unused = [name for name in every if name not in used]
    lines = [f"The model has: {', '.join(used) or 'no tools'}."]
    if unused:
        lines.append(f"Not offered: {', '.join(unused)}.")
    app.transcript.add_notice("\n".join(lines))


def tool_names(app: CommandContext, written: str) -> Iterable[CompletionItem]:
    """Complete the last name of the list that is being typed."""
    before = written.rpartition(",")[0]
    yield CompletionItem("all", "everything there is")
    yield CompletionItem("none", "the model answers by itself")
    for server in dict.fromkeys(tool.server for tool in app.session.runtime.host.tools()):
        yield CompletionItem(f"{before},{server}" if before else server)


def commands(app: CommandContext) -> tuple[Command, ...]:
    """List the commands of this module, bound to ``app``."""
    return (
        Command(
            "effort",
            "how long the model thinks",
            partial(effort, app),
            "low|medium|high",
            partial(efforts, app),
        ),
        Command(
            "tools",
            "what the model may use",
            partial(tools, app),
            "[all|none|NAME,…]",
            partial(tool_names, app),
        ),
        Command("system", "instructions for the model", partial(system, app), "[TEXT|@FILE|off]"),
    )
