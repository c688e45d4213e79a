"""Copies to the desktop's clipboard, for terminals that ignore OSC 52."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

from agent.util.programs import find_program

PROGRAM_TIMEOUT_SECONDS = 2.0


def copy_to_desktop(text: str) -> bool:
    """Copy with the first clipboard program that works; return whether one did. Blocks."""
    for command in _copy_commands():
        if (program := find_program(command[0])) is None:
            continue
        try:
            subprocess.run(
                [program, *command[1:]], input=text.encode(), timeout=PROGRAM_TIMEOUT_SECONDS,
                check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError):
            continue
        return True
    return False


def _copy_commands() -> Iterator[list[str]]:
    if "TMUX" in os.environ:
        yield ["tmux", "load-buffer", "-w", "-"]  # tmux keeps OSC 52 to itself
    if "WAYLAND_DISPLAY" in os.environ:
        yield ["wl-copy"]
    if "DISPLAY" in os.environ:
        yield ["xclip", "-selection", "clipboard"]
        yield ["xsel", "--clipboard", "--input"]
    if sys.platform == "darwin":
        yield ["pbcopy"]
    if "WSL_DISTRO_NAME" in os.environ:
        yield ["clip.exe"]
