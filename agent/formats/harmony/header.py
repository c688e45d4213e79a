"""What a message's header says, however badly it is written.

A header is a few parts, each begun by its mark: the role after ``<|start|>``, channels after
``<|channel|>``, a content type after ``<|constrain|>``. Each part is read from its left; what is not
understood is kept as a repair's text, or, when no ``<|message|>`` follows, is the message's body.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from agent.formats.harmony.token_ids import CALL, CHANNEL, MESSAGE, START
from agent.formats.protocol import Kind, Opened, Repair
from agent.formats.recipients import PERSON, Recipients

CHANNELS = ("analysis", "commentary", "final")
TURNS = frozenset({"user", "system", "developer", "tool"})
"""Roles whose messages are not the model's to write."""
LATE_ROLES = ("assistant", *CHANNELS, *sorted(TURNS))

_TO = re.compile(r"to\s?=\s*")
_TO_PERSON = re.compile(r"\s*to\s?=\s*assistant\b")
_TYPE = re.compile(r"\s*\b(json|code)\b\s*")
_CHANNEL_WORD = re.compile(r"\s*(analysis|commentary|final)\b")
_CONTENT_TYPE = re.compile(r"\s*(json|code|response|text)(?![a-z])\s*")
_TYPE_LAST = re.compile(r"\s+(json|code)\s*$")
_WORD = re.compile(r"\s*([A-Za-z]+)")
_ANY_CHANNEL = re.compile("|".join(CHANNELS))
_SECOND_CHANNEL = re.compile(r"\s*[^\w\s{]*\s*(analysis|commentary|final)\b")


@dataclass(slots=True)
class Part:
    """A mark and the ordinary text after it; ``texts`` holds one text per token."""

    mark: int
    at: int
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)


@dataclass(slots=True)
class Heading:
    """A header, understood."""

    channel: str | None = None
    channel_seen: bool = False
    raw: str | None = None
    """The recipient as it was written."""
    canonical: str | None = None
    json: bool = False
    prose: bool = False
    """The text after ``<|constrain|>`` is no content type."""
    body: str = ""
    """Text of the last part that is no header: arguments that leaked into it, or a body whose
    ``<|message|>`` is missing."""
    turn: bool = False
    """Somebody else's message begins."""
    repairs: list[Repair] = field(default_factory=list)

    @property
    def called(self) -> bool:
        return self.raw is not None and self.raw not in PERSON

    def is_message(self, ended: int | None) -> bool:
        """Whether a header without ``<|message|>`` holds one: words, or a call without arguments."""
        words = _ANY_CHANNEL.sub("", self.body)
        return any(c.isalnum() for c in words) or (self.called and ended == CALL)

    def opened(self, ended: int | None) -> Opened:
        """The segment that this header opens; ``ended`` by ``<|message|>``, or a body without one."""
        match self.called, self.channel:
            case True, _ if self.thought(ended):
                kind = Kind.REASONING
            case True, _:
                kind = Kind.TOOL if self.canonical else Kind.TOOL_UNKNOWN
                return Opened(kind, self.canonical, self.raw, self.json)
            case _, "analysis":
                kind = Kind.REASONING
            case _, "final":
                kind = Kind.FINAL
            case _, "commentary":
                lost = self.json and self.raw is None
                kind = Kind.TOOL_UNKNOWN if lost else Kind.PREAMBLE
            case _ if self.json and self.raw is None:
                kind = Kind.TOOL_UNKNOWN
            case _:
                kind = Kind.REASONING if self.channel_seen else Kind.FINAL
        return Opened(kind, json=self.json)

    def thought(self, ended: int | None) -> bool:
        """Seen in the wild: ``to=functions.f <|constrain|>`` and then thoughts instead of a call."""
        return (
            self.called and self.prose and ended not in (MESSAGE, CALL) and not _is_json(self.body)
        )


def read(
    parts: list[Part], recipients: Recipients, *, prefilled: bool, ended: int | None
) -> Heading:
    """Read a header that ``ended`` (by that id; None: cut off or overlong) closed.

    ``prefilled``: its first part continues ``<|start|>assistant``.
    """
    return _Reader(recipients, ended == MESSAGE).read(parts, prefilled)


def could_begin(text: str) -> bool:
    """Whether text without any mark may still become a header (role, channel, recipient)."""
    text = text.lstrip()
    if any(word.startswith(text) for word in LATE_ROLES):
        return True
    for word in LATE_ROLES:
        if text.startswith(word):
            rest = text[len(word) :].lstrip(": ")
            return not rest or "to=".startswith(rest) or rest.startswith("to=") or could_begin(rest)
    return "to=".startswith(text) or text.startswith("to=")


