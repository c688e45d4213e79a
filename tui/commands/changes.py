"""Commands that take changes of files back: undo, redo, rewind, diff."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from agent.errors import UserError, user_errors
from tui.commands.conversation import find_message, message_numbers
from tui.screens.dialogs import ChoiceDialog
from tui.state.command import Command, CompletionItem
from tui.util.attachments import without_attachments

if TYPE_CHECKING:
    from tools.builtin.files.journal import RecordedStep
    from tui.commands.context import CommandContext

GOALS = {
    "both": "go back to before this message, and take back what was changed since",
    "conversation": "go back to before this message; files stay as they are",
    "files": "take back what was changed since; the conversation stays",
}


async def undo(app: CommandContext, _: str) -> None:
    from tools.builtin.files.journal import last_turn

    await _move(app, last_turn, "undo: no change of files is recorded", back=True)


async def redo(app: CommandContext, _: str) -> None:
    from tools.builtin.files.journal import undone_turn

    await _move(app, undone_turn, "redo", back=False)


async def _move(
    app: CommandContext,
    choose: Callable[[list[RecordedStep]], str | None],
    action: str,
    *,
    back: bool,
) -> None:
    """Take the changes of the chosen turn back, or make them again. Raises UserError."""
    journal, turns = app.session.journal, await app.session.turn_prompts()
    with user_errors(OSError, failure="Nothing was changed"):
        if (turn := choose(await asyncio.to_thread(journal.steps, turns))) is None:
            raise UserError(f"There is nothing to {action}.")
        outcome = await asyncio.to_thread(journal.undo if back else journal.redo, {turn})
    app.chat.report_outcome(outcome, "took back" if back else "made again")


async def rewind(app: CommandContext, argument: str) -> None:
    """Go back to before a message. ``argument``: ``[N] [both|conversation|files]``."""
    number, _, goal = argument.partition(" ")
    message, goal = find_message(app, number), goal.strip()
    if goal and goal not in GOALS:
        raise UserError(f"/rewind goes back with one of {', '.join(GOALS)}, not {goal}.")

    async def choose(prefix: str, chosen: str | None) -> None:
        if chosen:
            await app.chat.submit(f"/rewind {prefix}{chosen.split()[0]}")

    if not number:
        messages = [*reversed([*message_numbers(app, "")])]
        title, last = "Go back to before message …", messages[-1].text
        app.push_screen(ChoiceDialog(title, messages, last), partial(choose, ""))
    elif not goal:
        goals = [CompletionItem(name, about) for name, about in GOALS.items()]
        dialog = ChoiceDialog(f"Go back to before message {number}", goals, "both")
        app.push_screen(dialog, partial(choose, f"{number} "))
    else:
        turns = app.transcript.own_turns
        later = {turn.response_id for turn in turns[turns.index(message) :]}
        if goal != "conversation":
            with user_errors(OSError, failure="Nothing was changed"):
                outcome = await asyncio.to_thread(app.session.journal.undo, later)
            app.chat.report_outcome(outcome, "took back")
        if goal != "files":
            assert message.start is not None, "own turns have one"
            app.session.branch(message.start)
            await app.transcript.remove_from(message)
            app.prompt.replace_with(without_attachments(message.raw_prompt))
            app.notify(
                "The conversation continues from here in a branch; the original is unchanged."
            )


def rewind_arguments(app: CommandContext, written: str) -> Iterable[CompletionItem]:
    number, blank, _ = written.partition(" ")
    if not blank:
        return message_numbers(app, written)
    return (CompletionItem(f"{number} {goal}", about) for goal, about in GOALS.items())


async def diff(app: CommandContext, _: str) -> None:
    await app.navigator.show("changes")


_after_turn = partial(Command, waits_for_turn=True)
COMMANDS = (
    _after_turn("undo", "take back what the last turn changed in files", undo),
    _after_turn("redo", "make the changes again that were taken back", redo),
    _after_turn(
        "rewind [N] [both|conversation|files]",
        "go back to before message N",
        rewind,
        rewind_arguments,
    ),
    Command("diff", "show what this conversation has changed in files", diff),
)
