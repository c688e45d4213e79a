"""What a stranger's folder, or a command of the model in it, wants this program or others to run."""

import asyncio
import contextlib
import json
import os
import stat
import tempfile
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from agent.util.temporary_folders import process_folder
from tests.attack.measure import Attempt
from tests.attack.sandbox import isolations
from tools.builtin.files.server import FilesServer
from tools.builtin.shell.server import ShellServer
from tools.builtin_server import ToolError
from tools.factory import Toolbox, ToolboxOptions, build_toolbox
from tools.sandbox.isolation import Isolation
from tui.util.file_index import FileIndex

PROGRAM = "#!/bin/sh\ntouch {marker}\nexit 1\n"


@dataclass(frozen=True, slots=True)
class Case:
    """An attack: what is in the folder at first, what a command does, and what must not come of it.

    ``{marker}`` in texts is the file whose existence tells that something ran outside of the sandbox.
    """

    name: str
    command: str = ""
    files: tuple[tuple[str, str], ...] = ()
    """Path and content; those in ``bin/`` and ``.bin/`` are executable."""
    then: Callable[[Path, Toolbox], object] = lambda root, toolbox: None
    """What the program does afterwards."""
    unchanged: tuple[str, ...] = ()
    """Paths whose content, or absence, must be the same afterwards."""


async def search(root: Path, toolbox: Toolbox) -> None:
    """Search files, with ripgrep where there is one."""
    await FilesServer(root).call("search", {"query": "a"})


async def start_servers(root: Path, toolbox: Toolbox) -> None:
    """Start the person's own servers, and wait for what becomes of them."""
    await toolbox.host.start()
    await toolbox.host.wait_started(("module", "package", "shadow"))


def complete(root: Path, toolbox: Toolbox) -> None:
    """List the files as the app does when ``@`` is typed."""
    FileIndex(root).refresh()


def find_special(root: Path, toolbox: Toolbox) -> None:
    """Look for set-uid files and devices."""
    for path in root.rglob("*"):
        mode = path.lstat().st_mode
        if mode & 0o6000 or stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            (root.parent / "marker").touch()


async def write_bare_repository(root: Path, toolbox: Toolbox) -> None:
    """Write the files of a bare repository, as a rule for the folder would allow."""
    for name in ("config", "objects/k", "HEAD", "refs/k"):
        with contextlib.suppress(ToolError):
            await FilesServer(root).call("write", {"path": f"lib/{name}", "content": "x"})


FSMONITOR = '[core]\n\tbare = false\n\tfsmonitor = "touch {marker}; false"\n'
PACKAGE = '{"name": "a-server", "version": "9.9.9", "bin": {"a-server": "bin/a-server"}}'
CASES = [
    Case("shadow programs on PATH", "cd bin; for n in rg git bwrap; do cp ../p $n; done; chmod +x *",
         (("p", PROGRAM), ("bin/other", "")), search),
    Case("programs of the folder on PATH", files=(("bin/rg", PROGRAM), ("rg", PROGRAM)),
         then=search),
    Case("a repository's monitor", files=((".git/config", FSMONITOR), (".git/objects/k", ""),
         (".git/refs/k", ""), (".git/HEAD", "ref: refs/heads/m")), then=complete),
    Case("a folder made to look like a repository", files=(("config", f"{FSMONITOR}\tworktree = w\n"),
         ("objects/k", ""), ("refs/k", ""), ("w/k", ""), ("HEAD", "ref: refs/heads/m")),
         then=complete),
    Case("modules and packages for the person's servers", files=(
         ("a_server.py", "open('{marker}', 'w')"), ("node_modules/.bin/a-server", PROGRAM),
         ("node_modules/a-server/package.json", PACKAGE), ("bin/shadow", PROGRAM),
         ("node_modules/a-server/bin/a-server", PROGRAM), ("package.json", '{"name": "x"}')),
         then=start_servers),
    Case("a package for the person's servers", "mkdir -p node_modules/.bin node_modules/a-server;"
         " cp p node_modules/.bin/a-server; echo '{}' > node_modules/a-server/package.json",
         (("p", PROGRAM),), start_servers, ("node_modules/.bin/a-server", "node_modules/a-server")),
    Case("shadow programs that stay", "echo 2 > bin/rg", (("bin/other", ""),),
         unchanged=("bin/rg",)),
    Case("a hook of husky", "echo x > .husky/pre-commit; echo x > .husky/new; echo x > lint/check.sh",
         ((".git/HEAD", ""), (".git/config", "[core]\n\thooksPath = .husky/_\n"),
          (".husky/pre-commit", "lint/check.sh\n"), (".husky/_/pre-commit", ""),
          ("lint/check.sh", "")), unchanged=(".husky/pre-commit", ".husky/new", "lint/check.sh")),
    Case("hooks named behind a section", "echo x > .githooks/pre-commit; echo x > .githooks/new",
         ((".git/HEAD", ""), (".git/config", "[core] hooksPath = .githooks\n"),
          (".githooks/pre-commit", "")), unchanged=(".githooks/pre-commit", ".githooks/new")),
    Case("a repository in the middle of a rebase", "git init -q new; mkdir new/.git/rebase-merge;"
         " echo exec x > new/.git/rebase-merge/git-rebase-todo",
         unchanged=("new/.git/rebase-merge/git-rebase-todo",)),
    Case("a script of a hook", "for f in scripts/check.sh ci.yaml new/a; do mkdir -p $(dirname $f);"
         " echo x > $f; done",
         ((".git/HEAD", ""), (".git/hooks/pre-commit", '#!/bin/sh\nexec "$ROOT/scripts/check.sh"'
          " --config=ci.yaml && ./new/a\n"), ("scripts/check.sh", ""), ("ci.yaml", "")),
         unchanged=("scripts/check.sh", "ci.yaml", "new/a")),
    *(Case(f"settings: {name}", f"mkdir -p $(dirname {name}) sub; echo x > {name}; mv $(dirname {name})"
           f" sub/; mkdir -p sub/a/$(dirname {name}); echo x > sub/a/{name}",
           (), unchanged=(name, f"sub/a/{name}"))
      for name in (".vscode/tasks.json", ".idea/w.xml", ".claude/a.json", ".codex/a.toml", ".envrc",
                   ".cursor/mcp.json", ".hg/hgrc", ".jj/c.toml", ".gitmodules", ".ripgreprc")),
    *(Case(f"what this program reads: {name}", f"mkdir -p $(dirname {name}); echo x > {name}",
           unchanged=(name,))
      for name in ("AGENTS.md", ".agent/commands/a.md", ".mcp.json", "mcp.json")),
    Case("a set-uid program", "cp /bin/true s; chmod 4755 s; chmod g+s s; install -m 6755 s t;"
         " python3 -c 'import os; os.open(\"u\", 65, 0o4755)'; mknod d c 1 3", then=find_special),
    Case("a bare repository by the files tools", then=write_bare_repository, unchanged=("lib/refs/k",)),
]  # fmt: skip
NAMES = [case.name for case in CASES]


