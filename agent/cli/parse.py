"""`agent parse`: splits generated tokens into segments, and lists the parser's repairs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from agent.config.paths import user_paths
from agent.errors import UserError
from agent.formats.markup.dialects import DIALECTS
from agent.formats.protocol import (
    Closed,
    Delta,
    Opened,
    ParseEvent,
    Parser,
    Repair,
    SegmentKind,
    Stop,
)
from agent.formats.recipients import TOOL_ALIASES, Recipients
from agent.formats.tokenizer_text import tokenizer_chunks
from agent.util.sanitize import sanitizer_for

FORMATS = ("harmony", *DIALECTS)
_SPECIAL_TOKEN = re.compile(r"(<\|[a-z0-9_]+\|>)")


def run(
    stdin: TextIO,
    stdout: TextIO,
    *,
    text: bool,
    tools: list[str] | None,
    format: str,
    model: str | None = None,
) -> int:
    """Parse each line of ids, or with ``text`` all of stdin as markup; return the exit code. ``tools``:
    None: calls are reported as written. ``model``: has the ids' vocabulary. Raises UserError."""
    if format not in FORMATS:
        raise UserError(f"There is no format {format!r}; known: {', '.join(FORMATS)}.")
    if format != "harmony" and not text and model is None:
        raise UserError(f"The ids of {format} differ from model to model: give --model or --text.")
    recipients = None if tools is None else Recipients(tools, TOOL_ALIASES)
    if format == "harmony":
        if model is not None:  # its ids are the same; still it has to be there
            _resolve(model)
        encode, new_parser = _harmony_tools(recipients)
    elif model is None:
        encode, new_parser = _dialect_tools(format, recipients)
    else:
        encode, new_parser = _model_tools(format, recipients, model)
    ascii_only = (stdout.encoding or "utf-8").lower().replace("-", "") != "utf8"
    failed, sanitize = False, sanitizer_for(stdout)
    for ids in _read_markup(stdin, encode) if text else _read_id_lines(stdin):
        if isinstance(ids, str):
            answer: dict[str, Any] = {"error": ids}
            failed = True
        else:
            answer = parse_ids(new_parser(), ids)
        stdout.write(sanitize(json.dumps(answer, ensure_ascii=ascii_only)) + "\n")
        stdout.flush()
    return 1 if failed else 0


FormatTools = tuple[Callable[[str], list[int]], Callable[[], Parser]]
"""An encoder of markup, and a function that makes a parser."""


def _harmony_tools(recipients: Recipients | None) -> FormatTools:
    # The other formats do without the 200,000 tokens of this encoding.
    from agent.formats.harmony.encoding import load_encoding
    from agent.formats.harmony.parser import HarmonyParser
    from agent.tiny.vocabulary import ranks

    vocabulary = load_encoding(ranks)

    def encode(text: str) -> list[int]:
        ids: list[int] = []
        for chunk in _SPECIAL_TOKEN.split(text):
            for part in tokenizer_chunks(chunk):
                ids += vocabulary.encode(part, allowed_special="all", disallowed_special=())
        return ids

    return encode, lambda: HarmonyParser(vocabulary, recipients)


def _dialect_tools(format: str, recipients: Recipients | None) -> FormatTools:
    from agent.formats.markup.parser import MarkupParser, TokenClasses
    from agent.formats.markup.vocabulary import ByteVocabulary, MarkupEncoder

    vocabulary = ByteVocabulary(DIALECTS[format].specials)
    classes = TokenClasses(vocabulary, DIALECTS[format])
    return MarkupEncoder(vocabulary).encode_markup, lambda: MarkupParser(classes, recipients)


def _resolve(model: str) -> Path | None:
    """The model's file; None: the embedded model's, or a server has it. Raises UserError."""
    from agent.engine.protocol import EngineError
    from agent.models import resolve

    try:
        return resolve.resolve_model(model, user_paths()).path
    except EngineError as error:
        raise UserError(str(error)) from error


def _model_tools(format: str, recipients: Recipients | None, model: str) -> FormatTools:
    from agent.engine.protocol import EngineError
    from agent.formats import detect

    try:
        path = _resolve(model)
        form = detect.load_format(path, format) if path is not None else None
    except EngineError as error:
        raise UserError(str(error)) from error
    if form is None:
        raise UserError(f"{model} writes Harmony; leave --format {format} out.")
    return form.encoder.encode_markup, lambda: form.parser(recipients)


def parse_ids(parser: Parser, ids: list[int]) -> dict[str, Any]:
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


def _segment(piece: ParseEvent) -> dict[str, Any]:
    kind, recipient, raw = "stop", None, None
    if isinstance(piece, Opened):
        kind = str(piece.kind)
        if piece.kind in (SegmentKind.TOOL, SegmentKind.TOOL_UNKNOWN):
            # A tool that was never declared has no name but the one that was written.
            recipient, raw = piece.recipient or piece.raw_recipient, piece.raw_recipient
    return {
        "kind": kind,
        "recipient": recipient,
        "raw_recipient": raw,
        "text": "",
        "complete": True,
    }


def _read_markup(stdin: TextIO, encode: Callable[[str], list[int]]) -> Iterator[list[int] | str]:
    """Yield the ids of all of stdin, or why it cannot be decoded."""
    try:
        text = "".join(_read_text(stdin))
    except UnicodeDecodeError as error:
        yield f"not UTF-8: {error.reason} at byte {error.start}"
        return
    yield encode(text)


def _read_id_lines(stdin: TextIO) -> Iterator[list[int] | str]:
    """Yield each line's ids, or what is wrong with it."""
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


def _read_text(stdin: TextIO) -> Iterable[str]:
    raw = getattr(stdin, "buffer", None)
    return [raw.read().decode()] if raw is not None else [stdin.read()]
