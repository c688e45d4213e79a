"""Commands on what was said."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tui.commands.registry import Choice, Command

if TYPE_CHECKING:
    from tui.app import AgentApp
    from tui.state.turn_view import Said


async def new(app: AgentApp, _: str) -> None:
    app.session.new()
    await app.show_conversation()
    app.chat.say("A new conversation; /resume leads back to the others.")


async def compact(app: AgentApp, _: str) -> None:
    await app.talk.follow("/compact", app.session.compact())


async def retry(app: AgentApp, number: str) -> None:
    said = _message(app, number)
    await app.talk.again(said, said.sent)


async def edit(app: AgentApp, number: str) -> None:
    app.talk.edit(_message(app, number))


async def branch(app: AgentApp, number: str) -> None:
    """From here on, or from before a message: what is said now is said in another conversation."""
    if number:
        said = _message(app, number)
        assert said.start is not None
        app.session.branch(said.start)
        await app.chat.cut(said)
    else:
        app.session.branch(app.session.position)
    app.notify("You are in a branch now; the conversation that it came from is kept.")


def _message(app: AgentApp, number: str) -> Said:
    """By its number; without one the last. Raises UserError."""
    from agent.errors import UserError

    messages = app.chat.messages
    if not messages:
        raise UserError("Nothing was said yet.")
    if not number:
        return messages[-1]
    if not number.isdecimal() or not 1 <= int(number) <= len(messages):
        raise UserError(
            f"There is no message {number}: they are counted from 1 to {len(messages)}."
        )
    return messages[int(number) - 1]


def messages(app: AgentApp, written: str) -> Iterable[Choice]:
    every = list(enumerate(app.chat.messages, 1))
    return (Choice(str(n), " ".join(said.prompt.split())[:50]) for n, said in reversed(every))


# --- taking it elsewhere ---


async def copy(app: AgentApp, what: str) -> None:
    from agent.errors import UserError

    match what:
        case "code":
            text, name = _code(app), "The last code block"
        case "all":
            text, name = _exported(app, "md"), "The conversation"
        case _:
            text, name = _message(app, what).answer, "The answer"
    if not text.strip():
        raise UserError("There is nothing of it to copy yet.")
    app.copy_to_clipboard(text)
    app.notify(f"{name} is copied.")


_FENCE = re.compile(
    r"^(?P<indent> {0,3})(?P<fence>`{3,}|~{3,})[^\n]*\n(?P<code>.*?)^ {0,3}(?P=fence)[`~]*[ \t]*$",
    re.DOTALL | re.MULTILINE,
)


def _code(app: AgentApp) -> str:
    """The last block of code in the answers."""
    for said in reversed(app.chat.messages):
        if blocks := list(_FENCE.finditer(f"{said.answer}\n")):
            return str(blocks[-1]["code"])
    return ""


def copies(app: AgentApp, written: str) -> Iterable[Choice]:
    yield Choice("code", "the last code block")
    yield Choice("all", "the whole conversation as Markdown")
    yield from messages(app, written)


FORMATS = {"md": "to read", "html": "to read, in one file", "json": "turns", "tokens": "ids"}


async def export(app: AgentApp, given: str) -> None:
    """``FORMAT [FILE]``; the file's ending says the format too."""
    from agent.errors import UserError

    first, _, rest = given.partition(" ")
    form, name = (first, rest.strip()) if first in FORMATS else (Path(given).suffix[1:], given)
    form = form if form in FORMATS else "md"
    text = _exported(app, form)
    file = app.session.shared.root / Path(name or _free(app, form)).expanduser()
    if file.exists():
        raise UserError(f"{file} is there already: name another file.")
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"Cannot write {file}: {error.strerror}.") from error
    app.chat.say(f"The conversation is in {file}.")


def _free(app: AgentApp, form: str) -> str:
    """A name for it that no file has yet."""
    title = re.sub(r"\W+", "-", app.chat.messages[0].prompt[:40]).strip("-").lower() or "talk"
    names = (f"{title}{f'-{n}' if n > 1 else ''}.{form}" for n in range(1, 1000))
    return next(name for name in names if not (app.session.shared.root / name).exists())


def _exported(app: AgentApp, form: str) -> str:
    from agent.errors import UserError
    from agent.store.export import FORMATS as WRITERS
    from agent.store.export import Record

    store, name = app.session.store, app.session.conversation.id
    summary = next((one for one in store.summaries() if one.id == name), None)
    if summary is None:
        raise UserError("Nothing was said yet.")
    return WRITERS[form](Record(summary, app.session.conversation, store.turns(name)))


def formats(app: AgentApp, written: str) -> Iterable[Choice]:
    return (Choice(name, about) for name, about in FORMATS.items())


COMMANDS = (
    Command("new", "begin another conversation; this one is kept", new, idle=True),
    Command("compact", "a summary takes the place of earlier turns", compact, idle=True),
    Command("retry", "answer a message once more", retry, "[N]", messages, idle=True),
    Command("edit", "write a message anew", edit, "[N]", messages, idle=True),
    Command("branch", "go on apart, from here or before a message", branch, "[N]", idle=True),
    Command("copy", "an answer, by default the last", copy, "[N|code|all]", copies),
    Command("export", "write the conversation to a file", export, "[FORMAT] [FILE]", formats),
)
