"""How late an event loop is, watched from within; and the program with such a watch.

``python -m tests.bench.lag FILE [arguments of agent]``
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

STEP = 0.01
"""Seconds between two looks."""


class Lags:
    """Pairs of a time (CLOCK of screen.py) and how late the loop was then, in seconds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: list[tuple[float, float]] = []

    async def watch(self) -> None:
        while True:
            due = time.monotonic() + STEP
            await asyncio.sleep(STEP)
            now = time.monotonic()
            self._seen.append((now, now - due))

    def write(self) -> None:
        self._path.write_text(json.dumps(self._seen))


def read(path: Path, began: float, ended: float) -> list[float]:
    """The lags of a span of time."""
    return [lag for at, lag in json.loads(path.read_text()) if began <= at <= ended]


def main(path: Path) -> None:
    from tui import main

    run, lags = main._run, Lags(path)

    async def watched(app: Any) -> int:
        watch = asyncio.create_task(lags.watch())
        code = await run(app)
        watch.cancel()
        lags.write()
        return code

    main._run = watched
    from agent.cli.main import main as program

    program()


if __name__ == "__main__":
    main(Path(sys.argv.pop(1)))
