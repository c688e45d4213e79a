"""The person's programs: an editor, and the desktop's clipboard, for terminals that ignore OSC 52."""

import asyncio
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from textual.app import App

from agent.errors import UserError, user_errors
from agent.util.programs import find_program, require_program

FALLBACK_EDITORS = ("nano", "vi")


async def edit_text(app: App[int], text: str) -> str:
    """Edit ``text`` in the editor; returns it afterwards. Raises UserError where none can be run."""
    from agent.util.temporary_folders import process_folder

    configured = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    fallback = next((name for name in FALLBACK_EDITORS if find_program(name)), "")
    with user_errors(ValueError, failure="EDITOR is not a command"):
        command = shlex.split(configured or fallback)
    if not command:
        raise UserError("No editor found: set EDITOR.")
    with user_errors(OSError, failure="The editor gets no file"):
        descriptor, name = tempfile.mkstemp(".md", "prompt-", process_folder())  # mode 0600
    os.close(descriptor)
    file = Path(name)
    try:
        with user_errors(OSError, ValueError, failure=f"The editor {command[0]} cannot be used"):
            file.write_text(text, encoding="utf-8")
            await _run_on_terminal(app, [*command, name])
            return file.read_text(encoding="utf-8").rstrip("\n")
    finally:
        file.unlink(missing_ok=True)


async def _run_on_terminal(app: App[int], command: list[str]) -> None:
    """Run a program on the terminal; turns continue meanwhile, but nothing is painted."""
    with app.suspend(), app.batch_update():
        # The descriptors 1 and 2 lead to the log file; these two are the terminal.
        process = await asyncio.create_subprocess_exec(
            require_program(command[0]), *command[1:], stdout=sys.__stdout__, stderr=sys.__stderr__
        )
        await process.wait()


PROGRAM_TIMEOUT_SECONDS = 2.0
CLIPBOARD_COMMANDS = (
    ("TMUX", "tmux load-buffer -w -"),  # tmux keeps OSC 52 to itself
    ("WAYLAND_DISPLAY", "wl-copy"),
    ("DISPLAY", "xclip -selection clipboard"),
    ("DISPLAY", "xsel --clipboard --input"),
    ("darwin", "pbcopy"),
    ("WSL_DISTRO_NAME", "clip.exe"),
)
"""An environment variable or a platform, and a program that copies there."""


def copy_to_desktop(text: str) -> bool:
    """Copy with the first clipboard program that works; return whether one did. Blocks."""
    for variable, command in CLIPBOARD_COMMANDS:
        name, *words = command.split()
        if variable not in os.environ and variable != sys.platform:
            continue
        if (program := find_program(name)) is None:
            continue
        try:
            subprocess.run(
                [program, *words], input=text.encode(), timeout=PROGRAM_TIMEOUT_SECONDS,
                check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError):
            continue
        return True
    return False
