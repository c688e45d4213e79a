"""What the prompt could go on with: a command, what it takes, a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tui.commands.registry import Choice, Commands
from tui.util.attachments import mention
from tui.util.file_index import Files

MOST = 50
"""So many choices are offered."""
_NAME = re.compile(r"/(?P<written>\S*)\Z")
_ARGUMENT = re.compile(r"/(?P<name>\S+)\s+(?P<written>[^\n]*)\Z")
_FILE = re.compile(r'(?<!\S)@(?P<written>"[^"\n]*|[^\s"]*)\Z')


@dataclass(frozen=True, slots=True)
class Offer:
    """Choices for what is written from ``start`` up to the cursor."""

    start: int
    choices: Sequence[Choice]
    sends: frozenset[str] = frozenset()
    """The choices with which the prompt is whole, so that Enter sends it."""


class Completion:
    """For one prompt; ``arguments`` gives what a command takes."""

    def __init__(
        self, commands: Commands, files: Files, arguments: Callable[[str, str], Iterable[Choice]]
    ) -> None:
        self._commands, self.files, self._arguments = commands, files, arguments

    @staticmethod
    def wants_files(before: str) -> bool:
        """A file is being named at the end of this text."""
        return _FILE.search(before) is not None and not before.startswith("/")

    def offer(self, before: str) -> Offer | None:
        """``before``: the text up to the cursor."""
        if found := _NAME.match(before):
            return self._names(found["written"])
        if found := _ARGUMENT.match(before):
            written = found["written"]
            choices = _matching(self._arguments(found["name"], written), written)
            sends = frozenset({written} & {choice.text for choice in choices})
            return Offer(found.start("written"), choices, sends) if choices else None
        if found := _FILE.search(before):
            written = found["written"].lstrip('"')
            choices = [_file(path) for path in self.files.best(written, MOST)]
            return Offer(found.start(), choices) if choices else None
        return None

    def _names(self, written: str) -> Offer | None:
        commands = self._commands.all()
        matching = [command for command in commands if command.name.startswith(written)]
        matching += [c for c in commands if c not in matching and written in c.name]
        choices = [
            Choice(f"/{c.name}{' ' if c.arguments else ''}", f"{c.arguments}  {c.summary}".strip())
            for c in matching
        ]
        sends = {f"/{c.name}" for c in matching if not c.arguments}
        sends |= {choice.text for choice in choices if choice.text == f"/{written} "}
        return Offer(0, choices, frozenset(sends)) if choices else None


def _matching(choices: Iterable[Choice], written: str) -> list[Choice]:
    """Those that begin with it, then those that have it in them."""
    known, wanted = list(choices), written.lower()
    begin = [choice for choice in known if choice.text.lower().startswith(wanted)]
    return (begin + [c for c in known if c not in begin and wanted in c.text.lower()])[:MOST]


def _file(path: str) -> Choice:
    return Choice(mention(path) + ("" if path.endswith("/") else " "))
