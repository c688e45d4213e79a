"""Reads the header of a Harmony message, however malformed it is.

A header is a list of parts, each begun by a special token: the role after ``<|start|>``, a channel
after ``<|channel|>``, a content type after ``<|constrain|>``. The recipient (``to=…``) may be in any
of them. Each part is read from the left; each step removes what it understands and returns the rest::

    part of               steps, in this order                                  sets
    <|start|>      role · unknown role (a tool's name, or noise) · recipients   other_turn, author
    <|channel|>    channel · second channel · bare recipient · recipients       channel, recipient
                   or no channel: content type · tool's name · recipients
    <|constrain|>  channel · content type · recipients                          json

What is left of a part becomes the text of a ``header_text`` repair, but of the last part it may be the
message's body. So the same word means different things: whether ``<|message|>`` follows
(``_complete``) decides. With it, the body is known to be elsewhere and the reader is generous. Without
it, prose may follow at once, and only a recipient at the beginning of the rest is one::

    header (declared tool: functions.f)                        segment, and the repairs
    <|channel|>analysis<|message|>                             reasoning
    <|channel|>commentary to=functions.f <|constrain|>json<|m… tool functions.f, json
     to=functions.f<|channel|>commentary json<|message|>       tool functions.f, json
    <|channel|>commentary functions.f<|message|>               tool functions.f; recipient_bare
    <|channel|>functions.f<|message|>                          tool functions.f; channel_is_tool
    <|channel|>commentary <|constrain|>functions.f<|message|>  tool functions.f; recipient_bare
    <|channel|>analysis to=assistant json<|message|>           unknown tool "assistant"
    <|channel|>final to=user json<|message|>                   final
    <|channel|>comentary<|message|>                            preamble; channel_misspelt
    <|channel|>analysis<|channel|>final<|message|>             final; channel_repeated
    <|channel|>plan<|message|>                                 reasoning; channel_unknown
    <|channel|>We plan to=functions.f<|message|>               tool functions.f; channel_unknown
    <|channel|>commentary to=functions.f {"a":1}<|message|>    tool functions.f; arguments_in_header
    <|start|>f<|channel|>commentary<|message|>                 tool functions.f; role_is_tool
    <|start|>functions.f<|channel|>commentary<|message|>       the tool's result: the turn ends
    <|start|>user<|message|>                                   the user's message: the turn ends
    <|channel|>finalHello<|return|>                            final "Hello"; message_missing
    <|channel|>We come to this<|end|>                          reasoning "We come…"; message_missing
    <|channel|>commentary to=functions.f <|constrain|>I will…  reasoning "I will…"; message_missing,
                                                               recipient_dropped

More cases, with their expected segments, are in ``tests/support/harmony_cases.json``.
"""

import re
from dataclasses import dataclass, field

from agent.formats.harmony.token_ids import CALL_ID, CHANNEL_ID, MESSAGE_ID, START_ID
from agent.formats.protocol import Opened, Repair, SegmentKind
from agent.formats.recipients import NON_TOOL_RECIPIENTS, Recipients

CHANNELS = ("analysis", "commentary", "final")
OTHER_ROLES = frozenset({"user", "system", "developer", "tool"})
"""Roles whose messages the model must not write."""
HEADER_WORDS = ("assistant", *CHANNELS, *sorted(OTHER_ROLES))
"""The words with which a header without ``<|start|>`` may begin."""

_TO = re.compile(r"to\s?=\s*")
_TO_ASSISTANT = re.compile(r"\s*to\s?=\s*assistant\b")
_TYPE = re.compile(r"\s*\b(json|code)\b\s*")
_GLUED = r"(?=[^\W_a-z]|[*#`{\[\"“])"
"""First characters of a text directly after a channel's name: no lower-case letter or punctuation."""
SPELLED_HEADER = re.compile(
    r"\s*(?:assistant(analysis|commentary|final)(?!to=|json|code)\s*"
    r"|assistant\s+(analysis|commentary|final)(?![a-z])\s*"
    rf"|(analysis)(?!to=|json|code)(?=[^\W_])|(analysis|commentary|final){_GLUED})"
)
"""A header whose special tokens are missing, as in ``assistantfinalHello``. Lower-case text may follow
if no word continues like that: ``analysiswe``, but not ``finally``."""
GLUED_HEADER = re.compile(rf"\s*assistant(?:analysis|commentary|final){_GLUED}")
"""The same after ``<|start|>``, where any other word may be a part of the header."""
_CHANNEL_WORD = re.compile(r"\s*(analysis|commentary|final)\b")
_CONTENT_TYPE = re.compile(r"\s*(json|code|response|text)(?![a-z])\s*")
_TYPE_LAST = re.compile(r"\s+(json|code)\s*$")
_WORD = re.compile(r"\s*([A-Za-z]+)")
_ANY_CHANNEL = re.compile("|".join(CHANNELS))
_SECOND_CHANNEL = re.compile(r"\s*[^\w\s{]*\s*(analysis|commentary|final)\b")


