"""AGENTS.md: how to work in a folder (https://agents.md): the person's own, then the nearest last. The
taint rule (`agent.turn.exposure`) counts a repository's files as read, not as the person's."""

import os
from dataclasses import dataclass
from pathlib import Path

from agent.config.paths import Paths
from agent.config.text_files import (
    UnusableFileError,
    project_folders,
    read_clean_text,
    read_regular_file,
)
from agent.conversation.attachments import format_attachment
from agent.errors import UserError, describe_cause
from agent.util.private_files import write_text
from agent.util.sanitize import sanitize
from tools.sanitize import strip_hidden

FILE_NAME = "AGENTS.md"
MAX_INSTRUCTION_BYTES = 32 * 1024
"""Size of all files together, as in Codex."""
_PREFACE = """\
# Project instructions

Files that say how to work in this folder. Where two differ, the later one counts; the user's \
messages take precedence over all of them."""


@dataclass(frozen=True, slots=True)
class InstructionFile:
    """One AGENTS.md that the model reads."""

    name: str
    """Its path: a project's from the repository's root, the person's own in full."""
    text: str
    own: bool = False
    """Whether it is the person's, whose words count as theirs."""


@dataclass(frozen=True, slots=True)
class ProjectInstructions:
    """The files for one folder."""

    files: tuple[InstructionFile, ...] = ()
    notices: tuple[str, ...] = ()
    """Sentences about parts that were cut or left out."""

    @property
    def section(self) -> str:
        """The part of the developer message that holds the files; empty without any."""
        blocks = "".join(format_attachment(file.name, file.text) for file in self.files)
        return f"{_PREFACE}{blocks}" if blocks else ""

    @property
    def names(self) -> str:
        return ", ".join(file.name for file in self.files)


def read_project_instructions(paths: Paths, root: Path) -> ProjectInstructions:
    """Read the person's AGENTS.md and those of the repository down to ``root``. Never fails."""
    folders = project_folders(root)
    top, own = folders[0], paths.config / FILE_NAME
    files: list[InstructionFile] = []
    notices: list[str] = []
    room = MAX_INSTRUCTION_BYTES
    for path in (own, *(folder / FILE_NAME for folder in folders)):
        try:
            text, cut = read_clean_text(path, room, inside=None if path is own else top)
        except FileNotFoundError:
            continue
        except UnusableFileError as error:
            notices.append(f"{path} is left out: it {error}.")
            continue
        if cut:
            limit = f"{MAX_INSTRUCTION_BYTES // 1024} KiB"
            notices.append(f"{path} is cut: instructions may have {limit} together.")
        room -= min(room, len(text.encode()))
        if text.strip():
            name = str(path if path is own else path.relative_to(top))
            files.append(InstructionFile(name, text, own=path is own))
    return ProjectInstructions(tuple(files), tuple(notices))


def add_instruction(root: Path, instruction: str) -> tuple[Path, str]:
    """Add a line to the nearest AGENTS.md of the project, or to a new one in its root folder; return
    the file and the line, an item of a Markdown list. Raises UserError."""
    line = strip_hidden(sanitize(instruction)).strip()
    if not line:
        raise UserError("Write an instruction behind the #, as in #use tabs.")
    line = line if line.startswith(("- ", "* ")) else f"- {line}"
    paths = [folder / FILE_NAME for folder in reversed(project_folders(root))]
    path = next(filter(os.path.lexists, paths), paths[-1])
    try:
        if path.is_symlink():
            raise ValueError(f"it is a link to {path.readlink()}")
        is_new = not os.path.lexists(path)
        data = b"" if is_new else read_regular_file(path, MAX_INSTRUCTION_BYTES + 1)
        if len(data) + len(line.encode("utf-8", "replace")) > MAX_INSTRUCTION_BYTES:
            raise ValueError(
                f"the model reads no more than {MAX_INSTRUCTION_BYTES >> 10} KiB of it"
            )
        text = data.decode("utf-8")
        if "\0" in text:
            raise ValueError("it is not UTF-8 text")
        newline = "\r\n" if "\r\n" in text else "\n"
        gap = newline if text and not text.endswith("\n") else ""
        if is_new:
            path.touch()  # with the mode of the project's other files: others may read it
        write_text(path, f"{text}{gap}{line}{newline}")
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot add to {path}: {describe_cause(error)}.") from error
    return path, line
