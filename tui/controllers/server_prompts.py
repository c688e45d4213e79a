"""The prompts of MCP servers as slash commands: ``/server:prompt argument …``
(https://modelcontextprotocol.io/specification/2025-06-18/server/prompts)."""

from __future__ import annotations

import logging
import re
import shlex
from functools import partial

from agent.conversation.attachments import format_attachment
from agent.errors import UserError
from tools.types import Prompt
from tui.app_context import AppContext
from tui.controllers.chat import ChatController
from tui.guarded import run_latest
from tui.state.command import Command

log = logging.getLogger(__name__)


def add_prompt_commands(app: AppContext, chat: ChatController) -> None:
    """Fetch the prompts of servers that are ready, and again when a server's lists change."""
    host = app.session.runtime.host
    host.subscribe(lambda server: _refresh(app, chat, server))
    for state in host.server_states():
        if state.status == "ready":
            _refresh(app, chat, state.name)


def _refresh(app: AppContext, chat: ChatController, server: str) -> None:
    config = app.session.runtime.host.server_config(server)
    if config is not None and config.builtin is None:
        run_latest(app, f"prompts of {server}", _fetch_prompts, app, chat, server)


async def _fetch_prompts(app: AppContext, chat: ChatController, server: str) -> None:
    try:
        prompts = await app.session.runtime.host.content.prompts(server)
    except ValueError as error:
        log.info("%s has no prompts: %s", server, error)
        prompts = []
    app.commands.replace(server, (_command(app, chat, server, prompt) for prompt in prompts))


def _command(app: AppContext, chat: ChatController, server: str, prompt: Prompt) -> Command:
    arguments = (name if required else f"[{name}]" for name, required in prompt.arguments)
    name = ":".join(re.sub(r"[^\w.-]", "_", part) for part in (server, prompt.name))
    summary = prompt.description or f"a prompt of {server}"
    run = partial(_send_prompt, app, chat, name, server, prompt)
    return Command(name, summary.splitlines()[0], run, " ".join(arguments), waits_for_turn=True)


async def _send_prompt(
    app: AppContext, chat: ChatController, command: str, server: str, prompt: Prompt, argument: str
) -> None:
    """Ask a server for a prompt, and send its text to the model, attached to the command."""
    try:
        host = app.session.runtime.host
        messages = await host.content.get_prompt(server, prompt.name, _arguments(prompt, argument))
    except ValueError as error:
        raise UserError(f"Cannot get the prompt: {error}.") from error
    text = "\n\n".join(text for _, text in messages)
    words = f"/{command} {argument}".rstrip()
    await chat.ask_or_replace(words + format_attachment(command, text, "prompt"))


def _arguments(prompt: Prompt, text: str) -> dict[str, str]:
    """Parse ``name=value``, or values in order, the last to the line's end. Raises UserError."""
    names = [name for name, _ in prompt.arguments]
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    values: dict[str, str] = {}
    while words:
        name, equals, value = words[0].partition("=")
        if equals and name in names:
            values[name] = value
            del words[0]
            continue
        unset = [name for name in names if name not in values]
        if not unset:
            raise UserError(f"It takes {', '.join(names) or 'no arguments'}, not also {words[0]}.")
        values[unset[0]] = " ".join(words) if len(unset) == 1 else words[0]
        words = [] if len(unset) == 1 else words[1:]
    missing = [name for name, required in prompt.arguments if required and name not in values]
    if missing:
        raise UserError(f"It needs {', '.join(missing)} after its name.")
    return values
