"""Commands on the program itself: help and quitting."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tui.commands.registry import Command

if TYPE_CHECKING:
    from agent.models.loaded import LoadedModel
    from agent.turn.options import TurnOptions
    from tui.commands.context import CommandContext

MAX_INSTRUCTION_CHARACTERS = 200
"""Characters of the system instructions that `/status` shows."""


async def show_help(app: CommandContext, _: str) -> None:
    """Open the page of keys and commands."""
    app.action_help()


async def leave(app: CommandContext, _: str) -> None:
    """End the app."""
    await app.action_leave()


async def show_status(app: CommandContext, _: str) -> None:
    """Show model, context, options, tools and servers in a few lines."""
    from agent.store.lookup import short_id
    from tui.widgets.notice import TableEntries

    session = app.session
    runtime, options = session.runtime, session.options
    tools = [tool for tool in runtime.host.tools() if session.tool_selection.includes(tool)]
    servers = [
        state.name if state.status == "ready" else f"{state.name} ({state.status})"
        for state in runtime.host.server_states()
        if not state.is_builtin or state.status == "failed"
    ]
    used = session.context_used()
    sampling = options.sampling
    fields = {
        "Model": runtime.model.name + _model_note(runtime.loaded),
        "Context": f"{used or 0:,} of {runtime.context_length or 0:,} tokens",
        "Effort": options.effort,
        "Sampling": f"temperature {sampling.temperature:g}, top_p {sampling.top_p:g}",
        "Instructions": _shorten(options.instructions or "none"),
        "Project": options.project.names or "no AGENTS.md",
        "Tools": f"{len(tools)} on",
        "MCP servers": ", ".join(servers) or "none configured",
        "Folder": str(session.launch.root.absolute()),
        "Conversation": short_id(session.conversation.id)
        + ("" if session.is_stored else " (not stored)"),
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
    """Cut instructions that would fill the screen."""
    line = " ".join(instructions.split())
    if len(line) <= MAX_INSTRUCTION_CHARACTERS:
        return line
    return f"{line[:MAX_INSTRUCTION_CHARACTERS]} … (/system shows all)"


async def show_context(app: CommandContext, _: str) -> None:
    """Show how many tokens of the next prompt each of its parts takes."""
    from dataclasses import replace

    from agent.conversation.project_instructions import ProjectInstructions
    from agent.errors import UserError
    from tui.widgets.notice import TableEntries

    session = app.session
    model_format, options = session.format, session.options
    if model_format is None:
        raise UserError("The tokens can be counted once the model is loaded.")

    def header_tokens(with_options: TurnOptions) -> int:
        return len(model_format.prompt_header(with_options.prompt_header(())))

    tools = [tool for tool in session.runtime.host.tools() if session.tool_selection.includes(tool)]
    plain = replace(options, project=ProjectInstructions())
    bare = replace(plain, instructions=None)
    used, limit = session.context_used() or 0, session.runtime.context_length
    parts = {
        "System": header_tokens(bare),
        "Instructions": header_tokens(plain) - header_tokens(bare),
        "Project": header_tokens(options) - header_tokens(plain),
        "Tools": options.total_tool_tokens(model_format, tools),
    }
    parts["Conversation"] = used - sum(parts.values())
    parts |= {"Together": used, "Free": max(0, limit - used)}
    fields = {name: f"{count:>9,}  {count / limit:6.1%}" for name, count in parts.items()}
    if files := options.project.files:
        fields["Project"] += "  " + ", ".join(
            f"{file.name} {len(model_format.encode_text(file.text)):,}" for file in files
        )
    app.transcript.add_section(TableEntries(f"Tokens of the next prompt, of {limit:,}", fields))


def commands(app: CommandContext) -> tuple[Command, ...]:
    """List the commands of this module, bound to ``app``."""
    return (
        Command("help", "show all keys and commands", partial(show_help, app)),
        Command(
            "status", "show model, context, options, tools and servers", partial(show_status, app)
        ),
        Command(
            "context", "show what takes how many tokens of the context", partial(show_context, app)
        ),
        Command("quit", "quit; the conversation is kept", partial(leave, app)),
        Command("exit", "the same as /quit", partial(leave, app)),
    )
