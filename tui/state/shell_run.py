"""A shell command of the person's (``!command``) and what it has written, as widgets show it."""

from typing import Literal, Self

from agent.conversation.attachments import Attachment, format_attachment
from agent.util.sanitize import sanitize

MAX_HEAD_BYTES, MAX_TAIL_BYTES = 12_000, 12_000
"""Bytes of the beginning and the end of longer output that the model gets."""


class ShellRun:
    """One run of a command; its output is bounded while it comes."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.outcome = ""
        """Its end, as ``exit code 0``; empty while it runs."""
        self.delivery: Literal["waiting", "sent", "removed"] = "waiting"
        """Whether its output goes with the next prompt, went with one, or was left out."""
        self._head, self._tail = b"", b""
        self._dropped = 0

    @classmethod
    def from_attachment(cls, attachment: Attachment) -> Self:
        run = cls(attachment.source)
        text, _, outcome = attachment.text.rpartition("\n")
        run.add(text.encode())
        run.outcome = outcome.strip("[]")
        run.delivery = "sent"
        return run

    @property
    def running(self) -> bool:
        return not self.outcome

    def add(self, data: bytes) -> None:
        room = MAX_HEAD_BYTES - len(self._head)
        self._head += data[:room]
        tail = self._tail + data[room:] if room < len(data) else self._tail
        self._tail = tail[-MAX_TAIL_BYTES:]
        self._dropped += len(tail) - len(self._tail)

    @property
    def text(self) -> str:
        """The output without what would steer a terminal; of overwritten lines, the last version."""
        note = f"\n[... {self._dropped:,} bytes dropped ...]\n" if self._dropped else ""
        head, tail = (part.decode("utf-8", "replace") for part in (self._head, self._tail))
        lines = f"{head}{note}{tail}".rstrip("\n").split("\n")
        return "\n".join(sanitize(line.rstrip("\r").rpartition("\r")[2]) for line in lines)

    @property
    def attachment(self) -> str:
        text = "\n".join(filter(None, (self.text, f"[{self.outcome}]")))
        return format_attachment(self.command, text, "command")
