"""AGENTS.md: how to work in a folder (https://agents.md): the person's own, then the nearest last. The
taint rule (`agent.turn.exposure`) counts a repository's files as read, not as the person's."""

from dataclasses import dataclass
from pathlib import Path

from agent.config.paths import Paths
from agent.config.text_files import UnusableFileError, project_folders, read_clean_text
from agent.conversation.attachments import format_attachment

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