def spell(word: str) -> str | None:
    """The channel that a word means: ignoring case, a prefix of three letters, or one edit away."""
    word = word.lower()
    if word in CHANNELS:
        return word
    for channel in CHANNELS:
        if (len(word) >= 3 and channel.startswith(word)) or _one_edit(word, channel):
            return channel
    return None


def _one_edit(a: str, b: str) -> bool:
    if abs(len(a) - len(b)) > 1:
        return False
    a, b = sorted((a, b), key=len)
    i = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
    swapped = a[i + 2 :] == b[i + 2 :] and a[i : i + 2] == b[i : i + 2][::-1]
    return a[i:] == b[i + 1 :] or a[i + 1 :] == b[i + 1 :] or (len(a) == len(b) and swapped)


def _is_json(text: str) -> bool:
    return text.lstrip().startswith(("{", "["))


class _Reader:
    """Reads the parts from left to right into a heading."""

    def __init__(self, recipients: Recipients, whole: bool) -> None:
        self._recipients = recipients
        self._whole = whole
        self._h = Heading()
        self._author: str | None = None
        self._at = 0
        self._last = False
        self._word = ""

    def read(self, parts: list[Part], prefilled: bool) -> Heading:
        h = self._h
        typed = False
        for part in parts:
            self._at = part.at
            self._last = part is parts[-1]
            text = part.text
            if part.mark == START:
                rest = self._role(text, prefilled)
            elif part.mark == CHANNEL:
                rest = self._channel(text)
            else:
                typed = True
                rest = self._content_type(text)
            rest = self._to(rest)
            if not rest.strip():
                continue
            if self._last and (not self._whole or (h.called and _is_json(rest))):
                h.body = rest.lstrip()
            else:
                self._repair("header_text", rest)
        self._judge_author(typed)
        return h

    def _repair(self, rule: str, text: str) -> None:
        self._h.repairs.append(Repair(rule, self._at, text))

    def _body_begins(self) -> bool:
        """Whether text of this part may be the body, and so must not be taken for a header's."""
        return self._last and not self._whole

    # --- the role ---------------------------------------------------------------------------------

    def _role(self, text: str, prefilled: bool) -> str:
        stripped = text.lstrip()
        if stripped.startswith("assistant"):
            if prefilled:
                self._repair("role_repeated", "assistant")
            stripped = stripped[len("assistant") :]
            prefilled = True
        found = _WORD.match(stripped)
        word = found[1] if found else ""
        if not word or _TO.match(stripped):
            return stripped
        after = stripped[len(word) :]
        if word in CHANNELS:
            self._repair("role_is_channel", word)
            self._set_channel(word, "")
            return after
        if prefilled:
            return stripped
        if word.lower() in TURNS:
            self._h.turn = True
            return ""
        return self._unknown_role(stripped)

    def _unknown_role(self, text: str) -> str:
        word = text.split()[0]
        after = text[len(word) :]
        if "." in word.strip(".") or self._recipients.resolve(word) or _TO_PERSON.match(after):
            self._author = word
            return after
        if self._body_begins() and not _TO.match(after.lstrip()):
            return text
        self._repair("role_unknown", word)
        return after

    def _judge_author(self, typed: bool) -> None:
        """A role that names a tool: its result, which only the tool may write, or a call of it."""
        h, author = self._h, self._author
        if author is None or h.turn:
            return
        exact = author in self._recipients.declared or "." in author
        if h.raw in PERSON or (exact and h.raw is None and not (typed or h.json)):
            h.turn = True
        else:
            # A repair's text stands nowhere else: as the recipient, the name is in the segment.
            h.repairs.append(Repair("role_is_tool", self._at, author if h.raw else ""))
            if h.raw is None:
                h.raw, h.canonical = author, self._recipients.known(author)

    # --- the channel ------------------------------------------------------------------------------

    def _set_channel(self, channel: str, word: str) -> None:
        """The last valid channel counts; the ``word`` of an earlier one is then in no segment."""
        if self._h.channel is not None:
            self._repair("channel_repeated", self._word)
        self._h.channel, self._word = channel, word

    def _channel(self, text: str) -> str:
        stripped = text.lstrip()
        found = _WORD.match(stripped)
        word = found[1] if found else ""
        rest = stripped[len(word) :]
        channel, rest, word = self._split(word, rest)
        if channel is None:
            return self._no_channel(stripped)
        self._h.channel_seen = True
        self._set_channel(channel, word if word == channel else "")
        if word != channel:
            self._repair("channel_misspelt", word)
        if self._whole and (second := _SECOND_CHANNEL.match(rest)):
            self._set_channel(second[1], second[1])
            rest = rest[second.end() :]
        return self._bare_recipient(rest)

    def _split(self, word: str, rest: str) -> tuple[str | None, str, str]:
        """Channel, what follows it, and its word; they may be glued (``finalHello``)."""
        for channel in CHANNELS:
            if word.startswith(channel):
                glued = word[len(channel) :] + rest
                if (
                    self._whole
                    or not glued[:1].islower()
                    or glued.startswith(("to=", "json", "code"))
                ):
                    return channel, glued, channel
        spelt = spell(word)
        if self._body_begins() and word.lower() not in CHANNELS and not _TO.match(rest.lstrip()):
            # In "We come to …" no word is a misspelt channel: it is all body.
            spelt = None
        return spelt, rest, word

    def _no_channel(self, text: str) -> str:
        """Not a channel: a tool's name, a content type, or nothing that is known."""
        word = text.split(maxsplit=1)[0] if text.strip() else ""
        after = text[len(word) :]
        if found := _TYPE.fullmatch(word):
            self._h.json = self._h.json or found[1] == "json"
            return after
        if self._h.raw is None and word and not _TO.match(text):
            canonical = self._recipients.resolve(word)
            if canonical and (not self._body_begins() or _is_json(after)):
                self._repair("channel_is_tool", "")
                self._h.raw, self._h.canonical = word, canonical
                return after
        self._h.channel_seen = True
        if self._body_begins():
            return text
        to = _TO.search(text)
        self._repair("channel_unknown", text[: to.start()] if to else text)
        return text[to.start() :] if to else ""

    def _bare_recipient(self, rest: str) -> str:
        """``commentary functions.f``: a tool's name without its ``to=``."""
        words = rest.split(maxsplit=1)
        if self._h.raw is not None or self._h.channel == "final" or not words:
            return rest
        # Prose may hold a tool's bare name; only one with its prefix is meant as a recipient there.
        if not self._whole and "." not in words[0].strip("."):
            return rest
        canonical = self._recipients.resolve(words[0])
        if canonical is None:
            return rest
        self._repair("recipient_bare", "")
        self._h.raw, self._h.canonical = words[0], canonical
        return self._type(rest.lstrip()[len(words[0]) :])

    # --- content type and recipient -----------------------------------------------------------------

    def _type(self, text: str) -> str:
        """Without the content type that it begins with."""
        found = _TYPE.match(text)
        if not found:
            return text
        self._h.json = self._h.json or found[1] == "json"
        return text[found.end() :]

    def _content_type(self, text: str) -> str:
        if self._h.channel is None and (found := _CHANNEL_WORD.match(text)):
            self._set_channel(found[1], found[1])
            return text[found.end() :]
        if found := _CONTENT_TYPE.match(text):
            self._h.json = self._h.json or found[1] == "json"
            return text[found.end() :]
        self._h.prose = self._last and bool(text.strip())
        return text

    def _to(self, text: str) -> str:
        """Takes the recipients out of a part; the first one counts."""
        if not self._whole:
            # The body may follow, so a recipient stands at once or nowhere.
            text = self._type(text)
            while found := _TO.match(text.lstrip()):
                text = self._recipient(text.lstrip()[found.end() :])
            return text
        head, brace, leaked = text.partition("{")
        before, *values = _TO.split(head)
        rest = self._type(before)
        for value in values[:-1]:
            rest += self._recipient(value)
        return rest + (self._recipient(values[-1] + brace + leaked) if values else brace + leaked)

    def _recipient(self, value: str) -> str:
        """Takes the name that ``to=`` is followed by; what is left of the text."""
        value, cut, more = value.partition("<|")
        words = value.partition("{")[0].split(maxsplit=1)
        if not words:
            return value + cut + more
        name, canonical = self._name(words[0])
        rest = value.lstrip()[len(words[0]) :]
        left = self._type(rest)
        unknown = canonical is None and name not in PERSON
        if unknown and self._whole and left.strip() and not _is_json(left):
            name = _TYPE_LAST.sub("", value.partition("{")[0].strip())
            left = self._type(value.lstrip()[len(name) :])
        if self._h.raw is not None:
            self._repair("recipient_repeated", name)
        else:
            self._h.raw, self._h.canonical = name, canonical or self._recipients.known(name)
        return left + cut + more

    def _name(self, word: str) -> tuple[str, str | None]:
        """A name and what it resolves to; ``json`` glued to its end is the content type."""
        for name in (word, word.rstrip(".,:;?!")):
            if canonical := self._recipients.resolve(name):
                return name, canonical
        for kind in ("json", "code"):
            name = word.removesuffix(kind)
            if name != word and (canonical := self._recipients.resolve(name)):
                self._h.json = self._h.json or kind == "json"
                return name, canonical
        return word, None
