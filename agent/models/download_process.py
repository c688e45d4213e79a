"""Pulls a model in a process of its own, so that it can be ended and started again. It reports JSON
lines: ``{"done": BYTES, "total": BYTES}``, at last ``{"path": …}`` or ``{"error": …}``."""

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable
from typing import Literal

from agent.engine.protocol import EngineError
from agent.errors import UserError
from agent.util.programs import module_arguments

REPORT_STEPS = 1000
"""Reports of progress in one download, at most."""


class Download:
    """A download in the background: ``run()`` performs it, ``cancel()`` ends it."""

    def __init__(self, name: str, on_change: Callable[[], None]) -> None:
        """``on_change``: called whenever the state or the progress has changed."""
        self.name, self._on_change = name, on_change
        self.state: Literal["running", "done", "cancelled", "failed"] = "running"
        self.done = self.total = 0
        """Bytes downloaded and in all; a total of 0 is not known yet."""
        self.error = ""
        """Why it failed, in one sentence."""
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        """Download until it is done, has failed or is cancelled; ``state`` says which."""
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable, *module_arguments("agent.models.download_process"), self.name,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        try:
            if self.state == "cancelled":
                process.terminate()
            async for line in process.stdout:
                self._on_report(json.loads(line))
            await process.wait()
        finally:
            self._kill()
        if self.state == "running":
            self.state, self.error = "failed", self.error or "The download ended unexpectedly."
        self._on_change()

    def cancel(self) -> None:
        """End the process; what it has downloaded stays for the next time."""
        if self.state == "running":
            self.state = "cancelled"
            self._kill()

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()

    def _on_report(self, report: object) -> None:
        match report:
            case {"done": int(done), "total": int(total)}:
                self.done, self.total = done, total
            case {"path": str()} if self.state == "running":
                self.state = "done"
            case {"error": str(error)} if self.state == "running":
                self.state, self.error = "failed", error
        self._on_change()


def main(name: str) -> None:
    from agent.models.download import find_pullable, pull

    last = -1

    def report(done: int, total: int) -> None:
        nonlocal last
        if (step := REPORT_STEPS * done // max(total, 1)) != last:
            last = step
            print(json.dumps({"done": done, "total": total}), flush=True)

    try:
        print(json.dumps({"path": str(pull(find_pullable(name), report))}), flush=True)
    except (UserError, EngineError) as error:
        print(json.dumps({"error": str(error)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
