"""The parser of markup in text: it accepts any stream, works incrementally and loses no content.

Ids become bytes, bytes become text, and text becomes segments::

    ids ─ TokenClasses ─▶ bytes ─ UTF-8 decoder ─▶ TokenTextBuffer ─ MarkupParser ─▶ SegmentWriter
                                                                     └ CallReader ─┘

The result depends on the text alone, never on how it was split into tokens. So only text that may still
become a tag, or that decides whether something is a call, stays in the buffer.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import replace

import regex

from agent.formats.markup.calls import (
    MAX_LOOKAHEAD_CHARS,
    READERS,
    CallReader,
    CodeReader,
    MalformedReader,
    ObjectReader,
)
from agent.formats.markup.fences import MarkdownCode
from agent.formats.markup.segments import (
    QUOTES,
    SegmentWriter,
    TokenClasses,
    TokenTextBuffer,
    TokenTexts,
)
from agent.formats.markup.syntax import CallSyntax
from agent.formats.protocol import Delta, Opened, ParseEvent, SegmentKind, Stop
from agent.formats.recipients import AnyRecipient, Recipients

_LIST = regex.compile(r"\A(?:[\s,;\[]|\](?!<?\Z|<\]))*")
"""Matches what is between the calls of a list."""


def _skip_list(text: str, final: bool) -> str:
    """Return the text after what is between the calls of a list."""
    rest = str(_LIST.sub("", text))
    return "" if final and rest == "]" else rest


class MarkupParser:
    """The parser of one generation."""

    def __init__(
        self,
        token_classes: TokenClasses,
        recipients: Recipients | None = None,
        *,
        thinking: bool = False,
        prompt_tag: str = "",
    ) -> None:
        """``thinking``: the prompt ended with ``<think>``; ``prompt_tag``: or with this tag of a call.
        ``recipients`` None: calls as written."""
        self._token_classes, self._syntax = token_classes, token_classes.syntax
        self._recipients = AnyRecipient() if recipients is None else recipients
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._buffer = TokenTextBuffer()
        self._segments = SegmentWriter(self._buffer)
        self._source = (self._buffer, self._segments, self._recipients, token_classes)
        self._markdown_code = MarkdownCode()
        self._thinking = thinking
        self._think_end_position: int | None = None
        """The position of ``</think>`` while white space may follow: that belongs to the reasoning."""
        self._call: CallReader | None = None
        self._region: CallSyntax | None = None
        """The calls that are being read, between their tags."""
        self._in_header = token_classes.syntax.header is not None
        self._expects_name = False
        self._region_start = 0
        self._malformed = ""
        """The tag that a call should have followed."""
        self._after_call = False
        self._shows_call = False
        """Whether the open segment shows a call, whose end is text too."""
        self._last_character = ""
        """The last character of the open segment."""
        self._pending_space = ""
        """White space that is written only if more of the same segment follows."""
        self._position = 0
        self._texts: TokenTexts | None = None
        """The ids that continue the open segment as they are; None: none may do so unseen."""
        self._done = False
        self._buffer.add(prompt_tag, 0)

    def feed(self, ids: Sequence[int]) -> list[ParseEvent]:
        i, n = 0, len(ids)
        while i < n and not self._done:
            # Most tokens are plain text, about which nothing has to be decided.
            if (texts := self._texts) is not None and (text := texts[ids[i]]):
                begin, run = i, [text]
                i += 1
                while i < n and (text := texts[ids[i]]):
                    run.append(text)
                    i += 1
                self._position += i - begin
                self._buffer.last_position = self._position - 1
                self._segments.out.append(Delta("".join(run)))
                continue
            self._feed_token(ids[i])
            self._texts = self._plain_texts()
            i += 1
        return self._segments.take_events()

    def _plain_texts(self) -> TokenTexts | None:
        if self._buffer.text or self._decoder.getstate()[0]:
            return None
        if self._call is not None:
            return self._call.texts
        is_plain = (
            self._segments.open_segment is not None
            and self._think_end_position is None
            and not self._pending_space
            and self._last_character not in QUOTES
            and self._markdown_code.in_text
        )
        return self._token_classes.prose if is_plain else None

    def finish(self) -> list[ParseEvent]:
        if not self._done:
            self._end(False)
        return self._segments.take_events()

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
            if ended and not isinstance(self._call, CodeReader):
                self._segments.repair("call_unclosed", content_end)
            self._close_call(ended, end=self._position)
        elif self._segments.open_segment is not None:
            if self._think_end_position is None:
                space = self._pending_space
                self._segments.delta(space.removesuffix(self._syntax.end_space) if ended else space)
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
        if self._region is not None:
            return self._read_region(text, final)
        if self._in_header:
            return self._read_header(text, final)
        tag = self._syntax.tag_pattern.search(text, partial=not final)
        if tag is None or tag.partial or tag.start():
            self._take_prose(tag.start() if tag else len(text))
            return tag is not None and not tag.partial
        return self._read_tag(tag[0], final)

    def _read_header(self, text: str, final: bool) -> bool:
        """Read the header of a message, which says whether it is reasoning."""
        assert self._syntax.header is not None
        _, end, word = self._syntax.header
        pattern = rf"\s*(?:to=[\w.-]+)?\s*{regex.escape(end)}"
        header = regex.match(pattern, text, partial=not final and len(text) < MAX_LOOKAHEAD_CHARS)
        if header is not None and header.partial:
            return False
        self._in_header = False
        if header is not None:
            self._thinking = word in self._buffer.take(header.end())
        return True

    # --- prose ------------------------------------------------------------------------------------

    def _take_prose(self, count: int) -> bool:
        """Write the buffer's beginning as text; True, as more may follow."""
        start = self._buffer.next_position
        self._write_prose(self._buffer.take(count), start)
        return True

    def _write_prose(self, text: str, start: int) -> None:
        """Write reasoning or answer whose first token is at ``start``; opens a segment if needed."""
        segments = self._segments
        if segments.open_segment is None:
            # Some models separate calls by semicolons.
            text = text.lstrip("; \t\r\n" if self._after_call and self._syntax.bare_calls else None)
            if not text:
                return
            self._after_call = False
            segments.open(
                Opened(SegmentKind.REASONING if self._thinking else SegmentKind.FINAL), start
            )
        self._markdown_code.feed(text)
        self._last_character = text[-1:] or self._last_character
        if stripped := text.rstrip():
            segments.delta(self._pending_space + stripped)
            self._pending_space = ""
        self._pending_space += text[len(stripped) :]

    def _end_prose(self, at: int) -> None:
        """End an open segment of prose, since markup begins with the token ``at``."""
        if self._segments.open_segment is not None:
            self._segments.close(True, content_end=at, end=at)
        self._pending_space = ""
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
        at, syntax = self._buffer.next_position, self._syntax
        if tag == syntax.think_end and self._thinking:
            self._buffer.take(len(tag))
            self._thinking, self._pending_space, self._markdown_code = False, "", MarkdownCode()
            self._shows_call, self._last_character = False, ""
            self._think_end_position = at if self._segments.open_segment is not None else None
            return True
        if self._markdown_code.inside:
            return self._take_prose(len(tag))
        if (tag != "{" and self._last_character in QUOTES) or tag in syntax.closings:
            following = self._buffer.text[len(tag) :]
            if not following and not final:
                return False
            is_quoted = following[:1] in QUOTES.get(self._last_character, ())
            if is_quoted or (tag in syntax.closings and self._shows_call):
                return self._take_prose(len(tag))
        if tag == "{":
            return self._read_bare_call(at)
        if tag == syntax.code_tag:
            return self._read_code_tag(at, final)
        if tag in syntax.entries:
            return self._read_entry(tag, at, final)
        if tag == syntax.think_end or (tag == syntax.think and not self._thinking):
            self._end_prose(at)
        self._buffer.take(len(tag))
        if tag == syntax.think and (not self._thinking or self._segments.open_segment is None):
            self._thinking = True
        elif syntax.header is not None and tag == syntax.header[0]:
            self._end_prose(at)
            self._in_header = True
        elif tag not in syntax.ignored:
            thinking = {syntax.think: "think_repeated", syntax.think_end: "think_unopened"}
            self._segments.repair(thinking.get(tag, "stray_tag"), at, tag)
        return True

    def _is_thought_call(self, final: bool) -> bool | None:
        """Whether a call in reasoning is only thought about; None: that is not clear yet. It is meant
        only if nothing but calls follows it: models write their calls after their reasoning."""
        rest, syntax = self._buffer.text, self._syntax
        closing = (*syntax.calls[0].closings[-1:], "\0")[0]
        while rest.startswith(syntax.entries):
            end, think_end = rest.find(closing), rest.find(syntax.think_end)
            if end < 0 or 0 <= think_end < end:
                return think_end >= 0 or (False if final else None)
            rest = rest[end + len(closing) :].lstrip()
        if rest and not any(entry.startswith(rest) for entry in syntax.entries):
            return True
        return False if final else None

    def _show_call(self, tag: str) -> bool:
        """Write a tag that begins a call as text."""
        self._take_prose(len(tag))
        self._shows_call = True
        return True

    def _read_entry(self, tag: str, at: int, final: bool) -> bool:
        """Begin calls at a tag, if a call follows it; otherwise it is text."""
        text = self._buffer.text[len(tag) :]
        rest = _skip_list(text, final)
        found = self._find_call(tag, rest, final)
        if found is None and len(text) < MAX_LOOKAHEAD_CHARS:
            return False
        if not found and tag in self._syntax.ends:
            self._end_prose(at)
            self._buffer.take(len(tag))
            return True
        in_line = self._segments.open_segment is not None and not self._markdown_code.at_line_start
        first = tag == self._syntax.calls[0].openings[0]
        if not first and in_line:
            return self._show_call(tag)
        # Within a line of reasoning, a call on that same line is one that is thought about.
        quoted = in_line and self._thinking and rest == text
        if rest and (quoted or ((in_line or self._thinking) and not found)):
            return self._show_call(tag)
        if self._thinking and (thought := self._is_thought_call(final)) is not False:
            return self._show_call(tag) if thought else False
        self._end_prose(at)
        if self._thinking:
            self._segments.repair("think_unclosed", at)
        if not first and not self._after_call:
            self._segments.repair("call_unopened", at)
        self._buffer.take(len(tag))
        self._region, self._region_start = self._syntax.calls[0], at
        self._expects_name = tag == self._name_tag(self._region)
        if not found:
            self._call = MalformedReader(*self._source, self._region, at)
            self._malformed = tag
        return True

    @staticmethod
    def _name_tag(call: CallSyntax) -> str:
        """The tag directly before a name; empty if the name is in an object."""
        return call.openings[-1] if call.body != "object" and call.openings else ""

    def _scan(
        self, rest: str, final: bool, *, named: bool
    ) -> tuple[CallSyntax | None, str | regex.Match[str]] | None:
        """Return what of a call the text begins with, and its syntax: a tag, a header (``named``: where
        a name is expected), or ``{``; empty: nothing. None: that is not clear yet."""
        if not final and rest in ("", "]", "]<"):
            return None
        for call in self._syntax.calls:
            for tag in (*call.openings, *call.closings):
                if rest.startswith(tag):
                    return call, tag
                if not final and tag.startswith(rest):
                    return None
        for call in self._syntax.calls:
            if named and call.body != "object":
                may_wait = not final and len(rest) < MAX_LOOKAHEAD_CHARS
                header = call.header_pattern.match(rest, partial=may_wait)
                if header is not None:
                    return None if header.partial else (call, header)
        return None, rest[:1] if rest.startswith("{") else ""

    def _find_call(self, tag: str, rest: str, final: bool) -> bool | None:
        """Tell whether a call follows a tag; None if that is not clear yet."""
        named = any(tag == self._name_tag(call) for call in self._syntax.calls)
        if (found := self._scan(rest, final, named=named)) is None:
            return None
        call, what = found
        if call is None or not isinstance(what, str):
            return bool(what)
        return what != tag and (named or what in call.openings)

    def _read_region(self, text: str, final: bool) -> bool:
        """Read what is between calls: tags, separators, and the name of the next call."""
        rest = _skip_list(text, final)
        if not rest and final:
            self._buffer.take(len(text))
            self._region = None
            return True
        if (found := self._scan(rest, final, named=self._expects_name)) is None:
            return False
        at, skipped = self._buffer.next_position, len(text) - len(rest)
        match found:
            case CallSyntax() as call, str(tag):
                self._buffer.take(skipped + len(tag))
                if tag in call.openings:
                    self._region, self._expects_name = call, tag == self._name_tag(call)
                    if tag == call.openings[0]:
                        self._region_start = at
                elif tag == call.closings[-1]:
                    self._end_region()
                return True
            case CallSyntax() as call, regex.Match() as header:
                self._buffer.take(skipped + header.end())
                self._begin_call(call, self._region_start, header[1])
                return True
            case _, "{":
                self._buffer.take(skipped)
                self._begin_call(self._object_syntax, self._region_start)
                return True
        tags = [tag for call in self._syntax.calls for tag in call.closings]
        if self._expects_name and (not final or any(tag in rest for tag in tags)):
            # A call without a name: its result will say so.
            self._buffer.take(skipped)
            self._begin_call(self._region or self._syntax.calls[0], self._region_start, "")
            return True
        if self._expects_name:
            self._segments.repair("call_cut", self._region_start, self._buffer.take(len(text)))
        self._end_region()
        return True

    def _end_region(self) -> None:
        self._region, self._expects_name, self._markdown_code = None, False, MarkdownCode()

    @property
    def _object_syntax(self) -> CallSyntax:
        """The syntax of a call that is an object, also in a family that writes other calls."""
        for call in self._syntax.calls:
            if call.body == "object":
                return call
        return replace(self._syntax.calls[0], body="object", quote='"', bare_keys=False)

    def _read_bare_call(self, at: int) -> bool:
        """Begin a possible call at a ``{`` at the beginning of a line."""
        if not self._markdown_code.at_line_start or self._thinking:
            return self._take_prose(1)
        self._region_start = at
        self._call = ObjectReader(
            *self._source, self._object_syntax, at, on_confirmed=lambda: self._end_prose(at)
        )
        return True

    def _read_code_tag(self, at: int, final: bool) -> bool:
        """Begin a call at a tag that JSON or code for the python tool follows."""
        tag = self._syntax.code_tag
        text = self._buffer.text[len(tag) :]
        rest = text.lstrip()
        if not final and not rest and len(text) < MAX_LOOKAHEAD_CHARS:
            return False
        self._end_prose(at)
        if self._thinking:
            self._segments.repair("think_unclosed", at)
        self._buffer.take(len(tag) + len(text) - len(rest))
        self._begin_call(self._object_syntax, at, code=not rest.startswith("{"))
        return True

    # --- calls ------------------------------------------------------------------------------------

    def _begin_call(
        self, syntax: CallSyntax, start: int, name: str | None = None, *, code: bool = False
    ) -> None:
        reader = CodeReader if code else READERS.get(syntax.body, ObjectReader)
        self._region_start, self._expects_name = start, False
        at = start if code else self._buffer.next_position
        self._call = reader(*self._source, syntax, at, name)

    def _read_call(self, final: bool) -> bool:
        call = self._call
        assert call is not None
        match call.read(final):
            case "ended":
                self._close_call(True)
            case "prose":
                self._call = self._region = None
                if isinstance(call, MalformedReader):
                    self._segments.repair("call_malformed", self._region_start, self._malformed)
                self._write_prose(call.raw, self._region_start)
            case None:
                return False
        return True

    def _close_call(self, complete: bool, end: int | None = None) -> None:
        call = self._call
        assert call is not None
        call.close(complete, content_end=max(self._buffer.last_position, 0), end=end)
        self._call, self._after_call, self._markdown_code = None, True, MarkdownCode()
        self._region_start = self._buffer.next_position
        self._expects_name = call.syntax.body != "object" and not call.syntax.own_openings
        if call.ended_by_tag and not call.syntax.section_close and self._region is not None:
            self._region = None
