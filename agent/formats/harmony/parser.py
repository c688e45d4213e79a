"""Harmony's parser: a state machine on token ids that understands any stream and loses nothing.

Only special ids are markup; markup that is spelled in ordinary tokens is text. ``<|start|>``,
``<|channel|>`` and the stop ids end what is open, so that no message swallows the next.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from openai_harmony import HarmonyEncoding

from agent.formats.harmony.header import TURNS, Heading, Part, could_begin, read
from agent.formats.harmony.segment_body import Body
from agent.formats.harmony.token_ids import (
    ANALYSIS,
    ASSISTANT,
    CALL,
    CHANNEL,
    COMMENTARY,
    CONSTRAIN,
    END,
    ENDOFTEXT,
    FINAL,
    MESSAGE,
    RETURN,
    START,
    vocabulary,
)
from agent.formats.protocol import Closed, Opened, Piece, Repair, Stop
from agent.formats.recipients import AnyRecipient, Recipients

LONGEST_HEADER = 128
"""Tokens after which a header without ``<|message|>`` is taken for a body; real ones have under 40."""
_PROSE = 3
"""Words after a channel's that make it a body when another ``<|channel|>`` follows."""
_STOPS = frozenset({END, RETURN, CALL, ENDOFTEXT})
_OPENINGS = tuple(
    (*start, CHANNEL, *channel)
    for start in ((), (START, ASSISTANT))
    for channel in ((ANALYSIS,), (FINAL,), COMMENTARY)
)
"""What a new message looks like when it begins within an open JSON string; less is text there."""


