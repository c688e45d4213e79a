"""Finds the files and folders that settings of servers and rules name, which decide what runs."""

import contextlib
import os
import re
import shlex
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from tools.config.servers import ServerConfig

SCRIPT_SUFFIXES = frozenset(
    (".bash", ".cjs", ".cts", ".js", ".jsx", ".lua", ".mjs", ".mts", ".php", ".pl", ".py", ".pyw")
    + (".rb", ".sh", ".ts", ".tsx", ".zsh")
)
MAX_SCRIPT_BYTES = 1 << 20
STANDARD_MODULES = sys.stdlib_module_names - {"test"}
"""Modules that any script may import, directly or not."""
_INTERPRETER = re.compile(
    r"(bash|bun|dash|deno|lua|node|perl|php|pypy3?|python[\d.]*|ruby|sh|tsx|zsh)(\.exe)?\Z"
)
_PYTHON = re.compile(r"(pypy3?|pythonw?[\d.]*)(\.exe)?\Z")
_PACKAGE = re.compile(r"(?!\.)[\w.~-]+(/[\w.~-]+)?")
PACKAGE_SETTINGS = (".npmrc", ".yarnrc", ".yarnrc.yml", "package.json")
"""Files that set package registries or the project's root for npx and the like."""
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+(\w+)|import[ \t]+([\w., \t]+))", re.MULTILINE)
_MODULE_FILE = re.compile(r"(\w+)\.(?:.*\.)?(?:py|pyc|pyd|pyw|so)\Z")


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """Files below a root that decide what runs later, so commands must not change them."""

    paths: tuple[Path, ...] = ()
    """Files and folders; of those that are missing none may be created."""
    modules: frozenset[str] = frozenset()
    """Names of Python modules of which none may be created directly in the root."""
    folders: tuple[Path, ...] = ()
    """Folders that are made if they are missing, for only what is there can be read-only."""


def server_files(root: Path, servers: Iterable[ServerConfig]) -> NamedFiles:
    """Files and folders below ``root``, existing or not, that servers' commands, arguments, variables
    and folders name. A script comes with its folder, a virtual environment with its Python; in the root
    itself it is the modules that Python may import, and their cache."""
    paths: set[Path] = set()
    runs_python = False
    for server in servers:
        if server.problem or server.builtin:
            continue
        folder = Path(os.path.abspath(root / (server.cwd or ".")))  # noqa: PTH100 - follows no links
        takes_paths = is_interpreter(server.command)
        named = {folder}
        for word in _words(server):
            path = Path(os.path.abspath(folder / word))  # noqa: PTH100 - follows no links
            if takes_paths or "/" in word or "." in word or os.path.lexists(path):
                named.add(path)
            runs_python |= _PYTHON.match(path.name) is not None
        if server.runs_package:
            for start in filter(None, (folder, server.start_folder)):
                paths.update(_package_files(server, start, root))
        for path in named:
            paths.update(_with_surroundings(path, root))
    scripts = {path for path in paths if path.parent == root and path.suffix in (".py", ".pyw")}
    if not (runs_python or scripts):
        return NamedFiles(tuple(sorted(paths)))
    modules = _imported_modules(root, scripts)
    files = module_files(root, modules)
    paths |= {path.parent if path.stem == "__init__" else path for path in files}
    # One without __init__ is a package too, unless there is another of its name.
    paths |= {root / name for name in modules - STANDARD_MODULES if (root / name).is_dir()}
    return NamedFiles(tuple(sorted(paths)), modules, (root / "__pycache__",) if files else ())


def named_paths(server: ServerConfig, folder: Path) -> Iterator[Path]:
    """Yield the files and folders that a server's settings name and that exist, with the folders of
    scripts: what it may read in the sandbox. ``folder``: where it starts; not read for its own sake."""
    for word in _words(server):
        path = Path(os.path.abspath(folder / word))  # noqa: PTH100 - follows no links
        if path == folder or not os.path.lexists(path):
            continue
        yield path
        if path.is_file() and _is_script(path) and path.parent != server.start_folder:
            yield path.parent


def module_files(root: Path, modules: Iterable[str]) -> set[Path]:
    """Files in ``root`` that Python imports for modules: source, bytecode, extensions, packages."""
    names, files = frozenset(modules), set[Path]()
    if not names:
        return files
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            match = _MODULE_FILE.match(entry.name)
            if (match[1] if match else entry.name) not in names:
                continue
            if match or entry.is_symlink():
                files.add(Path(entry.path))
            elif entry.is_dir():
                with contextlib.suppress(OSError):
                    inner = Path(entry.path).iterdir()
                    files |= {path for path in inner if path.name.startswith("__init__.")}
    return files


