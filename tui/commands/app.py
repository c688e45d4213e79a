"""Commands on the program itself: help and quitting."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tui.commands.registry import Command

if TYPE_CHECKING:
    from tui.commands.context import CommandContext


async def show_help(app: CommandContext, _: str) -> None:
    """Open the page of keys and commands."""
    app.action_help()


async def leave(app: CommandContext, _: str) -> None:
    """End the app."""
    await app.action_leave()


async def show_status(app: CommandContext, _: str) -> None:
    """Show model, context, options, tools and servers in a few lines."""
    from agent.store.lookup import short_id

    session = app.session
    runtime, options = session.runtime, session.options
    tools = [tool for tool in runtime.host.tools() if session.tool_selection.includes(tool)]
    servers = runtime.host.server_states()
    ready = sum(state.status == "ready" for state in servers)
    used = session.context_used()
    sampling = options.sampling
    lines = {
        "Model": f"{runtime.model.name}" + ("" if runtime.loaded else " (not loaded)"),
        "Context": f"{used or 0:,} of {runtime.context_length or 0:,} tokens",
        "Effort": options.effort,
        "Sampling": f"temperature {sampling.temperature:g}, top_p {sampling.top_p:g}",
        "Instructions": options.instructions or "none",
        "Tools": f"{len(tools)} on; {ready} of {len(servers)} servers ready",
        "Folder": str(session.launch.root.absolute()),
        "Conversation": short_id(session.conversation.id)
        + ("" if session.is_stored else " (not stored)"),
        "Serving": session.serving.address if session.serving else "off (start with agent --serve)",
    }
    app.transcript.add_notice("\n".join(f"{name + ':':14}{text}" for name, text in lines.items()))


def commands(app: CommandContext) -> tuple[Command, ...]:
    """List the commands of this module, bound to ``app``."""
    return (
        Command("help", "show all keys and commands", partial(show_help, app)),
        Command(
            "status", "show model, context, options, tools and servers", partial(show_status, app)
        ),
        Command("quit", "quit; the conversation is kept", partial(leave, app)),
        Command("exit", "the same as /quit", partial(leave, app)),
    )
