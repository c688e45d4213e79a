"""`agent sessions …`: lists, shows and changes conversations. The docstrings are the help texts."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from agent.cli.completion import complete_session
from agent.cli.options import expand, flag
from agent.cli.parse import harmony_format
from agent.cli.process import require_app_terminal, run_app
from agent.cli.render import JsonLinesRenderer, Renderer, TerminalRenderer
from agent.config.launch import LaunchOptions
from agent.config.paths import user_paths
from agent.config.text_files import project_name
from agent.errors import UserError, user_errors
from agent.events import AgentContext
from agent.formats.protocol import Format
from agent.store.conversations import Store, StoreError, delete_conversation
from agent.store.export import FORMATS, ExportRecord, local_time, markdown, summary_json
from agent.store.lookup import SHORT_ID_LENGTH, short_id
from agent.store.records import ConversationSummary, title_from
from agent.util import private_files
from agent.util.sanitize import echo, sanitize
from agent.util.user_files import refuse_link

if TYPE_CHECKING:
    from tools.builtin.files.journal import ChangeJournal

app = typer.Typer(rich_markup_mode=None)

MAX_COLUMNS = 100
"""Columns that the table of a context takes of a wider terminal."""
_ALL = flag("--all", "-a", help="Those of all folders, not only of this one.")
_JSON = flag("--json", help="Print a JSON array, with whole ids.")
SessionId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A conversation's id, or its beginning.", autocompletion=complete_session
    ),
]


@app.command("list", epilog="Example: agent sessions list --all --json | jq -r '.[].id'")
def list_(everywhere: bool = _ALL, as_json: bool = _JSON) -> None:
    """List the conversations of this folder or its repository, the latest first."""
    store = _open_store()
    _print_list(store, store.summaries(everywhere=everywhere), everywhere, as_json)


@app.command(epilog="Example: agent sessions search 'connection refused' --all")
def search(
    text: str = typer.Argument(metavar="TEXT", help="In a title, a prompt or an answer."),
    everywhere: bool = _ALL,
    as_json: bool = _JSON,
) -> None:
    """List the conversations that have a text."""
    if not text.strip():
        raise UserError("The text to search is empty.")
    store = _open_store()
    found = store.search(text)
    summaries = [each for each in store.summaries(everywhere=everywhere) if each.id in found]
    _print_list(store, summaries, everywhere, as_json)


def _print_list(
    store: Store, summaries: Sequence[ConversationSummary], everywhere: bool, as_json: bool
) -> None:
    _report_damage(store)
    if as_json:
        echo(json.dumps([summary_json(summary) for summary in summaries], ensure_ascii=False))
        return
    if not summaries:
        others = 0 if everywhere else len(store.summaries())
        hint = f"; --all looks through {others:,} of all folders" if others else ""
        print(f"No conversations{'' if everywhere else ' in this folder'}{hint}.", file=sys.stderr)
        return
    print(f"{'ID':{SHORT_ID_LENGTH}}  {'WHEN':16}  {'TURNS':>5}  {'MODEL':14}  TITLE")
    for summary in summaries:
        branch = f"  (branch of {short_id(summary.parent)})" if summary.parent else ""
        folder = f"  in {sanitize(summary.folder)}" if everywhere and summary.folder else ""
        print(
            f"{short_id(summary.id)}  {local_time(summary.updated)}  {summary.turns:5}"
            f"  {sanitize(summary.model):14}  {sanitize(summary.title)}{branch}{folder}"
        )


@app.command(epilog="Example: agent sessions show 3bc06fe5")
def show(
    session: SessionId,
    context: bool = flag("--context", help="Show the tokens in the context instead, by kind."),
) -> None:
    """Show a conversation as text."""
    store = _open_store()
    record = _load_record(store, session)
    if context:
        for line in _context_table(store, record):
            echo(line)
        return
    facts = [record.summary.id, _turn_count(record.summary.turns)]
    if record.summary.parent:
        facts.append(f"branch of {short_id(record.summary.parent)}")
    print(" · ".join(facts))
    print(sanitize(markdown(record)), end="")


@app.command(epilog="Example: agent sessions replay 3bc06fe5 --speed 4")
def replay(
    session: SessionId,
    speed: float = typer.Option(
        1.0, min=0.01, metavar="X", help="Speed factor, 1 for the original pauses."
    ),
    json_events: bool = flag("--json-events", help="Print every event as one JSON line."),
    plain: bool = flag("--plain", help="Print text, without colours, instead of opening the app."),
) -> None:
    """Replay a conversation in the app; at its end it can be continued.

    Pauses of more than three seconds are cut to three.
    """
    store = _open_store()
    record = _load_record(store, session)
    if not (json_events or plain):
        require_app_terminal("add --plain")
        raise typer.Exit(run_app(LaunchOptions(), resume=record.summary.id, replay=speed))
    asyncio.run(_replay(store, record, speed, as_json=json_events))
    _report_damage(store)


async def _replay(store: Store, record: ExportRecord, speed: float, *, as_json: bool) -> None:
    from agent.store.replay import TurnReplay

    for turn in record.turns:
        renderer: Renderer = JsonLinesRenderer(sys.stdout)
        if not as_json:
            renderer = TerminalRenderer(sys.stdout, plain=True)
            print(f"\n❯ {sanitize(turn.prompt)}\n", flush=True)
        replay = TurnReplay(turn, record.conversation, store.events(turn.response.id), speed)
        async for batch in replay.start().log.follow():
            for event in batch:
                renderer.show(event)
            renderer.flush()


@app.command(epilog="Example: agent sessions export 3bc06fe5 --format html -o talk.html")
def export(
    session: SessionId,
    form: Literal["md", "json", "tokens", "html"] = typer.Option(
        "md", "--format", help="md and html to read; json: turns; tokens: ids by message."
    ),
    output: Path | None = typer.Option(
        None, "--output", "-o", callback=expand, help="Output file; default: stdout."
    ),
) -> None:
    """Export a conversation to a file or stdout."""
    text = FORMATS[form](_load_record(_open_store(), session))
    if output is None:
        echo(text, end="")
        return
    refuse_link(output)
    with user_errors(OSError, failure=f"Cannot write {output}"):
        private_files.write_text(output, text)


@app.command(epilog="Example: agent run --resume $(agent sessions fork 3bc06fe5 --before 2) '…'")
def fork(
    session: SessionId,
    before: int | None = typer.Option(
        None, min=1, metavar="N", help="Leave out turn N and all later ones."
    ),
) -> None:
    """Branch a conversation before a turn; prints the branch's id."""
    store = _open_store()
    record = _load_record(store, session)
    start = None
    if before is not None:
        if before > len(record.turns):
            raise UserError(f"--before: the conversation has {_turn_count(len(record.turns))}.")
        start = record.turns[before - 1].start
        if start is None:
            raise UserError(f"--before: nothing of turn {before} is kept to branch at.")
    print(store.fork(record.conversation, start).id)


