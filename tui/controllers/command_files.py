"""Slash commands of files: ``commands/NAME.md`` in the config folder, ``.agent/commands`` in a project,
with ``$ARGUMENTS`` and ``$1`` to ``$9`` for what follows the command, as in Claude Code and Codex. The
person's files are their words. A project's are attached as data, and only the person starts them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agent.config.paths import Paths
from tui.controllers.chat import ChatController
from tui.state.command import Command, Commands

PROJECT_FOLDER = Path(".agent", "commands")
MAX_FILE_BYTES = 64 * 1024
MAX_FILES = 200
MAX_SUMMARY_CHARS = 100
_NAME = re.compile(r"[\w.-]+")
_FRONT_MATTER = re.compile(
    r"\A---[ \t]*\n(?P<fields>.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE
)
_PLACEHOLDER = re.compile(r"\$(?:(?P<all>ARGUMENTS\b)|(?P<number>[1-9])(?!\d))")


@dataclass(frozen=True, slots=True)
class CommandFile:
    """A prompt that a file holds."""

    name: str
    source: str
    """The file: a project's from the repository's root, the person's own in full."""
    text: str
    """The prompt, without front matter."""
    description: str
    argument_hint: str
    own: bool

    def expand(self, argument: str) -> str:
        """Return the prompt with the argument in it; behind it where the text has no room for one."""
        try:
            words = shlex.split(argument)
        except ValueError:  # a quote that does not end
            words = argument.split()

        def value(match: re.Match[str]) -> str:
            if match["all"]:
                return argument
            number = int(match["number"])
            return words[number - 1] if number <= len(words) else ""

        text, places = _PLACEHOLDER.subn(value, self.text)
        return text if places or not argument else f"{text}\n\n{argument}"


def read_command_files(paths: Paths, root: Path) -> tuple[list[CommandFile], list[str]]:
    """The person's files, then the project's, nearest first, and why others are unusable; blocks."""
    from agent.config.text_files import UnusableFileError, project_folders, read_clean_text

    top, *_ = folders = project_folders(root)
    sources = [(paths.config / "commands", True)]
    sources += [(folder / PROJECT_FOLDER, False) for folder in reversed(folders)]
    files: list[CommandFile] = []
    problems: list[str] = []
    for folder, own in sources:
        for path in _markdown_files(folder):
            try:
                if not _NAME.fullmatch(path.stem):
                    raise UnusableFileError("may have only letters, digits, . _ - in its name")
                text, cut = read_clean_text(path, MAX_FILE_BYTES, inside=None if own else top)
                if cut or not text.strip():
                    too_long = f"is longer than {MAX_FILE_BYTES // 1024} KiB"
                    raise UnusableFileError(too_long if cut else "is empty")
            except (FileNotFoundError, UnusableFileError) as error:
                reason = error if isinstance(error, UnusableFileError) else "leads nowhere"
                problems.append(f"{path} is left out: it {reason}.")
                continue
            source = str(path if own else path.relative_to(top))
            files.append(_parse(path.stem, source, text, own=own))
    return files, problems


def _markdown_files(folder: Path) -> Iterable[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".md")[:MAX_FILES]
    except OSError:
        return ()


def _parse(name: str, source: str, text: str, *, own: bool) -> CommandFile:
    """Take the front matter's ``description`` and ``argument-hint`` off; both may be missing."""
    fields: dict[str, str] = {}
    if match := _FRONT_MATTER.match(text):
        text = text[match.end() :]
        for line in match["fields"].splitlines():
            key, _, value = line.partition(":")
            fields[key.strip()] = value.strip().strip("\"'")
    text = text.strip()
    first_line = text.partition("\n")[0].lstrip("# ")
    hint = "[ARGUMENTS]" if _PLACEHOLDER.search(text) else ""
    return CommandFile(
        name,
        source,
        text,
        (fields.get("description") or first_line)[:MAX_SUMMARY_CHARS],
        fields.get("argument-hint", hint)[:MAX_SUMMARY_CHARS],
        own,
    )


def add_custom_commands(
    commands: Commands, chat: ChatController, files: Iterable[CommandFile]
) -> Iterator[str]:
    """Add a command for each file; yield a sentence for each whose name is taken."""
    added: dict[str, Command] = {}
    for file in files:
        if file.name in added or commands.find(file.name) is not None:
            owner = "another file's" if file.name in added else "built in"
            yield f"{file.source} is left out: /{file.name} is {owner}; rename the file."
            continue
        origin = "your own" if file.own else "this project's"
        summary = f"{file.description} ({origin})"
        run = partial(_send, chat, file)
        added[file.name] = Command(file.name, summary, run, file.argument_hint, waits_for_turn=True)
    commands.replace("", added.values())


async def _send(chat: ChatController, file: CommandFile, argument: str) -> None:
    from agent.conversation.attachments import format_attachment

    text = file.expand(argument)
    words = text if file.own else f"/{file.name} {argument}".rstrip()
    if (prompt := await chat.with_attachments(words)) is None:
        return
    if not file.own:
        prompt += format_attachment(file.source, text, "prompt")
    await chat.ask_or_replace(prompt)
