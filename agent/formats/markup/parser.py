"""The parser of markup in text: it accepts any stream, works incrementally and loses no content.

Ids become bytes, bytes become text, and text becomes segments::

    ids ─ TokenClasses ─▶ bytes ─ UTF-8 decoder ─▶ TokenTextBuffer ─ MarkupParser ─▶ SegmentWriter
     │                                                               └ CallReader ─┘      ▲
     └ TokenTexts: ids about whose text nothing has to be decided ────────────────────────┘

The result depends on the text alone, never on how it was split into tokens. So only text that may still
become a tag, or that decides whether something is a call, stays in the buffer.
"""

import codecs
from collections.abc import Sequence
from dataclasses import replace

import regex

from agent.formats.markup.calls import (
    READERS,
    CallReader,
    CodeReader,
    MalformedReader,
    ObjectReader,
)
from agent.formats.markup.fences import MarkdownCode
from agent.formats.markup.segments import (
    MAX_LOOKAHEAD_CHARS,
    QUOTES,
    Steps,
    TextReader,
    TokenClasses,
    TokenTexts,
)
from agent.formats.markup.syntax import CallSyntax
from agent.formats.protocol import Delta, Opened, ParseEvent, SegmentKind, Stop
from agent.formats.recipients import AnyRecipient, Recipients

_LIST = regex.compile(r"\A(?:[\s,;\[]|\](?!<?\Z|<\]))*")
"""Matches what is between the calls of a list."""


