"""The parts of a prompt in order, with tokens that add up to its length."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal

from agent import events as ev
from agent.conversation.attachments import format_attachment, split_attachments
from agent.conversation.compaction import replaceable_tokens, turn_starts
from agent.conversation.conversation import Conversation, Entry
from agent.conversation.project_instructions import ProjectInstructions
from agent.engine.protocol import ContextOverflowError
from agent.formats.protocol import Format, Opened, SegmentKind
from agent.turn.options import APP, EMPTY_TOOL, RUN, Interface, TurnOptions
from tools.types import Tool

MAX_HEADER_TOKENS, HEADER_CHUNK_TOKENS = 64, 8
"""Tokens that say what kind of message it is, and how many are parsed at once: most are short."""
TOOLS_SHARE = 4
"""Where tools take a fourth of a prompt that is too long, they are named as the reason."""
_KINDS: dict[SegmentKind, ev.ContextPartKind] = {
    SegmentKind.REASONING: "reasoning", SegmentKind.PREAMBLE: "commentary",
    SegmentKind.TOOL: "call", SegmentKind.TOOL_UNKNOWN: "call", SegmentKind.FINAL: "answer",
}  # fmt: skip
BAR_GROUPS: dict[str, tuple[ev.ContextPartKind, ...]] = {
    "instructions": ("system", "developer", "opening"), "tools": ("tools",), "summary": ("summary",),
    "prompts": ("prompt", "file"), "reasoning": ("reasoning",), "calls": ("call", "result"),
    "answers": ("commentary", "answer"),
}  # fmt: skip
"""The groups of a bar, and the kinds of parts in each."""
BAR_MARKS = dict(zip(BAR_GROUPS, "█▓▞▒░▚▤", strict=True))
"""The character of each group in a bar, distinct also without colours."""
FREE_MARK = "·"
_NAMES: dict[str, str] = {
    "system": "system message",
    "developer": "instructions",
    "summary": "summary of earlier turns",
    "opening": "opening of the answer",
}


def measure_context(
    form: Format, conversation: Conversation, header: Sequence[ev.ContextPart], context_length: int
) -> ev.AgentContext:
    """The prompt of the next generation. ``header``: what `header_parts` returns."""
    opening = len(form.open_assistant())
    parts = [
        *header,
        *conversation_parts(form, conversation),
        ev.ContextPart(kind="opening", tokens=opening, full_tokens=opening),
    ]
    return ev.AgentContext(
        context_length=context_length,
        tokens=sum(part.tokens for part in parts),
        cached=0,
        compactable=replaceable_tokens(conversation),
        parts=parts,
    )


def header_parts(form: Format, options: TurnOptions, tools: Sequence[Tool]) -> list[ev.ContextPart]:
    """The parts before the first message: system message, instructions, each server's tools."""
    bare = replace(options, instructions=None, project=ProjectInstructions(), functions=())
    named = replace(bare, instructions=options.instructions)
    with_project = replace(named, project=options.project)
    sizes = [0, *(each.header_tokens(form) for each in (bare, named, with_project))]
    system, instructions, project = (after - before for before, after in pairwise(sizes))
    # As the screen of servers counts them: what a server's tools add where others are declared too.
    framed = bare.header_tokens(form, [EMPTY_TOOL])
    servers = {
        server: bare.header_tokens(form, [EMPTY_TOOL, *(t for t in tools if t.server == server)])
        - framed
        for server in dict.fromkeys(tool.server for tool in tools)
    }
    common = options.header_tokens(form, tools) - sizes[-1] - sum(servers.values())
    counted: list[tuple[ev.ContextPartKind, str, int]] = [
        ("system", "", system),
        ("developer", "", instructions),
        ("developer", options.project.names, project),
        *(("tools", server, tokens) for server, tokens in servers.items()),
        ("tools", "", common),
    ]
    return [
        ev.ContextPart(kind=kind, name=name, tokens=tokens, full_tokens=tokens)
        for kind, name, tokens in counted
        if tokens
    ]


def explain_overflow(
    error: ContextOverflowError,
    form: Format,
    options: TurnOptions,
    tools: Sequence[Tool],
    interface: Interface,
) -> str:
    """Return the error's sentence, or where tools take much of the prompt, one about them."""
    parts = [part for part in header_parts(form, options, tools) if part.kind == "tools"]
    total, prompt, context = sum(p.tokens for p in parts), error.prompt_tokens, error.context_length
    if total * TOOLS_SHARE < prompt and prompt - total >= context:
        return str(error)
    largest = sorted((p for p in parts if p.name), key=lambda part: -part.tokens)[:3]
    names = ", ".join(f"{part.name} {part.tokens:,}" for part in largest)
    how = {APP: "turn some off with F7", RUN: "choose fewer with --tools"}
    return (
        f"The prompt has {prompt:,} tokens and the context holds {context:,}: {total:,} of them define"
        f" tools{f' ({names})' if names else ''}; {how.get(interface, 'offer fewer')} or ask for a"
        " longer context."
    )


