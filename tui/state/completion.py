"""Completes the prompt: commands, their arguments, files and resources behind an ``@``."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tui.state.command import Command, Commands, CompletionItem
from tui.util.attachments import format_mention
from tui.util.file_index import FileIndex, folder_of

MAX_CHOICES = 50
_COMMAND = re.compile(r"/(?P<typed>\S*)\Z")
_ARGUMENT = re.compile(r"/(?P<name>\S+)\s+(?P<typed>[^\n]*)\Z")
_FILE = re.compile(r'(?<!\S)@(?P<typed>"[^"\n]*|[^\s"]*)\Z')


@dataclass(frozen=True, slots=True)
class Suggestions:
    """Choices that can replace what is typed from character ``start`` up to the cursor."""

    start: int
    choices: Sequence[CompletionItem]
    submits: frozenset[str] = frozenset()
    """Texts of the choices that complete the prompt, so that Enter sends it."""


class PromptCompleter:
    """Suggests completions of a prompt: from memory, and from values that were read before."""

    def __init__(self, commands: Commands, files: FileIndex) -> None:
        self._commands, self._files = commands, files
        self._read_arguments: dict[str, Sequence[CompletionItem]] = {}
        """Last results of commands' ``read_choices``, by name."""
        self._source = ""  # the source that is being read: it is read once, however long it takes

    def begin_reading(self, text_before: str) -> Callable[[], None] | None:
        """A function that reads completions, and may block; None: they are known or being read."""
        source = ""
        read: Callable[[], None] | None = None
        if match := _ARGUMENT.match(text_before):
            command = self._commands.find(match["name"])
            if command and command.read_choices:
                source, read = command.name, partial(self._read_choices, command)
        elif match := _FILE.search(text_before):
            typed = match["typed"].lstrip('"')
            if self._files.is_stale(typed):
                source, read = f"@{folder_of(typed)}", partial(self._files.refresh, typed)
        before, self._source = self._source, source
        return read if source != before else None

    def _read_choices(self, command: Command) -> None:
        assert command.read_choices is not None
        self._read_arguments[command.name] = list(command.read_choices())

    def suggest(self, text_before: str) -> Suggestions | None:
        """Suggest completions of the text before the cursor; None where nothing fits."""
        if match := _COMMAND.match(text_before):
            return self._command_suggestions(match["typed"])
        if match := _ARGUMENT.match(text_before):
            typed = match["typed"]
            choices = _matching_choices(self._arguments(match["name"], typed), typed)
            submits = frozenset({typed} & {choice.text for choice in choices})
            return Suggestions(match.start("typed"), choices, submits) if choices else None
        if match := _FILE.search(text_before):
            typed = match["typed"].lstrip('"')
            choices = list(self._resources(typed))
            found = map(format_mention, self._files.search(typed, MAX_CHOICES))
            for mention in filter(None, found):
                blank = "" if mention.rstrip('"').endswith("/") else " "
                choices.append(CompletionItem(mention + blank))
            return Suggestions(match.start(), choices) if choices else None
        return None

    def _resources(self, typed: str) -> Iterator[CompletionItem]:
        """Yield the resources of a server, or servers that have some, that a mention may mean."""
        server, colon, query = typed.partition(":")
        if not colon:
            known = self._commands.resources
            yield from (
                CompletionItem(f"@{name}:") for name in known if typed and name.startswith(typed)
            )
            return
        for each in self._commands.resources.get(server, ())[:MAX_CHOICES]:
            mention = format_mention(f"{server}:{each.uri}")
            if mention and query.lower() in f"{each.uri}\n{each.name}".lower():
                size = "" if each.size is None else f"{each.size:,} bytes"
                about = "  ".join(filter(None, (each.name, size, each.description)))
                yield CompletionItem(mention + ("" if each.template else " "), about)

    def _arguments(self, name: str, typed: str) -> Iterable[CompletionItem]:
        if (command := self._commands.find(name)) is None:
            return
        before = ""
        if command.choices:
            yield from command.choices(typed)
            before = typed[: typed.rfind(" ") + 1]
        for choice in self._read_arguments.get(name, ()):
            yield CompletionItem(before + choice.text, choice.description)

    def _command_suggestions(self, typed: str) -> Suggestions | None:
        commands = self._commands.all()
        matching = [command for command in commands if command.name.startswith(typed)]
        matching += [c for c in commands if c not in matching and typed in c.name]
        choices = []
        for c in matching:
            text = f"/{c.name} " if c.arguments else f"/{c.name}"
            choices.append(CompletionItem(text, f"{c.arguments}  {c.summary}".strip()))
        submits = {f"/{c.name}" for c in matching if not c.arguments}
        submits |= {choice.text for choice in choices if choice.text == f"/{typed} "}
        return Suggestions(0, choices, frozenset(submits)) if choices else None


def _matching_choices(choices: Iterable[CompletionItem], typed: str) -> list[CompletionItem]:
    known, query = list(choices), typed.lower()
    begin = [choice for choice in known if choice.text.lower().startswith(query)]
    return (begin + [c for c in known if c not in begin and query in c.text.lower()])[:MAX_CHOICES]
