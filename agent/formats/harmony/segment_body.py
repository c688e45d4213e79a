"""The body of a Harmony message, streamed, or buffered while its kind is unknown.

A body is in one of three modes:

``stream``
    Text becomes deltas at once: a call's arguments, and other text after its prefix.
``prefix``
    At the beginning of reasoning, preamble or answer, up to `_MAX_PREFIX_CHARS` are buffered while they
    may still be a repeated channel name: ``<|channel|>analysis<|message|>final<|message|>Hello`` is an
    answer. A preamble that begins with ``{`` is buffered to its end (``buffer``); if ``<|call|>`` ends
    it, it is a call without a recipient.
``buffer``
    The segment is opened only at the end of the body. Apart from the preamble above, this is a call
    with arguments in its header: ``to=functions.f {"a":1}<|message|>{"b":2}<|call|>``. The body's
    arguments count unless only the header's are a JSON object; the others become a repair.

Within a call, `SegmentBody.in_json_string` tells the parser whether a special token is quoted text.
"""

import json
import re
from dataclasses import replace
from typing import Literal

from agent.formats.harmony.header import CHANNELS
from agent.formats.harmony.token_ids import CALL_ID
from agent.formats.protocol import Delta, Opened, ParseEvent, Repair, SegmentKind

_MAX_PREFIX_CHARS = 32
"""Characters that may be buffered at the beginning of a body."""
_STRING_QUOTE = re.compile(r'\\.|"', re.DOTALL)


class SegmentBody:
    """The text of one segment; ``header_arguments`` are arguments in the header of a call."""

    def __init__(
        self, opened: Opened, header_arguments: Repair | None, out: list[ParseEvent]
    ) -> None:
        self.opened = opened
        self.is_call = opened.kind in (SegmentKind.TOOL, SegmentKind.TOOL_UNKNOWN)
        self.tokens = 0
        self._header_arguments = header_arguments
        self._buffered: list[str] = []
        self._unscanned: list[str] = []
        self._is_json: bool | None = None
        self._in_string = False
        self.mode: Literal["prefix", "stream", "buffer"] = "stream" if self.is_call else "prefix"
        if header_arguments:
            self.mode = "buffer"
        self._addressed = opened.raw_recipient is not None and not self.is_call
        """It is addressed to a role: text, unless it is JSON."""
        self.may_run_on = opened.kind in (SegmentKind.REASONING, SegmentKind.PREAMBLE)
        """Whether its text may run into a call's header."""
        if self.mode == "stream":
            out.append(opened)

    def add(self, text: str, out: list[ParseEvent]) -> None:
        if self.mode == "stream":
            self.add_streamed(text, out)
            return
        if self.is_call:
            self._unscanned.append(text)
        self._buffered.append(text)
        if self.mode == "prefix":
            self._classify_prefix(out)

    def add_streamed(self, text: str, out: list[ParseEvent]) -> None:
        if self.is_call:
            self._unscanned.append(text)
        out.append(Delta(text))

    def _classify_prefix(self, out: list[ParseEvent]) -> None:
        prefix = "".join(self._buffered)
        stripped = prefix.strip()
        is_text = self.opened.kind is SegmentKind.PREAMBLE or self._addressed
        if is_text and stripped.startswith("{"):
            # If <|call|> ends it, it is a call without a recipient.
            self.mode = "buffer"
        elif len(prefix) > _MAX_PREFIX_CHARS or not any(c.startswith(stripped) for c in CHANNELS):
            self._release(out)

    def _release(self, out: list[ParseEvent]) -> None:
        self.mode = "stream"
        out.append(self.opened)
        if text := "".join(self._buffered):
            out.append(Delta(text))
        self._buffered = []

    def repeated_channel(self) -> str | None:
        """Return the text so far if it is a channel's name, so that the header was repeated."""
        prefix = "".join(self._buffered) if self.mode == "prefix" else ""
        return prefix if prefix.strip() in CHANNELS else None

    def close(self, ended: int | None, out: list[ParseEvent]) -> Repair | None:
        """End the body, by the id ``ended`` or None; a repair has text of no segment, if any."""
        if self.mode == "stream":
            return None
        if (
            self.mode == "buffer"
            and not self.is_call
            and (ended == CALL_ID or (self._addressed and _is_json_object("".join(self._buffered))))
        ):
            self.opened = replace(self.opened, kind=SegmentKind.TOOL_UNKNOWN, json=True)
            self.is_call = True
        unused = self._choose_arguments() if self._header_arguments else None
        self._release(out)
        return unused

    def _choose_arguments(self) -> Repair | None:
        """Choose between arguments in the header and in the body; the others are returned."""
        assert self._header_arguments is not None
        body, header = "".join(self._buffered), self._header_arguments
        counts = _is_json_object(body) or not _is_json_object(header.text)
        if counts and body.strip() not in ("", "{}"):
            return header
        self._buffered = [header.text]
        return replace(header, text=body)

    def in_json_string(self) -> bool:
        """Whether the call's text ends in an open JSON string; scans only what is new."""
        if not self.is_call:
            return False
        text = "".join(self._unscanned)
        self._unscanned = []
        if self._is_json is None and text.strip():
            self._is_json = text.lstrip().startswith(("{", "["))
        escaped = len(text) - len(text.rstrip("\\"))
        if escaped % 2:
            self._unscanned.append("\\")
            text = text[:-1]
        if sum(quote[0] == '"' for quote in _STRING_QUOTE.finditer(text)) % 2:
            self._in_string = not self._in_string
        return bool(self._is_json) and self._in_string


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