@dataclass(slots=True)
class HeaderPart:
    """A special token and the ordinary text after it; ``texts`` has one item for each token."""

    marker: int
    position: int
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)


@dataclass(slots=True)
class MessageHeader:
    """The meaning of a header."""

    channel: str | None = None
    channel_seen: bool = False
    """Whether there was a ``<|channel|>``, also with an unknown name."""
    raw_recipient: str | None = None
    recipient: str | None = None
    json: bool = False
    constrain_is_prose: bool = False
    """Whether the text after ``<|constrain|>`` is not a content type."""
    body: str = ""
    """Text of the last part that is not the header's: arguments, or a body without ``<|message|>``."""
    other_turn: bool = False
    """Whether another role's message begins."""
    repairs: list[Repair] = field(default_factory=list)

    @property
    def is_call(self) -> bool:
        return self.raw_recipient is not None and self.raw_recipient not in NON_TOOL_RECIPIENTS

    def holds_message(self, ended: int | None) -> bool:
        """Whether a header without ``<|message|>``, ended by the id ``ended``, has text or a call."""
        words = _ANY_CHANNEL.sub("", self.body)
        # A number may be an answer; anywhere else it is as little as punctuation.
        is_text = str.isalpha if self.channel in ("analysis", "commentary") else str.isalnum
        return any(map(is_text, words)) or (self.is_call and ended == CALL_ID)

    def opened_segment(self, ended: int | None) -> Opened:
        """The event of the segment that this header opens. ``ended``: the id that ended the header."""
        match self.is_call, self.channel:
            case True, _ if not self.abandons_call(ended):
                kind = SegmentKind.TOOL if self.recipient else SegmentKind.TOOL_UNKNOWN
                return Opened(kind, self.recipient, self.raw_recipient, self.json)
            case True, _:
                kind = SegmentKind.REASONING
            case _, "final":
                kind = SegmentKind.FINAL
            case _, "analysis" if self.raw_recipient is None or not self.json:
                kind = SegmentKind.REASONING
            case _ if self.json:
                kind = SegmentKind.TOOL_UNKNOWN
            case _, "commentary":
                kind = SegmentKind.PREAMBLE
            case _:
                kind = SegmentKind.REASONING if self.channel_seen else SegmentKind.FINAL
        # A message to a role is a call if it is JSON, except for an answer.
        addressed = not self.is_call and self.channel != "final"
        return Opened(kind, None, self.raw_recipient if addressed else None, self.json)

    def abandons_call(self, ended: int | None) -> bool:
        """Whether reasoning follows instead of a call, as after ``to=functions.f <|constrain|>``."""
        return (
            self.is_call
            and self.constrain_is_prose
            and ended not in (MESSAGE_ID, CALL_ID)
            and not _is_json(self.body)
        )


def may_begin_header(text: str) -> bool:
    """Tell whether text without special tokens may be the beginning of a header."""
    text = text.lstrip()
    if any(word.startswith(text) for word in HEADER_WORDS):
        return True
    for word in HEADER_WORDS:
        if text.startswith(word):
            return may_begin_header(text[len(word) :].lstrip(": "))
    return "to=".startswith(text) or text.startswith("to=")


def correct_channel(word: str) -> str | None:
    """Return the channel that a word means: in any case, abbreviated to three letters, or misspelt."""
    word = word.lower()
    if word in CHANNELS:
        return word
    for channel in CHANNELS:
        if (len(word) >= 3 and channel.startswith(word)) or _is_single_edit(word, channel):
            return channel
    return None


def _is_single_edit(a: str, b: str) -> bool:
    """Tell whether one insertion, deletion, replacement or swap of neighbours makes ``b`` of ``a``."""
    if abs(len(a) - len(b)) > 1:
        return False
    a, b = sorted((a, b), key=len)
    i = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
    swapped = a[i + 2 :] == b[i + 2 :] and a[i : i + 2] == b[i : i + 2][::-1]
    return a[i:] == b[i + 1 :] or a[i + 1 :] == b[i + 1 :] or (len(a) == len(b) and swapped)


def _is_json(text: str) -> bool:
    return text.lstrip().startswith(("{", "["))


