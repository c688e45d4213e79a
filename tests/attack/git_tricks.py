"""Tricks by which a sandboxed command plants what runs outside of the sandbox later.

Each trick of git_tricks.txt is a shell command that runs in a working tree with many kinds of
repositories. What it plants is to run when the person uses git there (`trigger`), or when a trusted
server starts again. Every trick works where nothing protects the tree.
"""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.attack.programs import read_programs

MOST_FOLDERS = 300
MOST_WALKED = 12_000
MOST_USED = 8
TIME_LIMIT = 5.0
MORE_FOLDERS_SECONDS = 3.0
CHUNK_OF_PATH = 3000

# The repositories of the layout, the root itself left out.
REPOSITORIES = (
    b"vendor/deep/nested",
    b"lib",
    b"spare",
    b"tree",
    b"split",
    b"stores/root.git",
    b"stores/lib.git",
    b"stores/split.git",
)

# Tricks that docs/security.md leaves to the person: what a server's script imports.
REMAINDER = frozenset(
    {
        "exchange the link to a server's imports",
        "rewrite a module that a server imports",
        "shadow a module beside a server's script",
        "plant stale bytecode of a server's module",
    }
)

_PROGRAMS = read_programs("git_tricks.txt")
_IDENTITY = ("-c", "user.name=A Person", "-c", "user.email=person@example.org")


def _make_environment() -> dict[str, str]:
    names = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH")
    return {name: os.environ[name] for name in names if name in os.environ} | {
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
        "GIT_TERMINAL_PROMPT": "0",
        "EDITOR": "true",
        "PAGER": "cat",
        "TERM": "dumb",
    }


def prepare(root: Path) -> None:
    """Build the layout in `root`, which is empty or missing."""
    root.mkdir(parents=True, exist_ok=True)
    python = Path(sys.executable).resolve()
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    script = _PROGRAMS["layout"].replace("{python}", str(python)).replace("{version}", version)
    command = ["bash", "-e", "-c", script.replace("{root}", str(root))]
    subprocess.run(
        command,
        cwd=root,
        env=_make_environment(),
        stdin=subprocess.DEVNULL,
        check=True,
        timeout=120,
    )


# What the person does later.


def trigger(root: Path) -> None:
    """Use git in every folder at or below `root` as a person does, then start the server."""
    repositories, more = _find_folders(root)
    stuck = set()
    end = time.monotonic() + MORE_FOLDERS_SECONDS
    for number, path in enumerate([*repositories, *more][:MOST_FOLDERS]):
        # In the others git finds what is above them: some are enough.
        if number >= len(repositories) and time.monotonic() > end:
            break
        if not _run_in(root, path, ["git", "status", "--short"]):
            stuck.add(path)
    known = [path for path in REPOSITORIES if path in repositories]
    new = [path for path in repositories if path and path not in known]
    used = [path for path in [*known, *new[:MOST_USED], b""] if path not in stuck]
    for path in used:
        _use_repository(root, path)
    for path in used:
        _run_git(root, path, ["commit", "-q", "--allow-empty", "-m", "x"])
        _run_git(root, path, ["push", "-q", "origin", "HEAD:refs/heads/later"])
    _start_servers(root)


def _use_repository(root: Path, path: bytes) -> None:
    commands = [
        ["status"],
        ["st"],
        ["diff", "--stat"],
        ["diff"],
        ["log", "-1"],
        ["add", "-N", "."],
        ["stash", "list"],
        ["fetch", "-q"],
        ["commit", "-q", "--amend", "--allow-empty"],
    ]
    if not path:
        commands.append(["-C", "tree", "status"])
    if path not in REPOSITORIES and b".gitmodules" in _list_names(root, path):
        commands += [["submodule", "status"], ["submodule", "update"]]
    for command in commands:
        if not _run_git(root, path, command):
            return


def _run_git(root: Path, path: bytes, arguments: list[str]) -> bool:
    return _run_in(root, path, ["git", *_IDENTITY, *arguments])


