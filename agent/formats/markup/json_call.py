"""A call as JSON: ``{"name": …, "arguments": {…}}``, its arguments streamed as they were written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from enum import Enum, auto

from agent.formats.markup.segments import Segments
from agent.formats.markup.text_buffer import Source
from agent.formats.protocol import Kind, Opened
from agent.formats.recipients import Recipients

ARGUMENTS = ("arguments", "parameters")
LONGEST_WAIT = 256
"""Characters of white space that are looked over to see what follows a tag."""
LONGEST_DOUBT = 2000
"""Characters that may be held until it is clear whether they are a call."""

_IN_STRING = re.compile(r'[^"\\<]+')
_OUTSIDE = re.compile(r'\s+|[^\s"{}\[\],:<]+|.', re.DOTALL)
_NEW_CALL = re.compile(r'<tool_call>\s*\{\s*"')
_HALF_NEW_CALL = re.compile(r"<tool_call>\s*(\{\s*)?$")


class Slot(Enum):
    """What the text belongs to."""

    FRAME = auto()
    KEY = auto()
    NAME = auto()
    ARGUMENTS = auto()
    TYPE = auto()
    """``"type": "function"``, as some write."""
    OTHER = auto()


class Verdict(Enum):
    """What a call's text turned out to be; None: more is needed."""

    ENDED = auto()
    PROSE = auto()
    """No call at all; ``raw`` is prose."""


