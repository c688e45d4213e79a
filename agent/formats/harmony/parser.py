"""Harmony's parser: a state machine on token ids that accepts any stream and loses no content.

Only special ids are markup; markup that is spelled in ordinary tokens is text. ``<|start|>``,
``<|channel|>`` and the stop ids end an open message, so that no message swallows the next::

                 <|message|>, or the text cannot be a header's
        HEADER ──────────────────────────────────────────────▶ BODY
          ▲  │ <|channel|>, <|constrain|>: another part        │ text: `SegmentBody`
          └──┘                                                 │
          ▲          <|end|>, <|start|>, <|channel|>           │
          └────────────────────────────────────────────────────┤
                                                               ▼ <|return|>, <|call|>, <|endoftext|>,
                                                             STOP  or the end of a call

In a body that streams, ordinary tokens take the short way in `HarmonyParser.feed`: a dictionary look-up
for each, and one delta for a run of them.
"""

import codecs
import unicodedata
from collections.abc import Sequence

from openai_harmony import HarmonyEncoding

from agent.formats.harmony import token_ids
from agent.formats.harmony.header import (
    GLUED_HEADER,
    OTHER_ROLES,
    SPELLED_HEADER,
    HeaderPart,
    HeaderReader,
    MessageHeader,
    may_begin_header,
)
from agent.formats.harmony.run_on import RunOnHeader, may_end_in_header
from agent.formats.harmony.segment_body import SegmentBody
from agent.formats.harmony.token_ids import STOP_IDS
from agent.formats.protocol import Closed, Opened, ParseEvent, Repair, Stop
from agent.formats.recipients import AnyRecipient, Recipients

MAX_HEADER_TOKENS = 128
"""Tokens after which a header without ``<|message|>`` becomes a body; correct ones have under 40."""
_PROSE_WORDS = 3
"""Words after a channel's name that make the header a body when another ``<|channel|>`` follows."""
_EMPTY_VALUES = frozenset({"{}", "[]", '""'})
"""Punctuation that is a complete answer in JSON."""
_HEADER_IDS = frozenset({token_ids.CHANNEL_ID, token_ids.CONSTRAIN_ID, token_ids.MESSAGE_ID})
_MESSAGE_OPENINGS = tuple(
    (*end, *start, token_ids.CHANNEL_ID, *channel)
    for end, start in (
        ((), ()),
        ((), (token_ids.START_ID, token_ids.ASSISTANT_ID)),
        ((token_ids.END_ID,), (token_ids.START_ID, token_ids.ASSISTANT_ID)),
    )
    for channel in ((token_ids.ANALYSIS_ID,), (token_ids.FINAL_ID,), token_ids.COMMENTARY_IDS)
)
"""The beginnings of a message that end an open JSON string; shorter markup is text there."""


class OpenHeader:
    """A header that is read: the prompt's (``prefilled``), one after ``<|start|>``, or neither."""

    def __init__(self, start: int, *, prefilled: bool = False, started: bool = False) -> None:
        """``start``: position of its first id."""
        self.start, self.prefilled, self.started = start, prefilled, started
        self.parts = [HeaderPart(token_ids.START_ID, start)]
        self.tokens = 0
        self.run_on = False
        """Whether its beginning was taken from the end of a text."""

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)

    def is_stray(self, text: str) -> bool:
        """Tell whether a text between two messages says nothing: blanks and punctuation."""
        says_nothing = (c.isspace() or unicodedata.category(c).startswith("P") for c in text)
        return not self.prefilled and all(says_nothing)

    def read(self, recipients: Recipients | AnyRecipient, ended: int | None) -> MessageHeader:
        """Read what there is. ``ended``: the id that ended it; None: the stream's end, or too long."""
        reader = HeaderReader(recipients, ended == token_ids.MESSAGE_ID)
        header = reader.read(self.parts, prefilled=self.prefilled)
        if self.run_on and header.channel == "final":
            # The text before only ended with a tool's name; an answer does not call.
            recipient = header.raw_recipient or ""
            header.repairs.append(Repair("recipient_dropped", self.start, recipient))
            header.raw_recipient = header.recipient = None
        return header

    def looks_like_body(self, recipients: Recipients | AnyRecipient) -> bool:
        marker, text = self.parts[-1].marker, self.parts[-1].text
        is_long = "{" in text or len(text.split()) > _PROSE_WORDS
        if marker == token_ids.START_ID or not is_long:
            return False
        header = self.read(recipients, None)
        json = header.is_call and header.body.startswith("{")
        return json or len(header.body.split()) >= _PROSE_WORDS