def conversation_parts(form: Format, conversation: Conversation) -> Iterator[ev.ContextPart]:
    """The parts from the summary or the first message on; also those that the prompt has nothing of."""
    conversation.omit_answered_calls(form)
    starts, end = turn_starts(conversation.entries), 0
    if (compacted := conversation.compacted) is not None:
        end, size = compacted.end, len(compacted.ids)
        yield ev.ContextPart(kind="summary", tokens=size, full_tokens=size)
    for at, entry in enumerate(conversation.entries):
        summarised = at < end and not entry.pinned
        tokens = 0 if summarised else len(entry.prompt_ids)
        state: Literal["", "folded", "dropped", "summarised", "omitted"] = ""
        if entry.dropped or summarised:
            state = "dropped" if entry.dropped else "summarised"
        elif entry.omitted:
            state = "omitted"
        elif entry.shortened_ids is not None:
            state = "folded"
        for kind, name, full in _split(form, entry):
            is_whole = full == len(entry.ids)
            yield ev.ContextPart(
                kind=kind,
                name=name,
                turn=bisect_right(starts, at) or None,
                entry=at,
                # A prompt with files is never folded: all of it is there, or nothing.
                tokens=tokens if is_whole else min(tokens, full),
                full_tokens=full,
                state=state,
                pinned=entry.pinned,
            )


def part_name(part: ev.ContextPart) -> str:
    """A part as a table names it: ``tools · files``, ``result · python``."""
    name = _NAMES.get(part.kind, part.kind)
    if part.kind == "tools" and not part.name:
        return f"{name} · what they share"
    return f"{name} · {part.name}" if part.name else name


def part_note(part: ev.ContextPart) -> str:
    words = {"folded": "folded", "omitted": "left out"}
    return f"{words[part.state]}, of {part.full_tokens:,}" if part.state in words else ""


def turn_note(parts: Sequence[ev.ContextPart]) -> str:
    notes: list[str] = [part.state for part in parts if part.state in ("dropped", "summarised")]
    if any(part.pinned for part in parts):
        notes.append("pinned")
    return "  ".join(dict.fromkeys(notes))


def message_text(form: Format, ids: Sequence[int]) -> str:
    """The text of a message's ids, its header's words included, without markup."""
    raw = b"".join(form.token_bytes(token) for token in ids if not form.is_markup(token))
    return raw.decode("utf-8", "replace")


def bar_widths(context: ev.AgentContext, columns: int) -> dict[str, int]:
    """Columns of a bar for each of `BAR_GROUPS`, ``columns`` at most; one at least if it has tokens."""
    sums = {
        group: sum(part.tokens for part in context.parts if part.kind in kinds)
        for group, kinds in BAR_GROUPS.items()
    }
    whole = max(context.context_length, context.tokens, 1)
    widths = {
        group: max(1, round(columns * tokens / whole)) for group, tokens in sums.items() if tokens
    }
    while sum(widths.values()) > columns and max(widths.values()) > 1:
        widths[max(widths, key=lambda group: widths[group])] -= 1
    return widths


def _split(form: Format, entry: Entry) -> Iterator[tuple[ev.ContextPartKind, str, int]]:
    """Kind, name and tokens of what is in a message: a prompt's files are counted by themselves."""
    match entry.role:
        case "user" | "steering":
            files = 0
            for attached in split_attachments(message_text(form, entry.ids))[1]:
                block = format_attachment(attached.source, attached.text, attached.kind)
                tokens = min(len(form.encode_text(block)), len(entry.ids) - files)
                files += tokens
                yield "file", attached.source, tokens
            yield "prompt", "", len(entry.ids) - files
        case "developer":
            yield "developer", "", len(entry.ids)
        case "result":
            yield "result", _tool_name(entry.recipient or ""), len(entry.ids)
        case _ if entry.reasoning:
            yield "reasoning", "", len(entry.ids)
        case _:
            kind, name = written_kind(form, entry)
            yield kind, name, len(entry.ids)


def written_kind(form: Format, entry: Entry) -> tuple[ev.ContextPartKind, str]:
    opening, ids = form.open_assistant(), entry.ids
    start = len(opening) if ids[: len(opening)] == opening else 0
    parser = form.parser(None)
    for at in range(start, min(len(ids), start + MAX_HEADER_TOKENS), HEADER_CHUNK_TOKENS):
        for event in parser.feed(ids[at : at + HEADER_CHUNK_TOKENS]):
            if isinstance(event, Opened):
                return _KINDS[event.kind], _tool_name(event.raw_recipient or event.recipient or "")
    return "answer", ""


def _tool_name(recipients: str) -> str:
    return " ".join(name.removeprefix("functions.") for name in recipients.split())