class JsonCall:
    """Reads from the first ``{``; with ``closing``, up to that tag."""

    def __init__(
        self,
        source: Source,
        segments: Segments,
        recipients: Recipients,
        *,
        closing: str | None,
        doubt: Callable[[], None] | None = None,
    ) -> None:
        """``closing`` None: it ends with the JSON.

        ``doubt``: it is a call only if it has name and arguments; called when that is clear.
        """
        self._source, self._segments, self._recipients = source, segments, recipients
        self._closing, self._doubt = closing, doubt
        self.again = False
        """Another call follows at once, without a tag."""
        self._at = source.next
        self._raw: list[str] = []
        self._others: list[str] = []
        """What was written beside name and arguments."""
        self._held: list[str] | None = None
        """Arguments that are no object as they stand: a string that holds one, or null."""
        self._waiting: list[str] = []
        """Arguments before the name is known."""
        self._name: str | None = None
        self._opened = False
        self._slot = Slot.FRAME
        self._key: str | None = None
        self._word: list[str] = []
        self._depth = 0
        self._length = 0
        self._string = self._whole = self._argued = False

    @property
    def raw(self) -> str:
        """All that was read, while no call was opened."""
        return "".join(self._raw)

    # --- reading ----------------------------------------------------------------------------------

    def read(self, final: bool) -> Verdict | None:
        source = self._source
        while text := source.text:
            if self._hopeless():
                return Verdict.PROSE
            if self._whole:
                return self._behind(text, final)
            if self._string and (run := _IN_STRING.match(text)):
                self._put(source.take(run.end()))
            elif text[0] == "<" and self._closing is not None:
                verdict = self._tag(text, final)
                if verdict is not True:
                    return verdict or None
            elif self._string:
                if text[0] == "\\" and len(text) == 1 and not final:
                    return None
                quote = text[0] == '"'
                self._put(source.take(2 if text[0] == "\\" else 1))
                if quote:
                    self._string_ends()
            else:
                run = _OUTSIDE.match(text)
                assert run is not None
                self._outside(source.take(run.end()))
        if self._hopeless() or (final and self._doubt is not None and not self._opened):
            return Verdict.PROSE
        return Verdict.ENDED if self._closing is None and self._whole else None

    def _hopeless(self) -> bool:
        """Too much, or something else than name and arguments, before it is clear that it is a call."""
        if self._opened or self._doubt is None:
            return False
        return self._length > LONGEST_DOUBT or bool(self._others) or self._whole

    def _tag(self, text: str, final: bool) -> Verdict | bool:
        """At ``<``: the end, False to wait for more, or True: read over it."""
        assert self._closing is not None
        if not self._string:
            if text.startswith(self._closing):
                self._source.take(len(self._closing))
                return Verdict.ENDED
            if text.startswith("<tool_call>"):
                return Verdict.ENDED
            if could_be(text, (self._closing, "<tool_call>")):
                return self._half(text) if final else False
            self._outside(self._source.take(1))
            return True
        # In a string a tag is text, unless nothing but a new call or the end follows.
        if _NEW_CALL.match(text):
            return Verdict.ENDED
        if text.startswith(self._closing):
            rest = text[len(self._closing) :].lstrip()
            if rest.startswith("<tool_call>") or (final and not rest):
                self._source.take(len(self._closing))
                return Verdict.ENDED
            if not final and len(text) < LONGEST_WAIT and could_be(rest, ("<tool_call>",)):
                return False
        elif (not final and len(text) < LONGEST_WAIT) and (
            could_be(text, (self._closing, "<tool_call>")) or _HALF_NEW_CALL.match(text)
        ):
            return False
        self._put(self._source.take(1))
        return True

    def _half(self, text: str) -> bool:
        """A tag that was cut off."""
        self._others.append(self._source.take(len(text)))
        return False

    def _behind(self, text: str, final: bool) -> Verdict | None:
        """After the object."""
        if self._closing is None:
            return Verdict.ENDED
        rest = text.lstrip()
        if rest and rest[0] in "}]":
            self._others.append(self._source.take(len(text) - len(rest) + 1).strip())
            return self._behind(self._source.text, final) if self._source.text else None
        if rest.startswith(self._closing):
            self._source.take(len(text) - len(rest) + len(self._closing))
            return Verdict.ENDED
        if final and could_be(rest, (self._closing,)):
            self._half(text)
            return None
        wait = not final and len(text) < LONGEST_WAIT
        if wait and could_be(rest, (self._closing, "<tool_call>")):
            return None
        self.again = rest[:1] == "{"
        if not self.again and not rest.startswith("<tool_call>"):
            self._segments.repair("call_unclosed", self._source.next)
        return Verdict.ENDED

    def _outside(self, text: str) -> None:
        """A run outside of strings: one structural character, white space, or a word."""
        top = self._depth == 1
        match text:
            case "{" | "[":
                self._value_begins()
                self._put(text)
                self._depth += 1
            case "}" | "]" if self._depth <= 1:
                self._value_ends()
                self._put(text)
                self._depth, self._whole = 0, True
            case "}" | "]":
                self._put(text)
                self._depth -= 1
                if self._depth == 1:
                    self._value_ends()
            case '"':
                if top and self._slot is Slot.FRAME and self._key is None:
                    self._slot, self._word = Slot.KEY, []
                else:
                    self._value_begins()
                self._string = True
                self._put(text)
            case ",":
                if top:
                    self._value_ends()
                self._put(text)
            case _:
                if not text.isspace() and not (text == ":" and self._slot is Slot.FRAME):
                    self._value_begins()
                self._put(text)

    def _string_ends(self) -> None:
        self._string = False
        if self._slot is Slot.KEY:
            self._key = _string("".join(self._word)) or ""
            self._slot = Slot.FRAME
        elif self._depth == 1:
            self._value_ends()

    def _value_begins(self) -> None:
        if self._depth != 1 or self._slot is not Slot.FRAME:
            return
        if self._key == "name" and self._name is None:
            self._slot, self._word = Slot.NAME, []
        elif self._key in ARGUMENTS and not self._argued:
            self._slot, self._argued = Slot.ARGUMENTS, True
            self._open()
        elif self._key == "type" and not self._opened:
            self._slot, self._word = Slot.TYPE, []
        else:
            self._slot = Slot.OTHER
            self._others.append(f'"{self._key}": ' if self._key is not None else "")

    def _value_ends(self) -> None:
        match self._slot:
            case Slot.NAME:
                self._name = _string("".join(self._word))
                if self._name is None:
                    self._others.append("".join(self._word))
                elif self._doubt is None or self._argued:
                    self._open()
            case Slot.ARGUMENTS if self._held is not None:
                self._arguments(_unpacked("".join(self._held)))
                self._held = None
            case Slot.TYPE if (word := "".join(self._word).strip()) != '"function"':
                self._others.append(word)
            case Slot.KEY:
                self._others += self._word
            case Slot.FRAME if self._key is not None:
                self._others.append(self._key)
        self._slot, self._key = Slot.FRAME, None

    def _put(self, text: str) -> None:
        if not self._opened:
            self._raw.append(text)
            self._length += len(text)
        match self._slot:
            case Slot.KEY | Slot.NAME | Slot.TYPE:
                self._word.append(text)
            case Slot.OTHER:
                self._others.append(text)
            case Slot.ARGUMENTS:
                if self._held is None and self._depth == 1 and text != "{":
                    self._held = []
                if self._held is None:
                    self._arguments(text)
                else:
                    self._held.append(text)

    # --- pieces -----------------------------------------------------------------------------------

    def _arguments(self, text: str) -> None:
        if self._opened:
            self._segments.delta(text)
        else:
            self._waiting.append(text)

    def _open(self) -> None:
        if self._name is None or self._opened:
            return
        self._opened, self._raw = True, []
        if self._doubt is not None:
            self._doubt()
        called = self._recipients.known(self._name)
        kind = Kind.TOOL if called else Kind.TOOL_UNKNOWN
        self._segments.open(Opened(kind, called, self._name, json=True), self._at)
        self._segments.delta("".join(self._waiting))
        self._waiting = []

    def close(self, complete: bool, *, until: int, end: int | None = None) -> None:
        """``complete``: the model ended it, not the stream."""
        if self._slot is not Slot.NAME:
            self._value_ends()
        self._open()
        if self._opened:
            if others := "".join(self._others).strip():
                self._segments.repair("call_text", self._at, others)
        elif complete:
            # A call without a name: the model will be told.
            self._segments.open(Opened(Kind.TOOL_UNKNOWN, json=True), self._at)
            self._segments.delta(self.raw)
        else:
            self._segments.repair("call_cut", self._at, self.raw)
            return
        self._segments.close(complete, until=until, end=end)


def could_be(text: str, tags: tuple[str, ...]) -> bool:
    """Whether more text could make one of the tags of it."""
    return any(tag.startswith(text) for tag in tags)


def _string(text: str) -> str | None:
    try:
        value = json.loads(text, strict=False)
        if isinstance(value, str):
            value.encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, str) else None


def _unpacked(text: str) -> str:
    """Arguments as a string that holds them, or null for none."""
    if text.strip() == "null":
        return ""
    inner = _string(text)
    return inner if inner is not None and inner.lstrip().startswith("{") else text
