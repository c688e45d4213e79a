"""Finds the header of a call that a text runs into, as in ``<|channel|>analysis<|message|>I look it up.
to=functions.get json<|message|>{"q":1}<|call|>``.

The end of a text is held back while it may be such a header: a role's and a channel's name, ``to=``, a
recipient, a content type. Only a special id that continues a header makes it one. Behind a header in
words the next one is in words too: ``analysisI think.assistantfinalHello``. In any other message, and
in quotation marks, such words are text.
"""

import re

from agent.formats.harmony.header import CHANNELS
from agent.formats.recipients import Recipients

_TO = r"to(?:=(?P<name>[\w.-]{0,128})(?:\s+(?:json|code)?\s*)?)?"
_CHANNEL = r"(?:commentary|analysis)\s*"
_HEADER_TAIL = re.compile(
    rf"(?<!\s)\s*(?<!\w)(?:(?:assistant\s*)?(?:{_CHANNEL})?{_TO}"
    rf"|(?:assistant\s*)?{_CHANNEL}|assistant\s*(?:comment)?|comment)\Z"
)


def _beginnings(word: str, after: str = "") -> str:
    """A pattern of all beginnings of a word, and of what may come after it."""
    return "(?:".join(word) + (f"(?:{after})?" if after else "") + ")?" * (len(word) - 1)


_WORDS_TAIL = re.compile(
    r"(?<![\"'`])" + _beginnings("assistant", "|".join(map(_beginnings, CHANNELS))) + r"\Z"
)
_JOINED_WORDS = tuple("assistant" + channel for channel in CHANNELS)
_HEADER_IN_WORDS = re.compile(
    r"(?<![\"'`])assistant(?:(?:analysis|commentary|final)(?=[\s\S])|\s*to=(?=\w))"
)
MAX_HEADER_TAIL_TOKENS = 64
"""Tokens after which a text cannot be a header: blanks could follow a name for ever."""
_LAST_WORDS = ("to", "assistant", "comment", "commentary", "analysis")


def may_end_in_header(text: str) -> bool:
    """Tell, fast, whether a text has to be looked at more closely."""
    return "to=" in text or text.rstrip().endswith(_LAST_WORDS)


class RunOnHeader:
    """The end of a text, as far as it may be a header; fed token by token."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        """The texts that are held back, one for each token."""
        self.in_words = False
        """Whether the text's own header is in words."""
        self.is_header = False
        """Whether what is held back is certainly a header."""
        self._released = ""
        """The last character that is not held back."""

    def add(self, text: str) -> str:
        """Take a token's text; return the text that cannot be a header any more."""
        if not (self.texts or self.in_words or may_end_in_header(text)):
            return text
        self.texts.append(text)
        if len(self.texts) > MAX_HEADER_TAIL_TOKENS:
            return self.take()
        tail = "".join(self.texts)
        released, left = "", self._find_header(tail)
        self._released = (self._released + tail[:left])[-1:]
        while self.texts and (left is None or left > 0):
            first = self.texts[0]
            if left is not None and left < len(first):
                self.texts[0] = first[left:]
                return released + first[:left]
            left = None if left is None else left - len(first)
            released += self.texts.pop(0)
        return released

    def _find_header(self, tail: str) -> int | None:
        if self.in_words:
            text, skipped = self._released + tail, len(self._released)
            match = _HEADER_IN_WORDS.search(text, skipped)
            self.is_header = match is not None
            match = match or _WORDS_TAIL.search(text, skipped)
            if match:
                return match.start() - skipped
        match = _HEADER_TAIL.search(tail)
        return match.start() if match else None

    def take(self) -> str:
        text = "".join(self.texts)
        self.texts.clear()
        return text

    def ends_in_words(self) -> bool:
        """Tell whether what is held back is a header in words without its text."""
        return self.in_words and "".join(self.texts).endswith(_JOINED_WORDS)

    def addresses_tool(self, recipients: Recipients) -> bool:
        """Tell whether what is held back is a header up to a tool's name."""
        match = _HEADER_TAIL.search("".join(self.texts)) if self.texts else None
        name = (match and match["name"]) or ""
        return "." in name or bool(name and recipients.resolve_recipient(name))