class HeaderReader:
    """Reads the parts of one header. ``_read_…`` take what is left of a part and return the rest."""

    def __init__(self, recipients: Recipients, complete: bool) -> None:
        """Begin a header; ``complete``: it ended with ``<|message|>``."""
        self._recipients, self._complete = recipients, complete
        self._header = MessageHeader()
        self._author: str | None = None
        self._position = 0
        self._is_last_part = False
        self._channel_word = ""

    def read(self, parts: list[HeaderPart], *, prefilled: bool) -> MessageHeader:
        """``prefilled``: the first part continues the prompt's ``<|start|>assistant``."""
        h = self._header
        typed = False
        for part in parts:
            self._position = part.position
            self._is_last_part = part is parts[-1]
            text = part.text
            if part.marker == START_ID:
                rest = self._read_role(text, prefilled)
            elif part.marker == CHANNEL_ID:
                rest = self._read_channel(text)
            else:
                typed = True
                rest = self._read_content_type(text)
            rest = self._read_recipients(rest)
            if not rest.strip():
                continue
            if self._is_last_part and (not self._complete or (h.is_call and _is_json(rest))):
                h.body = rest.lstrip()
            else:
                self._repair("header_text", rest)
        self._classify_author(typed)
        return h

    def _repair(self, rule: str, text: str) -> None:
        self._header.repairs.append(Repair(rule, self._position, text))

    def _may_hold_body(self) -> bool:
        """Tell whether the rest of this part may be the body, and must be read with care."""
        return self._is_last_part and not self._complete

    # --- the role ---------------------------------------------------------------------------------

    def _read_role(self, text: str, prefilled: bool) -> str:
        stripped = text.lstrip()
        if stripped.startswith("assistant"):
            if prefilled:
                self._repair("role_repeated", "assistant")
            stripped = stripped[len("assistant") :]
            prefilled = True
        match = _WORD.match(stripped)
        word = match[1] if match else ""
        if not word or _TO.match(stripped):
            return stripped
        after = stripped[len(word) :]
        if word in CHANNELS:
            self._repair("role_is_channel", word)
            self._set_channel(word, "")
            return after
        if prefilled:
            return stripped
        if word.lower() in OTHER_ROLES:
            self._header.other_turn = True
            return ""
        return self._read_unknown_role(stripped)

    def _read_unknown_role(self, text: str) -> str:
        word = text.split()[0]
        after = text[len(word) :]
        if "." in word.strip(".") or self._recipients.resolve(word) or _TO_ASSISTANT.match(after):
            self._author = word
            return after
        if self._may_hold_body() and not _TO.match(after.lstrip()):
            return text
        self._repair("role_unknown", word)
        return after

    def _classify_author(self, typed: bool) -> None:
        """Decide whether a role that names a tool begins its result, or is a misplaced recipient."""
        h, author = self._header, self._author
        if author is None or h.other_turn:
            return
        exact = author in self._recipients.declared or "." in author
        if h.raw_recipient in NON_TOOL_RECIPIENTS or (
            exact and h.raw_recipient is None and not (typed or h.json)
        ):
            h.other_turn = True
        else:
            # A repair's text is in no segment: as the recipient, the name is in the segment.
            self._repair("role_is_tool", author if h.raw_recipient else "")
            if h.raw_recipient is None:
                h.raw_recipient, h.recipient = author, self._recipients.resolve_recipient(author)

    # --- the channel ------------------------------------------------------------------------------

    def _set_channel(self, channel: str, word: str) -> None:
        """Set the channel; the last valid one counts, and the word of an earlier one is a repair."""
        if self._header.channel is not None:
            self._repair("channel_repeated", self._channel_word)
        self._header.channel, self._channel_word = channel, word

    def _read_channel(self, text: str) -> str:
        stripped = text.lstrip()
        match = _WORD.match(stripped)
        word = match[1] if match else ""
        rest = stripped[len(word) :]
        channel, rest, word = self._split_channel(word, rest)
        if channel is None:
            return self._read_unknown_channel(stripped)
        self._header.channel_seen = True
        self._set_channel(channel, word if word == channel else "")
        if word != channel:
            self._repair("channel_misspelt", word)
        if self._complete and (second := _SECOND_CHANNEL.match(rest)):
            self._set_channel(second[1], second[1])
            rest = rest[second.end() :]
        return self._read_bare_recipient(rest)

    def _split_channel(self, word: str, rest: str) -> tuple[str | None, str, str]:
        """Return the channel, the rest and the channel's word; these may be joined: ``finalHello``."""
        for channel in CHANNELS:
            if word.startswith(channel):
                glued = word[len(channel) :] + rest
                is_clear = not glued[:1].islower() or glued.startswith(("to=", "json", "code"))
                if self._complete or is_clear:
                    return channel, glued, channel
        corrected = correct_channel(word)
        if self._may_hold_body() and word.lower() not in CHANNELS and not _TO.match(rest.lstrip()):
            # In "We come to …" no word is a misspelt channel: all of it is body.
            corrected = None
        return corrected, rest, word

    def _read_unknown_channel(self, text: str) -> str:
        """Read a part that begins with no channel: a content type, a tool's name, or unknown text."""
        word = text.split(maxsplit=1)[0] if text.strip() else ""
        after = text[len(word) :]
        if match := _TYPE.fullmatch(word):
            self._header.json = self._header.json or match[1] == "json"
            return after
        if self._header.raw_recipient is None and word and not _TO.match(text):
            canonical = self._recipients.resolve(word)
            if canonical and (not self._may_hold_body() or _is_json(after)):
                self._repair("channel_is_tool", "")
                self._header.raw_recipient, self._header.recipient = word, canonical
                return after
        self._header.channel_seen = True
        if self._may_hold_body():
            return text
        to = _TO.search(text)
        self._repair("channel_unknown", text[: to.start()] if to else text)
        return text[to.start() :] if to else ""

    def _read_bare_recipient(self, rest: str) -> str:
        """Read a tool's name without ``to=``, as in ``commentary functions.f``."""
        words = rest.split(maxsplit=1)
        if self._header.raw_recipient is not None or self._header.channel == "final" or not words:
            return rest
        # Prose may contain a tool's bare name; there, only a name with its prefix is a recipient.
        if not self._complete and "." not in words[0].strip("."):
            return rest
        canonical = self._recipients.resolve(words[0])
        if canonical is None and self._complete and words[0].startswith("functions."):
            canonical = self._recipients.resolve_recipient(words[0])
        elif canonical is None:
            return rest
        self._repair("recipient_bare", "")
        self._header.raw_recipient, self._header.recipient = words[0], canonical
        return self._strip_content_type(rest.lstrip()[len(words[0]) :])

    # --- content type and recipient -----------------------------------------------------------------

    def _strip_content_type(self, text: str) -> str:
        match = _TYPE.match(text)
        if not match:
            return text
        self._header.json = self._header.json or match[1] == "json"
        return text[match.end() :]

    def _read_content_type(self, text: str) -> str:
        if self._header.channel is None and (match := _CHANNEL_WORD.match(text)):
            self._set_channel(match[1], match[1])
            return text[match.end() :]
        if match := _CONTENT_TYPE.match(text):
            self._header.json = self._header.json or match[1] == "json"
            return text[match.end() :]
        if not _TO.match(text.lstrip()):
            text = self._read_bare_recipient(text)
        self._header.constrain_is_prose = self._is_last_part and bool(text.strip())
        return text

    def _read_recipients(self, text: str) -> str:
        """Read the recipients of a part; the first of the header counts, or the first tool."""
        if not self._complete:
            # The body may follow: only at the beginning is ``to=`` a recipient.
            text = self._strip_content_type(text)
            while match := _TO.match(text.lstrip()):
                text = self._read_recipient(text.lstrip()[match.end() :])
            return text
        before_brace, brace, after_brace = text.partition("{")
        before, *values = _TO.split(before_brace)
        rest = self._strip_content_type(before)
        for value in values[:-1]:
            rest += self._read_recipient(value)
        body = brace + after_brace
        return rest + (self._read_recipient(values[-1] + body) if values else body)

    def _read_recipient(self, value: str) -> str:
        value, cut, more = value.partition("<|")
        words = value.partition("{")[0].split(maxsplit=1)
        if not words:
            return value + cut + more
        name, canonical = self._resolve_name(words[0])
        left = self._strip_content_type(value.lstrip()[len(words[0]) :])
        unknown = canonical is None and name not in NON_TOOL_RECIPIENTS
        if unknown and self._complete and left.strip() and not _is_json(left):
            name = _TYPE_LAST.sub("", value.partition("{")[0].strip())
            left = self._strip_content_type(value.lstrip()[len(name) :])
        first = self._header.raw_recipient
        if first is not None and not (first in NON_TOOL_RECIPIENTS and canonical):
            self._repair("recipient_repeated", name)
        else:
            if first is not None:
                self._repair("recipient_repeated", first)
            canonical = canonical or self._recipients.resolve_recipient(name)
            self._header.raw_recipient, self._header.recipient = name, canonical
        return left + cut + more

    def _resolve_name(self, word: str) -> tuple[str, str | None]:
        """Return a name and what it resolves to; ``json`` joined to its end is the content type."""
        for name in (word.partition("..")[0], word, word.rstrip(".,:;?!")):
            if canonical := self._recipients.resolve(name):
                return name, canonical
        for kind in ("json", "code"):
            name = word.removesuffix(kind)
            if name != word and (canonical := self._recipients.resolve(name)):
                self._header.json = self._header.json or kind == "json"
                return name, canonical
        return word, None
