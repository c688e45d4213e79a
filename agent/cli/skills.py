"""`agent skills …`: lists, shows, adds and removes skills. The docstrings are the help texts."""

import json
import shutil
import sys
from pathlib import Path

import typer

from agent.cli.options import expand, flag
from agent.config.paths import user_paths
from agent.config.skills import own_folder, read_skill, read_skills, skills_digest
from agent.config.text_files import UnusableFileError
from agent.errors import UserError, user_errors
from agent.util import private_files
from agent.util.sanitize import echo, sanitize
from tools.builtin.skills import Skill
from tools.policy.approval_store import ApprovalStore

app = typer.Typer(rich_markup_mode=None)


@app.command("list", epilog="Example: agent skills list --json | jq -r '.[].name'")
def list_(as_json: bool = flag("--json", help="Print a JSON array.")) -> None:
    """List your skills and those of this folder's repository."""
    skills, problems = read_skills(user_paths(), Path.cwd())
    for sentence in problems:
        echo(f"agent: {sentence}", file=sys.stderr)
    root, digest = Path.cwd().resolve(), skills_digest(skills)
    is_trusted = ApprovalStore(user_paths().approvals, root).trusts("skills", digest)
    if as_json:
        rows = [
            {"name": s.name, "description": s.description, "folder": str(s.folder),
             "offered": s.own or is_trusted}
            for s in skills
        ]  # fmt: skip
        echo(json.dumps(rows, ensure_ascii=False))
        return
    if not skills:
        print("No skills yet; add one with: agent skills add FOLDER", file=sys.stderr)
    for skill in skills:
        note = "" if skill.own or is_trusted else "  (not offered: agent asks when it starts here)"
        echo(f"{skill.name}: {sanitize(skill.description)}\n  {skill.folder}{note}")


@app.command(epilog="Example: agent skills show release-notes")
def show(name: str = typer.Argument(metavar="NAME")) -> None:
    """Print a skill's instructions and its other files."""
    skill = _find(name)
    echo(f"{skill.folder}\n{sanitize(skill.description)}\n\n{sanitize(skill.text)}")
    if files := skill.files():
        echo("\nFiles: " + sanitize(", ".join(files)))


@app.command(epilog="Example: agent skills add ~/Downloads/release-notes")
def add(
    folder: Path = typer.Argument(metavar="FOLDER", help="With a SKILL.md in it.", callback=expand),
) -> None:
    """Copy a skill into your own; the model is offered it in every folder."""
    try:
        skill = read_skill(folder)
    except FileNotFoundError as error:
        raise UserError(f"There is no SKILL.md in {folder}.") from error
    except UnusableFileError as error:
        raise UserError(f"{folder / 'SKILL.md'} {error}.") from error
    target = own_folder(user_paths()) / skill.name
    if target.exists():
        raise UserError(f"You have a skill {skill.name} already: agent skills remove {skill.name}")
    with user_errors(OSError, shutil.Error, failure=f"Cannot copy it to {target}"):
        private_files.make_folder(target.parent)
        shutil.copytree(skill.folder, target, symlinks=True)
    echo(f"Added {skill.name}: {sanitize(skill.description)}")


@app.command(epilog="Example: agent skills remove release-notes")
def remove(name: str = typer.Argument(metavar="NAME")) -> None:
    """Delete one of your own skills."""
    skill = _find(name)
    if skill.folder.parent != own_folder(user_paths()).resolve():
        raise UserError(f"{skill.folder} was not added with agent skills add: delete it yourself.")
    with user_errors(OSError, failure=f"Cannot delete {skill.folder}"):
        shutil.rmtree(skill.folder)


def _find(name: str) -> Skill:
    skills, _ = read_skills(user_paths(), Path.cwd())
    found = next((skill for skill in skills if skill.name == name), None)
    if found is None:
        raise UserError(f"There is no skill {name!r}. See: agent skills list")
    return found
