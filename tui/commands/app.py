"""Commands on the program itself: help and quitting."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tui.commands.context import CommandContext, app_command
from tui.state.command import Command

if TYPE_CHECKING:
    from agent.runtime.runtime import LoadedModel

MAX_INSTRUCTION_CHARACTERS = 200


async def leave(app: CommandContext, _: str) -> None:
    app.exit(0)


async def show_status(app: CommandContext, _: str) -> None:
    from agent.store.lookup import short_id
    from tui.widgets.notice import TableEntries

    session = app.session
    runtime, options = session.runtime, session.options
    tools = [
        tool for tool in runtime.host.tools() if session.next_prompt.tool_selection.includes(tool)
    ]
    servers = [
        state.name if state.status == "ready" else f"{state.name} ({state.status})"
        for state in runtime.host.server_states()
        if not state.is_builtin or state.status == "failed"
    ]
    used = session.next_prompt.token_count()
    sampling = options.sampling
    fields = {
        "Model": runtime.model.name + _model_note(runtime.loaded),
        "Context": f"{used or 0:,} of {runtime.context_length or 0:,} tokens",
        "Effort": options.effort,
        "Sampling": f"temperature {sampling.temperature:g}, top_p {sampling.top_p:g}",
        "Instructions": _shorten(options.instructions or "none"),
        "Project": options.project.names or "no AGENTS.md",
        "Tools": runtime.host.withheld or f"{len(tools)} on",
        "MCP servers": ", ".join(servers) or "none configured",
        "Folder": str(session.launch.root.absolute()),
        "Conversation": short_id(session.conversation.id)
        + ("" if session.storage.is_open else " (not stored)"),
        "Serving": session.serving.address if session.serving else "off (start with agent --serve)",
    }
    app.transcript.add_section(TableEntries("Status", fields))


def _model_note(loaded: LoadedModel | None) -> str:
    """Where the model is, if that is not this process."""
    from agent.engine.shared.engine import SharedEngine

    if loaded is None:
        return " (not loaded)"
    engine = loaded.engine
    if isinstance(engine, SharedEngine) and engine.own is None:
        return f" (loaded by process {engine.owner})"
    return ""


def _shorten(instructions: str) -> str:
    line = " ".join(instructions.split())
    if len(line) <= MAX_INSTRUCTION_CHARACTERS:
        return line
    return f"{line[:MAX_INSTRUCTION_CHARACTERS]} … (/system shows all)"


def commands(app: CommandContext) -> tuple[Command, ...]:
    command = partial(app_command, app)
    return (
        command("help", "show all keys and commands", lambda app, _: app.navigator.help()),
        command("status", "show model, context, options, tools and servers", show_status),
        command(
            "context",
            "show what fills the context; fold, drop, pin",
            lambda app, _: app.navigator.context(),
        ),
        command("quit", "quit; the conversation is kept", leave),
        command("exit", "the same as /quit", leave),
    )
