"""The python tool of one conversation, as a function."""

from collections.abc import Callable

import psutil
import pytest

from tools.builtin.python.server import PythonServer
from tools.builtin_server import ToolError


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


def worker() -> psutil.Process:
    """The process that runs the code: the youngest child, whose number may be lower than others'.

    Of those that began within the same 10 ms the last: a parent comes before its children.
    """
    return max(reversed(psutil.Process().children(True)), key=psutil.Process.create_time)


Starting = Callable[..., Interpreter]