@app.command(epilog="Example: agent sessions delete 3bc06fe5 f6c63d79")
def delete(
    sessions: list[str] = typer.Argument(
        metavar="ID…", help="Ids, or their beginnings.", autocompletion=complete_session
    ),
    yes: bool = flag("--yes", "-y", help="Do not ask for confirmation."),
) -> None:
    """Delete conversations; their branches keep what they share."""
    store = _open_store()
    names = list(dict.fromkeys(_find(store, session) for session in sessions))
    if not yes:
        if not sys.stdin.isatty():
            raise UserError("delete asks before it deletes, and nobody is there: add --yes.")
        for name in names:
            summary = store.summary(name)
            about = f"{_turn_count(summary.turns)}  {summary.title}" if summary else "damaged"
            print(sanitize(f"{short_id(name)}  {about}"))
        if not typer.confirm("Delete for good?"):
            raise typer.Exit(1)
    for name in names:
        delete_conversation(store, name)


@app.command(epilog="Example: agent sessions undo 3bc06fe5  ·  agent sessions undo 3bc06fe5 --redo")
def undo(
    session: SessionId,
    redo: bool = flag("--redo", help="Make the changes again that were taken back last."),
) -> None:
    """Take back what the last turn changed in files; a second time, the turn before it.

    A file that was changed since stays as it is, which is an exit code of 1.
    """
    from tools.builtin.files.journal import last_turn, undone_turn

    journal, turns = _open_journal(session)
    with user_errors(OSError, failure="Nothing was changed"):
        steps = journal.steps(turns)
        if (turn := undone_turn(steps) if redo else last_turn(steps)) is None:
            raise UserError(f"There is nothing to {'redo' if redo else 'undo'}.")
        outcome = journal.redo({turn}) if redo else journal.undo({turn})
    for line in outcome.lines():
        echo(line)
    if outcome.conflicts:
        raise typer.Exit(1)


@app.command(epilog="Example: agent sessions diff 3bc06fe5 | less")
def diff(session: SessionId) -> None:
    """Show what a conversation has changed in files, as a unified diff."""
    from tools.builtin.files.journal import net_changes

    journal, turns = _open_journal(session)
    for change in net_changes(journal.steps(turns)):
        for line in journal.diff(change):
            echo(line)


