"""The parser of the families that write markup over text: total, incremental, and nothing is lost.

Ids become bytes, bytes text, and text segments. What is decided depends on the text alone, never on
how it was cut; only what may still become a tag is held back.
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
    Family,
)
from agent.formats.markup.fences import Fences
from agent.formats.markup.json_call import LONGEST_WAIT, JsonCall, Verdict, could_be
from agent.formats.markup.malformed_call import CodeCall, OddCall
from agent.formats.markup.segments import Segments
from agent.formats.markup.text_buffer import Source
from agent.formats.markup.vocabulary import Vocabulary
from agent.formats.markup.xml_call import XmlCall
from agent.formats.protocol import Kind, Opened, Piece, Stop
from agent.formats.recipients import AnyRecipient, Recipients

Call = JsonCall | XmlCall | OddCall | CodeCall


class Alphabet:
    """What each id of a vocabulary is to a family; made once."""

    def __init__(self, vocabulary: Vocabulary, family: Family) -> None:
        known = vocabulary.specials
        self.family = family
        self.stop = vocabulary.ends | {known[name] for name in family.ends if name in known}
        self.turn = frozenset(known[name] for name in family.turns if name in known)
        self._vocabulary = vocabulary
        tags = {known[tag] for tag in family.tags if tag in known}
        self._silent = vocabulary.controls - tags

    def raw(self, token: int) -> bytes | None:
        """The bytes of an id that is text or a tag."""
        return None if token in self._silent else self._vocabulary.raw(token)


class MarkupParser:
    """One generation."""

    def __init__(
        self, alphabet: Alphabet, recipients: Recipients | None = None, *, thinking: bool = False
    ) -> None:
        """``recipients`` None: no tools are known; calls are taken as they are written.

        ``thinking``: the prompt ended with ``<think>``.
        """
        self._alphabet, self._family = alphabet, alphabet.family
        self._recipients = AnyRecipient() if recipients is None else recipients
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._source = Source()
        self._segments = Segments(self._source)
        self._fences = Fences()
        self._thinking = thinking
        self._ended_thought: int | None = None
        """The token of ``</think>``; the white space behind it is still the thought's."""
        self._call: Call | None = None
        self._call_at = 0
        self._after_call = False
        self._space: list[str] = []
        """White space that goes out only if more of the same follows."""
        self._at = 0
        self._done = False

    def feed(self, ids: Sequence[int]) -> list[Piece]:
        for token in ids:
            if self._done:
                break
            self._token(token)
        out, self._segments.out = self._segments.out, []
        return out

    def finish(self) -> list[Piece]:
        if not self._done:
            self._end(False)
        out, self._segments.out = self._segments.out, []
        return out

    def _token(self, token: int) -> None:
        at = self._at
        self._at += 1
        raw = self._alphabet.raw(token)
        if token in self._alphabet.stop:
            self._end(True)
            self._segments.out.append(Stop("return", at))
        elif token in self._alphabet.turn:
            self._at = at
            self._end(True)
            self._segments.out.append(Stop("turn", at))
        elif raw is None:
            self._segments.repair("stray_token", at)
        else:
            self._source.add(self._decoder.decode(raw), at)
            self._run(False)

    def _end(self, ended: bool) -> None:
        """Nothing follows; ``ended``: by the model."""
        self._source.add(self._decoder.decode(b"", True), max(self._at - 1, 0))
        self._run(True)
        until = self._source.next
        if self._call is not None:
            if ended and not isinstance(self._call, CodeCall):
                self._segments.repair("call_unclosed", until)
            self._close_call(ended, end=self._at)
        elif self._segments.opened is not None:
            if self._ended_thought is None:
                self._segments.delta("".join(self._space))
                if self._thinking and ended:
                    self._segments.repair("think_unclosed", until)
            self._segments.close(
                ended or self._ended_thought is not None, until=until, end=self._at
            )
        self._done = True

    def _run(self, final: bool) -> None:
        while self._step(final):
            pass

    def _step(self, final: bool) -> bool:
        """Decide one thing; False when nothing is left to be decided now."""
        if self._call is not None:
            return self._in_call(final)
        text = self._source.text
        if self._ended_thought is not None:
            return self._behind_thought(text)
        found = self._family.seek.search(text)
        if found is None:
            self._say(len(text) - (0 if final else self._unclear(text)))
            return False
        if found.start():
            self._say(found.start())
            return True
        return self._tag(found[0], final)

    # --- prose ------------------------------------------------------------------------------------

    def _unclear(self, text: str) -> int:
        """So many characters at the end may become a tag."""
        at = text.rfind("<")
        return len(text) - at if at >= 0 and could_be(text[at:], self._family.tags) else 0

    def _say(self, count: int) -> None:
        """The next characters are what the segment says."""
        began = self._source.next
        self._prose(self._source.take(count), began)

    def _prose(self, text: str, began: int) -> None:
        segments = self._segments
        if segments.opened is None:
            # Semicolons stand between the calls of some.
            text = text.lstrip("; \t\r\n" if self._after_call and self._family.bare_json else None)
            if not text:
                return
            self._after_call = False
            segments.open(Opened(Kind.REASONING if self._thinking else Kind.FINAL), began)
        self._fences.feed(text)
        said = text.rstrip()
        if said:
            segments.delta("".join(self._space) + said)
            self._space = []
        self._space.append(text[len(said) :])

    def _end_prose(self, at: int) -> None:
        """Markup follows, with the token ``at``: what was open is whole."""
        if self._segments.opened is not None:
            self._segments.close(True, until=at, end=at)
        self._space = []
        self._fences = Fences()

    def _behind_thought(self, text: str) -> bool:
        rest = text.lstrip()
        self._source.take(len(text) - len(rest))
        if not rest:
            return False
        assert self._ended_thought is not None
        self._segments.close(True, until=self._ended_thought)
        self._ended_thought = None
        return True

    # --- tags -------------------------------------------------------------------------------------

    def _tag(self, tag: str, final: bool) -> bool:
        at = self._source.next
        if tag == THINK_END and self._thinking:
            self._source.take(len(tag))
            self._thinking, self._space, self._fences = False, [], Fences()
            self._ended_thought = at if self._segments.opened is not None else None
            return True
        if self._fences.inside:
            self._say(len(tag))
            return True
        match tag:
            case "{":
                return self._bare(at)
            case "<tool_call>":
                return self._called(at, final)
            case "<function=":
                return self._function(at, final)
            case "<|python_tag|>":
                return self._python(at, final)
        if tag == THINK_END or (tag == THINK and not self._thinking):
            self._end_prose(at)
        self._source.take(len(tag))
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

    def _called(self, at: int, final: bool) -> bool:
        """At ``<tool_call>``: what follows tells how it is written."""
        text = self._source.text[len(CALL) :]
        rest = text.lstrip()
        if not final and len(text) < LONGEST_WAIT and could_be(rest, (FUNCTION, "{")):
            return False
        json, xml = rest.startswith("{"), rest.startswith(FUNCTION)
        if self._thinking and rest and not (json or xml):
            self._say(len(CALL))  # thoughts about calls
            return True
        self._begin(at, len(CALL) + len(text) - len(rest))
        if json:
            self._call = self._json(closing=CALL_END)
        elif xml:
            self._call = self._xml()
        else:
            self._call = OddCall(self._source, self._segments, at)
        return True

    def _function(self, at: int, final: bool) -> bool:
        """At ``<function=`` that no ``<tool_call>`` stands before."""
        if not (self._fences.line_begins or self._segments.opened is None):
            self._say(len(FUNCTION))
            return True
        self._begin(at, 0)
        if not self._after_call:
            self._segments.repair("call_unopened", at)
        self._call = self._xml()
        return True

    def _bare(self, at: int) -> bool:
        """At ``{``: a call, if it begins a line and turns out to be one."""
        if not self._fences.line_begins:
            self._say(1)
            return True
        self._call_at = at
        self._call = self._json(closing=None, doubt=lambda: self._end_prose(at))
        return True

    def _python(self, at: int, final: bool) -> bool:
        """At ``<|python_tag|>``: a call as JSON, or code for the model's own tool."""
        text = self._source.text[len(PYTHON_TAG) :]
        rest = text.lstrip()
        if not final and not rest and len(text) < LONGEST_WAIT:
            return False
        self._begin(at, len(PYTHON_TAG) + len(text) - len(rest))
        if rest.startswith("{"):
            self._call = self._json(closing=None)
        else:
            self._call = CodeCall(self._source, self._segments, self._recipients, at)
        return True

    # --- calls ------------------------------------------------------------------------------------

    def _begin(self, at: int, markup: int) -> None:
        """A call begins, behind so many characters of markup."""
        self._end_prose(at)
        if self._thinking:
            self._segments.repair("think_unclosed", at)
        self._source.take(markup)
        self._call_at = at

    def _json(self, *, closing: str | None, doubt: Callable[[], None] | None = None) -> JsonCall:
        return JsonCall(
            self._source, self._segments, self._recipients, closing=closing, doubt=doubt
        )

    def _xml(self) -> XmlCall:
        return XmlCall(self._source, self._segments, self._recipients)

    def _in_call(self, final: bool) -> bool:
        call = self._call
        assert call is not None
        match call.read(final):
            case Verdict.ENDED:
                self._close_call(True)
            case Verdict.PROSE:
                self._call = None
                if isinstance(call, OddCall):
                    self._segments.repair("call_malformed", self._call_at, CALL)
                self._prose(call.raw, self._call_at)
            case None:
                return False
        return True

    def _close_call(self, complete: bool, end: int | None = None) -> None:
        call = self._call
        assert call is not None
        call.close(complete, until=max(self._source.last, 0), end=end)
        self._call, self._after_call, self._fences = None, True, Fences()
        if not isinstance(call, JsonCall | XmlCall) or not call.again:
            return
        text = self._source.text
        self._source.take(len(text) - len(text.lstrip()))
        self._call = self._json(closing=CALL_END) if isinstance(call, JsonCall) else self._xml()
