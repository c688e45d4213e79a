"""Copies to the desktop's clipboard, for terminals that ignore OSC 52."""

import os
import subprocess
import sys

from agent.util.programs import find_program

PROGRAM_TIMEOUT_SECONDS = 2.0
COMMANDS = (
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
    for variable, command in COMMANDS:
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
