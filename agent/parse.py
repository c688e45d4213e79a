"""`agent parse`: what a model wrote, as segments and repairs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from openai_harmony import HarmonyEncoding

from agent.formats.base import Closed, Delta, Kind, Opened, Parser, Piece, Repair, Stop
from agent.formats.recipients import ALIASES, Recipients
from agent.formats.text import parts

FORMATS = ("harmony",)
_SPECIAL = re.compile(r"(<\|[a-z0-9_]+\|>)")


def run(stdin: TextIO, stdout: TextIO, *, text: bool, tools: list[str] | None, format: str) -> int:
    """Parse each line of token ids, or with ``text`` the whole input as markup; the exit code.

    ``tools`` are the declared names; None: none is known, and calls are reported as written.
    """
    if format not in FORMATS:
        print(
            f"The format {format!r} is not known; there is {', '.join(FORMATS)}.", file=sys.stderr
        )
        return 2
    # Imported here: the vocabulary takes a moment to load.
    from agent.formats.harmony.parser import HarmonyParser
    from agent.tiny.vocabulary import ranks
    from agent.vocabulary import encoding

    vocabulary = encoding(ranks)
    recipients = None if tools is None else Recipients(tools, ALIASES)
    plain = (stdout.encoding or "utf-8").lower().replace("-", "") != "utf8"
    failed = False
    for ids in _markup(stdin, vocabulary) if text else _lines(stdin):
        if isinstance(ids, str):
            answer: dict[str, Any] = {"error": ids}
            failed = True
        else:
            answer = parsed(HarmonyParser(vocabulary, recipients), ids)
        stdout.write(json.dumps(answer, ensure_ascii=plain) + "\n")
        stdout.flush()
    return 1 if failed else 0


def parsed(parser: Parser, ids: list[int]) -> dict[str, Any]:
    """One stream's segments and repairs."""
    segments: list[dict[str, Any]] = []
    repairs: list[dict[str, Any]] = []
    texts: list[str] = []
    for piece in [*parser.feed(ids), *parser.finish()]:
        match piece:
            case Opened():
                segments.append(_segment(piece))
                texts = []
            case Delta(text):
                texts.append(text)
            case Closed(complete=complete):
                segments[-1].update(text="".join(texts), complete=complete)
            case Repair(rule, at, text):
                repairs.append({"rule": rule, "at": at, "text": text})
            case Stop():
                segments.append(_segment(piece))
    return {"segments": segments, "repairs": repairs}


def _segment(piece: Piece) -> dict[str, Any]:
    kind, recipient, raw = "stop", None, None
    if isinstance(piece, Opened):
        kind = str(piece.kind)
        if piece.kind in (Kind.TOOL, Kind.TOOL_UNKNOWN):
            recipient, raw = piece.recipient, piece.raw_recipient
    return {
        "kind": kind,
        "recipient": recipient,
        "raw_recipient": raw,
        "text": "",
        "complete": True,
    }


def _markup(stdin: TextIO, vocabulary: HarmonyEncoding) -> Iterator[list[int] | str]:
    try:
        text = "".join(_decoded(stdin))
    except UnicodeDecodeError as error:
        yield f"not UTF-8: {error.reason} at byte {error.start}"
        return
    ids: list[int] = []
    for chunk in _SPECIAL.split(text):
        for part in parts(chunk):
            ids += vocabulary.encode(part, allowed_special="all", disallowed_special=())
    yield ids


def _lines(stdin: TextIO) -> Iterator[list[int] | str]:
    """Each line's ids, or what is wrong with it."""
    for raw in getattr(stdin, "buffer", stdin):
        try:
            line = raw.decode() if isinstance(raw, bytes) else raw
            ids = json.loads(line)
        except UnicodeDecodeError as error:
            yield f"not UTF-8: {error.reason} at byte {error.start}"
        except (ValueError, RecursionError) as error:
            yield f"not a JSON array of token ids: {error}"
        else:
            if isinstance(ids, list) and all(type(token) is int for token in ids):
                yield ids
            else:
                yield "not a JSON array of token ids: every element must be an integer"


def _decoded(stdin: TextIO) -> Iterable[str]:
    raw = getattr(stdin, "buffer", None)
    return [raw.read().decode()] if raw is not None else [stdin.read()]