class HarmonyParser:
    """The parser of one generation after ``<|start|>assistant``."""

    def __init__(self, encoding: HarmonyEncoding, recipients: Recipients | None = None) -> None:
        """Begin a generation; with ``recipients`` None all calls are taken as they are written."""
        self._vocabulary = token_ids.harmony_vocabulary(encoding)
        self._known_texts = self._vocabulary.known_texts
        self._recipients = AnyRecipient() if recipients is None else recipients
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._out: list[ParseEvent] = []
        self._deferred_repairs: list[Repair] = []
        """Repairs within the open body: reported after its end."""
        self._quoted_markup: list[int] = []
        """Markup in a JSON string that may be the beginning of a new message."""
        self._body: SegmentBody | None = None
        self._run_on = RunOnHeader()
        """The end of the body's text, where that may be a call's header."""
        self._in_plain_text = False
        """In a streaming body, and between two characters: tokens with known texts need no checks."""
        self._done = self._answered = self._is_final = False
        self._position = self._spanned_to = 0
        self._header = OpenHeader(0, prefilled=True)
        """The latest header, which may still grow where no body is open."""

    @property
    def open_segment(self) -> Opened | None:
        """The segment whose body is being written, also while its text is buffered."""
        return None if self._body is None else self._body.opened

    def feed(self, ids: Sequence[int]) -> list[ParseEvent]:
        out = self._out = []
        known = self._known_texts.get
        i, n = 0, len(ids)
        while i < n and not self._done:
            if self._in_plain_text and (text := known(ids[i])) is not None:
                body, begin = self._body, i
                assert body is not None
                i += 1
                run = [text]
                while i < n and (more := known(ids[i])) is not None:
                    run.append(more)
                    i += 1
                self._position += i - begin
                body.tokens += i - begin
                if len(run) > 1:
                    text = "".join(run)
                if body.may_run_on and (self._run_on.texts or may_end_in_header(text)):
                    text = "".join([self._run_on.add(part) for part in run])
                if text:
                    body.add_streamed(text, out)
                continue
            self._feed_token(ids[i])
            i += 1
        return out

    def finish(self) -> list[ParseEvent]:
        self._out = []
        if not self._done:
            self._release_quoted_markup()
            self._flush_decoder()
            self._release_run_on()
            if self._body is None:
                self._close_incomplete_header(None)
            if self._body is not None:
                self._close_body(None)
            self._done = True
        return self._out

    # --- tokens ---------------------------------------------------------------------------------

    def _feed_token(self, token: int) -> None:
        at = self._position
        self._position += 1
        if self._quoted_markup and self._continues_quoted_markup(token):
            return
        raw = self._vocabulary.token_bytes(token)
        if raw is not None:
            text = self._decoder.decode(raw)
            partial = bool(self._decoder.getstate()[0])
            self._add_text(text, 1)
            self._in_plain_text = self._body is not None and self._streams() and not partial
            return
        self._flush_decoder()
        if self._body is None:
            self._marker_in_header(token, at)
        elif not self._splits_run_on(token, at, self._body):
            self._marker_in_body(token, at, self._body)
        self._in_plain_text = self._streams() and not self._quoted_markup

    def _streams(self) -> bool:
        """Tell whether tokens of text become deltas unseen."""
        body = self._body
        return body is not None and body.mode == "stream" and not self._run_on.in_words

    def _flush_decoder(self) -> None:
        """Add the bytes of an incomplete character, as U+FFFD."""
        if text := self._decoder.decode(b"", True):
            self._add_text(text, 0)
        self._decoder.reset()

    def _add_text(self, text: str, tokens: int) -> None:
        if self._body is not None:
            self._body.tokens += tokens
            if self._body.may_run_on:
                text = self._run_on.add(text) if tokens else self._run_on.take() + text
            if text:
                self._body.add(text, self._out)
            if self._run_on.is_header:
                self._begin_run_on(self._position, self._body)
                self._end_bare_header()
            return
        part = self._header.parts[-1]
        if tokens:
            part.texts.append(text)
            self._header.tokens += 1
        else:
            part.texts[-1] += text
        self._end_bare_header()

    def _end_bare_header(self) -> None:
        """Begin the body where the header's text cannot be a header any more."""
        header = self._header
        if len(header.parts) > 1:
            ends = False
        elif header.started:
            ends = GLUED_HEADER.match(header.parts[0].text) is not None
        else:
            text = header.parts[0].text
            ends = not header.is_stray(text) and not may_begin_header(text)
        if ends or header.tokens > MAX_HEADER_TOKENS:
            self._close_incomplete_header(None, force=True)

    # --- headers ----------------------------------------------------------------------------------

    def _begin_header(self, at: int, *, prefilled: bool = False, started: bool = False) -> None:
        self._body = None
        self._header = OpenHeader(at, prefilled=prefilled, started=started)

    def _marker_in_header(self, token: int, at: int) -> None:
        if token in (token_ids.CHANNEL_ID, token_ids.CONSTRAIN_ID):
            if token == token_ids.CHANNEL_ID and self._header.looks_like_body(self._recipients):
                self._close_incomplete_header(token)
                self._end_message(token, at)
                return
            if self._header.tokens >= MAX_HEADER_TOKENS:
                self._abandon_header()
                old = self._header
                self._begin_header(at, prefilled=old.prefilled, started=old.started)
            self._header.parts.append(HeaderPart(token, at))
            self._header.tokens += 1
        elif token == token_ids.MESSAGE_ID:
            header = self._header.read(self._recipients, token)
            if header.other_turn:
                self._stop_at_header("turn_invented", "turn")
            elif self._answered and header.channel == "final" and not header.is_call:
                self._stop_at_header("answer_repeated", "return")
            else:
                self._open_body(header, token)
        elif token in STOP_IDS or token == token_ids.START_ID:
            self._close_incomplete_header(token)
            self._end_message(token, at)
        else:
            self._out.append(Repair("stray_token", at, ""))

    def _abandon_header(self) -> None:
        self._out.append(Repair("header_abandoned", self._header.start, self._header.text))

    def _close_incomplete_header(self, ended: int | None, *, force: bool = False) -> None:
        """End a header without ``<|message|>``: its text, if there is any, becomes the body. ``ended``:
        the id that ended it. ``force``: a body is open afterwards unless the generation stopped."""
        header = self._header.read(self._recipients, ended)
        text = self._header.text
        in_words = self._header.started and GLUED_HEADER.match(text)
        bare = len(self._header.parts) == 1 and (not self._header.started or in_words)
        may_be_stray = text and not force and text.strip() not in _EMPTY_VALUES
        if header.other_turn and (not bare or text.strip() in OTHER_ROLES):
            if ended is None and not force:
                self._abandon_header()
            else:
                self._stop_at_header("turn_invented", "turn")
        elif bare and may_be_stray and self._header.is_stray(text):
            self._out.append(Repair("stray_text", self._header.start, text))
        elif bare and not header.is_call and (text.strip() or force):
            spelled = SPELLED_HEADER.match(text)
            words = spelled[0] if spelled else ""
            channel = spelled[spelled.lastindex or 0] if spelled else None
            repair = Repair("header_missing", self._header.start, words)
            self._open_body(MessageHeader(channel, bool(channel), repairs=[repair]), ended)
            assert self._body is not None
            self._run_on.in_words = channel is not None and self._body.may_run_on
            self._continue_as_body(self._header.parts[-1].texts, text.removeprefix(words))
        elif force or header.holds_message(ended):
            header.repairs.append(Repair("message_missing", self._header.start, ""))
            self._open_body(header, ended)
            self._continue_as_body(self._header.parts[-1].texts, header.body)
        elif text or len(self._header.parts) > 1:
            self._abandon_header()
        elif ended == token_ids.START_ID and self._header.prefilled:
            self._out.append(Repair("start_repeated", self._header.start, ""))

    def _continue_as_body(self, texts: list[str], body: str) -> None:
        assert self._body is not None
        left = len(body)
        while left > 0 and texts:
            left -= len(texts.pop())
            self._body.tokens += 1
        if body:
            self._body.add(body, self._out)

    def _open_body(self, header: MessageHeader, ended: int | None) -> None:
        start, last_part = self._header.start, self._header.parts[-1]
        if not (self._header.prefilled or self._header.started):
            self._out.append(Repair("start_missing", start, ""))
        self._out += header.repairs
        if header.abandons_call(ended):
            self._out.append(Repair("recipient_dropped", start, header.raw_recipient or ""))
        header_arguments = None
        if ended == token_ids.MESSAGE_ID and header.body:
            header_arguments = Repair("arguments_in_header", last_part.position, header.body)
        self._body = SegmentBody(header.opened_segment(ended), header_arguments, self._out)
        self._run_on.in_words = False
        self._is_final = header.channel == "final" and not self._body.is_call

    # --- bodies -----------------------------------------------------------------------------------

    def _splits_run_on(self, token: int, at: int, body: SegmentBody) -> bool:
        """End the message before the call's header that it ran into, if it did; tell whether."""
        run_on = self._run_on
        is_call = token in _HEADER_IDS and run_on.addresses_tool(self._recipients)
        if is_call or run_on.ends_in_words():
            self._begin_run_on(at, body)
            self._marker_in_header(token, at)
            return True
        self._release_run_on()
        return False

    def _begin_run_on(self, at: int, body: SegmentBody) -> None:
        """End the message before the header in the text before ``at``, and begin the next."""
        run_on, self._run_on = self._run_on, RunOnHeader()
        start = at - len(run_on.texts)
        body.tokens -= len(run_on.texts)
        self._deferred_repairs.append(Repair("end_missing", start, ""))
        self._close_body(token_ids.START_ID, start)
        self._begin_header(start, started=not run_on.in_words)
        self._header.run_on = not run_on.in_words
        self._header.parts[0].texts += run_on.texts
        self._header.tokens += len(run_on.texts)

    def _release_run_on(self) -> None:
        if (text := self._run_on.take()) and self._body is not None:
            self._body.add(text, self._out)

    def _marker_in_body(self, token: int, at: int, body: SegmentBody) -> None:
        quoted = (token == token_ids.END_ID or token not in STOP_IDS) and body.in_json_string()
        if token in STOP_IDS and not quoted:
            self._end_message(token, at)
        elif quoted:
            if token in (token_ids.END_ID, token_ids.START_ID, token_ids.CHANNEL_ID):
                self._quoted_markup.append(token)
            else:
                self._add_text(self._vocabulary.special_text(token), 1)
        elif token in (token_ids.START_ID, token_ids.CHANNEL_ID):
            self._deferred_repairs.append(Repair("end_missing", at, ""))
            self._end_message(token, at)
        elif token == token_ids.MESSAGE_ID and (word := body.repeated_channel()):
            again = Repair("header_in_body", at, word)
            header = MessageHeader(word.strip(), channel_seen=True, repairs=[again])
            self._open_body(header, None)
        else:
            self._deferred_repairs.append(Repair("stray_token", at, ""))

    def _continues_quoted_markup(self, token: int) -> bool:
        """Tell whether the token continues markup in a JSON string, and handle it if so."""
        ids = (*self._quoted_markup, token)
        if ids in _MESSAGE_OPENINGS:
            # A new message after all: it ends the call.
            at = self._position - len(ids)
            self._quoted_markup.clear()
            self._deferred_repairs.append(Repair("end_missing", at, ""))
            self._end_message(ids[0], at)
            return True
        if any(opening[: len(ids)] == ids for opening in _MESSAGE_OPENINGS):
            self._quoted_markup.append(token)
            return True
        self._release_quoted_markup()
        return False

    def _release_quoted_markup(self) -> None:
        quoted, self._quoted_markup = self._quoted_markup, []
        for token in quoted:
            raw = self._vocabulary.token_bytes(token)
            self._add_text(self._vocabulary.special_text(token) if raw is None else raw.decode(), 1)

    def _end_message(self, token: int, at: int) -> None:
        """End the open message at a stop id or at a new message's first id."""
        if self._done:
            return
        if self._body is not None and self._close_body(token, at):
            self._stop("call", at)
        elif token == token_ids.RETURN_ID:
            self._stop("return", at)
        elif token in (token_ids.CALL_ID, token_ids.END_OF_TEXT_ID):
            self._stop("end", at)
        else:
            start = at + (token == token_ids.END_ID)
            self._begin_header(start, started=token == token_ids.START_ID)
            if token == token_ids.CHANNEL_ID:
                self._header.parts.append(HeaderPart(token_ids.CHANNEL_ID, at))

    def _close_body(self, token: int | None, at: int = 0) -> bool:
        """Close the body, by ``token`` (None: the stream's end); tell whether it was a call."""
        body = self._body
        assert body is not None
        unused = body.close(token, self._out)
        end = self._position if token is None else at + 1 if token in STOP_IDS else at
        self._out.append(Closed(token is not None, self._spanned_to, end, body.tokens))
        self._spanned_to = end
        if unused is not None:
            self._deferred_repairs.append(unused)
        ends_text = (token_ids.END_ID, token_ids.RETURN_ID)
        if token in (ends_text if body.is_call else (token_ids.CALL_ID,)):
            self._deferred_repairs.append(Repair("stop_token", at, ""))
        self._out += self._deferred_repairs
        self._deferred_repairs = []
        self._body = None
        self._answered |= self._is_final and token == token_ids.END_ID and body.tokens > 0
        return body.is_call

    def _stop_at_header(self, rule: str, reason: str) -> None:
        """End the generation before the message whose header was read: it is not part of the answer."""
        self._out.append(Repair(rule, self._header.start, ""))
        self._stop(reason, self._header.start)

    def _stop(self, reason: str, at: int) -> None:
        self._out.append(Stop(reason, at))
        self._done = True
        self._in_plain_text = False
