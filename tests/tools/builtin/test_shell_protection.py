"""What runs later outside of the sandbox: no command of the shell builtin decides about it."""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Commands
from tests.support.invariants import check as check_stream
from tests.support.program import RunAgent
from tools.audit import AuditLog
from tools.builtin.shell.server import ShellServer
from tools.factory import ToolboxOptions, build_toolbox
from tools.sandbox.guard import take_snapshot
from tools.sandbox.repositories import RepositoryFinder


def git(folder: Path, *arguments: str) -> str:
    """Run git on the host, outside of any sandbox."""
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    allow = ["-c", "protocol.file.allow=always"]
    ran = subprocess.run(
        ["git", *identity, *allow, *arguments], cwd=folder, capture_output=True, text=True
    )
    return ran.stdout + ran.stderr


def commit(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "file").write_text("1\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")


@pytest.fixture
def repository(shell: Commands, tmp_path: Path) -> Path:
    """The root as a repository with one below it, a submodule, another that is not checked out, a
    worktree, a bare repository, and programs of the working tree that git is configured to run."""
    root = shell.builtin.root
    commit(tmp_path / "origin")
    commit(root)
    for name in ("mod", "empty"):
        git(root, "submodule", "add", "-q", str(tmp_path / "origin"), name)
    commit(root / "deep" / "nested")
    git(root, "clone", "-q", "--bare", str(tmp_path / "origin"), "deep/bare.git")
    (root / "tools").mkdir()
    scripts = {"monitor": "exit 1", "tools/filter": "cat", "tools/hooks/pre-commit": "exit 0"}
    for name, line in scripts.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(f"#!/bin/sh\n{line}\n")
        (root / name).chmod(0o755)
    (root / "tools/settings").write_text("[core]\n\thooksPath = tools/hooks\n")
    (root / "a.x").write_text("1\n")
    (root / ".gitattributes").write_text("*.x filter=x\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "second")
    git(root, "submodule", "deinit", "-q", "empty")
    git(root, "worktree", "add", "-q", "tree")
    git(root, "config", "core.fsmonitor", "./monitor")
    git(root, "config", "filter.x.clean", "tools/filter %f")
    git(root, "config", "include.path", "../tools/settings")
    assert git(root, "status", "--short").strip() == "?? tree/"
    return root


EVIL = "git config -f {config} core.fsmonitor {program}"


def evil(config: str) -> str:
    return EVIL.replace("{config}", config)


COPY = "cp -r .git/modules/mod sub/meta; git config -f sub/meta/config --unset core.worktree;"
COPY += evil("sub/meta/config")
NEW = "cp -r deep/nested sub/new"
HOOK = "hooks/post-index-change; chmod +x {git}/hooks/post-index-change; touch {git}/../file"
ATTACKS = {
    "config": evil(".git/config"),
    "worktree_config": "git config -f .git/config extensions.worktreeConfig true;"
    + evil(".git/config.worktree"),
    "hook": "git config -f .git/config --unset include.path;"
    " echo {program} > .git/" + HOOK.replace("{git}", ".git"),
    "attributes": "printf '* filter=y' > .git/info/attributes;"
    " git config -f .git/config filter.y.clean {program}",
    "submodule_config": evil(".git/modules/mod/config"),
    "nested_config": evil("deep/nested/.git/config"),
    "bare_config": "git config -f deep/bare.git/config core.bare false;"
    " git config -f deep/bare.git/config core.worktree .;" + evil("deep/bare.git/config"),
    "renamed": "mv .git g; cp -r g .git;" + evil(".git/config"),
    "parent_renamed": "mv deep/nested d; mkdir deep/nested; cp -r d/.git deep/nested/.git;"
    + evil("deep/nested/.git/config"),
    "upper_parent_renamed": "mv deep d; cp -r d deep;" + evil("deep/nested/.git/config"),
    "pointer_replaced": COPY + "; rm mod/.git; echo 'gitdir: ../sub/meta' > mod/.git",
    "worktree_pointer": "cp -r .git sub/meta; echo 'gitdir: ../sub/meta' > tree/.git;"
    + evil("sub/meta/config"),
    "submodule_created": COPY + "; cp -r sub/meta empty/.git",
    "pointer_created": COPY + "; echo 'gitdir: ../sub/meta' > empty/.git",
    "link_created": COPY + "; ln -s ../sub/meta empty/.git",
    "repository_created": NEW + ";" + evil("sub/new/.git/config"),
    "hook_created": NEW
    + "; echo {program} > sub/new/.git/"
    + HOOK.replace("{git}", "sub/new/.git"),
    "bare_created": "cp -r deep/nested/.git/. sub; git config -f sub/config core.worktree .;"
    + evil("sub/config"),
    "closed_folder": NEW + ";" + evil("sub/new/.git/config") + "; chmod 500 sub/new sub/new/.git",
    "hard_link": "ln .git/config sub/c",
    "hard_link_in_new": NEW + "; ln sub/new/.git/config sub/c",
    "linked_config": NEW + "; mv sub/new/.git/config sub/c; ln -s ../../c sub/new/.git/config",
    "monitor": "echo {program} > monitor",
    "monitor_renamed": "echo {program} > sub/m; chmod +x sub/m; mv sub/m monitor",
    "filter": "echo {program} > tools/filter; echo 2 > a.x",
    "filter_parent": "mv tools t; cp -r t tools; echo {program} > tools/filter; echo 2 > a.x",
    "include": evil("tools/settings"),
}
LATER = r"printf '\n[core]\nfsmonitor = %s\n' {program} >> sub/c"
"""What a second command does to a file that the first one may have linked to a configuration."""


@pytest.mark.long
async def test_exec_git_status_runs_nothing_of_commands(
    shell: Commands, repository: Path, tmp_path: Path
) -> None:
    marker, before = tmp_path / "ran", git(repository, "log", "--format=%s")
    program = shlex.quote(f"sh -c 'touch {marker}'")
    sub = repository / "sub"
    for name, attack in ATTACKS.items():
        shutil.rmtree(sub)
        sub.mkdir()
        for line in (attack, LATER) if "link" in name else (attack,):
            await shell(line.replace("{program}", program))
        names = [*repository.rglob("HEAD*"), *repository.rglob(".git*")]
        folders = {path.parent for path in names if ".git" not in path.parent.parts}
        for folder in folders:
            git(folder, "status")
            assert not marker.exists(), (name, folder)
    assert git(repository, "log", "--format=%s") == before


async def test_exec_git_reads_and_changes_with_permission(
    shell: Commands, repository: Path
) -> None:
    assert "second\n" in await shell("git log --format=%s -1; git status --short; git diff")
    line = "echo 2 >> file; git -c user.name=t -c user.email=t@t commit -qam third; git log -1"
    assert "third" not in await shell(line)
    assert "third" in await shell(line, changes_git=True)
    assert "third" in git(repository, "log", "-1")
    nested = "mkdir a; cd a; git init -q; git config core.fsmonitor x"
    assert await shell(nested, changes_git=True) == "[exit code 0]"
    assert (repository / "a" / ".git").is_dir()


async def test_exec_created_repository(shell: Commands) -> None:
    root = shell.builtin.root
    assert await shell("cd sub && git init -q") == "[exit code 0]"
    assert (root / "sub" / ".git" / "config").is_file()
    text = await shell("git init -q && git config core.fsmonitor x")
    name = ".git.refused"
    if text == "[exit code 0]":
        pytest.fail("a repository that runs programs stays")
    if (root / name).exists():  # Landlock: nothing can be created beside sub/.git's parents
        assert f'".git" is now {name}' in text and not (root / ".git").exists()


async def test_exec_linked_repository_restored(shell: Commands, tmp_path: Path) -> None:
    root = shell.builtin.root
    commit(root / "sub" / "project")
    (root / "sub" / "project" / ".git").rename(root / "sub" / "meta")
    link = root / "sub" / "project" / ".git"
    link.symlink_to("../meta")
    text = await shell("cd sub/project && rm -f .git; cp -r ../meta .git")
    assert link.is_symlink() and "first" in git(link.parent, "log")
    await shell(evil("sub/meta/config").replace("{program}", "x"))
    assert "fsmonitor" not in (root / "sub" / "meta" / "config").read_text(), text


async def test_exec_root_that_is_a_repository_refused(shell: Commands) -> None:
    git(shell.builtin.root, "init", "-q", "--bare", ".")
    assert "needs changes_git" in await shell.fails("true")
    assert await shell("true", changes_git=True) == "[exit code 0]"


@pytest.mark.long
async def test_exec_files_of_trusted_servers_protected(shell: Commands, tmp_path: Path) -> None:
    root = shell.builtin.root
    files = ("scripts/server.py", "scripts/preload.py", "pkg/app.py", "conf.json", ".mcp.json")
    for name in files:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("1\n")
    (root / ".mcp.json").write_text('{"mcpServers": {}}')
    outside = tmp_path / "mine.json"
    server = {"command": "python3", "args": ["-u", "scripts/server.py", "--config=conf.json"]}
    server["env"] = {"PRELOAD": f"{root}/scripts/preload.py"}
    outside.write_text(json.dumps({"mcpServers": {"mine": server}}))
    toolbox = build_toolbox(ToolboxOptions(
        tools="shell", mcp_config=[outside], mcp=["m=python3 -m pkg.app"], root=root,
        user_config=tmp_path / "none.json",
    ))  # fmt: skip
    builtin = toolbox.host.server_config("shell")
    assert builtin is not None and isinstance(builtin.builtin, ShellServer)
    builtin.builtin._isolation = shell.builtin._isolation
    shell.builtin = builtin.builtin
    before = [(root / name).read_text() for name in files]
    for name in files:
        await shell(f"echo 2 >> {name}; echo 2 > sub/x; mv -f sub/x {name}; rm -f {name}")
    await shell("mv scripts s; mkdir scripts; echo 2 > scripts/server.py; echo 2 > pkg/other.py")
    assert [(root / name).read_text() for name in files] == before
    assert not (root / "pkg" / "other.py").exists()
    await toolbox.host.close()


async def test_exec_own_python_protected(shell: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    root = shell.builtin.root
    (root / "deep" / "venv" / "bin").mkdir(parents=True)
    own = root / "deep" / "venv" / "bin" / "python"
    own.write_text("1")
    shell.builtin = ShellServer(root, isolation=shell.builtin._isolation)
    shell.builtin.guard._own_paths = (root / "deep" / "venv",)
    await shell("mv deep d; cp -r d deep; echo 2 > deep/venv/bin/python")
    assert own.read_text() == "1"


async def test_exec_changes_are_listed_and_logged(shell: Commands, tmp_path: Path) -> None:
    root, log = shell.builtin.root, tmp_path / "audit.jsonl"
    shell.builtin.audit = AuditLog(log)
    (root / "old").write_text("1")
    (root / "sub" / "gone").write_text("1")
    await shell("echo 2 > old; rm sub/gone; mkdir a; touch a/new 'a/\udcff'; touch sub/b")
    expected = {"created": ["a/new", "a/\udcff", "sub/b"], "modified": ["old"]}
    assert shell.changes == expected | {"deleted": ["sub/gone"], "total": 5}
    assert json.loads(log.read_text())["changes"] == shell.changes
    await shell("true")
    assert shell.changes == {"total": 0}
    await shell("seq 99 | xargs touch")
    assert len(shell.changes["created"]) == 50 and shell.changes["total"] == 99
    assert take_snapshot(root, 0.0) is None


def test_repository_finder_folder_that_changed_is_listed_again(tmp_path: Path) -> None:
    finder = RepositoryFinder(tmp_path)
    (tmp_path / "a" / "b").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "a", tmp_path / "a" / "b"):
        os.utime(folder, (1, 1))
    assert finder.find() == set()
    for name in ("a/b/.git", "a/.GIT", "link"):
        path = tmp_path / name
        path.symlink_to("nowhere") if name == "link" else path.mkdir()
        os.utime(path.parent, (1, 1))
        assert finder.find() >= ({path} if name != "link" else set())
    (tmp_path / "a").rename(tmp_path / "c")
    assert finder.find() == {tmp_path / "c" / "b" / ".git", tmp_path / "c" / ".GIT"}


GIT_CALL = (
    "<|channel|>analysis to=container.exec code<|message|>"
    '{"cmd":["bash","-c","git init -q; git config core.fsmonitor x; cat .git/config"],'
    '"changes_git":true}<|call|>'
)
DONE = "<|channel|>final<|message|>Done.<|return|>"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("approve", "missing"),
    [
        ("shell", "shell.changes_git"),
        ("all", "shell.changes_git"),
        ("shell.changes_git", "shell.exec"),
        ("shell,shell.changes_git", None),
    ],
)
def test_run_changes_git_needs_own_permission(
    agent: RunAgent, script: Callable[..., str], approve: str, missing: str | None
) -> None:
    engine = ("--engine", script(GIT_CALL, DONE), "--json-events")
    ran = agent("run", "go", "--tools", "shell", "--approve", approve, *engine)
    call: Any = check_stream(ran.events)["output"][0]
    if missing is None:
        assert "fsmonitor" in call["output"]
    else:
        request = next(e for e in ran.events if e["type"] == "agent.approval.requested")
        assert ("git's data" in request["reason"]) == (missing == "shell.changes_git")
        assert f"to allow it: --approve {missing}" in call["error"]["message"]


