"""The parser of markup in text: it accepts any stream, works incrementally and loses no content.

Ids become bytes, bytes become text, and text becomes segments::

    ids ─ TokenClasses ─▶ bytes ─ UTF-8 decoder ─▶ TokenTextBuffer ─ MarkupParser ─▶ SegmentWriter
                                                                     │        ▲
                                                                     └ call ──┘  JsonCall, XmlCall,
                                                                                 MalformedCall, CodeCall

The result depends on the text alone, never on how it was split into tokens. So only text that may still
become a tag, or that decides whether something is a call, stays in the buffer.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence

from agent.formats.markup.dialects import (
    CALL,
    CALL_END,
    FUNCTION,
    PYTHON_TAG,
    THINK,
    THINK_END,
    Dialect,
)
from agent.formats.markup.fences import MarkdownCode
from agent.formats.markup.json_call import MAX_LOOKAHEAD_CHARS, CallOutcome, JsonCall, is_prefix_of
from agent.formats.markup.malformed_call import CodeCall, MalformedCall
from agent.formats.markup.segments import SegmentWriter
from agent.formats.markup.text_buffer import TokenTextBuffer
from agent.formats.markup.vocabulary import MarkupVocabulary
from agent.formats.markup.xml_call import XmlCall
from agent.formats.protocol import Opened, ParseEvent, SegmentKind, Stop
from agent.formats.recipients import AnyRecipient, Recipients

_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "„": "“”"}
"""Quotation marks, and those that end what they begin."""

CallReader = JsonCall | XmlCall | MalformedCall | CodeCall


class TokenClasses:
    """The meaning of each id of a vocabulary in a dialect; made once for all parsers."""

    def __init__(self, vocabulary: MarkupVocabulary, dialect: Dialect) -> None:
        known = vocabulary.specials
        self.dialect = dialect
        self.stop_ids = vocabulary.end_ids | {
            known[name] for name in dialect.end_markers if name in known
        }
        self.turn_ids = frozenset(known[name] for name in dialect.turn_markers if name in known)
        self._vocabulary = vocabulary
        tags = {known[tag] for tag in dialect.tags if tag in known}
        self._textless_ids = vocabulary.control_ids - tags

    def text_bytes(self, token: int) -> bytes | None:
        """Return the bytes of an id that is text or a tag; None for any other id."""
        return None if token in self._textless_ids else self._vocabulary.token_bytes(token)


class MarkupParser:
    """The parser of one generation."""

    def __init__(
        self,
        token_classes: TokenClasses,
        recipients: Recipients | None = None,
        *,
        thinking: bool = False,
    ) -> None:
        """``thinking``: the prompt ended with ``<think>``. ``recipients`` None: calls as written."""
        self._token_classes, self._dialect = token_classes, token_classes.dialect
        self._recipients = AnyRecipient() if recipients is None else recipients
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._buffer = TokenTextBuffer()
        self._segments = SegmentWriter(self._buffer)
        self._markdown_code = MarkdownCode()
        self._thinking = thinking
        self._think_end_position: int | None = None
        """The position of ``</think>`` while white space may follow: that belongs to the reasoning."""
        self._call: CallReader | None = None
        self._call_start = 0
        self._after_call = False
        self._shows_call = False
        """Whether the open segment shows a call, whose end is text too."""
        self._last_character = ""
        """The last character of the open segment."""
        self._pending_space: list[str] = []
        """White space that is written only if more of the same segment follows."""
        self._position = 0
        self._done = False

    def feed(self, ids: Sequence[int]) -> list[ParseEvent]:
        for token in ids:
            if self._done:
                break
            self._feed_token(token)
        out, self._segments.out = self._segments.out, []
        return out

    def finish(self) -> list[ParseEvent]:
        if not self._done:
            self._end(False)
        out, self._segments.out = self._segments.out, []
        return out

    def _feed_token(self, token: int) -> None:
        at = self._position
        self._position += 1
        raw = self._token_classes.text_bytes(token)
        if token in self._token_classes.stop_ids:
            self._end(True)
            self._segments.out.append(Stop("return", at))
        elif token in self._token_classes.turn_ids:
            self._position = at
            self._end(True)
            self._segments.repair("turn_invented", at)
            self._segments.out.append(Stop("turn", at))
        elif raw is None:
            self._segments.repair("stray_token", at)
        else:
            self._buffer.add(self._decoder.decode(raw), at)
            self._read_buffer(False)

    def _end(self, ended: bool) -> None:
        """End the generation; ``ended``: by the model, and not by the stream's end."""
        self._buffer.add(self._decoder.decode(b"", True), max(self._position - 1, 0))
        self._read_buffer(True)
        content_end = self._buffer.next_position
        if self._call is not None:
            if ended and not isinstance(self._call, CodeCall):
                self._segments.repair("call_unclosed", content_end)
            self._close_call(ended, end=self._position)
        elif self._segments.open_segment is not None:
            if self._think_end_position is None:
                self._segments.delta("".join(self._pending_space))
                if self._thinking and ended:
                    self._segments.repair("think_unclosed", content_end)
            self._segments.close(
                ended or self._think_end_position is not None,
                content_end=content_end,
                end=self._position,
            )
        self._done = True

    def _read_buffer(self, final: bool) -> None:
        while self._read_next(final):
            pass

    def _read_next(self, final: bool) -> bool:
        """Read the next piece of the buffer; False if nothing more can be decided now."""
        if self._call is not None:
            return self._read_call(final)
        text = self._buffer.text
        if self._think_end_position is not None:
            return self._end_reasoning(text)
        tag = self._dialect.tag_pattern.search(text)
        if tag is None:
            self._take_prose(len(text) - (0 if final else self._partial_tag_length(text)))
            return False
        if tag.start():
            self._take_prose(tag.start())
            return True
        return self._read_tag(tag[0], final)

    # --- prose ------------------------------------------------------------------------------------

    def _partial_tag_length(self, text: str) -> int:
        """Return how many characters at the end of the text may become a tag."""
        at = text.rfind("<")
        return len(text) - at if at >= 0 and is_prefix_of(text[at:], self._dialect.tags) else 0

    def _take_prose(self, count: int) -> None:
        start = self._buffer.next_position
        self._write_prose(self._buffer.take(count), start)

    def _write_prose(self, text: str, start: int) -> None:
        """Write reasoning or answer whose first token is at ``start``; opens a segment if needed."""
        segments = self._segments
        if segments.open_segment is None:
            # Some models separate calls by semicolons.
            text = text.lstrip(
                "; \t\r\n" if self._after_call and self._dialect.bare_json_calls else None
            )
            if not text:
                return
            self._after_call = False
            segments.open(
                Opened(SegmentKind.REASONING if self._thinking else SegmentKind.FINAL), start
            )
        self._markdown_code.feed(text)
        self._last_character = text[-1:] or self._last_character
        stripped = text.rstrip()
        if stripped:
            segments.delta("".join(self._pending_space) + stripped)
            self._pending_space = []
        self._pending_space.append(text[len(stripped) :])

    def _end_prose(self, at: int) -> None:
        """End an open segment of prose, since markup begins with the token ``at``."""
        if self._segments.open_segment is not None:
            self._segments.close(True, content_end=at, end=at)
        self._pending_space = []
        self._markdown_code = MarkdownCode()
        self._shows_call, self._last_character = False, ""

    def _end_reasoning(self, text: str) -> bool:
        """Skip white space after ``</think>``, then close the reasoning."""
        rest = text.lstrip()
        self._buffer.take(len(text) - len(rest))
        if not rest:
            return False
        assert self._think_end_position is not None
        self._segments.close(True, content_end=self._think_end_position)
        self._think_end_position = None
        return True

    # --- tags -------------------------------------------------------------------------------------

    def _read_tag(self, tag: str, final: bool) -> bool:
        at = self._buffer.next_position
        if tag == THINK_END and self._thinking:
            self._buffer.take(len(tag))
            self._thinking, self._pending_space, self._markdown_code = False, [], MarkdownCode()
            self._shows_call, self._last_character = False, ""
            self._think_end_position = at if self._segments.open_segment is not None else None
            return True
        if self._markdown_code.inside:
            self._take_prose(len(tag))
            return True
        if (tag != "{" and self._last_character in _QUOTES) or tag == CALL_END:
            following = self._buffer.text[len(tag) :]
            if not following and not final:
                return False
            if self._is_mentioned(tag, following):
                self._take_prose(len(tag))
                return True
        match tag:
            case "{":
                return self._read_bare_json(at)
            case "<tool_call>":
                return self._read_tool_call(at, final)
            case "<function=":
                return self._read_function(at, final)
            case "<|python_tag|>":
                return self._read_python_tag(at, final)
        if tag == THINK_END or (tag == THINK and not self._thinking):
            self._end_prose(at)
        self._buffer.take(len(tag))
        match tag:
            case "<think>" if not self._thinking:
                self._thinking = True
            case "<think>":
                self._segments.repair("think_repeated", at, tag)
            case "</think>":
                self._segments.repair("think_unopened", at, tag)
            case _:
                self._segments.repair("stray_tag", at, tag)
        return True

    def _is_mentioned(self, tag: str, following: str) -> bool:
        """Tell whether a tag is text: in quotation marks, or the end of a call that is text."""
        if self._last_character in _QUOTES and following[:1] in _QUOTES[self._last_character]:
            return True
        return tag == CALL_END and self._shows_call

    def _is_thought_call(self, final: bool) -> bool | None:
        """Whether a call in reasoning is only thought about; None: that is not clear yet. It is meant
        only if nothing but calls follows it: models write their calls after ``</think>``."""
        rest = self._buffer.text
        while rest.startswith((CALL, FUNCTION)):
            end, think_end = rest.find(CALL_END), rest.find(THINK_END)
            if end < 0 or 0 <= think_end < end:
                return think_end >= 0 or (False if final else None)
            rest = rest[end + len(CALL_END) :].lstrip()
        if rest and not is_prefix_of(rest, (CALL, FUNCTION)):
            return True
        return False if final else None

    def _show_call(self, tag: str) -> bool:
        """Write a tag that begins a call as text."""
        self._take_prose(len(tag))
        self._shows_call = True
        return True

    def _read_tool_call(self, at: int, final: bool) -> bool:
        """Begin a call at ``<tool_call>``: the following text decides whether it is JSON or tags."""
        text = self._buffer.text[len(CALL) :]
        rest = text.lstrip()
        if not final and len(text) < MAX_LOOKAHEAD_CHARS and is_prefix_of(rest, (FUNCTION, "{")):
            return False
        json, xml = rest.startswith("{"), rest.startswith(FUNCTION)
        in_line = self._segments.open_segment is not None and not self._markdown_code.at_line_start
        # Within a line of reasoning, a call on that same line is one that is thought about.
        quoted = in_line and self._thinking and rest == text
        if rest and (quoted or ((in_line or self._thinking) and not (json or xml))):
            return self._show_call(CALL)
        if self._thinking and (thought := self._is_thought_call(final)) is not False:
            return self._show_call(CALL) if thought else False
        self._begin_call(at, len(CALL) + len(text) - len(rest))
        if json:
            self._call = self._new_json_call(closing=CALL_END)
        elif xml:
            self._call = self._new_xml_call()
        else:
            self._call = MalformedCall(self._buffer, self._segments, at)
        return True

    def _read_function(self, at: int, final: bool) -> bool:
        """Begin a call at a ``<function=`` without ``<tool_call>``."""
        if not (self._markdown_code.at_line_start or self._segments.open_segment is None):
            self._take_prose(len(FUNCTION))
            return True
        if self._thinking and (thought := self._is_thought_call(final)) is not False:
            return self._show_call(FUNCTION) if thought else False
        self._begin_call(at, 0)
        if not self._after_call:
            self._segments.repair("call_unopened", at)
        self._call = self._new_xml_call()
        return True

    def _read_bare_json(self, at: int) -> bool:
        """Begin a possible call at a ``{`` at the beginning of a line."""
        if not self._markdown_code.at_line_start or self._thinking:
            self._take_prose(1)
            return True
        self._call_start = at
        self._call = self._new_json_call(closing=None, on_confirmed=lambda: self._end_prose(at))
        return True

    def _read_python_tag(self, at: int, final: bool) -> bool:
        """Begin a call at ``<|python_tag|>``: JSON, or code for the python tool."""
        text = self._buffer.text[len(PYTHON_TAG) :]
        rest = text.lstrip()
        if not final and not rest and len(text) < MAX_LOOKAHEAD_CHARS:
            return False
        self._begin_call(at, len(PYTHON_TAG) + len(text) - len(rest))
        if rest.startswith("{"):
            self._call = self._new_json_call(closing=None)
        else:
            self._call = CodeCall(self._buffer, self._segments, self._recipients, at)
        return True

    # --- calls ------------------------------------------------------------------------------------

    def _begin_call(self, at: int, markup_length: int) -> None:
        """Begin a call at the token ``at``, after ``markup_length`` characters of markup."""
        self._end_prose(at)
        if self._thinking:
            self._segments.repair("think_unclosed", at)
        self._buffer.take(markup_length)
        self._call_start = at

    def _new_json_call(
        self, *, closing: str | None, on_confirmed: Callable[[], None] | None = None
    ) -> JsonCall:
        return JsonCall(
            self._buffer,
            self._segments,
            self._recipients,
            closing=closing,
            on_confirmed=on_confirmed,
        )

    def _new_xml_call(self) -> XmlCall:
        return XmlCall(self._buffer, self._segments, self._recipients)

    def _read_call(self, final: bool) -> bool:
        call = self._call
        assert call is not None
        match call.read(final):
            case CallOutcome.ENDED:
                self._close_call(True)
            case CallOutcome.PROSE:
                self._call = None
                if isinstance(call, MalformedCall):
                    self._segments.repair("call_malformed", self._call_start, CALL)
                self._write_prose(call.raw, self._call_start)
            case None:
                return False
        return True

    def _close_call(self, complete: bool, end: int | None = None) -> None:
        call = self._call
        assert call is not None
        call.close(complete, content_end=max(self._buffer.last_position, 0), end=end)
        self._call, self._after_call, self._markdown_code = None, True, MarkdownCode()
        if not isinstance(call, JsonCall | XmlCall) or not call.another_follows:
            return
        text = self._buffer.text
        self._buffer.take(len(text) - len(text.lstrip()))
        self._call = (
            self._new_json_call(closing=CALL_END)
            if isinstance(call, JsonCall)
            else self._new_xml_call()
        )