def _open_journal(session: str) -> tuple[ChangeJournal, list[str]]:
    """Return the journal with a conversation's changes, and its turns. Raises UserError."""
    from agent import bootstrap
    from tools.builtin.files.journal import find_root

    store, paths = _open_store(), user_paths()
    turns = [turn.response.id for turn in store.turns(_find(store, session))]
    if (root := find_root(paths.undo, turns)) is None:
        raise UserError("No tool has changed a file in this conversation, as far as is recorded.")
    if not root.is_dir():
        raise UserError(f"The folder of these changes is gone: {root}.")
    return bootstrap.open_journal(root, paths), turns


@app.command(epilog="Example: agent sessions rename 3bc06fe5 'The trip'")
def rename(
    session: SessionId,
    title: str = typer.Argument(metavar="TITLE", help="The new title, one line."),
) -> None:
    """Rename a conversation."""
    if not title_from(title):
        raise UserError("The title is empty.")
    store = _open_store()
    store.rename(_find(store, session), title)


def _open_store() -> Store:
    with user_errors(StoreError):
        return Store(user_paths().store, folder=project_name(Path.cwd()))


def _find(store: Store, session: str) -> str:
    try:
        return store.find(session)
    except StoreError as error:
        raise UserError(f"{error} See: agent sessions list --all") from error


def _load_record(store: Store, session: str) -> ExportRecord:
    """A conversation without its damaged parts, which are named on stderr. Raises UserError."""
    name = _find(store, session)
    summary, turns = store.summary(name), store.turns(name)
    if summary is None:
        raise UserError(" ".join(store.damage.take()))
    record = ExportRecord(summary, store.read(name), turns)
    _report_damage(store)
    return record


def _report_damage(store: Store) -> None:
    for sentence in store.damage.take():
        echo(f"agent: {sentence}", file=sys.stderr)


def _turn_count(number: int) -> str:
    return f"{number} turn{'' if number == 1 else 's'}"


def _context_table(store: Store, record: ExportRecord) -> Iterator[str]:
    """The lines of a bar and a table, from the latest recorded turn. Raises UserError."""
    from agent.turn import context_usage as usage

    conversation = record.conversation
    if conversation.vocabulary is None:
        raise UserError("There are no messages yet.")
    recorded = _latest_context(store, record)
    header = [part for part in recorded.parts if part.kind in ("system", "developer", "tools")]
    header = [part for part in header if part.entry is None]
    form = _load_format(conversation.vocabulary)
    context = usage.measure_context(form, conversation, header, recorded.context_length)

    columns = min(MAX_COLUMNS, shutil.get_terminal_size().columns)
    length = f" of {context.context_length:,}" if context.context_length else ""
    yield f"{context.tokens:,}{length} tokens; /compact frees up to {context.compactable:,}"
    widths = usage.bar_widths(context, columns)
    bar = "".join(usage.BAR_MARKS[name] * count for name, count in widths.items())
    yield bar.ljust(columns, usage.FREE_MARK)
    marks = [f"{usage.BAR_MARKS[name]} {name}" for name in widths]
    yield "  ".join([*marks, f"{usage.FREE_MARK} free"])
    yield ""
    if not header:
        yield "Instructions and tools were not recorded."
    prompts = {turn.start: turn.prompt for turn in record.turns}
    whole = max(1, context.context_length or context.tokens)

    def row(name: str, tokens: int, notes: str = "") -> str:
        room = max(10, columns - 40)
        cell = name if len(name) <= room else f"{name[: room - 1]}…"
        return f"{cell:{room}}{tokens:>10,}{tokens / whole:>8.1%}  {notes}".rstrip()

    for number, parts in groupby(context.parts, lambda part: part.turn):
        group = list(parts)
        if number is not None:
            prompt = " ".join(prompts.get(group[0].entry, "").split())
            tokens = sum(part.tokens for part in group)
            yield row(f"{number} ❯ {prompt}", tokens, usage.turn_note(group))
        for part in group:
            name = "    " * (number is not None) + usage.part_name(part)
            yield row(name, part.tokens, usage.part_note(part))


def _latest_context(store: Store, record: ExportRecord) -> AgentContext:
    for turn in reversed(record.turns):
        for _, event in reversed(store.events(turn.response.id)):
            if isinstance(event, AgentContext):
                return event
    return AgentContext(context_length=0, tokens=0, cached=0, compactable=0, parts=[])


def _load_format(vocabulary: str) -> Format:
    from agent.engine.protocol import EngineError
    from agent.models.loader import ModelLoader
    from agent.models.resolve import resolve_model

    if vocabulary == "o200k_harmony":
        return harmony_format()
    with user_errors(EngineError):
        return ModelLoader(resolve_model(vocabulary, user_paths()), user_paths()).create_format()