@pytest.mark.long
async def test_exec_scripts_of_hooks_read_only(shell: Commands) -> None:
    """Of husky's hooks, and of plain ones: what they call from the working tree."""
    root = shell.builtin.root
    commit(root)
    git(root, "config", "core.hooksPath", ".husky/_")
    for name, text in {
        ".husky/_/pre-commit": '. "$(dirname "$0")/h"\n',
        ".husky/pre-commit": "# sh sub/free.sh\nsh lint/check.sh && ${ROOT}/lint/more.sh\n",
        ".git/hooks/pre-push": 'exec "$(git rev-parse --show-toplevel)/lint/push" --config=ci.yaml\n',
        ".git/hooks/commit-msg.sample": "sub/free.sh\n",
        **dict.fromkeys(("lint/check.sh", "lint/more.sh", "lint/push"), "1\n"),
        **dict.fromkeys(("ci.yaml", "sub/free.sh"), "1\n"),
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name in (".husky/pre-commit", "lint/check.sh", "lint/more.sh", "lint/push", "ci.yaml"):
        before = (root / name).read_text()
        await shell(f"echo 2 > {name}; rm -f {name}; mv lint l; echo 2 > {name}")
        assert (root / name).read_text() == before, name
    await shell("echo 2 > sub/free.sh; echo 2 > .husky/new")
    assert (root / "sub" / "free.sh").read_text() == "2\n" and not (
        root / ".husky" / "new"
    ).exists()
