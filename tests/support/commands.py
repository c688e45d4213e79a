"""Commands in the shell builtin, under each isolation that this machine has."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import HANG_SECONDS
from tools.builtin.shell.server import ShellServer
from tools.builtin_server import StructuredText, ToolError
from tools.sandbox import isolation
from tools.sandbox.isolation import Isolation, ResourceLimits


class Commands:
    def __init__(self, builtin: ShellServer, isolation_name: str) -> None:
        self.builtin, self.isolation = builtin, isolation_name
        self.changes: dict[str, Any] = {}

    async def __call__(self, line: str, **more: Any) -> str:
        return await self.exec(["bash", "-c", line], **more)

    async def exec(self, words: list[str], **more: Any) -> str:
        result = await self.builtin.call("exec", {"cmd": words, **more})
        self.changes = result.structured["changes"] if isinstance(result, StructuredText) else {}
        return result.text if isinstance(result, StructuredText) else result

    async def succeeding(self, *lines: str) -> list[str]:
        """Those that a shell could run to the end without an error."""
        text = await self("\n".join(f"({line}) && echo did {n}." for n, line in enumerate(lines)))
        return [line for n, line in enumerate(lines) if f"did {n}." in text]

    async def fails(self, line: str, **more: Any) -> str:
        with pytest.raises(ToolError) as caught:
            await self(line, **more)
        return str(caught.value)


LIMITS = ResourceLimits(memory=1 << 29, file_size=1 << 20, processes=40)


@pytest.fixture(params=isolation.candidates())
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Commands:
    """Under each isolation that this machine has."""
    if (reason := isolation.probe(request.param)) is not None:
        pytest.skip(f"{request.param}: {reason}")
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    return Commands(
        ShellServer(
            root,
            timeout=HANG_SECONDS,
            limits=LIMITS,
            isolation=Isolation(request.param, "", True),
            min_timeout=3.0,
            snapshot_seconds=10.0,
        ),
        request.param,
    )