class MarkupParser(TextReader):
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
        super().__init__(token_classes, AnyRecipient() if recipients is None else recipients)
        self._syntax = token_classes.syntax
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._markdown_code = MarkdownCode()
        self._thinking = thinking
        self._thought_ended = False
        """Whether ``</think>`` was last, and white space may follow: that belongs to the reasoning."""
        self._call: CallReader | None = None
        self._after_call = False
        self._shows_call = False
        """Whether the open segment shows a call, whose end is text too."""
        self._last_character = ""
        self._pending_space = ""
        """White space that is written only if more of the same segment follows."""
        self._position = 0
        self._waits_in_prose = False
        """Whether all of the text has been read, and what follows is prose if no tag is in it."""
        self._done = False
        self._buffer.add(prompt_tag, 0)
        self._steps = self._read()

    def feed(self, ids: Sequence[int]) -> list[ParseEvent]:
        i, n, buffer, untagged = 0, len(ids), self._buffer, self._token_classes.untagged
        while i < n and not self._done:
            # Most tokens are plain text, about which nothing has to be decided.
            if (texts := buffer.plain_texts) is not None and (text := texts[ids[i]]):
                begin, run = i, [text]
                i += 1
                while i < n and (text := texts[ids[i]]):
                    run.append(text)
                    i += 1
                self._position += i - begin
                buffer.last_position = self._position - 1
                self._segments.out.append(Delta("".join(run)))
                continue
            if self._waits_in_prose and (text := untagged[ids[i]]):
                buffer.last_position = self._position
                self._position += 1
                self._write_prose(text, buffer.last_position)
                buffer.plain_texts = self._prose_texts()
            else:
                self._feed_token(ids[i])
            i += 1
        return self._segments.take_events()

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
            next(self._steps)
            if self._decoder.getstate()[0]:
                self._buffer.plain_texts, self._waits_in_prose = None, False

    def _end(self, ended: bool) -> None:
        """End the generation; ``ended``: by the model, and not by the stream's end."""
        self._buffer.add(self._decoder.decode(b"", True), max(self._position - 1, 0))
        self._buffer.final = True
        next(self._steps)
        content_end = self._buffer.next_position
        if self._call is not None:
            if ended and not isinstance(self._call, CodeReader):
                self._segments.repair("call_unclosed", content_end)
            self._call.close(ended, end=self._position)
        elif self._segments.open_segment is not None:
            if not self._thought_ended:
                space = self._pending_space
                self._segments.delta(space.removesuffix(self._syntax.end_space) if ended else space)
                if self._thinking and ended:
                    self._segments.repair("think_unclosed", content_end)
            complete = ended or self._thought_ended
            self._segments.close(complete, content_end=content_end, end=self._position)
        self._done = True

    def _read(self) -> Steps:
        """Read the generation; yields where nothing more can be decided, and at the end."""
        if self._syntax.header is not None:
            yield from self._read_header(self._syntax.header)
        while True:
            text = self._buffer.text
            tag = self._syntax.tag_pattern.search(text, partial=not self._buffer.final)
            if tag is not None and not tag.partial and not tag.start():
                yield from self._read_tag(tag[0])
                continue
            self._take_prose(tag.start() if tag else len(text))
            if tag is None or tag.partial:
                self._buffer.plain_texts = self._prose_texts()
                self._waits_in_prose = not self._buffer.text
                yield
                self._buffer.plain_texts, self._waits_in_prose = None, False

    def _read_header(self, header: tuple[str, str, str]) -> Steps:
        """Read the header of a message, which says whether it is reasoning."""
        _, end, word = header
        pattern = regex.compile(rf"\s*(?:to=[\w.-]+)?\s*{regex.escape(end)}")
        if (found := (yield from self._match(pattern))) is not None:
            self._thinking = word in self._take(found.end())

    # --- prose ------------------------------------------------------------------------------------

    def _prose_texts(self) -> TokenTexts | None:
        is_plain = (
            self._segments.open_segment is not None
            and not (self._buffer.text or self._pending_space)
            and self._last_character not in QUOTES
            and self._markdown_code.in_text
        )
        return self._token_classes.prose if is_plain else None

    def _take_prose(self, count: int) -> None:
        """Write the buffer's beginning as text."""
        start = self._buffer.next_position
        self._write_prose(self._take(count), start)

    def _write_prose(self, text: str, start: int) -> None:
        """Write reasoning or answer whose first token is at ``start``; opens a segment if needed."""
        segments = self._segments
        if segments.open_segment is None:
            # Some models separate calls by semicolons.
            text = text.lstrip("; \t\r\n" if self._after_call and self._syntax.bare_calls else None)
            if not text:
                return
            self._after_call = False
            kind = SegmentKind.REASONING if self._thinking else SegmentKind.FINAL
            segments.open(Opened(kind), start)
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
        self._forget_prose()

    def _forget_prose(self) -> None:
        self._pending_space = self._last_character = ""
        self._markdown_code, self._shows_call = MarkdownCode(), False

    # --- tags -------------------------------------------------------------------------------------

    def _read_tag(self, tag: str) -> Steps:
        """Read a tag in prose, or wait once for what follows it."""
        at, syntax = self._buffer.next_position, self._syntax
        if tag == syntax.think_end and self._thinking:
            yield from self._end_reasoning(at)
        elif self._markdown_code.inside:
            self._take_prose(len(tag))
        elif (quoted := self._is_quoted(tag)) is None:
            yield
        elif quoted:
            self._take_prose(len(tag))
        elif tag == "{":
            yield from self._read_bare_call(at)
        elif tag == syntax.code_tag:
            yield from self._read_code_tag(at)
        elif tag in syntax.entries:
            yield from self._read_entry(tag, at)
        elif syntax.header is not None and tag == syntax.header[0]:
            self._take(len(tag))
            self._end_prose(at)
            yield from self._read_header(syntax.header)
        else:
            if tag == syntax.think_end or (tag == syntax.think and not self._thinking):
                self._end_prose(at)
            self._take(len(tag))
            if tag == syntax.think and (not self._thinking or self._segments.open_segment is None):
                self._thinking = True
            elif tag not in syntax.ignored:
                thinking = {syntax.think: "think_repeated", syntax.think_end: "think_unopened"}
                self._segments.repair(thinking.get(tag, "stray_tag"), at, tag)

    def _end_reasoning(self, at: int) -> Steps:
        """End reasoning by the tag at its end, and by the white space behind that."""
        self._take(len(self._syntax.think_end))
        self._thinking = False
        self._forget_prose()
        if self._segments.open_segment is not None:
            self._thought_ended = True
            while not (rest := self._buffer.text.lstrip()):
                self._take(len(self._buffer.text))
                yield
            self._take(len(self._buffer.text) - len(rest))
            self._segments.close(True, content_end=at)
            self._thought_ended = False

    def _is_quoted(self, tag: str) -> bool | None:
        """Whether a tag is in quotation marks, or ends a call that is shown; None: not clear yet."""
        is_closing = tag in self._syntax.closings
        if not is_closing and (tag == "{" or self._last_character not in QUOTES):
            return False
        following = self._buffer.text[len(tag) :]
        if not following and not self._buffer.final:
            return None
        is_quoted = following[:1] in QUOTES.get(self._last_character, ())
        return is_quoted or (is_closing and self._shows_call)

    def _is_thought_call(self) -> bool | None:
        """Whether a call in reasoning is only thought about; None: that is not clear yet. It is meant
        only if nothing but calls follows it: models write their calls after their reasoning."""
        rest, syntax = self._buffer.text, self._syntax
        undecided = False if self._buffer.final else None
        closing = (*syntax.calls[0].closings[-1:], "\0")[0]
        while rest.startswith(syntax.entries):
            end, think_end = rest.find(closing), rest.find(syntax.think_end)
            if end < 0 or 0 <= think_end < end:
                return True if think_end >= 0 else undecided
            rest = rest[end + len(closing) :].lstrip()
        if rest and not any(entry.startswith(rest) for entry in syntax.entries):
            return True
        return undecided

    def _read_entry(self, tag: str, at: int) -> Steps:
        """Read calls from a tag on, if a call follows it; otherwise it is text."""
        text, syntax = self._buffer.text[len(tag) :], self._syntax
        rest = self._skip_list(text)
        found = self._find_call(tag, rest)
        if found is None and len(text) < MAX_LOOKAHEAD_CHARS:
            yield
            return
        if not found and tag in syntax.ends:
            self._end_prose(at)
            self._take(len(tag))
            return
        in_line = self._segments.open_segment is not None and not self._markdown_code.at_line_start
        first = tag == syntax.calls[0].openings[0]
        # Within a line of reasoning, a call on that same line is one that is thought about.
        quoted = in_line and self._thinking and rest == text
        shown: bool | None = (in_line and not first) or bool(
            rest and (quoted or ((in_line or self._thinking) and not found))
        )
        if self._thinking and not shown and (shown := self._is_thought_call()) is None:
            yield
            return
        if shown:
            self._take_prose(len(tag))
            self._shows_call = True
            return
        self._begin_calls(at)
        if not first and not self._after_call:
            self._segments.repair("call_unopened", at)
        self._take(len(tag))
        yield from self._read_calls(at, tag, malformed=not found)

    def _begin_calls(self, at: int) -> None:
        self._end_prose(at)
        if self._thinking:
            self._segments.repair("think_unclosed", at)

    def _read_bare_call(self, at: int) -> Steps:
        """Read a possible call from a ``{`` at the beginning of a line on."""
        if not self._markdown_code.at_line_start or self._thinking:
            self._take_prose(1)
            return
        yield from self._read_call(ObjectReader(self, self._object_syntax, at, bare=True), at)

    def _read_code_tag(self, at: int) -> Steps:
        """Read a call from a tag on that JSON or code for the python tool follows."""
        text = self._buffer.text[len(self._syntax.code_tag) :]
        rest = text.lstrip()
        if not self._buffer.final and not rest and len(text) < MAX_LOOKAHEAD_CHARS:
            yield
            return
        self._begin_calls(at)
        self._take(len(self._buffer.text) - len(rest))
        if rest.startswith("{"):
            reader: CallReader = ObjectReader(self, self._object_syntax, self._buffer.next_position)
        else:
            reader = CodeReader(self, self._object_syntax, at)
        yield from self._read_call(reader, at)

    # --- calls ------------------------------------------------------------------------------------

    def _skip_list(self, text: str) -> str:
        """Return the text after what is between the calls of a list."""
        rest = str(_LIST.sub("", text))
        return "" if self._buffer.final and rest == "]" else rest

    @property
    def _object_syntax(self) -> CallSyntax:
        """The syntax of a call that is an object, also in a family that writes other calls."""
        for call in self._syntax.calls:
            if call.body == "object":
                return call
        return replace(self._syntax.calls[0], body="object", quote='"', bare_keys=False)

    def _scan(
        self, rest: str, *, named: bool
    ) -> tuple[CallSyntax | None, str | regex.Match[str]] | None:
        """Return what of a call the text begins with, and its syntax: a tag, a header (``named``: where
        a name is expected), or ``{``; empty: nothing. None: that is not clear yet."""
        final = self._buffer.final
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

    def _find_call(self, tag: str, rest: str) -> bool | None:
        """Tell whether a call follows a tag; None if that is not clear yet."""
        named = any(tag == call.name_tag for call in self._syntax.calls)
        if (found := self._scan(rest, named=named)) is None:
            return None
        call, what = found
        if call is None or not isinstance(what, str):
            return bool(what)
        return what != tag and (named or what in call.openings)

    def _read_calls(self, start: int, tag: str, *, malformed: bool) -> Steps:
        """Read calls, and tags and separators between them, after this tag at ``start``."""
        syntax = self._syntax.calls[0]
        named = tag == syntax.name_tag
        """Whether the name of a call comes next."""
        closings = [tag for call in self._syntax.calls for tag in call.closings]
        reader: CallReader | None = MalformedReader(self, syntax, start) if malformed else None
        while True:
            if reader is not None:
                if not (yield from self._read_call(reader, start, tag)):
                    return
                start = self._buffer.next_position
                named = reader.syntax.body != "object" and not reader.syntax.own_openings
                reader = None
            text = self._buffer.text
            rest = self._skip_list(text)
            if not rest and self._buffer.final:
                self._take(len(text))
                return
            if (found := self._scan(rest, named=named)) is None:
                yield
                continue
            call, what = found
            at, skipped = self._buffer.next_position, len(text) - len(rest)
            if call is not None and isinstance(what, str):
                self._take(skipped + len(what))
                if what in call.openings:
                    syntax, named = call, what == call.name_tag
                    start = at if what == call.openings[0] else start
                elif what == call.closings[-1]:
                    break
                continue
            name: str | None = None
            if call is not None and not isinstance(what, str):
                name, skipped = what[1], skipped + what.end()
            elif what:
                call = self._object_syntax
            elif named and (not self._buffer.final or any(tag in rest for tag in closings)):
                call, name = syntax, ""  # its result will say that it has no name
            else:
                if named:
                    self._segments.repair("call_cut", start, self._take(len(text)))
                break
            self._take(skipped)
            at = self._buffer.next_position
            reader = READERS[call.body](self, call, at, name)
        self._markdown_code = MarkdownCode()

    def _read_call(self, reader: CallReader, start: int, tag: str = "") -> Steps:
        """Read a call from ``start`` after this tag; return whether its tags are still open."""
        self._call = reader
        while (outcome := (yield from reader.read())) is None:
            yield  # the generation has ended
        self._call = None
        if outcome == "prose":
            if isinstance(reader, MalformedReader):
                self._segments.repair("call_malformed", start, tag)
            self._write_prose(reader.raw, start)
            return False
        reader.close(True)
        self._forget_prose()
        self._after_call = True
        return not reader.ended_by_tag or bool(reader.syntax.section_close)
