"""Reads a call as tags and streams its arguments as JSON.

Values are written without quotes and escapes, so a tag in a value is ambiguous: it ends the value
only where a tag that may come next follows it (`_TAGS_AFTER`). A value that must be a string streams,
escaped; any other is buffered to its end and made JSON of the type in the tool's schema (`coerce`).
A value or a tag that the end of the generation or of the call cuts off ends the JSON within a string,
so that the call fails; so does a last value without ``</parameter>``::

    <function=f>           segment opened
    <parameter=text>       {"text": "
    say "hi"               say \\"hi\\"
    </parameter>           "
    <parameter=count>      , "count":
    5                      (buffered)
    </parameter>           5
    </function>            }
"""

from __future__ import annotations

import json
import re
from enum import Enum, auto

from agent.formats.markup import coerce
from agent.formats.markup.dialects import CALL, CALL_END, FUNCTION
from agent.formats.markup.json_call import MAX_LOOKAHEAD_CHARS, CallOutcome, is_prefix_of
from agent.formats.markup.segments import SegmentWriter
from agent.formats.markup.text_buffer import TokenTextBuffer
from agent.formats.protocol import Opened, SegmentKind
from agent.formats.recipients import Recipients

FUNCTION_END = "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"

_AFTER_VALUE = (PARAMETER, FUNCTION_END, CALL_END, CALL, FUNCTION)
_TAGS_AFTER = {
    PARAMETER_END: _AFTER_VALUE,
    FUNCTION_END: (CALL_END, CALL, FUNCTION),
    CALL_END: (CALL,),
    CALL: (FUNCTION,),
}
"""A tag ends a value only if one of these follows; otherwise it is text, as in a file about XML."""
_NAMED_TAG = re.compile(r"<(?:function|parameter)=([^<>\n]*)>")
_OPEN_PARAMETER = re.compile(r"<parameter=[^<>\n]*\Z")
_VALUE_TEXT = re.compile(r"[^<\n]+")


class _XmlState(Enum):
    NAME = auto()
    BETWEEN = auto()
    VALUE = auto()
    AFTER = auto()


