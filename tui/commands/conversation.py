"""Commands on the conversation: new, retry, edit, branch, copy, export."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import UserError, user_errors
from agent.util import private_files
from tui.commands.context import CommandContext
from tui.screens.dialogs import ChoiceDialog, TextDialog, TextEditor
from tui.state.command import Command, CompletionItem

if TYPE_CHECKING:
    from agent.store.conversations import Store
    from agent.store.records import ConversationSummary
    from agent.turn.continuation import Continuation, WrittenMessage
    from tui.state.turn_view import TurnView
    from tui.written_turn import WrittenTurn

PROBABILITY_SCALES = {
    "green-red": "green is likely, red is not",
    "blue-orange": "blue is likely, orange is not: also for colour-blind eyes",
}


async def new_conversation(app: CommandContext, _: str) -> None:
    await app.session.start_new()
    await app.startup.show_conversation()
    app.transcript.add_notice("New conversation. /resume opens earlier ones.")


async def rename(app: CommandContext, title: str) -> None:
    session, name = app.session, app.session.conversation.id
    summary = await session.storage.read(lambda store: store.summary(name))
    if summary is None:
        raise UserError("There are no messages yet: the title comes with the first prompt.")
    if title:
        await session.storage.read(lambda store: store.rename(name, title))
        app.notify(f"Title: {title}", markup=False)
        return

    async def on_close(text: str | None) -> None:
        if text:
            await app.chat.work.run(rename(app, text))

    app.push_screen(TextDialog("Title", summary.title), on_close)


async def compact(app: CommandContext, _: str) -> None:
    from tui.state.turn_view import TurnView

    await app.chat.show_turn(app.session.compact(), TurnView("/compact", clock=app.clock))


async def retry(app: CommandContext, number: str) -> None:
    message = find_message(app, number)
    await app.chat.resubmit(message, message.raw_prompt)


async def edit(app: CommandContext, number: str) -> None:
    app.chat.edit(find_message(app, number))


async def thought(app: CommandContext, number: str) -> None:
    from tui.written_turn import open_turn

    turn = find_message(app, number)
    written = await open_turn(app.session, turn.response_id)
    messages = written.messages
    choices = [
        CompletionItem(
            f"{position} {message.kind}{f' {message.tool}' if message.tool else ''}",
            " ".join(message.text.split())[:60],
        )
        for position, message in enumerate(messages, 1)
    ]

    async def on_close(choice: str | None) -> None:
        if choice:
            edit_written(app, turn, written, messages[int(choice.split()[0]) - 1])

    if len(messages) == 1:
        edit_written(app, turn, written, messages[0])
    else:
        app.push_screen(ChoiceDialog("Edit and continue", choices, choices[-1].text), on_close)


async def times(app: CommandContext, number: str) -> None:
    from tui.state.timeline import read_timeline

    turn = find_message(app, number)
    events = await app.session.storage.read(lambda store: store.events(turn.response_id))
    if not events:
        raise UserError("The times of this turn are not stored.")
    await app.transcript.toggle_times(turn, read_timeline(events, [*turn.token_times.items()]))


async def probs(app: CommandContext, argument: str) -> None:
    """Colour a message by probability, or no longer. ``argument``: number, scale. Raises UserError."""
    if argument in PROBABILITY_SCALES:
        app.appearance.choose_probability_scale(argument)
    else:
        await app.tokens.toggle_colours(find_message(app, argument))


def probs_arguments(app: CommandContext, written: str) -> Iterable[CompletionItem]:
    for name, meaning in PROBABILITY_SCALES.items():
        yield CompletionItem(name, meaning)
    yield from message_numbers(app, written)


def edit_written(
    app: CommandContext, turn: TurnView, written: WrittenTurn, message: WrittenMessage
) -> None:
    """Open what the model wrote in an editor; what is saved there is its own words from then on."""

    def accept(text: str) -> Continuation:
        if not app.chat.idle:
            raise UserError("A turn is running: stop it or wait, then try again.")
        begun = written.continue_message(message, text)
        app.chat.edited_texts[key] = text
        return begun

    async def on_close(begun: Continuation | None) -> None:
        if begun is not None:
            await app.chat.work.run(app.chat.continue_from(turn, begun))

    key = (turn.response_id, message.index)
    text = app.chat.edited_texts.get(key, message.text)
    title = f"{message.kind} {message.tool}".strip()
    app.push_screen(TextEditor(title, text, "continues it", accept), on_close)


async def branch(app: CommandContext, number: str) -> None:
    if number:
        message = find_message(app, number)
        assert message.start is not None
        app.session.branch(message.start)
        await app.transcript.remove_from(message)
    else:
        app.session.branch(app.session.next_prompt.first_entry)
    app.notify("New branch created; the original is unchanged.")


def find_message(app: CommandContext, number: str) -> TurnView:
    messages = app.transcript.own_turns
    if not messages:
        raise UserError("There are no messages yet.")
    if not number:
        return messages[-1]
    if not number.isdecimal() or not 1 <= int(number) <= len(messages):
        raise UserError(
            f"There is no message {number}: they are counted from 1 to {len(messages)}."
        )
    return messages[int(number) - 1]


def message_numbers(app: CommandContext, written: str) -> Iterable[CompletionItem]:
    numbered = list(enumerate(app.transcript.own_turns, 1))
    return (
        CompletionItem(str(number), " ".join(message.prompt.split())[:50])
        for number, message in reversed(numbered)
    )


async def copy(app: CommandContext, selection: str) -> None:
    """Copy an answer by its message's number, the last ``code`` block, or ``all`` as Markdown."""
    match selection:
        case "code":
            text, name = _last_code_block(app), "The last code block"
        case "all":
            text, name = await _exported(app, "md"), "The conversation"
        case _:
            text, name = find_message(app, selection).answer_to_copy, "The answer"
    if not text.strip():
        what = "code block" if selection == "code" else "answer"
        raise UserError(f"There is no {what} to copy.")
    app.copy_to_clipboard(text)
    app.notify(f"{name} is copied.")