class HarmonyParser:
    """One generation after ``<|start|>assistant``."""

    def __init__(self, encoding: HarmonyEncoding, recipients: Recipients | None = None) -> None:
        """``recipients`` None: no tools are known; calls are taken as they are written."""
        self._vocabulary = vocabulary(encoding)
        self._texts = self._vocabulary.texts
        self._recipients = AnyRecipient() if recipients is None else recipients
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._out: list[Piece] = []
        self._late: list[Repair] = []
        """Repairs within a body: told after it."""
        self._quoted: list[int] = []
        """Markup in a JSON string that may yet turn out to be a new message."""
        self._body: Body | None = None
        self._plain = False
        """In a body whose whole texts may go straight out."""
        self._done = False
        self._at = 0
        self._spanned = 0
        self._begin(0, prefilled=True)

    @property
    def within(self) -> Opened | None:
        """The segment whose body is being written, also while its text is held back."""
        return None if self._body is None else self._body.opened

    def feed(self, ids: Sequence[int]) -> list[Piece]:
        out = self._out = []
        known = self._texts.get
        i, n = 0, len(ids)
        while i < n and not self._done:
            if self._plain and self._body is not None:
                begin = i
                run = []
                while i < n and (text := known(ids[i])) is not None:
                    run.append(text)
                    i += 1
                if run:
                    self._at += i - begin
                    self._body.tokens += i - begin
                    self._body.add("".join(run), out)
                    continue
            self._step(ids[i])
            i += 1
        return out

    def finish(self) -> list[Piece]:
        self._out = []
        if not self._done:
            self._unquote()
            self._flush()
            if self._body is None:
                self._headless(None)
            if self._body is not None:
                self._close(None)
            self._done = True
        return self._out

    # --- tokens ---------------------------------------------------------------------------------

    def _step(self, token: int) -> None:
        at = self._at
        self._at += 1
        if self._quoted and self._still_quoted(token):
            return
        raw = self._vocabulary.raw(token)
        if raw is not None:
            text = self._decoder.decode(raw)
            partial = bool(self._decoder.getstate()[0])
            self._text(text, 1)
            self._plain = self._body is not None and self._body.streams and not partial
            return
        self._flush()
        if self._body is None:
            self._mark_in_header(token, at)
        else:
            self._mark_in_body(token, at, self._body)
        self._plain = self._body is not None and self._body.streams and not self._quoted

    def _flush(self) -> None:
        """Bytes of a character that never became whole."""
        if text := self._decoder.decode(b"", True):
            self._text(text, 0)
        self._decoder.reset()

    def _text(self, text: str, tokens: int) -> None:
        if self._body is not None:
            self._body.tokens += tokens
            if text:
                self._body.add(text, self._out)
            return
        part = self._parts[-1]
        if tokens:
            part.texts.append(text)
            self._length += 1
        else:
            part.texts[-1] += text
        bare = len(self._parts) == 1 and not self._started
        if (bare and not could_begin(part.text)) or self._length > LONGEST_HEADER:
            self._headless(None, force=True)

    # --- headers ----------------------------------------------------------------------------------

    def _begin(self, at: int, *, prefilled: bool = False, started: bool = False) -> None:
        """A header begins: after the prompt's, after ``<|start|>``, or with neither."""
        self._body = None
        self._prefilled, self._started = prefilled, started
        self._header_at = at
        self._parts = [Part(START, at)]
        self._length = 0

    def _mark_in_header(self, token: int, at: int) -> None:
        if token in (CHANNEL, CONSTRAIN):
            if token == CHANNEL and self._is_prose():
                self._headless(token)
                self._ended(token, at)
                return
            if self._length >= LONGEST_HEADER:
                self._abandon()
                self._begin(at, prefilled=self._prefilled, started=self._started)
            self._parts.append(Part(token, at))
            self._length += 1
        elif token == MESSAGE:
            heading = self._read(token)
            if heading.turn:
                self._stop("turn", self._header_at)
            else:
                self._open(heading, token)
        elif token in _STOPS or token == START:
            self._headless(token)
            self._ended(token, at)
        else:
            self._out.append(Repair("stray_token", at, ""))

    def _read(self, ended: int | None) -> Heading:
        prefilled = self._prefilled
        return read(self._parts, self._recipients, prefilled=prefilled, ended=ended)

    def _abandon(self) -> None:
        text = "".join(part.text for part in self._parts)
        self._out.append(Repair("header_abandoned", self._header_at, text))

    def _is_prose(self) -> bool:
        part = self._parts[-1]
        if part.mark == START or not ("{" in part.text or len(part.text.split()) > _PROSE):
            return False
        heading = self._read(None)
        json = heading.called and heading.body.startswith("{")
        return json or len(heading.body.split()) >= _PROSE

    def _headless(self, ended: int | None, *, force: bool = False) -> None:
        """A header without ``<|message|>``: its text is the body, if there is any.

        ``force``: it can be no header any more, so that a body is open afterwards.
        """
        heading = self._read(ended)
        text = "".join(part.text for part in self._parts)
        bare = len(self._parts) == 1 and not self._started
        if heading.turn and (not bare or text.strip() in TURNS):
            if ended is None and not force:
                self._abandon()
            else:
                self._stop("turn", self._header_at)
        elif bare and not heading.called and (text.strip() or force):
            self._open(Heading(repairs=[Repair("header_missing", self._header_at, "")]), ended)
            self._resume(self._parts[-1].texts, text)
        elif force or heading.is_message(ended):
            heading.repairs.append(Repair("message_missing", self._header_at, ""))
            self._open(heading, ended)
            self._resume(self._parts[-1].texts, heading.body)
        elif text or len(self._parts) > 1:
            self._abandon()
        elif ended == START and self._prefilled:
            self._out.append(Repair("start_repeated", self._header_at, ""))

    def _resume(self, texts: list[str], body: str) -> None:
        """The text that is left of a header goes on as the body."""
        assert self._body is not None
        left = len(body)
        while left > 0 and texts:
            left -= len(texts.pop())
            self._body.tokens += 1
        if body:
            self._body.add(body, self._out)

    def _open(self, heading: Heading, ended: int | None) -> None:
        if not (self._prefilled or self._started):
            self._out.append(Repair("start_missing", self._header_at, ""))
        self._out += heading.repairs
        if heading.thought(ended):
            self._out.append(Repair("recipient_dropped", self._header_at, heading.raw or ""))
        leaked = None
        if ended == MESSAGE and heading.body:
            leaked = Repair("arguments_in_header", self._parts[-1].at, heading.body)
        self._body = Body(heading.opened(ended), leaked, self._out)

    # --- bodies -----------------------------------------------------------------------------------

    def _mark_in_body(self, token: int, at: int, body: Body) -> None:
        if token in _STOPS:
            self._ended(token, at)
        elif body.in_string():
            if token in (START, CHANNEL):
                self._quoted.append(token)
            else:
                self._text(self._vocabulary.spelled(token), 1)
        elif token in (START, CHANNEL):
            self._late.append(Repair("end_missing", at, ""))
            self._ended(token, at)
        elif token == MESSAGE and (word := body.channel_again()):
            again = Repair("header_in_body", at, word)
            self._open(Heading(channel=word.strip(), channel_seen=True, repairs=[again]), None)
        else:
            self._late.append(Repair("stray_token", at, ""))

    def _still_quoted(self, token: int) -> bool:
        """Whether the token is taken up by markup in a JSON string."""
        ids = (*self._quoted, token)
        if ids in _OPENINGS:
            # A new message after all; the call before it is what counts.
            at = self._at - len(ids)
            self._quoted.clear()
            self._late.append(Repair("end_missing", at, ""))
            self._ended(ids[0], at)
            return True
        if any(opening[: len(ids)] == ids for opening in _OPENINGS):
            self._quoted.append(token)
            return True
        self._unquote()
        return False

    def _unquote(self) -> None:
        quoted, self._quoted = self._quoted, []
        for token in quoted:
            raw = self._vocabulary.raw(token)
            self._text(self._vocabulary.spelled(token) if raw is None else raw.decode(), 1)

    def _ended(self, token: int, at: int) -> None:
        """A stop id or a new message's first id: close what is open and go on behind it."""
        if self._done:
            return
        called = self._close(token, at) if self._body is not None else False
        if called:
            self._stop("call", at)
        elif token == RETURN:
            self._stop("return", at)
        elif token in (CALL, ENDOFTEXT):
            self._stop("end", at)
        else:
            self._begin(at + (token == END), started=token == START)
            if token == CHANNEL:
                self._parts.append(Part(CHANNEL, at))

    def _close(self, token: int | None, at: int = 0) -> bool:
        """Close the body, ended by ``token`` at ``at`` (None: the stream ended); was it a call?"""
        body = self._body
        assert body is not None
        unused = body.close(token, self._out)
        end = self._at if token is None else at + 1 if token in _STOPS else at
        self._out.append(Closed(token is not None, self._spanned, end, body.tokens))
        self._spanned = end
        if unused is not None:
            self._late.append(unused)
        if (body.calls and token in (END, RETURN)) or (token == CALL and not body.calls):
            self._late.append(Repair("stop_token", at, ""))
        self._out += self._late
        self._late = []
        self._body = None
        return body.calls

    def _stop(self, reason: str, at: int) -> None:
        self._out.append(Stop(reason, at))
        self._done = True
        self._plain = False
