"""Asks what a folder needs a yes for: servers of its .mcp.json, its skills, tools that change a home
folder."""

import sys
from dataclasses import replace

from agent.config.launch import LaunchOptions
from agent.config.paths import user_paths
from agent.errors import user_errors
from agent.util.sanitize import echo

MAX_COMMAND_CHARACTERS = 4000
"""Longest command lines that are shown; of more, a person would see only the end."""
MAX_SKILL_CHARACTERS = 200
CHANGING_TOOLS = ("container", "files", "shell")
"""First words of what --tools names for commands and changes of files."""


def confirm_folder(launch: LaunchOptions) -> LaunchOptions:
    """Ask; returns the options with the answers, and with a root that stays if its folder vanishes."""
    launch = replace(launch, root=launch.root.absolute())
    confirm_skills(launch)
    return confirm_project_servers(confirm_home(launch))


def confirm_skills(launch: LaunchOptions) -> None:
    """Ask whether the model may read the project's skills, which are instructions."""
    from agent.config.text_files import SKILL_FOLDERS, project_folders

    if launch.trust_project or launch.tools == "none":
        return
    folders = project_folders(launch.root)
    if not any((folder / name).is_dir() for folder in folders for name in SKILL_FOLDERS):
        return  # the rest of the imports would delay the first paint
    from agent.config.skills import read_skills, skills_digest

    skills = [skill for skill in read_skills(user_paths(), launch.root)[0] if not skill.own]
    if not skills:
        return
    from tools.policy.approval_store import ApprovalStore

    digest, store = (
        skills_digest(skills),
        ApprovalStore(user_paths().approvals, launch.root.resolve()),
    )
    if store.trusts("skills", digest) or not can_ask():
        return
    echo(f"{launch.root} has skills, instructions that the model may follow:", file=sys.stderr)
    for skill in skills:
        description = " ".join(skill.description.split())[:MAX_SKILL_CHARACTERS]
        echo(f"  {skill.folder}: {description}", file=sys.stderr)
    if agrees("Offer them to the model, now and later, as long as they stay the same?"):
        with user_errors(OSError, failure="The answer cannot be stored"):
            store.trust("skills", digest)


def confirm_home(launch: LaunchOptions) -> LaunchOptions:
    names = (launch.tools or "").split(",")
    if launch.allow_home or not any(n.strip().partition(".")[0] in CHANGING_TOOLS for n in names):
        return launch
    from tools.policy.approval_store import ApprovalStore
    from tools.run_later import holds_home

    root = launch.root.resolve()
    is_allowed = not holds_home(root) or ApprovalStore(user_paths().approvals, root).allows_home()
    if is_allowed or not can_ask():
        return launch
    echo(
        f"{root} is or holds your home folder: with your yes to each call, or a rule, commands and the"
        " files tools can change nearly all of your files there. Shell start files, autostart entries"
        " and the like stay read-only for commands, keys unreadable.",
        file=sys.stderr,
    )
    return replace(launch, allow_home=agrees("Work there, now and later?"))


def can_ask() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def agrees(question: str) -> bool:
    echo(f"{question} [y/N] ", end="", file=sys.stderr)
    return sys.stdin is not None and sys.stdin.readline().strip().lower() in ("y", "yes")


def confirm_project_servers(launch: LaunchOptions) -> LaunchOptions:
    from tools.run_later import PROJECT_FILES

    root = launch.root
    if launch.trust_project or launch.tools == "none":
        return launch
    if not any((root / name).is_file() for name in PROJECT_FILES):
        return launch
    from tools.policy.approval_store import ApprovalStore
    from tools.policy.project import find_project

    project = find_project(root.resolve())
    if project is None or not project.digest:
        return launch
    approvals = ApprovalStore(user_paths().approvals, root.resolve())
    if approvals.trusts("servers", project.digest) or not project.startable or not can_ask():
        return launch
    commands = project.command_lines()
    if sum(map(len, commands)) > MAX_COMMAND_CHARACTERS:
        echo(
            f"{project.path} says more of its MCP servers than could be read here, so they are not "
            "started; read it, and start them with --trust-project.",
            file=sys.stderr,
        )
        return launch
    echo(f"{project.path} wants to start these MCP servers on this machine:", file=sys.stderr)
    for command in commands:
        echo(f"  {command}", file=sys.stderr)
    yes = agrees("Start them, now and later, as long as they stay the same?")
    # The digest, not True: the file may be another one by the time they are started.
    return replace(launch, trust_project=project.digest if yes else False)
