"""Writes a stored conversation as a file: Markdown and HTML to read, JSON and tokens for programs."""

import html
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from agent import events as ev
from agent.conversation.conversation import Conversation
from agent.store.records import ConversationSummary, StoredTurn
from agent.util.latex import read_formulas
from agent.util.sanitize import escape_json, sanitize


@dataclass(frozen=True, slots=True)
class ExportRecord:
    """Everything that the store has of one conversation."""

    summary: ConversationSummary
    conversation: Conversation
    turns: list[StoredTurn]


@dataclass(frozen=True, slots=True)
class Block:
    """A section for readers; ``code``: set verbatim, ``folded``: collapsed where the format can."""

    title: str
    text: str
    code: bool = False
    folded: bool = False
    is_markdown: bool = False
    """Whether the model wrote it, which writes Markdown."""


def local_time(seconds: float) -> str:
    """Format seconds since 1970 as local time: 2026-01-31 17:05"""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def summary_json(summary: ConversationSummary) -> dict[str, Any]:
    """A conversation in a list for programs; times are ISO 8601."""
    return {
        "id": summary.id,
        "title": summary.title,
        "model": summary.model,
        "created": datetime.fromtimestamp(summary.created).astimezone().isoformat(),
        "updated": datetime.fromtimestamp(summary.updated).astimezone().isoformat(),
        "turns": summary.turns,
        "branch_of": summary.parent,
        "folder": summary.folder or None,
    }


def markdown(record: ExportRecord) -> str:
    """A conversation as Markdown: a heading per prompt and answer, the rest set apart."""
    summary = record.summary
    about = f"{sanitize(summary.model)}, {local_time(summary.created)}"
    parts = [f"# {single_line(summary.title)}", about]
    for block in _clean_blocks(record):
        text = block.text.strip()
        parts.append(f"## {block.title}" if not block.folded else f"**{block.title}**")
        if block.code:
            text = _fenced(text)
        elif block.folded:
            text = "\n".join(f"> {line}".rstrip() for line in text.splitlines())
        parts.append(text)
    return "\n\n".join(part for part in parts if part) + "\n"


PAGE_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; font: inherit; margin: .5rem 0 }}
table {{ border-collapse: collapse }} td, th {{ border: 1px solid #8888; padding: .2rem .5rem }}
pre code {{ font: 14px/1.4 monospace }}
blockquote {{ border-left: 3px solid #8888; padding-left: 1rem }}
pre.code {{ font: 14px/1.4 monospace; padding: .5rem; border: 1px solid #8888 }}
h2, summary {{ font-size: 1rem; color: #888 }}
</style></head><body><h1>{title}</h1><p>{about}</p>
{body}
</body></html>
"""


def html_page(record: ExportRecord) -> str:
    """A conversation as one self-contained HTML file; all texts are escaped."""
    summary = record.summary
    body = []
    for block in _clean_blocks(record):
        title, text = html.escape(block.title), block.text.strip()
        if block.is_markdown:
            text = _html_of_markdown(text)
        else:
            kind = ' class="code"' if block.code else ""
            text = f"<pre{kind}>{html.escape(text)}</pre>"
        if block.folded:
            body.append(f"<details><summary>{title}</summary>{text}</details>")
        else:
            body.append(f"<h2>{title}</h2>{text}")
    return PAGE_TEMPLATE.format(
        title=html.escape(single_line(summary.title)),
        about=html.escape(f"{sanitize(summary.model)}, {local_time(summary.created)}"),
        body="\n".join(body),
    )


def _html_of_markdown(text: str) -> str:
    """Render Markdown. Tags in it are escaped; images stay text: a browser would fetch them."""
    from markdown_it import MarkdownIt

    renderer = read_formulas(MarkdownIt("commonmark", {"html": False}))
    renderer.enable(["table", "strikethrough"])
    return str(renderer.disable("image").render(text))


def as_json(record: ExportRecord) -> str:
    """A conversation as JSON: its turns with their responses, in the form of the Responses API."""
    compacted = record.conversation.compacted
    shown = summary_json(record.summary) | {
        "summary": compacted.text if compacted else None,
        "conversation": [
            {
                "prompt": turn.prompt,
                "entry": turn.start,
                **({"steered": turn.record.steered} if turn.record.steered else {}),
                "response": turn.response.model_dump(mode="json"),
            }
            for turn in record.turns
        ],
    }
    return escape_json(json.dumps(shown, ensure_ascii=False, indent=2)) + "\n"


def tokens(record: ExportRecord) -> str:
    """One JSON object a message: who wrote it, its ids and, as ``prompt``, what the prompt has in place
    of them ([]: nothing)."""
    upto = record.conversation.compacted.end if record.conversation.compacted else 0
    lines = []
    for at, entry in enumerate(record.conversation.entries):
        line: dict[str, Any] = {"role": entry.role, "tokens": entry.ids}
        ids = [] if at < upto and not entry.pinned else entry.prompt_ids
        if ids is not entry.ids:
            line["prompt"] = ids
        lines.append(json.dumps(line) + "\n")
        if at == upto - 1 and record.conversation.compacted:
            line = {"role": "summary", "tokens": record.conversation.compacted.ids}
            lines.append(json.dumps(line) + "\n")
    return "".join(lines)


FORMATS = {"md": markdown, "json": as_json, "tokens": tokens, "html": html_page}


# --- what a person reads ---


def _clean_blocks(record: ExportRecord) -> Iterator[Block]:
    """The blocks without what steers a terminal; each by itself, or a sequence could span two."""
    for block in _blocks(record):
        yield replace(block, title=sanitize(block.title), text=sanitize(block.text))


def _blocks(record: ExportRecord) -> Iterator[Block]:
    compacted = record.conversation.compacted
    for turn in record.turns:
        if compacted and turn.start is not None and turn.start >= compacted.end:
            yield Block("Compacted: for the model, this stands for all above", compacted.text)
            compacted = None
        yield Block("You", turn.prompt)
        for one in turn.timeline():
            if isinstance(one, str):
                yield Block("You, meanwhile", one)
            else:
                yield from _item(one)
        match turn.response.status:
            case "completed":
                pass
            case "failed" if turn.response.error is not None:
                yield Block("Failed", turn.response.error.message)
            case status:
                yield Block("Ended", f"The answer is {status}.")


def _item(item: ev.Item) -> Iterator[Block]:
    match item:
        case ev.ReasoningItem(content=content):
            thought = "".join(part.text for part in content)
            yield Block("Reasoning", thought, folded=True, is_markdown=True)
        case ev.MessageItem(content=texts, phase=phase):
            said = "".join(part.text for part in texts)
            title = "Answer" if phase == "final_answer" else "Said meanwhile"
            yield Block(title, said, is_markdown=True)
        case ev.McpCallItem(server_label=server, name=name):
            yield Block(f"Call of {server} · {name}", _arguments(item.arguments), True, True)
            result = item.output if item.error is None else item.error.text
            yield Block("Result" if item.error is None else "Failed", result or "", True, True)
        case _:
            # Whatever a client had: as it is.
            yield Block(item.type, item.model_dump_json(indent=2), True, True)


def _arguments(arguments: str) -> str:
    with suppress(ValueError):
        match json.loads(arguments):
            case {"code": str(code), **rest} if not rest:
                return code
    return arguments


def single_line(text: str) -> str:
    """Join the words of a title by single spaces; a placeholder for none."""
    return " ".join(sanitize(text).split()) or "(no title)"


def _fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"
