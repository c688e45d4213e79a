"""Runs `git_tricks` as shell commands, and then what a person does in such a folder."""

import asyncio
import subprocess
import tempfile
from collections.abc import AsyncIterator, Collection
from pathlib import Path

from agent.util.folder_limits import remove_tree
from agent.util.temporary_folders import process_folder
from tests.attack import git_tricks
from tests.attack.git_tricks import REMAINDER, TRICKS, Trick
from tests.attack.measure import Attempt
from tests.attack.sandbox import isolations
from tools.builtin.shell.server import ShellServer
from tools.builtin_server import ToolError
from tools.factory import ToolboxOptions, build_toolbox
from tools.sandbox.isolation import Isolation

NAMES = [trick.name for trick in TRICKS if trick.name not in REMAINDER]


async def attempts(names: Collection[str]) -> AsyncIterator[Attempt]:
    """Try tricks, each in a fresh copy, under each isolation that works here."""
    with tempfile.TemporaryDirectory(dir=process_folder()) as name:
        # Always at the same path: worktrees and submodules name it.
        folder, root, template = (Path(name, part) for part in ("", "root", "template"))
        root.mkdir()
        git_tricks.prepare(root)
        root.rename(template)
        for each in isolations():
            for trick in TRICKS:
                if trick.name in names:
                    await asyncio.to_thread(
                        subprocess.run, ["cp", "-a", template, root], check=True
                    )
                    yield await _try(each, trick, folder, root)
                    remove_tree(root)


async def _try(each: Isolation, trick: Trick, folder: Path, root: Path) -> Attempt:
    marker, program = folder / "marker", folder / "program"
    program.write_text(f"#!/bin/sh\ntouch {marker}\nexit 0\n")
    program.chmod(0o755)
    toolbox = build_toolbox(
        ToolboxOptions(
            tools="shell", root=root, trust_project=True, user_config=folder / "config.toml"
        )
    )
    config = toolbox.host.server_config("shell")
    assert config is not None and isinstance(config.builtin, ShellServer)
    shell, answer = config.builtin, ""
    shell._isolation = each
    for script in filter(None, (trick.command, trick.later)):
        line = script.replace("{root}", str(root)).replace("{program}", str(program))
        try:
            result = await shell.call("exec", {"cmd": ["bash", "-c", line]})
            answer += result if isinstance(result, str) else result.text
        except ToolError as error:
            answer += str(error)
    await toolbox.host.close()
    await asyncio.to_thread(git_tricks.trigger, root)
    repelled = not marker.exists()
    marker.unlink(missing_ok=True)
    return Attempt(f"git, {each.name}", trick.name, repelled, answer[-100:])
