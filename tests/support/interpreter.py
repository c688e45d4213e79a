"""The python tool of one conversation, as a function."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tools.builtin.base import ToolError
from tools.builtin.python.server import PythonServer


class Interpreter:
    """The python of one conversation."""

    def __init__(self, builtin: PythonServer) -> None:
        self.builtin = builtin

    async def __call__(self, code: str) -> str:
        return await self.builtin.call("python", {"code": code})

    async def fails(self, code: str) -> str:
        with pytest.raises(ToolError) as caught:
            await self(code)
        return str(caught.value)


Starting = Callable[..., Interpreter]
