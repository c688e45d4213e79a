"""`agent parse`: splits generated tokens into segments, and lists the parser's repairs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from agent.config.paths import user_paths
from agent.errors import UserError, user_errors
from agent.formats import detect, protocol
from agent.formats.recipients import TOOL_ALIASES, Recipients
from agent.util.sanitize import sanitizer_for

FORMATS = ("harmony", *detect.SYNTAX_NAMES)


def run(
    stdin: TextIO,
    stdout: TextIO,
    *,
    text: bool,
    tools: str | None,
    format: str,
    model: str | None = None,
    chat_template: Path | None = None,
) -> int:
    """Parse lines of ids, or with ``text`` all of stdin as markup; return the exit code."""
    if chat_template is not None and not text:
        raise UserError("A chat template has no token ids: give --text.")
    if format not in FORMATS:
        raise UserError(f"There is no format {format!r}; known: {', '.join(FORMATS)}.")
    if format != "harmony" and not text and model is None:
        raise UserError(f"The ids of {format} differ from model to model: give --model or --text.")
    names = [name.strip() for name in (tools or "").split(",") if name.strip()]
    recipients = Recipients(names, TOOL_ALIASES) if tools else None
    form = _load_format(format, model) if chat_template is None else _derive_format(chat_template)
    ascii_only = (stdout.encoding or "utf-8").lower().replace("-", "") != "utf8"
    failed, sanitize = False, sanitizer_for(stdout)
    for ids in _read_markup(stdin, form) if text else _read_id_lines(stdin):
        if isinstance(ids, str):
            answer: dict[str, Any] = {"error": ids}
            failed = True
        else:
            answer = parse_ids(form.parser(recipients), ids)
        stdout.write(sanitize(json.dumps(answer, ensure_ascii=ascii_only)) + "\n")
        stdout.flush()
    return 1 if failed else 0


def _load_format(format: str, model: str | None) -> protocol.Format:
    """The format with the model's ids; for another than Harmony without a model, with an id for each
    byte. Raises UserError."""
    form: protocol.Format | None = None
    if model is None:
        form = detect.byte_format(format)
    else:
        from agent.engine.protocol import EngineError
        from agent.models import resolve

        with user_errors(EngineError):
            path = resolve.resolve_model(model, user_paths()).path
            form = detect.load_format(path, format) if path is not None else None
        if form is None and format != detect.HARMONY:
            raise UserError(f"{model} writes Harmony; leave --format {format} out.")
    return form or harmony_format()


def _derive_format(path: Path) -> protocol.Format:
    from agent.formats.markup.template_process import UnusableTemplateError

    with user_errors(OSError, ValueError, failure=f"Cannot read {path}"):
        source = path.read_text(encoding="utf-8")
    if detect.is_harmony({"tokenizer.chat_template": source}):
        return harmony_format()
    with user_errors(UnusableTemplateError, failure="The chat template cannot be used"):
        return detect.template_format(source)


def harmony_format() -> protocol.Format:
    """The format of gpt-oss. The others do without the 200,000 tokens of its encoding."""
    from agent.formats.harmony.encoding import load_encoding
    from agent.formats.harmony.format import HarmonyFormat
    from agent.tiny.vocabulary import ranks

    return HarmonyFormat(load_encoding(ranks))


def parse_ids(parser: protocol.Parser, ids: list[int]) -> dict[str, Any]:
    segments: list[dict[str, Any]] = []
    repairs: list[dict[str, Any]] = []
    texts: list[str] = []
    for piece in [*parser.feed(ids), *parser.finish()]:
        match piece:
            case protocol.Opened() | protocol.Stop():
                segments.append(_segment(piece))
                texts = []
            case protocol.Delta(text):
                texts.append(text)
            case protocol.Closed(complete=complete):
                segments[-1].update(text="".join(texts), complete=complete)
            case protocol.Repair(rule, at, text):
                repairs.append({"rule": rule, "at": at, "text": text})
    return {"segments": segments, "repairs": repairs}


def _segment(piece: protocol.ParseEvent) -> dict[str, Any]:
    kind, recipient, raw = "stop", None, None
    if isinstance(piece, protocol.Opened):
        kind = str(piece.kind)
        if piece.kind in (protocol.SegmentKind.TOOL, protocol.SegmentKind.TOOL_UNKNOWN):
            # A tool that was never declared has no name but the one that was written.
            recipient, raw = piece.recipient or piece.raw_recipient, piece.raw_recipient
    return {
        "kind": kind,
        "recipient": recipient,
        "raw_recipient": raw,
        "text": "",
        "complete": True,
    }


def _read_markup(stdin: TextIO, form: protocol.Format) -> Iterator[list[int] | str]:
    """Yield the ids of all of stdin, or why it cannot be decoded."""
    try:
        raw = getattr(stdin, "buffer", None)
        text = stdin.read() if raw is None else raw.read().decode()
    except UnicodeDecodeError as error:
        yield f"not UTF-8: {error.reason} at byte {error.start}"
        return
    yield form.encode_markup(text)


def _read_id_lines(stdin: TextIO) -> Iterator[list[int] | str]:
    """Yield each line's ids, or what is wrong with it."""
    for raw in getattr(stdin, "buffer", stdin):
        try:
            ids = json.loads(raw.decode() if isinstance(raw, bytes) else raw)
        except UnicodeDecodeError as error:
            yield f"not UTF-8: {error.reason} at byte {error.start}"
        except (ValueError, RecursionError) as error:
            yield f"not a JSON array of token ids: {error}"
        else:
            if isinstance(ids, list) and all(type(token) is int for token in ids):
                yield ids
            else:
                yield "not a JSON array of token ids: every element must be an integer"
