"""The prompts that MCP servers have ready, as commands: ``/server:prompt argument …``."""

from __future__ import annotations

import logging
import re
import shlex
from functools import partial
from typing import TYPE_CHECKING

from tui.commands.registry import Command

if TYPE_CHECKING:
    from tools.types import Prompt
    from tui.app import AgentApp

log = logging.getLogger(__name__)


def learn(app: AgentApp) -> None:
    """Ask the servers that are ready, and from now on each that gets ready or has others."""
    host = app.session.runtime.host
    host.listen(lambda server: _ask(app, server))
    for state in host.servers():
        if state.status == "ready":
            _ask(app, state.name)


def _ask(app: AgentApp, server: str) -> None:
    config = app.session.runtime.host.config(server)
    if config is not None and config.hand is None:
        app.run_worker(_learn(app, server), group=f"prompts of {server}", exclusive=True)


async def _learn(app: AgentApp, server: str) -> None:
    try:
        found = await app.session.runtime.host.prompts(server)
    except ValueError as error:
        log.info("%s has no prompts: %s", server, error)
        found = []
    app.talk.commands.replace(server, (_command(server, prompt) for prompt in found))


def _command(server: str, prompt: Prompt) -> Command:
    arguments = (name if required else f"[{name}]" for name, required in prompt.arguments)
    name = ":".join(re.sub(r"[^\w.-]", "_", part) for part in (server, prompt.name))
    summary = prompt.description or f"a prompt of {server}"
    run = partial(_send, server, prompt)
    return Command(name, summary.splitlines()[0], run, " ".join(arguments), idle=True)


async def _send(server: str, prompt: Prompt, app: AgentApp, written: str) -> None:
    from agent.errors import UserError

    try:
        messages = await app.session.runtime.host.prompt(
            server, prompt.name, _arguments(prompt, written)
        )
    except ValueError as error:
        raise UserError(f"The prompt cannot be had: {error}.") from error
    await app.talk.ask("\n\n".join(text for _, text in messages))


def _arguments(prompt: Prompt, written: str) -> dict[str, str]:
    """``name=value``, or values in the order of the prompt's own list; the last takes what is left."""
    from agent.errors import UserError

    names = [name for name, _ in prompt.arguments]
    try:
        words = shlex.split(written)
    except ValueError:
        words = written.split()
    given = {}
    while words:
        name, equals, value = words[0].partition("=")
        if equals and name in names:
            given[name] = value
            del words[0]
            continue
        free = [name for name in names if name not in given]
        if not free:
            raise UserError(f"It takes {', '.join(names) or 'no arguments'}, not also {words[0]}.")
        given[free[0]] = " ".join(words) if len(free) == 1 else words[0]
        words = [] if len(free) == 1 else words[1:]
    missing = [name for name, required in prompt.arguments if required and name not in given]
    if missing:
        raise UserError(f"It needs {', '.join(missing)} behind its name.")
    return given
