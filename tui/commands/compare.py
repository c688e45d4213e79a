"""The command that answers the last prompt again, with other settings, next to the first answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from agent.errors import UserError
from tui.commands.context import CommandContext
from tui.commands.navigation import runnable_models
from tui.commands.settings import EFFORTS, SAMPLING_VALUES, change_sampling, choose
from tui.state.command import Command, CompletionItem

if TYPE_CHECKING:
    from agent.turn.options import TurnOptions
    from tui.screens.compare import Taken


async def compare(app: CommandContext, values: str) -> None:
    """Answer the last prompt again. ``values``: model, ``effort=…``, sampling; empty: offer efforts."""
    from agent.store.conversations import StoreError
    from tui.screens.compare import CompareScreen

    session = app.session
    if not app.transcript.own_turns:
        raise UserError("There are no messages yet.")
    if not values:
        offered = [item for item in settings(app, "") if item.text.startswith("effort=")]
        choose(app, "Compare with", offered, "", partial(compare, app))
        return
    model, options = _parse(values, session.options)
    before, model_before = session.conversation.id, session.runtime.model.name
    model = "" if model == model_before else model
    options_before = session.options
    try:
        await session.storage.read(lambda store: store.find(before))  # it is found again
    except StoreError as error:
        raise UserError(
            "This conversation is stored with its next answer; until then there is nothing to compare"
            " with."
        ) from error
    left = "as it was", app.transcript.own_turns[-1]
    if model:
        await app.navigator.switch_model(model)
        await app.startup.show_conversation()  # in its own tokens
        options = options.with_model_settings(session.options)
    message = app.transcript.own_turns[-1]
    switched, session.options = session.options, options
    try:
        await app.chat.resubmit(message, message.raw_prompt)
    finally:
        session.options = switched if model else options_before
    turn = app.own_turn.view
    assert turn is not None

    async def on_close(taken: Taken | None) -> None:
        if taken == "left":
            await app.chat.work.run(go_back())

    async def go_back() -> None:
        if app.chat.editing is turn:  # it failed before it began
            app.chat.stop()
        if app.turn is not None:
            app.chat.stop()
            await app.turn.done()
        if model:
            await app.navigator.switch_model(model_before)
        await session.open(before)
        await app.startup.show_conversation()

    app.push_screen(CompareScreen(left, (values, turn)), on_close)


def _parse(values: str, options: TurnOptions) -> tuple[str, TurnOptions]:
    """The model's name (empty: the same) and the options of the second answer. Raises UserError."""
    model, sampling = "", []
    for word in values.split():
        name, has_value, value = word.partition("=")
        if name == "effort" and has_value:
            if value not in EFFORTS:
                raise UserError(f"effort= takes {', '.join(EFFORTS)}, not {value}.")
            options = replace(options, effort=value)  # type: ignore[arg-type]
        elif has_value and name in SAMPLING_VALUES:
            sampling.append(word)
        elif has_value or model:
            raise UserError(
                f"/compare cannot use {word}: write a model's name, effort=LEVEL or a value of"
                " /sampling."
            )
        else:
            model = word
    if sampling:
        options = replace(options, sampling=change_sampling(options.sampling, " ".join(sampling)))
    return model, options


def settings(app: CommandContext, written: str) -> Iterable[CompletionItem]:
    before = written.rpartition(" ")[0]
    for level, meaning in EFFORTS.items():
        if level != app.session.options.effort:
            yield CompletionItem(f"{before} effort={level}".strip(), meaning)
    for name, meaning in SAMPLING_VALUES.items():
        yield CompletionItem(f"{before} {name}=".strip(), meaning)


COMMANDS = (
    Command(
        "compare [MODEL] [effort=…] [NAME=VALUE …]",
        "answer the last prompt again with other settings, next to the first answer",
        compare,
        settings,
        runnable_models,
        waits_for_turn=True,
    ),
)
