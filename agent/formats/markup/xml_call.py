"""A call as tags: ``<function=NAME><parameter=K>V</parameter>…</function>``, streamed as JSON."""

from __future__ import annotations

import json
import re
from enum import Enum, auto

from agent.formats.markup import coerce
from agent.formats.markup.json_call import LONGEST_WAIT, Verdict, could_be
from agent.formats.markup.segments import Segments
from agent.formats.markup.text_buffer import Source
from agent.formats.protocol import Kind, Opened
from agent.formats.recipients import Recipients

CALL, CALL_END = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"

_BEHIND_VALUE = (PARAMETER, FUNCTION_END, CALL_END, CALL, FUNCTION)
_BEHIND = {
    PARAMETER_END: _BEHIND_VALUE,
    FUNCTION_END: (CALL_END, CALL, FUNCTION),
    CALL_END: (CALL,),
    CALL: (FUNCTION,),
}
"""A tag ends a value only where one of these follows; else it is text, as in a file about XML."""
_NAMED = re.compile(r"<(?:function|parameter)=([^<>\n]*)>")
_TEXT = re.compile(r"[^<\n]+")


class _Place(Enum):
    HEAD = auto()
    BETWEEN = auto()
    VALUE = auto()
    BEHIND = auto()


class XmlCall:
    """Reads from ``<function=``."""

    def __init__(self, source: Source, segments: Segments, recipients: Recipients) -> None:
        self._source, self._segments, self._recipients = source, segments, recipients
        self.again = False
        """Another call follows at once, in the same ``<tool_call>``."""
        self._at = source.next
        self._place = _Place.HEAD
        self._opened = False
        self._others: list[str] = []
        self._names: set[str] = set()
        self._key = ""
        self._types: frozenset[str] = frozenset()
        self._held: list[str] | None = None
        """The value, where its type is known only at its end."""
        self._break = ""
        """The line break that may turn out to stand before the end of the value."""
        self._value_begins = False

    raw = ""

    def read(self, final: bool) -> Verdict | None:
        while text := self._source.text:
            match self._place:
                case _Place.HEAD:
                    verdict = self._head(text, final)
                case _Place.BETWEEN:
                    verdict = self._between(text, final)
                case _Place.VALUE:
                    verdict = self._value(text, final)
                case _Place.BEHIND:
                    return self._behind(text, final)
            if verdict is not True:
                return verdict or None
        return None

    # Each answers with a verdict, False to wait for more, or True to go on.

    def _head(self, text: str, final: bool) -> Verdict | bool:
        name = _NAMED.match(text)
        if name is None:
            if not final and len(text) < LONGEST_WAIT and not re.search(r"[>\n]", text):
                return False
            # No name; the model will be told.
            self._source.take(len(FUNCTION))
            self._open("")
            return True
        self._source.take(name.end())
        self._open(name[1].strip().strip("\"'"))
        return True

    def _open(self, name: str) -> None:
        self._opened = True
        called = self._recipients.known(name) if name else None
        self._schema = self._recipients.schema(called or "")
        kind = Kind.TOOL if called else Kind.TOOL_UNKNOWN
        self._segments.open(Opened(kind, called, name or None, json=True), self._at)
        self._place = _Place.BETWEEN

    def _between(self, text: str, final: bool) -> Verdict | bool:
        if text[0].isspace():
            self._source.take(len(text) - len(text.lstrip()))
            return True
        if text.startswith(PARAMETER):
            name = _NAMED.match(text)
            if name is not None:
                self._source.take(name.end())
                self._begin(name[1].strip().strip("\"'"))
                return True
            if not final and len(text) < LONGEST_WAIT and not re.search(r"[>\n]", text):
                return False
        elif text.startswith(FUNCTION_END):
            self._source.take(len(FUNCTION_END))
            self._place = _Place.BEHIND
            return True
        elif text.startswith((CALL_END, CALL, FUNCTION)):
            self._place = _Place.BEHIND
            return True
        elif not final and could_be(text, _BEHIND_VALUE):
            return False
        cut = text.find("<", 1)
        self._others.append(self._source.take(len(text) if cut < 0 else cut))
        return True

    def _begin(self, name: str) -> None:
        self._key, self._types = name, coerce.types(self._schema, name)
        lead = ", " if self._names else "{"
        self._names.add(name)
        self._segments.delta(f"{lead}{json.dumps(name, ensure_ascii=False)}: ")
        self._held = None if coerce.streams(self._types) else []
        if self._held is None:
            self._segments.delta('"')
        self._place, self._value_begins, self._break = _Place.VALUE, True, ""

    def _value(self, text: str, final: bool) -> Verdict | bool:
        if self._value_begins:
            self._value_begins = False
            if text[0] == "\n":
                self._source.take(1)
                return True
        if text[0] == "\n":
            self._put(self._source.take(1))
        elif text[0] != "<":
            run = _TEXT.match(text)
            assert run is not None
            self._put(self._source.take(run.end()))
        else:
            match self._ends(text, final):
                case None:
                    return False
                case False if final and could_be(text, (*_BEHIND, PARAMETER)):
                    self._others.append(self._source.take(len(text)))  # a tag that was cut off
                case False:
                    self._put(self._source.take(1))
                case True:
                    self._end_value()
                    if text.startswith(PARAMETER_END):
                        self._source.take(len(PARAMETER_END))
                    else:
                        self._segments.repair("parameter_unclosed", self._source.next)
                    self._place = _Place.BETWEEN
        return True

    def _ends(self, text: str, final: bool) -> bool | None:
        """Whether the tag ends the value; None: not clear yet."""
        wait = not final and len(text) < LONGEST_WAIT
        for tag, behind in _BEHIND.items():
            if text.startswith(tag):
                rest = text[len(tag) :].lstrip()
                if rest.startswith(behind):
                    return True
                if wait and could_be(rest, behind):
                    return None
                return not rest and final and tag != CALL
        if text.startswith(PARAMETER):
            # Only where a line begins, for a parameter that the tool has and that was not given yet.
            name = _NAMED.match(text)
            if name is None:
                return None if wait and not re.search(r"[>\n]", text) else False
            declared = self._schema.get("properties") or {}
            return bool(self._break) and name[1] in declared and name[1] not in self._names
        return None if wait and could_be(text, (*_BEHIND, PARAMETER)) else False

    def _behind(self, text: str, final: bool) -> Verdict | None:
        rest = text.lstrip()
        if rest.startswith(CALL_END):
            self._source.take(len(text) - len(rest) + len(CALL_END))
            return Verdict.ENDED
        if final and could_be(rest, (CALL_END,)):
            self._others.append(self._source.take(len(text)))  # a tag that was cut off
            return None
        if not final and len(text) < LONGEST_WAIT and could_be(rest, (CALL_END, CALL, FUNCTION)):
            return None
        self.again = rest.startswith(FUNCTION)
        if not rest.startswith((CALL, FUNCTION)):
            self._segments.repair("call_unclosed", self._source.next)
        return Verdict.ENDED

    def _put(self, text: str) -> None:
        if text == "\n":
            text, self._break = self._break, "\n"
        else:
            text, self._break = self._break + text, ""
        if self._held is not None:
            self._held.append(text)
        else:
            self._segments.delta(json.dumps(text, ensure_ascii=False)[1:-1])

    def _end_value(self) -> None:
        if self._held is None:
            self._segments.delta('"')
        else:
            self._segments.delta(coerce.settled("".join(self._held), self._types))
            self._held = None

    def close(self, complete: bool, *, until: int, end: int | None = None) -> None:
        """``complete``: the model ended it, not the stream."""
        if not self._opened:
            self._open("")
        if self._place is _Place.VALUE and complete:
            self._end_value()
        elif self._place is _Place.VALUE and self._held:
            self._segments.delta("".join(self._held))
        if complete or self._place is _Place.BEHIND:
            self._segments.delta("}" if self._names else "{}")
        if others := "".join(self._others).strip():
            self._segments.repair("call_text", self._at, others)
        self._segments.close(complete, until=until, end=end)