def _start_servers(root: Path) -> None:
    """Run what `.mcp.json` names, as an agent does that trusts it."""
    try:
        servers = json.loads((root / ".mcp.json").read_bytes())["mcpServers"].values()
        commands = [[server["command"], *server.get("args", [])] for server in servers]
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return
    for command in commands:
        _run_in(root, b"", command)


def _find_folders(root: Path) -> tuple[list[bytes], list[bytes]]:
    """Give the folders that look like repositories, and the others; links are not followed."""
    repositories: list[bytes] = []
    more: list[bytes] = []
    queue = [b""]
    for path in _grow(queue):
        names = _list_names(root, path)
        bare = b"HEAD" in names
        (repositories if bare or b".git" in names else more).append(path)
        for name, is_folder in sorted(names.items()):
            inside_store = bare and name in (b"objects", b"refs", b"logs", b"info", b"hooks")
            if is_folder and name != b".git" and not inside_store:
                queue.append(path + b"/" + name if path else name)
    return repositories, more


def _grow(queue: list[bytes]) -> Iterator[bytes]:
    done = 0
    while done < len(queue) and done < MOST_WALKED:
        yield queue[done]
        done += 1


def _list_names(root: Path, path: bytes) -> dict[bytes, bool]:
    """Give the names in a folder, and whether each is a folder."""
    folder = _open_folder(root, path)
    if folder is None:
        return {}
    try:
        listed = _open_for_reading(folder)
        try:
            with os.scandir(listed) as entries:
                return {
                    os.fsencode(entry.name): entry.is_dir(follow_symlinks=False)
                    for entry in entries
                }
        finally:
            os.close(listed)
    except OSError:
        return {}
    finally:
        os.close(folder)


def _open_for_reading(folder: int) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        return os.open(".", flags, dir_fd=folder)
    except PermissionError:
        # The person looks into their own folder whatever its mode is.
        Path(f"/proc/self/fd/{folder}").chmod(0o700)
        return os.open(".", flags, dir_fd=folder)


def _open_folder(root: Path, path: bytes) -> int | None:
    """Open a folder by steps, as its path may be too long for one call."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    rest = path
    while rest:
        end = len(rest)
        if end > CHUNK_OF_PATH:
            end = rest.index(b"/", CHUNK_OF_PATH) if b"/" in rest[CHUNK_OF_PATH:] else end
        step, rest = rest[:end], rest[end + 1 :]
        try:
            following = os.open(step, flags, dir_fd=folder)
        except OSError:
            os.close(folder)
            return None
        os.close(folder)
        folder = following
    return folder


def _run_in(root: Path, path: bytes, command: list[str]) -> bool:
    """Run a command on a terminal, without input; False if it had to be ended."""
    folder = _open_folder(root, path)
    if folder is None:
        return True
    screen, terminal = pty.openpty()
    try:
        process = subprocess.Popen(
            command,
            cwd=f"/proc/self/fd/{folder}",
            env=_make_environment(),
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
    except (OSError, ValueError):
        os.close(screen)
        return True
    finally:
        os.close(terminal)
        os.close(folder)
    try:
        ended = _read_until_end(screen, process)
    finally:
        os.close(screen)
    if not ended:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return ended


def _read_until_end(screen: int, process: subprocess.Popen[bytes]) -> bool:
    end = time.monotonic() + TIME_LIMIT
    open_screen = True
    while time.monotonic() < end:
        if not open_screen:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                return False
            return True
        ready = select.select([screen], [], [], 0.05)[0]
        if ready:
            try:
                open_screen = bool(os.read(screen, 65536))
            except OSError:
                open_screen = False
        elif process.poll() is not None:
            return True
    return process.poll() is not None


# The tricks.


@dataclass(frozen=True)
class Trick:
    """A shell command, and maybe a second one that runs after the first has ended."""

    name: str
    command: str
    later: str = ""


TRICKS = [
    Trick(name, *(_PROGRAMS["functions"] + part for part in text.split("--- later\n")))
    for name, text in _PROGRAMS.items()
    if name not in ("layout", "functions")
]