class XmlCall:
    """Reads one call from its ``<function=`` on."""

    def __init__(
        self, buffer: TokenTextBuffer, segments: SegmentWriter, recipients: Recipients
    ) -> None:
        self._buffer, self._segments, self._recipients = buffer, segments, recipients
        self.another_follows = False
        """Whether another call follows in the same ``<tool_call>``."""
        self._start = buffer.next_position
        self._state = _XmlState.NAME
        self._is_open = False
        self._unexpected: list[str] = []
        self._seen_parameters: set[str] = set()
        self._parameter = ""
        self._types: frozenset[str] = frozenset()
        self._schema = recipients.argument_schema("")
        self._buffered_value: list[str] | None = None
        """The value so far, if its type is known only at its end."""
        self._pending_newline = ""
        """A line break that does not belong to the value if its end follows."""
        self._at_value_start = self._in_value = self._is_cut = False

    raw = ""
    """Never prose: a call with tags is a call."""

    def read(self, final: bool) -> CallOutcome | None:
        while text := self._buffer.text:
            match self._state:
                case _XmlState.NAME:
                    outcome = self._read_name(text, final)
                case _XmlState.BETWEEN:
                    outcome = self._read_between(text, final)
                case _XmlState.VALUE:
                    outcome = self._read_value(text, final)
                case _XmlState.AFTER:
                    return self._read_after_function(text, final)
            if outcome is not True:
                return outcome or None
        return None

    # Each returns an outcome, False to wait for more text, or True to continue.

    def _read_name(self, text: str, final: bool) -> CallOutcome | bool:
        name = _NAMED_TAG.match(text)
        if name is None:
            if not final and len(text) < MAX_LOOKAHEAD_CHARS and not re.search(r"[>\n]", text):
                return False
            # A call without a name: its result will say so.
            self._buffer.take(len(FUNCTION))
            self._open_segment("")
            return True
        self._buffer.take(name.end())
        self._open_segment(name[1].strip().strip("\"'"))
        return True

    def _open_segment(self, name: str) -> None:
        self._is_open = True
        recipient = self._recipients.resolve_recipient(name) if name else None
        self._schema = self._recipients.argument_schema(recipient or "")
        kind = SegmentKind.TOOL if recipient else SegmentKind.TOOL_UNKNOWN
        self._segments.open(Opened(kind, recipient, name or None, json=True), self._start)
        self._state = _XmlState.BETWEEN

    def _read_between(self, text: str, final: bool) -> CallOutcome | bool:
        if text[0].isspace():
            self._buffer.take(len(text) - len(text.lstrip()))
            return True
        if text.startswith(PARAMETER):
            name = _NAMED_TAG.match(text)
            if name is not None:
                self._buffer.take(name.end())
                self._begin_value(name[1].strip().strip("\"'"))
                return True
            if not final and len(text) < MAX_LOOKAHEAD_CHARS and not re.search(r"[>\n]", text):
                return False
        elif text.startswith(FUNCTION_END):
            self._buffer.take(len(FUNCTION_END))
            self._state = _XmlState.AFTER
            return True
        elif text.startswith((CALL_END, CALL, FUNCTION)):
            self._state = _XmlState.AFTER
            return True
        elif not final and is_prefix_of(text, _AFTER_VALUE):
            return False
        if final and (is_prefix_of(text, _AFTER_VALUE) or _OPEN_PARAMETER.match(text)):
            self._cut_off(self._buffer.take(len(text)))
            return True
        cut = text.find("<", 1)
        self._unexpected.append(self._buffer.take(len(text) if cut < 0 else cut))
        return True

    def _begin_value(self, name: str) -> None:
        self._parameter, self._types = name, coerce.property_types(self._schema, name)
        separator = ", " if self._seen_parameters else "{"
        self._seen_parameters.add(name)
        self._segments.delta(f"{separator}{json.dumps(name, ensure_ascii=False)}: ")
        # A value that is a string for certain is its text itself, and can stream.
        self._buffered_value = None if self._types <= {"string"} else []
        if self._buffered_value is None:
            self._segments.delta('"')
        self._state, self._pending_newline = _XmlState.VALUE, ""
        self._at_value_start = self._in_value = True

    def _read_value(self, text: str, final: bool) -> CallOutcome | bool:
        if self._at_value_start:
            self._at_value_start = False
            if text[0] == "\n":
                self._buffer.take(1)
                return True
        if text[0] == "\n":
            self._write_value(self._buffer.take(1))
        elif text[0] != "<":
            run = _VALUE_TEXT.match(text)
            assert run is not None
            self._write_value(self._buffer.take(run.end()))
        else:
            match self._ends_value(text, final):
                case None:
                    return False
                case False if final and is_prefix_of(text, (*_TAGS_AFTER, PARAMETER)):
                    self._cut_off(self._buffer.take(len(text)))
                case False:
                    self._write_value(self._buffer.take(1))
                case True if text.startswith((FUNCTION_END, CALL_END, CALL)):
                    if text.startswith(FUNCTION_END):
                        self._buffer.take(len(FUNCTION_END))
                    self._state = _XmlState.AFTER  # the value stays open
                case True:
                    self._end_value()
                    if text.startswith(PARAMETER_END):
                        self._buffer.take(len(PARAMETER_END))
                    else:
                        self._segments.repair("parameter_unclosed", self._buffer.next_position)
                    self._state = _XmlState.BETWEEN
        return True

    def _ends_value(self, text: str, final: bool) -> bool | None:
        """Tell whether the tag ends the value; None if that is not clear yet."""
        may_wait = not final and len(text) < MAX_LOOKAHEAD_CHARS
        for tag, following in _TAGS_AFTER.items():
            if text.startswith(tag):
                rest = text[len(tag) :].lstrip()
                if rest.startswith(following):
                    return True
                if may_wait and is_prefix_of(rest, following):
                    return None
                return not rest and final and tag != CALL
        if text.startswith(PARAMETER):
            # Only at the beginning of a line, for a declared parameter without a value so far.
            name = _NAMED_TAG.match(text)
            if name is None:
                return None if may_wait and not re.search(r"[>\n]", text) else False
            declared = self._schema.get("properties") or {}
            return (
                bool(self._pending_newline)
                and name[1] in declared
                and name[1] not in self._seen_parameters
            )
        return None if may_wait and is_prefix_of(text, (*_TAGS_AFTER, PARAMETER)) else False

    def _read_after_function(self, text: str, final: bool) -> CallOutcome | None:
        rest = text.lstrip()
        if rest.startswith(CALL_END):
            self._buffer.take(len(text) - len(rest) + len(CALL_END))
            return CallOutcome.ENDED
        if final and is_prefix_of(rest, (CALL_END,)):
            self._unexpected.append(self._buffer.take(len(text)))  # a tag that was cut off
            return None
        if (
            not final
            and len(text) < MAX_LOOKAHEAD_CHARS
            and is_prefix_of(rest, (CALL_END, CALL, FUNCTION))
        ):
            return None
        self.another_follows = rest.startswith(FUNCTION)
        if not rest.startswith((CALL, FUNCTION)):
            self._segments.repair("call_unclosed", self._buffer.next_position)
        return CallOutcome.ENDED

    def _write_value(self, text: str) -> None:
        if text == "\n":
            text, self._pending_newline = self._pending_newline, "\n"
        else:
            text, self._pending_newline = self._pending_newline + text, ""
        if self._buffered_value is not None:
            self._buffered_value.append(text)
        else:
            self._segments.delta(json.dumps(text, ensure_ascii=False)[1:-1])

    def _cut_off(self, tag: str) -> None:
        """Take a tag that the end of the generation cuts off: the arguments have no end."""
        self._unexpected.append(tag)
        self._is_cut = True

    def _end_value(self) -> None:
        self._in_value = False
        if self._buffered_value is None:
            self._segments.delta('"')
        else:
            self._segments.delta(coerce.coerce_value("".join(self._buffered_value), self._types))
            self._buffered_value = None

    def close(self, complete: bool, *, content_end: int, end: int | None = None) -> None:
        """End the call; ``complete``: by the model. Positions are those of `SegmentWriter.close`."""
        if not self._is_open:
            self._open_segment("")
        if self._in_value:
            if self._buffered_value is not None:
                self._segments.delta(json.dumps("".join(self._buffered_value))[:-1])
        elif self._is_cut:
            self._segments.delta(', "' if self._seen_parameters else '{"')
        elif complete or self._state is _XmlState.AFTER:
            self._segments.delta("}" if self._seen_parameters else "{}")
        if unexpected := "".join(self._unexpected).strip():
            self._segments.repair("call_text", self._start, unexpected)
        self._segments.close(complete, content_end=content_end, end=end)
