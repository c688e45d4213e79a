"""A message's body: its text as it streams, or held back where only its end tells what it is."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from enum import Enum, auto

from agent.formats.harmony.header import CHANNELS
from agent.formats.harmony.token_ids import CALL
from agent.formats.protocol import Delta, Kind, Opened, Piece, Repair

_LEAD = 32
"""Characters that may be held at a body's beginning."""
_QUOTE = re.compile(r'\\.|"', re.DOTALL)


class _Mode(Enum):
    LEAD = auto()
    """At the beginning: a repeated channel word, or JSON where prose belongs, changes what it is."""
    STREAM = auto()
    HOLD = auto()


class Body:
    """The text of one segment; ``leaked`` are arguments that stood in the header of a call."""

    def __init__(self, opened: Opened, leaked: Repair | None, out: list[Piece]) -> None:
        self.opened = opened
        self.tokens = 0
        self._leaked = leaked
        self._held: list[str] = []
        self._unscanned: list[str] = []
        self._is_json: bool | None = None
        self._in_string = False
        self._mode = _Mode.HOLD if leaked else _Mode.STREAM if self.calls else _Mode.LEAD
        if self._mode is _Mode.STREAM:
            out.append(opened)

    @property
    def calls(self) -> bool:
        return self.opened.kind in (Kind.TOOL, Kind.TOOL_UNKNOWN)

    @property
    def streams(self) -> bool:
        """Text goes straight out."""
        return self._mode is _Mode.STREAM

    def add(self, text: str, out: list[Piece]) -> None:
        if self.calls:
            self._unscanned.append(text)
        if self._mode is _Mode.STREAM:
            out.append(Delta(text))
            return
        self._held.append(text)
        if self._mode is _Mode.LEAD:
            self._judge_lead(out)

    def _judge_lead(self, out: list[Piece]) -> None:
        lead = "".join(self._held)
        stripped = lead.strip()
        if self.opened.kind is Kind.PREAMBLE and stripped.startswith("{"):
            # A call that lost its recipient, if <|call|> ends it.
            self._mode = _Mode.HOLD
        elif len(lead) > _LEAD or not any(c.startswith(stripped) for c in CHANNELS):
            self._release(out)

    def _release(self, out: list[Piece]) -> None:
        self._mode = _Mode.STREAM
        out.append(self.opened)
        if text := "".join(self._held):
            out.append(Delta(text))
        self._held = []

    def channel_again(self) -> str | None:
        """The text so far, if it is only a channel's name: the header goes on in the body."""
        lead = "".join(self._held) if self._mode is _Mode.LEAD else ""
        return lead if lead.strip() in CHANNELS else None

    def close(self, ended: int | None, out: list[Piece]) -> Repair | None:
        """All that was held goes out; answers with the text that belongs to no segment."""
        if self._mode is _Mode.STREAM:
            return None
        if self._mode is _Mode.HOLD and not self.calls and ended == CALL:
            self.opened = replace(self.opened, kind=Kind.TOOL_UNKNOWN, json=True)
        unused = self._choose() if self._leaked else None
        self._release(out)
        return unused

    def _choose(self) -> Repair | None:
        """Arguments in the header and in the body: the body's, unless only the header's are any."""
        assert self._leaked is not None
        body, leaked = "".join(self._held), self._leaked
        if body.strip() not in ("", "{}") and (_valid(body) or not _valid(leaked.text)):
            return leaked
        self._held = [leaked.text]
        return replace(leaked, text=body)

    def in_string(self) -> bool:
        """Whether the text so far is JSON with an open string. Each text is looked at only once."""
        if not self.calls:
            return False
        text = "".join(self._unscanned)
        self._unscanned = []
        if self._is_json is None and text.strip():
            self._is_json = text.lstrip().startswith(("{", "["))
        escaped = len(text) - len(text.rstrip("\\"))
        if escaped % 2:
            self._unscanned.append("\\")
            text = text[:-1]
        if sum(quote[0] == '"' for quote in _QUOTE.finditer(text)) % 2:
            self._in_string = not self._in_string
        return bool(self._is_json) and self._in_string


def _valid(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
