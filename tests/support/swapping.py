"""Another process that exchanges two names of a folder as fast as it can: the swap attack."""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tools.builtin.files import changes
from tools.builtin.files.changes import FileChange
from tools.builtin.files.journal import ChangeJournal
from tools.builtin.files.reading import FileReader
from tools.builtin.files.root_folder import RootFolder
from tools.builtin_server import ToolError

_ATTACK = """
import ctypes, os, sys
exchange, here, flag = ctypes.CDLL(None).renameat2, -100, 2  # AT_FDCWD, RENAME_EXCHANGE
first, second = map(os.fsencode, sys.argv[1:])
print(exchange(here, first, here, second, flag), flush=True)
while True:
    exchange(here, first, here, second, flag)
"""


@contextmanager
def swapping(first: Path, second: Path) -> Iterator[None]:
    """Exchange two paths again and again meanwhile; skips the test where the system cannot."""
    command = [sys.executable, "-c", _ATTACK, str(first), str(second)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attacker:
        try:
            assert attacker.stdout is not None
            if attacker.stdout.readline().strip() != "0":
                pytest.skip("no RENAME_EXCHANGE here")
            yield
            assert attacker.poll() is None
        finally:
            attacker.kill()


def make_changes(journal: ChangeJournal, plan: list[FileChange]) -> None:
    journal.make({change.path: change.after for change in plan})


def swap_attack(root: Path, work: Path, attempts: int) -> tuple[int, int]:
    """Use every tool of the files server on a folder that is exchanged with a link meanwhile.

    Returns the number of calls that got what is inside, and of those that the link led astray.
    """
    folder = RootFolder(root)
    files, journal = FileReader(folder), ChangeJournal(folder, work)
    new, patch = "*** Add File: d/a/p.txt\n+x", "*** Begin Patch\n{}\n*** End Patch"

    def results() -> Iterator[Callable[[], str | None]]:
        yield lambda: files.read("d/f.txt")
        yield lambda: files.search("e", "d")
        yield lambda: files.list("d")
        yield lambda: files.glob("d/*")
        yield lambda: make_changes(journal, changes.plan_write(folder, "d/f.txt", "mine"))
        yield lambda: make_changes(journal, changes.plan_patch(folder, patch.format(new)))
        yield lambda: str(journal.undo_call(""))

    inside = outside = 0
    with swapping(root / "d", root / "link"):
        for _ in range(attempts):
            for call in results():
                with contextlib.suppress(ToolError, OSError):
                    text = call() or ""
                    inside += 1
                    outside += "secret" in text or "only outside" in text
    attacked = (root / "link").resolve() if (root / "link").is_symlink() else (root / "d").resolve()
    names = sorted(path.name for path in attacked.iterdir())
    wrong = names != ["f.txt", "only outside"] or (attacked / "f.txt").read_text() != "secret"
    return inside, outside + wrong
