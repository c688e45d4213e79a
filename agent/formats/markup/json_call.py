"""Reads a call as JSON: ``{"name": …, "arguments": {…}}``, and streams the arguments unchanged.

A JSON parser would need the entire object. This scanner follows only its nesting and strings, and knows
of each piece of text to which slot of the object it belongs (`JsonSlot`)::

    <tool_call>{"name": "f", "id": 7, "arguments": {"a": 1}}</tool_call>
               │  KEY    NAME   OTHER               ARGUMENTS → deltas, byte for byte
               FRAME            └ a repair: call_text

The segment is opened as soon as the name is known; without a tag, only once the arguments have begun
too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from enum import Enum, auto

from agent.formats.markup.segments import SegmentWriter
from agent.formats.markup.text_buffer import TokenTextBuffer
from agent.formats.protocol import Opened, SegmentKind
from agent.formats.recipients import Recipients

ARGUMENT_KEYS = ("arguments", "parameters")
MAX_LOOKAHEAD_CHARS = 256
"""Characters that may be read ahead to see what follows a tag."""
MAX_UNDECIDED_CHARS = 2000
"""Characters that may be buffered until it is clear whether they are a call."""

_IN_STRING = re.compile(r'[^"\\<]+')
_STRUCTURE = re.compile(r'\s+|[^\s"{}\[\],:<]+|.', re.DOTALL)
_NEXT_CALL = re.compile(r'<tool_call>\s*\{\s*"')
_PARTIAL_NEXT_CALL = re.compile(r"<tool_call>\s*(\{\s*)?$")


class JsonSlot(Enum):
    """The part of the call's object that a piece of text belongs to."""

    FRAME = auto()
    KEY = auto()
    NAME = auto()
    ARGUMENTS = auto()
    TYPE = auto()
    """``"type": "function"``, which some models write."""
    OTHER = auto()


class CallOutcome(Enum):
    """The outcome of reading a call."""

    ENDED = auto()
    PROSE = auto()
    """Not a call; the reader's ``raw`` is prose."""


