"""The built-in server ``skills``: instructions for certain tasks, which the model reads when it has
one (https://agentskills.io). Names and descriptions are in the tool's definition."""

import asyncio
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.builtin.files.reading import FileReader
from tools.builtin.files.root_folder import RootFolder
from tools.builtin_server import BuiltinServer, ToolError, object_schema
from tools.types import UNKNOWN_LABELS, Access, Tool

MAX_LINE_CHARS, MAX_LIST_CHARS = 300, 8_000
"""Characters of a skill's line in the tool's definition, and of all lines together."""
MAX_FILES = 50
"""Files of a skill that its text names."""


@dataclass(frozen=True, slots=True)
class Skill:
    """A folder with a ``SKILL.md``."""

    name: str
    description: str
    folder: Path
    text: str
    """The instructions, without front matter."""
    own: bool
    """Whether it is the person's, not a project's."""

    def files(self) -> list[str]:
        """Paths of its other files, below the folder; at most `MAX_FILES`. Blocks."""
        found: list[str] = []
        for folder, folders, names in os.walk(self.folder):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            paths = sorted(str((Path(folder) / name).relative_to(self.folder)) for name in names)
            found += [path for path in paths if path != "SKILL.md"]
            if len(found) >= MAX_FILES:
                break
        return found[:MAX_FILES]


class SkillsServer(BuiltinServer):
    """The server ``skills``."""

    name = alias = "skills"
    default_tools: Sequence[str] = ("read",)

    def __init__(self, skills: Iterable[Skill]) -> None:
        self.skills = {skill.name: skill for skill in skills}
        lines = "\n".join(
            f"- {skill.name}: {' '.join(skill.description.split())}"[:MAX_LINE_CHARS]
            for skill in self.skills.values()
        )
        description = (
            "Read a skill: instructions for a kind of task. Read it before you begin such a task;"
            f" with a file, one that the skill names. The skills:\n{lines[:MAX_LIST_CHARS]}"
        )
        schema = object_schema(["name"], name="string", file="string")
        is_own = all(skill.own for skill in self.skills.values())
        labels = frozenset() if is_own else UNKNOWN_LABELS
        tool = Tool("skills", "read", description, schema, read_only=True, labels=labels)
        self.tools: Sequence[Tool] = (tool,)

    def is_safe(self, name: str) -> bool:
        return True

    def access(self, offered: Collection[str]) -> Access:
        return Access(read=f"the skills {', '.join(self.skills)}")

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        skill = self.skills.get(arguments["name"])
        if skill is None:
            raise ToolError(f"no such skill; there are {', '.join(self.skills)}")
        if (file := arguments.get("file")) is not None:
            reader = FileReader(RootFolder(skill.folder))
            return await asyncio.to_thread(reader.read, file)
        files = await asyncio.to_thread(skill.files)
        listed = "\n".join(files)
        return f"{skill.text}\n\nFiles of this skill:\n{listed}" if files else skill.text
