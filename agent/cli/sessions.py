"""`agent sessions …`: the conversations that are kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from agent.store.conversations import Store
    from agent.store.export import Record

app = typer.Typer(
    help="The conversations that are kept: list, show, replay, rename, delete, fork, export.",
    epilog="IDs may be shortened, as the list shows them. Example: agent sessions show 3bc06fe5",
    rich_markup_mode=None,
    no_args_is_help=True,
)
SHORT = 8
"""Characters of an id that a list shows, without the `conv_` before them."""

Id = Annotated[str, typer.Argument(metavar="ID", help="A conversation's id, or how it begins.")]


@app.command("list", epilog="Example: agent sessions list --json | jq -r '.[].id'")
def list_(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array, whole ids.")] = False,
) -> None:
    """All conversations, the latest first."""
    from agent.store.export import described, when
    from agent.util.sanitize import harmless, say

    summaries = _store().summaries()
    if as_json:
        say(json.dumps([described(summary) for summary in summaries], ensure_ascii=False))
        return
    if not summaries:
        print("No conversation is kept yet; begin one with: agent", file=sys.stderr)
        return
    print(f"{'ID':{SHORT}}  {'WHEN':16}  {'TURNS':>5}  {'MODEL':14}  TITLE")
    for one in summaries:
        branch = f"  (branch of {_short(one.parent)})" if one.parent else ""
        print(
            f"{_short(one.id)}  {when(one.updated)}  {one.turns:5}  {harmless(one.model):14}"
            f"  {harmless(one.title)}{branch}"
        )


@app.command(epilog="Example: agent sessions show 3bc06fe5")
def show(session: Id) -> None:
    """What was said, to read."""
    from agent.store.export import markdown
    from agent.util.sanitize import harmless

    record = _record(_store(), session)
    facts = [record.summary.id, _turns(record.summary.turns)]
    if record.summary.parent:
        facts.append(f"branch of {_short(record.summary.parent)}")
    print(" · ".join(facts))
    print(harmless(markdown(record)), end="")


@app.command(epilog="Example: agent sessions replay 3bc06fe5 --speed 4")
def replay(
    session: Id,
    speed: Annotated[
        float, typer.Option(min=0.01, metavar="X", help="So many times as fast as it was.")
    ] = 1.0,
    json_events: Annotated[
        bool, typer.Option("--json-events", help="Every event as one JSON line on stdout.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="As agent run shows it.")] = False,
) -> None:
    """Watch a conversation happen again, in the app; it can go on there when it is over.

    Pauses of more than three seconds are cut to three.
    """
    record = _record(_store(), session)
    if not (json_events or plain):
        from agent.cli.shared import Shared
        from tui.main import main

        raise typer.Exit(main(Shared(), resume=record.summary.id, replay=speed))
    import asyncio

    asyncio.run(_replayed(record, speed, as_json=json_events))


async def _replayed(record: Record, speed: float, *, as_json: bool) -> None:
    from agent.cli.render import Terminal
    from agent.cli.run import JsonLines
    from agent.store.replay import Replay
    from agent.util.sanitize import harmless

    store = _store()
    for turn in record.turns:
        face: JsonLines | Terminal = JsonLines(sys.stdout) if as_json else Terminal(sys.stdout)
        if not as_json:
            print(f"\n❯ {harmless(turn.prompt)}\n", flush=True)
        events = store.events(turn.response.id)
        async for batch in Replay(turn, events, speed).start().log.follow():
            for event in batch:
                face.show(event)
            face.flush()


@app.command(epilog="Example: agent sessions export 3bc06fe5 --format html -o talk.html")
def export(
    session: Id,
    form: Annotated[
        Literal["md", "json", "tokens", "html"],
        typer.Option("--format", help="md and html to read; json: turns; tokens: ids by message."),
    ] = "md",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file; default: stdout.")
    ] = None,
) -> None:
    """Write a conversation out."""
    from agent.errors import UserError
    from agent.store.export import FORMATS
    from agent.util.sanitize import say

    text = FORMATS[form](_record(_store(), session))
    if output is None:
        say(text, end="")
        return
    try:
        output.expanduser().write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"Cannot write {output}: {error.strerror}.") from error


@app.command(epilog="Example: agent run --resume $(agent sessions fork 3bc06fe5 --before 2) '…'")
def fork(
    session: Id,
    before: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Without the Nth turn and what came after it."),
    ] = None,
) -> None:
    """Make a branch, with what was said until there; prints its id."""
    from agent.errors import UserError

    store = _store()
    record = _record(store, session)
    start = None
    if before is not None:
        if before > len(record.turns):
            raise UserError(f"--before: the conversation has {_turns(len(record.turns))}.")
        start = record.turns[before - 1].start
        if start is None:
            raise UserError(f"--before: nothing of turn {before} is kept to branch at.")
    print(store.fork(record.conversation, start).id)


@app.command(epilog="Example: agent sessions delete 3bc06fe5 f6c63d79")
def delete(
    sessions: Annotated[list[str], typer.Argument(metavar="ID…", help="Ids, or how they begin.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Forget conversations. What branches of them share with them stays theirs."""
    from agent.errors import UserError
    from agent.util.sanitize import harmless

    store = _store()
    records = [_record(store, session).summary for session in sessions]
    if not yes:
        if not sys.stdin.isatty():
            raise UserError("delete asks before it deletes, and nobody is there: add --yes.")
        for one in records:
            print(f"{_short(one.id)}  {_turns(one.turns)}  {harmless(one.title)}")
        if not typer.confirm("Delete for good?"):
            raise typer.Exit(1)
    for name in {one.id for one in records}:
        forget(store, name)


def forget(store: Store, name: str) -> None:
    """Delete a conversation, and what tools keep of it."""
    from agent.config.settings import places
    from tools.builtin import base

    store.delete(name)
    base.forget(places().cache, name)


@app.command(epilog="Example: agent sessions rename 3bc06fe5 'The trip'")
def rename(
    session: Id, title: Annotated[str, typer.Argument(metavar="TITLE", help="One line.")]
) -> None:
    """Give a conversation another title than its first prompt."""
    store = _store()
    store.rename(_record(store, session).summary.id, title)


def _store() -> Store:
    from agent.config.settings import places
    from agent.errors import UserError
    from agent.store.conversations import Store, StoreError

    try:
        return Store(places().store)
    except StoreError as error:
        raise UserError(str(error)) from error


def _record(store: Store, session: str) -> Record:
    """Raises UserError."""
    from agent.errors import UserError
    from agent.store.conversations import StoreError
    from agent.store.export import Record

    try:
        name = store.find(session)
    except StoreError as error:
        raise UserError(f"{error} See: agent sessions list") from error
    (summary,) = (one for one in store.summaries() if one.id == name)
    return Record(summary, store.load(name), store.turns(name))


def _turns(number: int) -> str:
    return f"{number} turn{'' if number == 1 else 's'}"


def _short(name: str) -> str:
    return name.removeprefix("conv_")[:SHORT]
