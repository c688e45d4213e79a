"""Finds the header of a call that a text runs into, where the model left the markup between them out.

``<|channel|>analysis<|message|>I look it up. to=functions.get json<|message|>{"q":1}<|call|>`` is
reasoning and a call. So the end of a text is held back while it may be such a header: a role's and a
channel's name, ``to=``, a recipient, a content type. What follows decides: only a special id that goes
on with a header makes it one.
"""

from __future__ import annotations

import re

from agent.formats.recipients import Recipients

_TO = r"to(?:=(?P<name>[\w.-]{0,128})(?:\s+(?:json|code)?\s*)?)?"
_CHANNEL = r"(?:commentary|analysis)\s*"
_HEADER_TAIL = re.compile(
    rf"(?<!\s)\s*(?<!\w)(?:(?:assistant\s*)?(?:{_CHANNEL})?{_TO}"
    rf"|(?:assistant\s*)?{_CHANNEL}|assistant\s*(?:comment)?|comment)\Z"
)
MAX_HEADER_TAIL_TOKENS = 64
"""Tokens after which a text is no header, however it goes on: blanks may follow a name for ever."""
_LAST_WORDS = ("to", "assistant", "comment", "commentary", "analysis")


def may_end_in_header(text: str) -> bool:
    """Tell, fast, whether a text has to be looked at more closely."""
    return "to=" in text or text.rstrip().endswith(_LAST_WORDS)


class RunOnHeader:
    """The end of a text, as far as it may be a header; fed token by token."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        """What is held back, one text for each token."""

    def add(self, text: str) -> str:
        """Take a token's text; return the text that is certainly no header any more."""
        if not (self.texts or may_end_in_header(text)):
            return text
        self.texts.append(text)
        if len(self.texts) > MAX_HEADER_TAIL_TOKENS:
            return self.take()
        match = _HEADER_TAIL.search("".join(self.texts))
        released, left = "", match.start() if match else None
        while self.texts and (left is None or left > 0):
            first = self.texts[0]
            if left is not None and left < len(first):
                self.texts[0] = first[left:]
                return released + first[:left]
            left = None if left is None else left - len(first)
            released += self.texts.pop(0)
        return released

    def take(self) -> str:
        """Return what is held back and hold nothing."""
        text = "".join(self.texts)
        self.texts.clear()
        return text

    def addresses_tool(self, recipients: Recipients) -> bool:
        """Tell whether what is held back is a header up to a tool's name."""
        match = _HEADER_TAIL.search("".join(self.texts)) if self.texts else None
        name = (match and match["name"]) or ""
        return "." in name or bool(name and recipients.resolve_recipient(name))
