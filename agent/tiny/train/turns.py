"""What a turn is: the thoughts, the calls with their results, and the one right answer.

For one situation there is one right text, so that nothing is left to chance at any temperature:
all variety is on the side of the user and of the tools.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from agent.tiny import vocabulary
from agent.tiny.train import results
from agent.tiny.train.tools import DialogueTool

Encode = Callable[[str], tuple[int, ...]]
Clean = Callable[[tuple[int, ...]], tuple[int, ...]]
PLAIN_EXPRESSION = re.compile(r"[-+*/%().\d ]+")
"""Code that an answer repeats: numbers and operators."""
MAX_QUOTED_LINES = 8
"""So many lines of a result are quoted; an ellipsis stands for the others."""
MAX_QUOTED_TOKENS = 150
"""A file of more tokens or lines is not quoted at all, nor is a folder or what a search found."""
MAX_LISTED_NAMES = 12
"""A folder of more is not listed in the answer."""
TOO_LONG = "too long for me to repeat here"

FITS = "A special tool fits:"
"""What is thought of a function that is none of the fixed ones; its name follows."""
THOUGHTS = {
    "python": "This is arithmetic. I run python.",
    "read": "A file is to be read. I call {0}.",
    "list": "A folder is to be listed. I call {0}.",
    "search": "A text is to be found. I call {0}.",
    "weather": "The weather is asked. I call {0}.",
    "time": "The time is asked. I call {0}.",
    "echo": "A message is to be echoed. I call {0}.",
    "sum": "A sum is asked. I call {0}.",
    "note": "A note is to be added. I call {0}.",
    "define": "A word is to be defined. I call {0}.",
    "unseen": f"{FITS} {{0}}.",
}
"""By family; a new tool's begins with its name, which stands behind the description in the prompt:
attention finds the whole description there, and at the description's own first word nothing of it."""
NAMED = "A named tool is to be called. I call {0}."
AGAIN = "The same again. I call {0}."


@dataclass
class DialogueCall:
    """A call: `arguments` are (name, kind, token ids of the value); python has `code` instead."""

    tool: DialogueTool | None
    values: list[str]
    result: str
    arguments: list[tuple[str, str, tuple[int, ...]]] = field(default_factory=list)
    code: str = ""
    code_parts: tuple[tuple[tuple[int, ...], bool], ...] = ()
    """The code's tokens, in parts, each with whether it is a copy; empty: `code`, all of it a copy."""

    @property
    def family(self) -> str:
        """The tool's family; python is its own."""
        return self.tool.family if self.tool else "python"

    def result_ids(self, encode: Encode) -> tuple[int, ...]:
        """Tokens of the result."""
        return encode(self.result)

    def code_tokens(self, encode: Encode) -> tuple[tuple[tuple[int, ...], bool], ...]:
        """The code's tokens, in parts, each with whether it is a copy."""
        return self.code_parts or ((encode(self.code), True),)

    def is_too_long(self, encode: Encode) -> bool:
        """Whether the result is not quoted: of a long one the model soon loses its place."""
        if self.family not in ("read", "list", "search"):
            return False
        lines = self.result.rstrip("\n").count("\n") + 1
        most = MAX_LISTED_NAMES if self.family == "list" else MAX_QUOTED_LINES
        return lines > most or len(encode(self.result)) > MAX_QUOTED_TOKENS

    def piece(self, encode: Encode) -> tuple[tuple[int, ...], ...]:
        """The part of the answer that tells this call's result; its parts are copies or words."""
        quoted = quote(encode(self.result), encode)
        subject = self.arguments[0][2] if self.arguments else ()
        if results.is_error(self.result):
            return (encode("That did not work. The tool says:\n"), quoted)
        match self.family:
            case "python" if not PLAIN_EXPRESSION.fullmatch(self.code):
                return (encode("The answer is "), encode(self.result), encode("."))
            case "python":
                code = tuple(token for part, _ in self.code_tokens(encode) for token in part)
                return (code, encode(" = "), encode(self.result), encode("."))
            case "read" if self.is_too_long(encode):
                return (encode("I have read "), subject, encode(f"; it is {TOO_LONG}."))
            case "list" if self.is_too_long(encode):
                place = subject or encode("the folder")
                return (encode("I have listed "), place, encode(f"; it is {TOO_LONG}."))
            case "search" if self.is_too_long(encode):
                return (encode(f"I have found it; it is {TOO_LONG}."),)
            case "read":
                return (subject, encode(" says:\n"), quoted)
            case "list":
                if not subject:
                    return (encode("The folder contains:\n"), quoted)
                return (subject, encode(" contains:\n"), quoted)
            case "search":
                none = self.result == "no matches"
                return (encode("Nothing was found:\n" if none else "This was found:\n"), quoted)
            case "weather":
                return (subject, encode(":\n"), quoted)
            case "time":
                moment = results.moment(self.result)
                return (subject, encode(":\n"), encode(moment) if moment else quoted)
            case _:
                return (encode("The tool says:\n"), quoted)


def quote(ids: tuple[int, ...], encode: Encode) -> tuple[int, ...]:
    """The first lines of a result, token for token."""
    lines = 0
    for index, token in enumerate(ids):
        if token < vocabulary.ORDINARY_TOKENS and b"\n" in vocabulary.tokens()[token]:
            lines += 1
            if lines == MAX_QUOTED_LINES and index + 1 < len(ids):
                return (*ids[: index + 1], *encode("…"))
    return ids


@dataclass
class DialogueTurn:
    """A prompt, the thoughts and calls, and the answer."""

    user: str
    thoughts: list[str]
    calls: list[DialogueCall] = field(default_factory=list)
    reply: str = ""
    kind: str = ""
    reported_calls: int | None = None
    """How many of the last calls the answer tells; None: all."""

    def answer(self, encode: Encode) -> list[tuple[tuple[int, ...], ...]]:
        """The answer's parts, one per call."""
        if not self.calls:
            return [(encode(self.reply),)]
        reported = self.calls if self.reported_calls is None else self.calls[-self.reported_calls :]
        return [call.piece(encode) for call in reported]


@dataclass
class DialogueRequest:
    """One thing asked: its sentence and the call that answers it."""

    text: str
    call: DialogueCall
    named: bool = False
    """Whether the sentence says a new tool's name."""
    own_thought: str = ""
    """The thought, if it is not the family's."""

    def thought(self) -> str:
        """The thought that leads to the call."""
        if self.own_thought:
            return self.own_thought
        tool = self.call.tool
        form = NAMED if self.named else THOUGHTS[self.call.family]
        return form.format(tool.name) if tool else form
