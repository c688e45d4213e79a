"""Slash commands that send a prompt.

Those of files: ``commands/NAME.md`` in the config folder, ``.agent/commands`` in a project, with
``$ARGUMENTS`` and ``$1`` to ``$9`` for what follows the command, as in Claude Code and Codex. The
person's files are their words. A project's are attached as data, and only the person starts them.

Those of MCP servers: ``/server:prompt argument …``
(https://modelcontextprotocol.io/specification/2025-06-18/server/prompts).
"""

import logging
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agent.config.paths import Paths
from agent.conversation.attachments import format_attachment
from agent.errors import UserError, user_errors
from tools.builtin.skills import Skill
from tools.types import Prompt
from tui.app_context import AppContext
from tui.controllers.chat import ChatController
from tui.guarded import run_latest
from tui.state.command import Command, Commands

log = logging.getLogger(__name__)
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
    description = (fields.get("description") or first_line)[:MAX_SUMMARY_CHARS]
    hint = fields.get("argument-hint", hint)[:MAX_SUMMARY_CHARS]
    return CommandFile(name, source, text, description, hint, own)


def skill_commands(skills: Iterable[Skill]) -> list[CommandFile]:
    """A command for each skill: its instructions are attached to what follows the name."""
    return [
        CommandFile(
            skill.name, str(skill.folder), skill.text, skill.description[:MAX_SUMMARY_CHARS],
            "[TASK]", own=False,
        )
        for skill in skills
    ]  # fmt: skip


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
        usage = f"{file.name} {file.argument_hint}".strip()
        added[file.name] = Command(usage, summary, run, waits_for_turn=True)
    commands.replace("", added.values())


async def _send(chat: ChatController, file: CommandFile, argument: str) -> None:
    text = file.expand(argument)
    words = text if file.own else f"/{file.name} {argument}".rstrip()
    if (prompt := await chat.with_attachments(words)) is None:
        return
    if not file.own:
        prompt += format_attachment(file.source, text, "prompt")
    await chat.ask_or_replace(prompt)


# --- prompts of MCP servers ---


def add_prompt_commands(app: AppContext, chat: ChatController) -> None:
    """Fetch the prompts of servers that are ready, and again when a server's lists change."""
    host = app.session.runtime.host
    host.subscribe(lambda server: _refresh(app, chat, server))
    for state in host.server_states():
        if state.status == "ready":
            _refresh(app, chat, state.name)


def _refresh(app: AppContext, chat: ChatController, server: str) -> None:
    config = app.session.runtime.host.server_config(server)
    if config is not None and config.builtin is None:
        run_latest(app, f"prompts of {server}", _fetch_prompts, app, chat, server)


async def _fetch_prompts(app: AppContext, chat: ChatController, server: str) -> None:
    host = app.session.runtime.host
    prompts: list[Prompt] = []
    app.commands.resources.pop(server, None)
    try:
        prompts = await host.prompts(server)
        if resources := await host.resources(server):
            app.commands.resources[server] = resources
    except ValueError as error:
        log.info("%s has no prompts: %s", server, error)
    app.commands.replace(server, (_command(app, chat, server, prompt) for prompt in prompts))


def _command(app: AppContext, chat: ChatController, server: str, prompt: Prompt) -> Command:
    arguments = (name if required else f"[{name}]" for name, required in prompt.arguments)
    name = ":".join(re.sub(r"[^\w.-]", "_", part) for part in (server, prompt.name))
    summary = prompt.description or f"a prompt of {server}"
    run = partial(_send_prompt, app, chat, name, server, prompt)
    return Command(" ".join([name, *arguments]), summary.splitlines()[0], run, waits_for_turn=True)


async def _send_prompt(
    app: AppContext, chat: ChatController, command: str, server: str, prompt: Prompt, argument: str
) -> None:
    """Ask a server for a prompt, and send its text to the model, attached to the command."""
    host = app.session.runtime.host
    with user_errors(ValueError, failure="Cannot get the prompt"):
        messages = await host.get_prompt(server, prompt.name, _arguments(prompt, argument))
    text = "\n\n".join(text for _, text in messages)
    words = f"/{command} {argument}".rstrip()
    await chat.ask_or_replace(words + format_attachment(command, text, "prompt"))


def _arguments(prompt: Prompt, text: str) -> dict[str, str]:
    """Parse ``name=value``, or values in order, the last to the line's end. Raises UserError."""
    names = [name for name, _ in prompt.arguments]
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    values: dict[str, str] = {}
    while words:
        name, equals, value = words[0].partition("=")
        if equals and name in names:
            values[name] = value
            del words[0]
            continue
        unset = [name for name in names if name not in values]
        if not unset:
            raise UserError(f"It takes {', '.join(names) or 'no arguments'}, not also {words[0]}.")
        values[unset[0]] = " ".join(words) if len(unset) == 1 else words[0]
        words = [] if len(unset) == 1 else words[1:]
    missing = [name for name, required in prompt.arguments if required and name not in values]
    if missing:
        raise UserError(f"It needs {', '.join(missing)} after its name.")
    return values
