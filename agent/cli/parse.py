"""`agent parse`: what a model wrote, as segments and repairs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

from agent.formats.markup.dialects import FAMILIES
from agent.formats.protocol import Closed, Delta, Kind, Opened, Parser, Piece, Repair, Stop
from agent.formats.recipients import ALIASES, Recipients
from agent.formats.tokenizer_text import parts
from agent.util.sanitize import fit

FORMATS = ("harmony", *FAMILIES)
_SPECIAL = re.compile(r"(<\|[a-z0-9_]+\|>)")


def run(
    stdin: TextIO,
    stdout: TextIO,
    *,
    text: bool,
    tools: list[str] | None,
    format: str,
    model: str | None = None,
) -> int:
    """Parse each line of token ids, or with ``text`` the whole input as markup; the exit code.

    ``tools`` are the declared names; None: none is known, and calls are reported as written.
    ``model``: whose vocabulary the ids are of, for families that share none. Raises UserError.
    """
    if format not in FORMATS:
        print(
            f"The format {format!r} is not known; there is {', '.join(FORMATS)}.", file=sys.stderr
        )
        return 2
    if format != "harmony" and not text and model is None:
        message = f"The ids of {format} differ from model to model: give --model or --text."
        print(message, file=sys.stderr)
        return 2
    recipients = None if tools is None else Recipients(tools, ALIASES)
    if format == "harmony":
        encode, new_parser = _harmony(recipients)
    elif model is None:
        encode, new_parser = _family(format, recipients)
    else:
        encode, new_parser = _model(format, recipients, model)
    plain = (stdout.encoding or "utf-8").lower().replace("-", "") != "utf8"
    failed, shown = False, fit(stdout)
    for ids in _markup(stdin, encode) if text else _lines(stdin):
        if isinstance(ids, str):
            answer: dict[str, Any] = {"error": ids}
            failed = True
        else:
            answer = parsed(new_parser(), ids)
        stdout.write(shown(json.dumps(answer, ensure_ascii=plain)) + "\n")
        stdout.flush()
    return 1 if failed else 0


Reader = tuple[Callable[[str], list[int]], Callable[[], Parser]]
"""Markup as ids, and a parser for them."""


def _harmony(recipients: Recipients | None) -> Reader:
    # Imported here: the vocabulary takes a moment to load.
    from agent.formats.harmony.encoding import encoding
    from agent.formats.harmony.parser import HarmonyParser
    from agent.tiny.vocabulary import ranks

    vocabulary = encoding(ranks)

    def encode(text: str) -> list[int]:
        ids: list[int] = []
        for chunk in _SPECIAL.split(text):
            for part in parts(chunk):
                ids += vocabulary.encode(part, allowed_special="all", disallowed_special=())
        return ids

    return encode, lambda: HarmonyParser(vocabulary, recipients)


def _family(format: str, recipients: Recipients | None) -> Reader:
    from agent.formats.markup.parser import Alphabet, MarkupParser
    from agent.formats.markup.vocabulary import Bytes, Encoder

    vocabulary = Bytes(FAMILIES[format].specials)
    alphabet = Alphabet(vocabulary, FAMILIES[format])
    return Encoder(vocabulary).markup, lambda: MarkupParser(alphabet, recipients)


def _model(format: str, recipients: Recipients | None, model: str) -> Reader:
    from agent.config.settings import places
    from agent.engine.protocol import EngineError
    from agent.errors import UserError
    from agent.formats import detect
    from agent.models import catalog

    try:
        path = catalog.choose(model, places()).path
        form = detect.of_file(path, format) if path is not None else None
    except EngineError as error:
        raise UserError(str(error)) from error
    if form is None:
        raise UserError(f"{model} writes Harmony; leave --format {format} out.")
    return form.encoder.markup, lambda: form.parser(recipients)


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
            # A tool that was never declared has no name but the one that was written.
            recipient, raw = piece.recipient or piece.raw_recipient, piece.raw_recipient
    return {
        "kind": kind,
        "recipient": recipient,
        "raw_recipient": raw,
        "text": "",
        "complete": True,
    }


def _markup(stdin: TextIO, encode: Callable[[str], list[int]]) -> Iterator[list[int] | str]:
    try:
        text = "".join(_decoded(stdin))
    except UnicodeDecodeError as error:
        yield f"not UTF-8: {error.reason} at byte {error.start}"
        return
    yield encode(text)


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
