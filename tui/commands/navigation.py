"""Commands that open the lists of conversations, models and MCP servers, or switch to one."""

import asyncio
from collections.abc import Iterable
from functools import partial

from agent.errors import UserError
from tui.commands.context import CommandContext
from tui.state.command import Command, CompletionItem

SCREENS = {
    "help": ("help", "show all keys and commands"),
    "context": ("context", "show what fills the context; fold, drop, pin"),
    "mcp": ("servers", "show MCP servers: state, tools, costs"),
    "approvals": ("approvals", "list and revoke what you allowed"),
    "mcp-import": ("import_servers", "import MCP servers from other apps"),
    "models": ("models", "list known, local and downloadable models"),
    "sessions": ("sessions", "search, open, rename, fork or delete conversations"),
}
"""Commands that only open a screen: by their names, the method of ``Navigator`` and the summary."""


async def open_screen(screen: str, app: CommandContext, _: str) -> None:
    await app.navigator.show(screen)


async def safety(app: CommandContext, argument: str) -> None:
    """Show what the model can do and has done; ``reach HOST`` lets commands reach a host."""
    verb, _, host = argument.partition(" ")
    if not argument:
        await app.navigator.show("safety")
    elif verb == "reach" and host.strip():
        app.transcript.add_notice(await asyncio.to_thread(app.navigator.allow_host, host.strip()))
    else:
        raise UserError("/safety shows what the model can do; /safety reach HOST allows a host.")


async def background(app: CommandContext, argument: str) -> None:
    running = dict(_running(app))
    verb, _, id = argument.partition(" ")
    if not argument:
        app.transcript.add_notice("\n".join(running.values()) or "Nothing runs in the background.")
    elif verb == "stop" and id in running:
        for server in app.session.runtime.host.builtins:
            await server.stop_running(id)
        app.transcript.add_notice(f"{running[id]}: stopped.")
    else:
        raise UserError(
            f"/ps lists what runs, /ps stop ID ends it; ids: {', '.join(running) or '-'}"
        )


def _running(app: CommandContext) -> Iterable[tuple[str, str]]:
    for server in app.session.runtime.host.builtins:
        yield from server.running().items()


def running_ids(app: CommandContext, _: str) -> Iterable[CompletionItem]:
    return (CompletionItem(f"stop {id}", line) for id, line in _running(app))


async def resume(app: CommandContext, conversation_id: str) -> None:
    if not conversation_id:
        await app.navigator.show("sessions")
        return
    await app.session.open(conversation_id)
    await app.startup.show_conversation()


def conversations(app: CommandContext) -> Iterable[CompletionItem]:
    from agent.store.lookup import recent_titles, short_id

    for conversation_id, title in recent_titles(app.session.runtime.paths.store):
        yield CompletionItem(short_id(conversation_id), title)


async def model(app: CommandContext, name: str) -> None:
    if name:
        await app.navigator.switch_model(name)
    else:
        await app.navigator.show("models")


def listed_models(app: CommandContext, *, runnable: bool) -> Iterable[CompletionItem]:
    """The models that can run, or else those that can be downloaded."""
    from agent.models.listing import list_models

    for row in list_models(app.session.runtime.paths):
        if row.runnable if runnable else row.source == "hub":
            yield CompletionItem(row.name, row.description)


runnable_models = partial(listed_models, runnable=True)


async def pull(app: CommandContext, name: str) -> None:
    if name:
        app.navigator.pull(name)
    else:
        await app.navigator.show("models")


_after_turn = partial(Command, waits_for_turn=True)
COMMANDS = (
    *(
        Command(name, summary, partial(open_screen, screen))
        for name, (screen, summary) in SCREENS.items()
    ),
    Command("safety [reach HOST]", "show what the model can do here, and has done", safety),
    Command("ps [stop ID]", "list or stop commands in the background", background, running_ids),
    _after_turn("model [NAME|PATH]", "switch the model", model, read_choices=runnable_models),
    Command(
        "pull [NAME|OWNER/REPO]",
        "download a model in the background",
        pull,
        read_choices=partial(listed_models, runnable=False),
    ),
    _after_turn("resume [ID]", "open an earlier conversation", resume, read_choices=conversations),
)
