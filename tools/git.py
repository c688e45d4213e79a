"""Runs git outside of the sandbox with an empty repository of ours, so that no configuration of a
folder (monitors, hooks, pagers, helpers) makes it run a program."""

import os
import subprocess
from pathlib import Path

from agent.util.programs import require_program, search_path
from agent.util.temporary_folders import process_folder

_INERT = {
    "core.editor": "false", "core.fsmonitor": "false", "core.hooksPath": os.devnull,
    "core.pager": "cat", "core.sshCommand": "false", "core.untrackedCache": "false",
    "credential.helper": "", "diff.external": "", "protocol.allow": "never",
    "safe.bareRepository": "explicit",
}  # fmt: skip


def run_git(*arguments: str, work_tree: Path, folder: Path, seconds: float) -> bytes:
    """Return what git prints, in a ``folder`` of ``work_tree``. Raises OSError, SubprocessError."""
    options = [word for key, value in _INERT.items() for word in ("-c", f"{key}={value}")]
    program = [require_program("git"), "--no-optional-locks", "--literal-pathspecs"]
    repository = process_folder() / "empty.git"
    for name in ("objects", "refs"):
        (repository / name).mkdir(parents=True, exist_ok=True)
    (repository / "HEAD").write_text("ref: refs/heads/none\n")
    env = {"PATH": search_path(), "HOME": str(Path.home()), "GIT_ATTR_NOSYSTEM": "1"}
    return subprocess.run(
        [*program, *options, *arguments],
        cwd=folder,
        env=env | {"GIT_DIR": str(repository), "GIT_WORK_TREE": str(work_tree)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=seconds,
        check=True,
    ).stdout
