"""Runs python_bombs.txt and shell_bombs.txt in the python tool and in shell commands."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Collection
from pathlib import Path

from agent.util.folder_limits import measure_folder, remove_tree
from agent.util.temporary_folders import process_folder
from tests.attack.measure import Attempt, Load, left_processes, measured, started_processes
from tests.attack.programs import read_programs
from tests.attack.sandbox import isolations
from tools.builtin.python.call_limits import CallLimits
from tools.builtin.python.server import PythonServer
from tools.builtin.shell.server import ShellServer
from tools.builtin_server import StructuredText, ToolError, conversation_id
from tools.sandbox.isolation import Isolation

PYTHON_BOMBS = read_programs("python_bombs.txt")
SHELL_BOMBS = read_programs("shell_bombs.txt")
NAMES = [f"python: {name}" for name in PYTHON_BOMBS] + [
    f"{tool}: {name}" for tool in ("shell", "background") for name in SHELL_BOMBS
]
BACKGROUND_SECONDS = 4.0
"""How long a bomb in the background may go on before its conversation ends."""
TIMEOUT_SECONDS = 8.0
MAX_DISK_BYTES = 1 << 30
MAX_CALL_SECONDS = 60.0
"""After which a call that has not ended counts as one that hangs."""


async def attempts(names: Collection[str]) -> AsyncIterator[Attempt]:
    """Run bombs under each isolation that works here."""
    for each in isolations():
        for name in names:
            tool, _, bomb = name.partition(": ")
            if tool == "python":
                yield await _run_python(each, bomb, PYTHON_BOMBS[bomb])
            else:
                yield await _run_shell(each, bomb, SHELL_BOMBS[bomb], tool == "background")


async def _run_python(each: Isolation, name: str, code: str) -> Attempt:
    faults, before = list[str](), started_processes()
    with tempfile.TemporaryDirectory(dir=process_folder()) as folder:
        limits = CallLimits(seconds=TIMEOUT_SECONDS)
        server = PythonServer(isolation=each, work_folder=Path(folder), limits=limits)
        conversation_id.set("other")
        await server.call("python", {"code": "x = 41"})
        conversation_id.set("attacker")
        async with measured() as load:
            answer = await _ended(server.call("python", {"code": code}), faults)
        for who, question, right in (("attacker", "40 + 2", "42"), ("other", "x + 1", "42")):
            conversation_id.set(who)
            text = await _ended(server.call("python", {"code": question}), faults)
            # The attacker's own interpreter may be gone, or broken by its own code.
            if who == "other" and text != right:
                faults.append(f"another conversation was answered {text[:80]!r}")
        await _ended(server.close(), faults)
        if left := left_processes(before):
            faults.append(f"left {', '.join(left)}")
        _removed(folder, faults)
    return _judged(f"python's limits, {each.name}", name, answer, faults, load)


async def _run_shell(each: Isolation, name: str, script: str, is_background: bool) -> Attempt:
    faults, before = list[str](), started_processes()
    with tempfile.TemporaryDirectory(dir=process_folder()) as folder:
        shell = ShellServer(Path(folder), isolation=each, timeout=TIMEOUT_SECONDS)
        async with measured() as load:
            arguments = {"cmd": ["bash", "-c", script], "background": is_background}
            answer = await _ended(shell.call("exec", arguments), faults)
            if is_background:
                await asyncio.sleep(BACKGROUND_SECONDS)
                shell.end_conversation(conversation_id.get(), None)
                await shell.close()
        if left := left_processes(before):
            faults.append(f"left {', '.join(left)}")
        text = await _ended(shell.call("exec", {"cmd": ["echo", "here"]}), faults)
        if "here" not in text:
            faults.append(f"the next command gave {text[:80]!r}")
        _removed(folder, faults)
    kind = "background commands'" if is_background else "commands'"
    return _judged(f"{kind} limits, {each.name}", name, answer, faults, load)


async def _ended(call: Awaitable[object], faults: list[str]) -> str:
    """The text of a call; one that does not end is a fault."""
    try:
        async with asyncio.timeout(MAX_CALL_SECONDS):
            result = await call
    except ToolError as error:
        return str(error)
    except TimeoutError:
        faults.append("a call did not end")
        return ""
    return result.text if isinstance(result, StructuredText) else str(result)


def _removed(folder: str, faults: list[str]) -> None:
    """Remove what was written, which nobody's limits must make impossible."""
    used = remove_and_count(Path(folder))
    if used > MAX_DISK_BYTES:
        faults.append(f"left {used >> 20} MiB on the disk")


def remove_and_count(folder: Path) -> int:
    """Remove what is in a folder; returns how many bytes it took."""
    used = measure_folder(folder).bytes
    for path in folder.iterdir():
        remove_tree(path)
    return used


def _judged(group: str, name: str, answer: str, faults: list[str], load: Load) -> Attempt:
    return Attempt(group, name, not faults, "; ".join(faults) or answer[-100:], load)
