"""Random changes of a tree by the files tools and by commands, each a turn of its own:
``python -m tests.support.random_changes SEED ROOT FOLDER COUNT``. Made to be killed."""

import random
import stat
import subprocess
import sys
from pathlib import Path

from tools.builtin.files.journal import ChangeJournal
from tools.builtin.files.root_folder import RootFolder
from tools.builtin_server import ToolError, turn_id

NAMES = ("a", "b.txt", "ä ö", "-x", "d", "e", "deep", "line\nend", "b\udcff")
SHELL = (
    "echo {n} > {a}", "echo {n} >> {a}", "rm -rf {a}", "mv {a} {b}", "mkdir -p {a}/{c}",
    "ln -sfn {c} {a}", "chmod 700 {a}", "chmod 555 {a}", "cp -r {a} {b}", "rmdir {a}",
    "mkdir -p {a} && echo {n} > {a}/{c}", "rm -rf {a}; echo {n} > {a}", "ln -f {a} {b}",
    "for i in 1 2 3 4 5; do echo {n} > {a}$i; done",
)  # fmt: skip


def tree(root: Path) -> dict[str, tuple[str, int, bytes]]:
    """All that is below a folder: kind, mode and content by path."""
    found: dict[str, tuple[str, int, bytes]] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        mode, name = stat.S_IMODE(status.st_mode), str(path.relative_to(root))
        if path.is_symlink():
            found[name] = "link", 0, str(path.readlink()).encode("utf-8", "surrogateescape")
        elif path.is_dir():
            found[name] = "folder", mode, b""
        else:
            found[name] = "file", mode, path.read_bytes()
    return found


def fill(root: Path, chance: random.Random) -> None:
    """Make a small tree."""
    for number in range(chance.randrange(2, 8)):
        path = root.joinpath(*chance.sample(NAMES, chance.randrange(1, 4)))
        if not any(parent.is_file() for parent in path.parents) and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"content {number}\n" * chance.randrange(1, 50))


def change(root: Path, folder: Path, seed: int, count: int) -> None:
    """Make ``count`` changes in turns ``0``, ``1``, …"""
    chance = random.Random(seed + 1)
    journal = ChangeJournal(RootFolder(root), folder)

    def name() -> str:
        return "/".join(chance.sample(NAMES, chance.choice((1, 1, 1, 2, 2, 3))))

    for turn in range(count):
        turn_id.set(str(turn))
        print(turn, flush=True)
        if chance.random() < 0.4:
            wanted = {name(): chance.choice((b"one\n", b"two\n" * 99, None)) for _ in range(3)}
            paths = {root / path: data for path, data in wanted.items()}
            try:
                journal.make({p: d for p, d in paths.items() if not p.is_dir()})
            except (OSError, ToolError):
                pass  # a folder that is a file
            continue
        words = {"a": name(), "b": name(), "c": chance.choice(NAMES), "n": chance.random()}
        line = chance.choice(SHELL)
        for key, word in words.items():
            quoted = str(word).replace("'", "'\\''")
            prefix = "./" if key != "c" else ""
            line = line.replace(f"{{{key}}}", f"'{prefix}{quoted}'")
        step = journal.begin("shell")
        command = line.encode("utf-8", "surrogateescape")
        subprocess.run([b"sh", b"-c", command], cwd=root, stderr=subprocess.DEVNULL, check=False)
        journal.end(step)


if __name__ == "__main__":
    change(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[1]), int(sys.argv[4]))