class JsonCall:
    """Reads one call from its ``{`` on."""

    def __init__(
        self,
        buffer: TokenTextBuffer,
        segments: SegmentWriter,
        recipients: Recipients,
        *,
        closing: str | None,
        on_confirmed: Callable[[], None] | None = None,
    ) -> None:
        """Begin a call that ends with the tag ``closing`` or (None) with the object. ``on_confirmed``:
        called when it has name and arguments; without these it is not a call."""
        self._buffer, self._segments, self._recipients = buffer, segments, recipients
        self._closing, self._on_confirmed = closing, on_confirmed
        self.another_follows = False
        """Whether another call follows without a tag of its own."""
        self._start = buffer.next_position
        self._raw: list[str] = []
        self._unexpected: list[str] = []
        """Text of the call other than name and arguments."""
        self._unusual_arguments: list[str] | None = None
        """Arguments that are not an object, collected: a string that contains one, or null."""
        self._early_arguments: list[str] = []
        """Arguments that came before the name."""
        self._name: str | None = None
        self._opened = False
        self._slot = JsonSlot.FRAME
        self._key: str | None = None
        self._slot_text: list[str] = []
        self._depth = 0
        self._raw_length = 0
        self._in_string = self._object_complete = self._has_arguments = False

    @property
    def raw(self) -> str:
        """All text that was read before a call was confirmed."""
        return "".join(self._raw)

    # --- reading ----------------------------------------------------------------------------------

    def read(self, final: bool) -> CallOutcome | None:
        """Read the buffer; None if more text is needed. ``final``: no more will come."""
        source = self._buffer
        while text := source.text:
            if self._is_prose():
                return CallOutcome.PROSE
            if self._object_complete:
                return self._read_after_object(text, final)
            if self._in_string and (run := _IN_STRING.match(text)):
                self._put(source.take(run.end()))
            elif text[0] == "<" and self._closing is not None:
                verdict = self._read_tag(text, final)
                if verdict is not True:
                    return verdict or None
            elif self._in_string:
                if text[0] == "\\" and len(text) == 1 and not final:
                    return None
                quote = text[0] == '"'
                self._put(source.take(2 if text[0] == "\\" else 1))
                if quote:
                    self._end_string()
            else:
                run = _STRUCTURE.match(text)
                assert run is not None
                self._read_structure(source.take(run.end()))
        if self._is_prose() or (final and self._on_confirmed is not None and not self._opened):
            return CallOutcome.PROSE
        return CallOutcome.ENDED if self._closing is None and self._object_complete else None

    def _is_prose(self) -> bool:
        """Tell whether an unconfirmed object cannot be a call: too long, or with other contents."""
        if self._opened or self._on_confirmed is None:
            return False
        return (
            self._raw_length > MAX_UNDECIDED_CHARS
            or bool(self._unexpected)
            or self._object_complete
        )

    def _read_tag(self, text: str, final: bool) -> CallOutcome | bool:
        """Read at ``<``: returns the outcome, False to wait for more text, or True to continue."""
        assert self._closing is not None
        if not self._in_string:
            if text.startswith(self._closing):
                self._buffer.take(len(self._closing))
                return CallOutcome.ENDED
            if text.startswith("<tool_call>"):
                return CallOutcome.ENDED
            if is_prefix_of(text, (self._closing, "<tool_call>")):
                return self._take_partial_tag(text) if final else False
            self._read_structure(self._buffer.take(1))
            return True
        # In a string a tag is text, unless only a new call or the end follows.
        if _NEXT_CALL.match(text):
            return CallOutcome.ENDED
        if text.startswith(self._closing):
            rest = text[len(self._closing) :].lstrip()
            if rest.startswith("<tool_call>") or (final and not rest):
                self._buffer.take(len(self._closing))
                return CallOutcome.ENDED
            if (
                not final
                and len(text) < MAX_LOOKAHEAD_CHARS
                and is_prefix_of(rest, ("<tool_call>",))
            ):
                return False
        elif (not final and len(text) < MAX_LOOKAHEAD_CHARS) and (
            is_prefix_of(text, (self._closing, "<tool_call>")) or _PARTIAL_NEXT_CALL.match(text)
        ):
            return False
        self._put(self._buffer.take(1))
        return True

    def _take_partial_tag(self, text: str) -> bool:
        """Take a tag that was cut off at the end of the stream."""
        self._unexpected.append(self._buffer.take(len(text)))
        return False

    def _read_after_object(self, text: str, final: bool) -> CallOutcome | None:
        if self._closing is None:
            return CallOutcome.ENDED
        rest = text.lstrip()
        if rest and rest[0] in "}]":
            self._unexpected.append(self._buffer.take(len(text) - len(rest) + 1).strip())
            return self._read_after_object(self._buffer.text, final) if self._buffer.text else None
        if rest.startswith(self._closing):
            self._buffer.take(len(text) - len(rest) + len(self._closing))
            return CallOutcome.ENDED
        if final and is_prefix_of(rest, (self._closing,)):
            self._take_partial_tag(text)
            return None
        may_wait = not final and len(text) < MAX_LOOKAHEAD_CHARS
        if may_wait and is_prefix_of(rest, (self._closing, "<tool_call>")):
            return None
        self.another_follows = rest[:1] == "{"
        if not self.another_follows and not rest.startswith("<tool_call>"):
            self._segments.repair("call_unclosed", self._buffer.next_position)
        return CallOutcome.ENDED

    def _read_structure(self, text: str) -> None:
        """Read outside of strings: one structural character, white space, or a word."""
        at_top_level = self._depth == 1
        match text:
            case "{" | "[":
                self._begin_value()
                self._put(text)
                self._depth += 1
            case "}" | "]" if self._depth <= 1:
                self._end_value()
                self._put(text)
                self._depth, self._object_complete = 0, True
            case "}" | "]":
                self._put(text)
                self._depth -= 1
                if self._depth == 1:
                    self._end_value()
            case '"':
                if at_top_level and self._slot is JsonSlot.FRAME and self._key is None:
                    self._slot, self._slot_text = JsonSlot.KEY, []
                else:
                    self._begin_value()
                self._in_string = True
                self._put(text)
            case ",":
                if at_top_level:
                    self._end_value()
                self._put(text)
            case _:
                if not text.isspace() and not (text == ":" and self._slot is JsonSlot.FRAME):
                    self._begin_value()
                self._put(text)

    def _end_string(self) -> None:
        self._in_string = False
        if self._slot is JsonSlot.KEY:
            self._key = _parse_string("".join(self._slot_text)) or ""
            self._slot = JsonSlot.FRAME
        elif self._depth == 1:
            self._end_value()

    def _begin_value(self) -> None:
        if self._depth != 1 or self._slot is not JsonSlot.FRAME:
            return
        if self._key == "name" and self._name is None:
            self._slot, self._slot_text = JsonSlot.NAME, []
        elif self._key in ARGUMENT_KEYS and not self._has_arguments:
            self._slot, self._has_arguments = JsonSlot.ARGUMENTS, True
            self._open_segment()
        elif self._key == "type" and not self._opened:
            self._slot, self._slot_text = JsonSlot.TYPE, []
        else:
            self._slot = JsonSlot.OTHER
            self._unexpected.append(f'"{self._key}": ' if self._key is not None else "")

    def _end_value(self) -> None:
        match self._slot:
            case JsonSlot.NAME:
                self._name = _parse_string("".join(self._slot_text))
                if self._name is None:
                    self._unexpected.append("".join(self._slot_text))
                elif self._on_confirmed is None or self._has_arguments:
                    self._open_segment()
            case JsonSlot.ARGUMENTS if self._unusual_arguments is not None:
                self._write_arguments(_unpack_arguments("".join(self._unusual_arguments)))
                self._unusual_arguments = None
            case JsonSlot.TYPE if (word := "".join(self._slot_text).strip()) != '"function"':
                self._unexpected.append(word)
            case JsonSlot.KEY:
                self._unexpected += self._slot_text
            case JsonSlot.FRAME if self._key is not None:
                self._unexpected.append(self._key)
        self._slot, self._key = JsonSlot.FRAME, None

    def _put(self, text: str) -> None:
        if not self._opened:
            self._raw.append(text)
            self._raw_length += len(text)
        match self._slot:
            case JsonSlot.KEY | JsonSlot.NAME | JsonSlot.TYPE:
                self._slot_text.append(text)
            case JsonSlot.OTHER:
                self._unexpected.append(text)
            case JsonSlot.ARGUMENTS:
                if self._unusual_arguments is None and self._depth == 1 and text != "{":
                    self._unusual_arguments = []
                if self._unusual_arguments is None:
                    self._write_arguments(text)
                else:
                    self._unusual_arguments.append(text)

    # --- segment ----------------------------------------------------------------------------------

    def _write_arguments(self, text: str) -> None:
        if self._opened:
            self._segments.delta(text)
        else:
            self._early_arguments.append(text)

    def _open_segment(self) -> None:
        if self._name is None or self._opened:
            return
        self._opened, self._raw = True, []
        if self._on_confirmed is not None:
            self._on_confirmed()
        recipient = self._recipients.resolve_recipient(self._name)
        kind = SegmentKind.TOOL if recipient else SegmentKind.TOOL_UNKNOWN
        self._segments.open(Opened(kind, recipient, self._name, json=True), self._start)
        self._segments.delta("".join(self._early_arguments))
        self._early_arguments = []

    def close(self, complete: bool, *, content_end: int, end: int | None = None) -> None:
        """End the call; ``complete``: by the model. Positions are those of `SegmentWriter.close`."""
        if self._slot is not JsonSlot.NAME:
            self._end_value()
        self._open_segment()
        if self._opened:
            if unexpected := "".join(self._unexpected).strip():
                self._segments.repair("call_text", self._start, unexpected)
        elif complete:
            # A call without a name: its result will say so.
            self._segments.open(Opened(SegmentKind.TOOL_UNKNOWN, json=True), self._start)
            self._segments.delta(self.raw)
        else:
            self._segments.repair("call_cut", self._start, self.raw)
            return
        self._segments.close(complete, content_end=content_end, end=end)


def is_prefix_of(text: str, tags: tuple[str, ...]) -> bool:
    """Tell whether the text is the beginning of one of the tags."""
    return any(tag.startswith(text) for tag in tags)


def _parse_string(text: str) -> str | None:
    try:
        value = json.loads(text, strict=False)
        if isinstance(value, str):
            value.encode()  # a lone surrogate is not text
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, str) else None


def _unpack_arguments(text: str) -> str:
    """Return arguments that were written as a string that contains them, or as null."""
    if text.strip() == "null":
        return ""
    inner = _parse_string(text)
    return inner if inner is not None and inner.lstrip().startswith("{") else text
