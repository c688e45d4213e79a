"""Finds skills (https://agentskills.io): the person's own, and those of a project's repository."""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from agent.config.paths import Paths
from agent.config.text_files import (
    SKILL_FOLDERS,
    UnusableFileError,
    project_folders,
    read_clean_text,
)
from tools.builtin.skills import Skill

MAX_FILE_BYTES = 64 * 1024
MAX_SKILLS = 200
"""Skills of one folder that are read."""
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"[\w-]{1,64}")


def own_folder(paths: Paths) -> Path:
    """The folder into which skills are added."""
    return paths.config / "skills"


def read_skills(paths: Paths, root: Path) -> tuple[list[Skill], list[str]]:
    """The person's own skills, then the project's, the nearest first, one of each name; and a sentence
    about each that cannot be used. Blocks."""
    folders = project_folders(root)
    own = [own_folder(paths)]
    if not os.environ.get("AGENT_HOME"):
        own.append(Path.home() / ".agents" / "skills")
    sources: list[tuple[Path, Path | None]] = [(folder, None) for folder in own]
    sources += [(folder / name, folders[0]) for folder in folders[::-1] for name in SKILL_FOLDERS]
    skills: dict[str, Skill] = {}
    problems = []
    for folder, inside in sources:
        for path in _skill_folders(folder):
            try:
                skill = read_skill(path, inside=inside)
            except FileNotFoundError:
                continue
            except UnusableFileError as error:
                problems.append(f"{path / 'SKILL.md'} is left out: it {error}.")
            else:
                skills.setdefault(skill.name, skill)
    return list(skills.values()), problems


def _skill_folders(folder: Path) -> Iterable[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())[:MAX_SKILLS]
    except OSError:
        return ()


def read_skill(folder: Path, *, inside: Path | None = None) -> Skill:
    """Read the ``SKILL.md`` of a folder. ``inside``: the repository, for a project's. Raises
    FileNotFoundError, UnusableFileError."""
    import yaml

    text, cut = read_clean_text(folder / "SKILL.md", MAX_FILE_BYTES, inside=inside)
    if cut:
        raise UnusableFileError(f"is longer than {MAX_FILE_BYTES // 1024} KiB")
    if (match := _FRONT_MATTER.match(text)) is None:
        raise UnusableFileError("does not begin with front matter between lines of ---")
    try:
        fields: Any = yaml.safe_load(match[1])
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UnusableFileError("has front matter that is not YAML") from error
    name, description = (
        str(fields.get(key) or "").strip() if isinstance(fields, dict) else ""
        for key in ("name", "description")
    )
    if not description or not _NAME.fullmatch(name):
        missing = "name of letters, digits and hyphens" if description else "description"
        raise UnusableFileError(f"has no {missing} in its front matter")
    body = text[match.end() :].strip()
    return Skill(name, description, folder.resolve(), body, own=inside is None)


def skills_digest(skills: Iterable[Skill]) -> str:
    """SHA-256 of what a person agrees to: the instructions of a project's skills; empty: none."""
    parts: Iterator[str] = (
        f"{skill.name}\0{skill.description}\0{skill.text}\0" for skill in skills if not skill.own
    )
    text = "".join(parts)
    return hashlib.sha256(text.encode()).hexdigest() if text else ""
