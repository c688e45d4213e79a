"""The prompt in the person's own editor."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.app import App

KNOWN = ("nano", "vi")
"""What is tried where neither VISUAL nor EDITOR says which."""


async def edited(app: App[int], text: str) -> str:
    """What the text is after the editor has ended. Raises UserError."""
    from agent.errors import UserError

    command = _command()
    if not command:
        raise UserError("No editor was found: set EDITOR to the one that you use.")
    descriptor, name = tempfile.mkstemp(prefix="prompt-", suffix=".md")  # nobody else's to read
    os.close(descriptor)
    file = Path(name)
    try:
        file.write_text(text, encoding="utf-8")
        await _run(app, [*command, name])
        return file.read_text(encoding="utf-8").rstrip("\n")
    except (OSError, ValueError) as error:
        raise UserError(f"The editor {command[0]} cannot be used: {error}.") from error
    finally:
        file.unlink(missing_ok=True)


def _command() -> list[str]:
    said = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    found = next((name for name in KNOWN if shutil.which(name)), "")
    return shlex.split(said or found)


async def _run(app: App[int], command: list[str]) -> None:
    """On the terminal, while what still runs goes on and nothing is painted."""
    with contextlib.ExitStack() as held:
        held.enter_context(app.suspend())
        held.enter_context(app.batch_update())
        # The descriptors 1 and 2 lead to the log file; these two are the terminal.
        process = await asyncio.create_subprocess_exec(
            *command, stdout=sys.__stdout__, stderr=sys.__stderr__
        )
        await process.wait()
