"""Commands that change the options of later turns: reasoning effort, tools, instructions."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import Any, Literal, cast

from agent.engine.protocol import Sampling
from agent.errors import UserError, user_errors
from tools.types import MODES
from tui.commands.context import CommandContext
from tui.screens.dialogs import ChoiceDialog
from tui.state.command import Command, CompletionItem

EFFORTS = {"low": "answers sooner", "medium": "the default", "high": "thinks longer"}
SAMPLING_VALUES = {
    "temperature": "0: always the likeliest token",
    "top_p": "nucleus sampling: this total probability",
    "top_k": "the k most likely tokens (0 = all)",
    "min_p": "drop tokens below this fraction of the top probability",
    "seed": "a whole number, for reproducible answers",
}


async def effort(app: CommandContext, level: str) -> None:
    form = app.session.runtime.format
    if form is not None and not form.effort_control:
        raise UserError(
            f"{app.session.runtime.model.name} has no reasoning effort that can be set."
        )
    if not level:
        choose(app, "Effort", efforts(app, ""), app.session.options.effort, partial(effort, app))
        return
    if level not in EFFORTS:
        raise UserError(f"/effort takes {', '.join(EFFORTS)}, not {level}.")
    chosen = cast(Literal["low", "medium", "high"], level)
    app.session.options = replace(app.session.options, effort=chosen)
    app.notify(f"Effort: {level}", markup=False)


def choose(
    app: CommandContext,
    title: str,
    choices: Iterable[CompletionItem],
    current: str,
    run: Callable[[str], Coroutine[Any, Any, None]],
) -> None:
    async def on_close(value: str | None) -> None:
        if value:
            await app.chat.work.run(run(value))

    app.push_screen(ChoiceDialog(title, choices, current), on_close)


def efforts(app: CommandContext, written: str) -> Iterable[CompletionItem]:
    return (CompletionItem(level, meaning) for level, meaning in EFFORTS.items())


async def sampling(app: CommandContext, values: str) -> None:
    """Change how tokens are sampled, ``NAME VALUE …`` or ``reset``; show it afterwards."""
    from agent import bootstrap

    session = app.session
    if values == "reset":
        sampling = bootstrap.turn_options(session.launch, session.runtime.model).sampling
    else:
        sampling = change_sampling(session.options.sampling, values)
    session.options = replace(session.options, sampling=sampling)
    text = ", ".join(f"{name} {getattr(sampling, name)}" for name in SAMPLING_VALUES)
    app.transcript.add_notice(f"Sampling: {text.replace('None', 'random')}.")


def change_sampling(before: Sampling, values: str) -> Sampling:
    """Sampling settings with ``NAME VALUE …`` changed. Raises UserError."""
    changes = dict[str, float]()
    words = values.replace("=", " ").split()
    for name, number in zip_longest(words[::2], words[1::2], fillvalue=""):
        if name not in SAMPLING_VALUES:
            names = ", ".join(SAMPLING_VALUES)
            raise UserError(f"/sampling has no value {name}; use one of {names}, or reset.")
        changes[name] = _parse_number(name, number)
    with user_errors(ValueError, failure="/sampling"):
        return replace(before, **changes)  # type: ignore[arg-type]


def _parse_number(name: str, text: str) -> float:
    try:
        return int(text) if name in ("top_k", "seed") else float(text)
    except ValueError:
        problem = f"must be a number, not {text!r}" if text else "needs a number"
        raise UserError(f"/sampling: {name} {problem}.") from None


def sampling_values(app: CommandContext, written: str) -> Iterable[CompletionItem]:
    before = written.rpartition(" ")[0]
    for name, meaning in SAMPLING_VALUES.items():
        yield CompletionItem(f"{before} {name}=".strip(), meaning)
    yield CompletionItem("reset", "back to the defaults")


async def mode(app: CommandContext, name: str) -> None:
    """Set which calls run in later turns, or go to the next mode."""
    options = app.session.options
    names = [*MODES]
    chosen = name or names[(names.index(options.mode) + 1) % len(names)]
    if chosen not in names:
        raise UserError(f"/mode takes {', '.join(names)}, not {name}.")
    app.session.options = replace(options, mode=chosen)
    app.live.update_status()
    app.notify(f"Mode {chosen}: {MODES[chosen]}.", markup=False)


def modes(app: CommandContext, written: str) -> Iterable[CompletionItem]:
    return (CompletionItem(name, meaning) for name, meaning in MODES.items())


async def accept(app: CommandContext, _: str) -> None:
    """Have the plan carried out, in mode ask."""
    if app.session.options.mode != "plan":
        raise UserError("There is no plan to accept: /mode plan asks for one.")
    await mode(app, "ask")
    await app.chat.ask("Carry out the plan.")


async def system(app: CommandContext, text: str) -> None:
    from agent.bootstrap import read_text_option

    session = app.session
    if text:
        instructions = None
        if text != "off":
            instructions = await asyncio.to_thread(read_text_option, text, "/system")
        session.options = replace(session.options, instructions=instructions)
    current = session.options.instructions
    app.transcript.add_notice(
        f"System instructions: {current}" if current else "No system instructions are set."
    )


async def tools(app: CommandContext, names: str) -> None:
    available, selection = app.session.runtime.host.tools(), app.session.next_prompt.tool_selection
    if names:
        selection.select(names, available)
    used = [f"{tool.server}.{tool.name}" for tool in available if selection.includes(tool)]
    unused = [f"{tool.server}.{tool.name}" for tool in available if not selection.includes(tool)]
    lines = [f"Tools on: {', '.join(used) or 'no tools'}."]
    if unused:
        lines.append(f"Off: {', '.join(unused)}.")
    app.transcript.add_notice(app.session.runtime.host.withheld or "\n".join(lines))


def tool_names(app: CommandContext, written: str) -> Iterable[CompletionItem]:
    before = written.rpartition(",")[0]
    yield CompletionItem("all", "all tools")
    yield CompletionItem("none", "no tools")
    for server in dict.fromkeys(tool.server for tool in app.session.runtime.host.tools()):
        yield CompletionItem(f"{before},{server}" if before else server)


COMMANDS = (
    Command("effort [low|medium|high]", "set how long the model thinks", effort, efforts),
    Command(
        "sampling [NAME=VALUE …]",
        "set temperature, top_p, top_k, min_p or seed, or show them",
        sampling,
        sampling_values,
    ),
    Command(
        "tools [all|none|NAME,…]", "choose the tools that the model may use", tools, tool_names
    ),
    Command("mode [ask|plan|accept-edits]", "choose which calls run without asking", mode, modes),
    Command("accept", "have the plan of mode plan carried out", accept, waits_for_turn=True),
    Command("system [TEXT|@FILE|off]", "set or show the system instructions", system),
)
