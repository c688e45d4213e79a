"""Measures how late an event loop runs its timers.

``python -m tests.bench.loop_lag FILE [arguments of agent]`` runs the app and writes its loop's lags
to FILE.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

INTERVAL_SECONDS = 0.01
"""Seconds between two samples."""


class LagRecorder:
    """Samples the lag of the running loop: pairs of a monotonic time and the seconds it was late."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._samples: list[tuple[float, float]] = []

    async def record(self) -> None:
        """Take samples until cancelled."""
        while True:
            due = time.monotonic() + INTERVAL_SECONDS
            await asyncio.sleep(INTERVAL_SECONDS)
            now = time.monotonic()
            self._samples.append((now, now - due))

    def save(self) -> None:
        """Write the samples to the file as JSON."""
        self._path.write_text(json.dumps(self._samples))


def lags_between(path: Path, began: float, ended: float) -> list[float]:
    """The lags between two monotonic times, in seconds."""
    return [lag for at, lag in json.loads(path.read_text()) if began <= at <= ended]


def main(path: Path) -> None:
    """Run the app as the command line says and record its lags into ``path``."""
    from tui import main

    run, lags = main._run, LagRecorder(path)

    async def run_recorded(app: Any) -> int:
        recording = asyncio.create_task(lags.record())
        code = await run(app)
        recording.cancel()
        lags.save()
        return code

    main._run = run_recorded
    from agent.cli.main import main as program

    program()


if __name__ == "__main__":
    main(Path(sys.argv.pop(1)))