def is_interpreter(program: str) -> bool:
    return _INTERPRETER.match(Path(program).name) is not None


def rule_files(root: Path, rules: Iterable[str]) -> Iterator[Path]:
    """Yield the scripts below ``root``, existing or not, that approval rules name as their program."""
    for rule in rules:
        verb, _, line = rule.partition(" ")
        try:
            words = shlex.split(line) if verb == "run" else []
        except ValueError:
            continue
        while words and re.match(r"[A-Za-z_]\w*=", words[0]):
            del words[0]
        if words and is_interpreter(words[0]):
            operands = takewhile(lambda word: word not in ("-c", "-m"), words[1:])
            words = [word for word in operands if not word.startswith("-")]
        else:
            words = [word for word in words[:1] if "/" in word]
        with contextlib.suppress(ValueError):
            paths = [Path(os.path.abspath(root / word)) for word in words]  # noqa: PTH100
            yield from [p for p in paths if p.is_relative_to(root) and _is_script(p)][:1]


def _words(server: ServerConfig) -> Iterator[str]:
    """Yield what may be a path in the settings of a server, modules (``-m name``) as their files."""
    previous = ""
    for text in (server.command, *server.args, *server.env.values(), *server.env_files):
        yield from {text, text.partition("=")[2], *text.split(), *text.split(os.pathsep)} - {""}
        if previous == "-m":
            parts = text.split(".")
            for count in range(1, len(parts) + 1):
                module = "/".join(parts[:count])
                yield from (module, f"{module}.py", f"{module}/__init__.py")
            yield f"{'/'.join(parts)}/__main__.py"
        previous = text


def _package_files(server: ServerConfig, folder: Path, root: Path) -> Iterator[Path]:
    """Yield what npx and its like look at first, from the folder that they start in to the root."""
    words = (word.removeprefix("@") for word in server.args)
    names = {word.partition("@")[0] for word in words if not word.startswith("-")}
    for parent in dict.fromkeys((folder, *folder.parents)):
        if parent.is_relative_to(root):
            yield from (parent / name for name in PACKAGE_SETTINGS)
            yield parent / "node_modules" / ".bin"
            for name in filter(_PACKAGE.fullmatch, names):
                yield from (parent / "node_modules" / form for form in (name, f"@{name}"))


def _with_surroundings(path: Path, root: Path) -> Iterator[Path]:
    """Yield a path and what runs with it: a script's folder, a link's target, Python's environment."""
    if path == root or not path.is_relative_to(root) or "\0" in str(path):
        return
    yield path
    with contextlib.suppress(OSError):
        if not path.is_file():
            return
        environment = path.parent.parent
        if environment != root and (environment / "pyvenv.cfg").is_file():
            yield environment
        if _is_script(path):
            for script in {path, path.resolve()}:
                if script.parent != root and script.parent.is_relative_to(root):
                    yield script.parent


def _is_script(path: Path) -> bool:
    """Return whether a file is one by its name or its first line; a missing one, by its name."""
    return path.suffix in SCRIPT_SUFFIXES or _beginning(path, 2) == b"#!"


def _beginning(path: Path, size: int) -> bytes:
    """Read the first bytes of a regular file; none of another, or of one that cannot be read."""
    with contextlib.suppress(OSError):
        if stat.S_ISREG(path.stat().st_mode):
            with path.open("rb") as file:
                return file.read(size)
    return b""


def _imported_modules(root: Path, scripts: Iterable[Path]) -> frozenset[str]:
    """Modules that scripts in the root may import, also the standard library's, which it shadows."""
    names = {*STANDARD_MODULES, *(script.stem for script in scripts)}
    pending, seen = list(scripts), set[Path]()
    while pending:
        script = pending.pop()
        if script in seen:
            continue
        seen.add(script)
        new = _imports(script) - names
        names |= new
        pending += module_files(root, new)
    return frozenset(names)


def _imports(script: Path) -> set[str]:
    names = set[str]()
    for match in _IMPORT.finditer(_beginning(script, MAX_SCRIPT_BYTES).decode("utf-8", "replace")):
        parts = (match[1] or match[2]).split(",")
        names |= {part.split()[0].partition(".")[0] for part in parts if part.strip()}
    return names
