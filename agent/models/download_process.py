"""A model that is pulled while something else goes on, in a process of its own.

So it can be ended at any time, whatever the network does; started again, it goes on where it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable
from typing import Literal

from agent.errors import UserError

STEPS = 1000
"""So many reports at most."""


class Download:
    """``run()`` it; ``cancel()`` ends it."""

    def __init__(self, name: str, changed: Callable[[], None]) -> None:
        """``changed``: called whenever something below has."""
        self.name, self._changed = name, changed
        self.state: Literal["running", "done", "cancelled", "failed"] = "running"
        self.done = self.total = 0
        """Bytes; a total of 0 is not known yet."""
        self.error = ""
        """One sentence, where it failed."""
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "agent.models.download_process", self.name,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        try:
            if self.state == "cancelled":
                process.terminate()
            async for line in process.stdout:
                self._take(json.loads(line))
            await process.wait()
        finally:
            self._kill()
        if self.state == "running":
            self.state, self.error = "failed", self.error or "The download ended unexpectedly."
        self._changed()

    def cancel(self) -> None:
        """What has come is kept."""
        if self.state == "running":
            self.state = "cancelled"
            self._kill()

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()

    def _take(self, report: object) -> None:
        match report:
            case {"done": int(done), "total": int(total)}:
                self.done, self.total = done, total
            case {"path": str()} if self.state == "running":
                self.state = "done"
            case {"error": str(error)} if self.state == "running":
                self.state, self.error = "failed", error
        self._changed()


def main(name: str) -> None:
    """In the process: reports as JSON lines; the last one says how it ended."""
    from agent.models.download import find, pull

    last = -1

    def report(done: int, total: int) -> None:
        nonlocal last
        if (step := STEPS * done // max(total, 1)) != last:
            last = step
            print(json.dumps({"done": done, "total": total}), flush=True)

    try:
        print(json.dumps({"path": str(pull(find(name), report))}), flush=True)
    except UserError as error:
        print(json.dumps({"error": str(error)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