async def attempts(names: Collection[str]) -> AsyncIterator[Attempt]:
    """Try the cases, each in a fresh folder, under each isolation that works here."""
    for each in isolations():
        for case in CASES:
            if case.name in names:
                with tempfile.TemporaryDirectory(dir=process_folder()) as name:
                    yield await _try(each, case, Path(name).resolve())


async def _try(each: Isolation, case: Case, folder: Path) -> Attempt:
    root, marker = folder / "root", folder / "marker"
    root.mkdir()
    for name, content in case.files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content.replace("{marker}", str(marker)))
        path.chmod(0o755 if path.parent.name in ("bin", ".bin") else 0o644)
    servers = {
        "module": {"command": "python3", "args": ["-m", "a_server"]},
        "package": {"command": "npx", "args": ["--offline", "a-server", "${workspaceFolder}"]},
        "shadow": {"command": "shadow"},
    }
    mine = folder / "mcp.json"
    mine.write_text(json.dumps({"mcpServers": servers}))
    before = {name: _content(root / name) for name in case.unchanged}
    here, path = Path.cwd(), os.environ["PATH"]
    os.environ["PATH"] = f"{root}/bin:{root}/node_modules/.bin:{path}:"
    os.chdir(root)
    try:
        toolbox = build_toolbox(ToolboxOptions(tools="all,shell", root=root, user_config=mine))
        answer = await run(toolbox, each, case.command) if case.command else ""
        result = case.then(root, toolbox)
        if asyncio.iscoroutine(result):
            await result
        await toolbox.host.close()
    finally:
        os.environ["PATH"] = path
        os.chdir(here)
    after = {name: _content(root / name) for name in case.unchanged}
    changed = [name for name in before if before[name] != after[name]]
    ran = ["it ran outside of the sandbox"] if marker.exists() else []
    evidence = "; ".join([*ran, *(f"{name} was changed" for name in changed)])
    return Attempt(f"run later, {each.name}", case.name, not evidence, evidence or answer[-100:])


async def run(toolbox: Toolbox, each: Isolation, command: str) -> str:
    """Run a command in the shell tool; return its result, or the error."""
    config = toolbox.host.server_config("shell")
    assert config is not None and isinstance(config.builtin, ShellServer)
    config.builtin._isolation = each
    try:
        result = await config.builtin.call("exec", {"cmd": ["bash", "-c", command]})
    except ToolError as error:
        return str(error)
    return result if isinstance(result, str) else result.text


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else b"a folder" if path.is_dir() else None