def _last_code_block(app: CommandContext) -> str:
    from tui.markdown.render import parse

    for message in reversed(app.transcript.own_turns):
        for token in reversed(parse(message.answer_to_copy)):
            if token.type in ("fence", "code_block"):
                return str(token.content)
    return ""


def copy_arguments(app: CommandContext, written: str) -> Iterable[CompletionItem]:
    yield CompletionItem("code", "the last code block")
    yield CompletionItem("all", "the whole conversation as Markdown")
    yield from message_numbers(app, written)


FORMATS = {"md": "to read", "html": "to read, in one file", "json": "turns", "tokens": "ids"}


async def export(app: CommandContext, argument: str) -> None:
    """Write the conversation to a file. ``argument``: ``FORMAT [FILE]``, or ``FILE`` whose ending
    is a format; empty: Markdown. Raises UserError, also where the file exists."""
    from agent.util.user_files import expand_path, refuse_link

    first, _, rest = argument.partition(" ")
    suffix = Path(argument).suffix[1:]
    file_format, name = (first, rest.strip()) if first in FORMATS else (suffix, argument)
    if not argument:
        file_format = "md"
    elif file_format not in FORMATS:
        formats = ", ".join(FORMATS)
        raise UserError(f"{file_format or argument} is not an export format; use one of {formats}.")
    root, title = app.session.launch.root, "" if name else (await _summary(app)).title

    def choose_file() -> Path:
        file = root / expand_path(name or _unused_file_name(root, title, file_format))
        refuse_link(file, root)
        if file.exists():
            raise UserError(f"{file} is there already: name another file.")
        return file

    file = await asyncio.to_thread(choose_file)
    text = await _exported(app, file_format)
    with user_errors(OSError, failure=f"Cannot write {file}"):
        await asyncio.to_thread(private_files.write_text, file, text)
    app.transcript.add_notice(f"Exported to {file}.")


def _unused_file_name(folder: Path, title: str, file_format: str) -> str:
    title = re.sub(r"\W+", "-", title[:40]).strip("-").lower() or "talk"
    names = (f"{title}{f'-{n}' if n > 1 else ''}.{file_format}" for n in range(1, 1000))
    return next(name for name in names if not (folder / name).exists())


async def _exported(app: CommandContext, file_format: str) -> str:
    from agent.store.export import FORMATS as WRITERS
    from agent.store.export import ExportRecord

    summary, conversation = await _summary(app), app.session.conversation

    def write(store: Store) -> str:
        return WRITERS[file_format](ExportRecord(summary, conversation, store.turns(summary.id)))

    return await app.session.storage.read(write)


async def _summary(app: CommandContext) -> ConversationSummary:
    name = app.session.conversation.id
    if (summary := await app.session.storage.read(lambda store: store.summary(name))) is None:
        raise UserError("There are no messages yet.")
    return summary


def export_formats(app: CommandContext, written: str) -> Iterable[CompletionItem]:
    return (CompletionItem(name, purpose) for name, purpose in FORMATS.items())


_after_turn = partial(Command, waits_for_turn=True)
COMMANDS = (
    _after_turn("new", "start a new conversation; this one is kept", new_conversation),
    _after_turn("clear", "the same as /new", new_conversation),
    Command("rename [TITLE]", "change this conversation's title", rename),
    _after_turn("compact", "replace earlier turns by a summary", compact),
    _after_turn("retry [N]", "answer a message once more", retry, message_numbers),
    _after_turn("edit [N]", "edit and resend a message", edit, message_numbers),
    _after_turn(
        "thought [N]", "edit what the model wrote and let it continue", thought, message_numbers
    ),
    _after_turn("times [N]", "show where a turn's time went, or hide it", times, message_numbers),
    _after_turn(
        "probs [N|SCALE]",
        "colour texts by the probability of their tokens, or no longer",
        probs,
        probs_arguments,
    ),
    _after_turn("branch [N]", "branch here, or before message N", branch),
    Command("copy [N|code|all]", "copy an answer, by default the last", copy, copy_arguments),
    Command("export [FORMAT] [FILE]", "write the conversation to a file", export, export_formats),
)
