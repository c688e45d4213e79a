"""Texts that are written without being read, text that is not decided on, and events written so far."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Any

import regex

from agent.formats.markup.syntax import MessageSyntax, to_json
from agent.formats.markup.vocabulary import MarkupVocabulary
from agent.formats.protocol import Closed, Delta, Opened, ParseEvent, Repair
from agent.formats.recipients import Recipients

MAX_LOOKAHEAD_CHARS = 256
"""Characters that may be read ahead to see what follows a tag."""
Steps = Generator[None, None, Any]
"""A generator that yields where it needs more text; returns a result."""
QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "„": "“”"}
"""Quotation marks, and those that end what they begin."""


class TokenTexts(dict[int, str]):
    """The texts of ids of whole characters, as they are written to a segment; empty for any id about
    which something has to be decided. Filled as ids occur."""

    def __init__(
        self, classes: TokenClasses, decides: regex.Pattern[str], *, escaped: bool = False
    ) -> None:
        """``decides``: matches what decides something in a text; ``escaped``: written as JSON."""
        super().__init__()
        self._classes, self._decides, self._escaped = classes, decides, escaped

    def __missing__(self, token: int) -> str:
        classes = self._classes
        has_meaning = token in classes.stop_ids or token in classes.turn_ids
        raw = b"" if has_meaning else classes.text_bytes(token) or b""
        text = raw.decode("utf-8", "ignore")
        if text.encode() != raw or self._decides.search(text):
            text = ""
        self[token] = text = to_json(text)[1:-1] if self._escaped else text
        return text


class TokenClasses:
    """The meaning of each id of a vocabulary in a syntax; made once for all parsers."""

    def __init__(self, vocabulary: MarkupVocabulary, syntax: MessageSyntax) -> None:
        known = vocabulary.specials
        self.syntax = syntax
        tags = {known[tag] for tag in known if tag and tag in syntax.markup}
        ends = {known[name] for name in syntax.ends if name in known}
        calls = {known[tag] for tag in syntax.entries if tag in known}
        self.stop_ids = (vocabulary.end_ids | ends) - calls
        self.turn_ids = frozenset(known[name] for name in syntax.turns if name in known) - tags
        self._vocabulary = vocabulary
        self._textless_ids = vocabulary.control_ids - tags
        starts = "".join(tag[0] for tag in syntax.tags) + "{" * syntax.bare_calls
        quotes = "".join(QUOTES)
        starts = regex.escape(starts)
        self.untagged = TokenTexts(self, regex.compile(f"[{starts}]" if starts else "(?!)"))
        """Texts without the beginning of a tag."""
        self.prose = TokenTexts(self, regex.compile(rf"[{starts}`~\n]|[\s{quotes}]\Z"))
        """Texts within a line of prose: without tags and code, and no space or quote at their end."""
        stops = regex.escape("".join(call.stops for call in syntax.calls))
        self.json = TokenTexts(self, regex.compile(rf'["\\{stops}]'))
        """Texts within a JSON string."""
        self.strings = TokenTexts(self, regex.compile(rf"[\n{stops}]"), escaped=True)
        """Texts within a string that the model does not write as JSON, escaped."""

    def text_bytes(self, token: int) -> bytes | None:
        """Return the bytes of an id that is text or a tag; None for any other id."""
        return None if token in self._textless_ids else self._vocabulary.token_bytes(token)


class TokenTextBuffer:
    """Text that is added at the end and taken from the beginning."""

    def __init__(self) -> None:
        self.text = ""
        self.final = False
        """Whether no more will be added."""
        self.plain_texts: TokenTexts | None = None
        """The ids that need not be added: their texts continue the open segment."""
        self.last_position = -1
        """The position of the token whose character was taken last; -1 at first."""
        self._ends: deque[tuple[int, int]] = deque()
        """Where each token ends among all characters, and its position."""
        self._added = self._taken = 0

    def add(self, text: str, position: int) -> None:
        if text:
            self.text += text
            self._added += len(text)
            self._ends.append((self._added, position))

    def take(self, count: int) -> str:
        taken, self.text = self.text[:count], self.text[count:]
        self._taken += len(taken)
        while taken:
            end, self.last_position = self._ends[0]
            if end <= self._taken:
                self._ends.popleft()
            if end >= self._taken:
                break
        return taken

    @property
    def next_position(self) -> int:
        """The position of the token with the next character, or of the next token if none is left."""
        return self._ends[0][1] if self._ends else self.last_position + 1


class SegmentWriter:
    """Writes one segment after the other; repairs within a segment follow its end."""

    def __init__(self, source: TokenTextBuffer) -> None:
        self.out: list[ParseEvent] = []
        self.open_segment: Opened | None = None
        self.early: list[str] = []
        """Text that came before the segment that it is for."""
        self._buffer = source
        self._deferred_repairs: list[ParseEvent] = []
        self._spanned_to = self._content_start = 0

    def open(self, opened: Opened, content_start: int) -> None:
        """Open a segment; it ends the one before."""
        if self.open_segment is not None:
            self.close(True, content_end=content_start, end=content_start)
        self.open_segment, self._content_start = opened, content_start
        self.out.append(opened)
        text, self.early = "".join(self.early), []
        self.delta(text)

    def delta(self, text: str) -> None:
        if text:
            self.out.append(Delta(text))

    def close(self, complete: bool, *, content_end: int, end: int | None = None) -> None:
        """Close the open segment. Its content ends before the token at ``content_end``, its span at
        ``end``, by default after what was taken from the buffer."""
        end = max(self._buffer.last_position + 1 if end is None else end, self._spanned_to)
        tokens = min(max(content_end - self._content_start, 0), end - self._spanned_to)
        self.out.append(Closed(complete, self._spanned_to, end, tokens))
        self.out += self._deferred_repairs
        self._spanned_to, self._deferred_repairs, self.open_segment = end, [], None

    def repair(self, rule: str, at: int, text: str = "") -> None:
        deferred = self.open_segment is not None
        (self._deferred_repairs if deferred else self.out).append(Repair(rule, at, text))

    def take_events(self) -> list[ParseEvent]:
        out, self.out = self.out, []
        return out


class TextReader:
    """Reads text as it comes: its generators yield where they need more."""

    def __init__(self, token_classes: TokenClasses, recipients: Recipients) -> None:
        self._token_classes, self._recipients = token_classes, recipients
        self._buffer = TokenTextBuffer()
        self._segments = SegmentWriter(self._buffer)

    def _take(self, count: int) -> str:
        return self._buffer.take(count)

    def _more(self, plain_texts: TokenTexts | None = None) -> Steps:
        """Wait for text; return it, empty at the end. ``plain_texts``: to write without reading it."""
        while not self._buffer.text and not self._buffer.final:
            self._buffer.plain_texts = plain_texts
            yield
            self._buffer.plain_texts = None
        return self._buffer.text

    def _skip_space(self) -> Steps:
        """Skip white space; return the text behind it."""
        while text := (yield from self._more()):
            if rest := text.lstrip():
                self._take(len(text) - len(rest))
                return rest
            if self._buffer.final:
                return ""
            yield
        return ""

    def _match(
        self,
        pattern: regex.Pattern[str],
        last: regex.Pattern[str] | None = None,
        limit: int = MAX_LOOKAHEAD_CHARS,
    ) -> Steps:
        """Match at the beginning; waits while more text may match. ``last``: the pattern at the end."""
        while True:
            text, final = self._buffer.text, self._buffer.final
            wanted = (last if final else None) or pattern
            match = wanted.match(text, partial=not final and len(text) < limit)
            if match is None or not match.partial:
                return match
            yield
