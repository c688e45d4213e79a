"""`agent sessions show --context`: what fills the context of a stored conversation, as text."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from agent.cli.parse import harmony_format
from agent.config.paths import user_paths
from agent.errors import UserError, user_errors
from agent.events import AgentContext

if TYPE_CHECKING:
    from agent.formats.protocol import Format
    from agent.store.conversations import Store
    from agent.store.export import ExportRecord

MAX_COLUMNS = 100
"""Columns that the table takes of a wider terminal."""


def context_table(store: Store, record: ExportRecord) -> Iterator[str]:
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
