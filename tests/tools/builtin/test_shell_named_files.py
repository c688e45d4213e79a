"""What this program's settings, servers and approval rules name: no command of the shell changes it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Commands
from tests.support.interpreter import Interpreter
from tests.support.invariants import check as check_stream
from tests.support.program import RunAgent
from tools.builtin.files.server import FilesServer
from tools.builtin.shell.server import ShellServer
from tools.builtin_server import ToolError
from tools.config.named_files import rule_files
from tools.factory import Toolbox, ToolboxOptions, build_toolbox
from tools.policy.approval_store import ApprovalStore
from tools.sandbox import isolation as sandbox_isolation
from tools.sandbox.repositories import disarm

SETTINGS = ("config/mcp.json", "config/models.toml", "config/AGENTS.md", "state/approvals.json")


def use_toolbox(shell: Commands, tmp_path: Path, **options: Any) -> Toolbox:
    """Run the commands of ``shell`` in the shell tool of a toolbox with these options."""
    root = shell.builtin.root
    toolbox = build_toolbox(
        ToolboxOptions(tools="shell", root=root, user_config=tmp_path / "mine.json", **options)
    )
    config = toolbox.host.server_config("shell")
    assert config is not None and isinstance(config.builtin, ShellServer)
    config.builtin._isolation = shell.builtin._isolation
    shell.builtin = config.builtin
    return toolbox


def write_servers(tmp_path: Path, **servers: dict[str, Any]) -> None:
    """Write the person's own mcp.json, outside of the root."""
    (tmp_path / "mine.json").write_text(json.dumps({"mcpServers": servers}))


def write(root: Path, *names: str, text: str = "1\n") -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def run_python(script: Path) -> str:
    """Run a script outside of any sandbox, as a server of that name would be; return its output."""
    ran = subprocess.run(
        [sys.executable, "-B", script], cwd=script.parent, capture_output=True, text=True
    )
    return ran.stdout


async def test_exec_own_folders_read_only_also_missing(shell: Commands, tmp_path: Path) -> None:
    root = shell.builtin.root
    write(root, "home/config/config.toml", "home/other")
    own = [root / "home" / name for name in ("config", "state", "cache")]
    use_toolbox(shell, tmp_path, own_folders=own)
    for name in SETTINGS:
        await shell(f"mkdir -p $(dirname home/{name}); echo 2 > home/{name}")
        assert not (root / "home" / name).exists(), name
    await shell("echo 2 > home/config/config.toml; mv home h; cp -r h home; rm -rf home/config")
    await shell("mkdir -p home/config; echo 2 > home/config/config.toml")
    assert (root / "home" / "config" / "config.toml").read_text() == "1\n"
    await shell("echo 2 > home/other; echo 2 > sub/new")
    assert (root / "home" / "other").read_text() == (root / "sub" / "new").read_text() == "2\n"


async def test_exec_own_folder_behind_link_read_only(shell: Commands, tmp_path: Path) -> None:
    root = shell.builtin.root
    write(root, "dotfiles/config/config.toml")
    (root / ".config").symlink_to("dotfiles/config")
    use_toolbox(shell, tmp_path, own_folders=[root / ".config"])
    await shell("echo 2 > .config/mcp.json; echo 2 > dotfiles/config/mcp.json; rm .config")
    await shell("rm -f .config; mkdir .config; echo 2 > .config/mcp.json")
    assert (root / ".config").is_symlink()
    assert [path.name for path in (root / ".config").iterdir()] == ["config.toml"]


async def test_exec_root_in_own_folder_refused(shell: Commands, tmp_path: Path) -> None:
    use_toolbox(shell, tmp_path, own_folders=[shell.builtin.root.parent])
    assert "is a part of this program" in await shell.fails("true")


async def test_files_own_folders_not_changed(tmp_path: Path) -> None:
    write(tmp_path, "home/config/config.toml", "home/other")
    (tmp_path / "link").symlink_to("home/config")
    files = FilesServer(
        tmp_path, own_folders=[tmp_path / "home" / "config", tmp_path / "home" / "state"]
    )
    patch = "*** Begin Patch\n*** Update File: home/other\n*** Move to: home/state/approvals.json\n"
    calls: list[tuple[str, dict[str, Any]]] = [
        ("write", {"path": "home/config/config.toml", "content": "2"}),
        ("write", {"path": "home/config/mcp.json", "content": "2"}),
        ("write", {"path": "link/models.toml", "content": "2"}),
        ("apply_patch", {"input": f"{patch}@@\n-1\n+2\n*** End Patch"}),
    ]
    for name, arguments in calls:
        for method in (files.preview, files.requirements):
            with pytest.raises(ToolError, match="of this program"):
                method(name, arguments)
        with pytest.raises(ToolError, match="of this program"):
            await files.call(name, arguments)
    assert "1" in await files.call("read", {"path": "home/config/config.toml"})
    await files.call("write", {"path": "home/other", "content": "2"})
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == ["config.toml"]
    await files.close()


async def test_python_own_folders_out_of_reach(confined: Interpreter, tmp_path: Path) -> None:
    write(tmp_path, "config/config.toml")
    for name in ("config.toml", "mcp.json"):
        with pytest.raises(ToolError, match=r"(Permission|FileNotFound)Error"):
            await confined(f"open({str(tmp_path / 'config' / name)!r}, 'w').write('2')")
    assert [path.read_text() for path in (tmp_path / "config").iterdir()] == ["1\n"]


WRITE_SETTINGS = (
    "<|channel|>analysis to=container.exec code<|message|>"
    '{"cmd":["bash","-c","mkdir -p home/config;'
    " for f in config/mcp.json config/config.toml state/approvals.json; do"
    ' echo {} > home/$f; done; ls home/*"]}<|call|>'
)
DONE = "<|channel|>final<|message|>Done.<|return|>"


@pytest.mark.slow
def test_run_own_folders_below_root_read_only(
    agent: RunAgent, script: Callable[..., str], home: Path
) -> None:
    engine = ("--engine", script(WRITE_SETTINGS, DONE), "--json-events")
    ran = agent(
        "run", "go", "--tools", "shell", "--approve", "shell", "--root", str(home.parent), *engine
    )
    call: Any = check_stream(ran.events)["output"][0]
    assert "store.sqlite" in call["output"]
    assert (
        not list((home / "config").iterdir()) and not (home / "state" / "approvals.json").exists()
    )


@pytest.mark.long
async def test_exec_folders_of_servers_read_only(shell: Commands, tmp_path: Path) -> None:
    root = shell.builtin.root
    files = ["nodes/index.js", "pkg/app.py", "pkg/lib.py", "work/main.py", "scripts/server.py"]
    files += ["vendor/tool.py", "bin/run"]
    write(root, *files)
    (root / "bin" / "run").write_text("#!/bin/sh\n")
    (root / "start").symlink_to("bin/run")
    write_servers(
        tmp_path,
        a={"command": "node", "args": ["nodes"]},
        b={"command": "python3", "args": ["-m", "pkg.app"], "env": {"PYTHONPATH": "vendor:x"}},
        c={"command": "uv", "args": ["run", "main.py"], "cwd": str(root / "work")},
        d={"command": "python3", "args": ["scripts/server.py"]},
        e={"command": str(root / "start")},
    )
    use_toolbox(shell, tmp_path)
    before = [(root / name).read_text() for name in files]
    for name in files:
        text = await shell(f"echo 2 > {name}; echo 2 > $(dirname {name})/json.py")
        assert "Commands cannot change" in text and "files tools can" in text
    await shell("mv nodes n; mv scripts s; mkdir scripts; echo 2 > scripts/server.py; rm -rf pkg")
    assert [(root / name).read_text() for name in files] == before
    assert not list(root.rglob("json.py"))
    assert await shell("echo 2 > sub/json.py") == "[exit code 0]"


async def test_exec_missing_files_of_servers_not_created(shell: Commands, tmp_path: Path) -> None:
    root = shell.builtin.root
    write_servers(
        tmp_path,
        a={"command": "python3", "args": ["sub/later.py"]},
        b={"command": "node", "args": ["sub/later"]},
        c={"command": "python3", "args": ["-m", "module"]},
        d={"command": "npm", "args": ["run", "start"]},
    )
    use_toolbox(shell, tmp_path)
    text = await shell("cd sub; echo 2 > later.py; mkdir later; echo 2 > later/index.js")
    assert '"sub/later.py" is now later.py.refused: a server' in text
    assert (root / "sub" / "later.refused" / "index.js").exists()
    for line in ("echo 2 > module.py", "mkdir module; echo 2 > module/__main__.py"):
        await shell(line)
    assert not (root / "module.py").exists() and not (root / "module" / "__main__.py").exists()
    assert await shell("mkdir start; touch start/a run other.py sub/module.py") == "[exit code 0]"


@pytest.mark.long
async def test_exec_modules_beside_script_in_root_not_created(
    shell: Commands, tmp_path: Path
) -> None:
    root = shell.builtin.root
    script = "import json, helper\nfrom lib.part import f\nimport httpx as h\nprint(json.LOADED)\n"
    write(root, "helper.py", "lib/part.py", text="import queue, deep.inner\nf = 1\n")
    write(root, "deep/__init__.py", "deep/inner.py", "tests/test_a.py")
    write(root, "server.py", text=script)
    write_servers(tmp_path, a={"command": "python3", "args": ["server.py"]})
    use_toolbox(shell, tmp_path)
    attacks = ["echo LOADED=1 > json.py", "mkdir json; echo LOADED=1 > json/__init__.py"]
    attacks += ["mkdir sub/p; echo LOADED=1 > sub/p/__init__.py; ln -s sub/p json"]
    attacks += ["touch httpx.cpython-399-x86_64-linux-gnu.so", "touch httpx.pyc", "touch queue.py"]
    for attack in attacks:
        await shell(attack)
        assert "1" not in run_python(root / "server.py"), attack
        names = {path.name for path in root.iterdir()}
        assert not names & {"json.py", "httpx.pyc", "queue.py"} and not list(root.glob("httpx.*so"))
    for name in ("helper.py", "lib/part.py", "deep/__init__.py", "deep/inner.py"):
        before = (root / name).read_text()
        await shell(f"echo 2 > {name}; rm -f {name}")
        assert (root / name).read_text() == before
    await shell("python3 -c 'import py_compile; py_compile.compile(\"helper.py\")'")
    assert not list((root / "__pycache__").glob("*"))
    await shell("echo 2 > tests/test_a.py; echo 2 > sub/json.py; touch other.py")
    assert (root / "tests" / "test_a.py").read_text() == "2\n" and (root / "sub/json.py").exists()
    assert (root / "other.py").exists() == (shell.isolation == "bubblewrap")


async def test_exec_scripts_of_rules_read_only(shell: Commands, tmp_path: Path) -> None:
    root, approvals = shell.builtin.root, tmp_path / "approvals.json"
    write(root, "sub/build.sh", "sub/check.py", "sub/data")
    store = ApprovalStore(approvals, root)
    store.add_rules([f"run {root}/sub/build.sh --fast", "run python3 -u sub/check.py", "run ls …"])
    store.add_rules([f"run {root}/sub/later.sh", f"write {root}/sub/…", f"run {root}/sub/data"])
    use_toolbox(shell, tmp_path, approvals_file=approvals)
    for name in ("build.sh", "check.py"):
        await shell(f"echo 2 > sub/{name}; rm -f sub/{name}")
        assert (root / "sub" / name).read_text() == "1\n"
    await shell("echo 2 > sub/later.sh; echo 2 > sub/data")
    assert not (root / "sub" / "later.sh").exists()
    assert (root / "sub" / "data").read_text() == "2\n"  # no script: something that is built


def test_rule_files_odd_rules_name_nothing(tmp_path: Path) -> None:
    write(tmp_path, "a.sh", "b.py")
    rules = ["run", "run '", "run bash", "run A=1 bash -e a.sh", "run python3 -m b.py", "run . …"]
    rules += [
        "run python3 -c a.sh",
        "run ../x.sh",
        "run a.sh",
        f"open {tmp_path}/a.sh",
        "run ./b.py\0",
    ]
    assert list(rule_files(tmp_path, rules)) == [tmp_path / "a.sh"]


FOREIGN_SETTINGS = (".vscode/tasks.json", ".idea/workspace.xml", ".claude/settings.json", ".envrc")
FOREIGN_SETTINGS += (".codex/config.toml", ".cursor/mcp.json", ".hg/hgrc", ".jj/config.toml")
FOREIGN_SETTINGS += (".gitmodules", ".ripgreprc", ".mcp.json", ".husky/pre-commit", ".bashrc")


@pytest.mark.long
async def test_exec_settings_of_other_programs_read_only_also_missing(shell: Commands) -> None:
    root = shell.builtin.root
    own = (*FOREIGN_SETTINGS, "AGENTS.md", ".agent/commands/a.md", "mcp.json")
    write(root, *(f"sub/{name}" for name in FOREIGN_SETTINGS), *own[1:])
    names = (*own[1:], *(f"sub/{name}" for name in FOREIGN_SETTINGS))
    folders = {name: Path(name).parent for name in names}
    await shell(
        "; ".join(
            f"echo 2 > {name}; rm -rf {name}; mv {folder} x; mkdir -p {folder}; echo 2 > {name}"
            for name, folder in folders.items()
        )
    )
    for name in names:
        assert (root / name).read_text() == "1\n", name
    for name in (own[0], f"x/y/{own[0]}", *(f"new/{name}" for name in FOREIGN_SETTINGS)):
        text = await shell(f"mkdir -p $(dirname {name}) && echo 2 > {name}")
        assert "refused" in text or "Permission denied" in text, name
        assert not (root / name).exists(), name
    assert "refused" not in await shell("mkdir -p sub/node_modules/p/.vscode sub/a/b/c/.vscode")


async def test_exec_folders_of_path_read_only_also_missing(
    shell: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = shell.builtin.root
    write(root, "env/bin/old")
    monkeypatch.setenv("PATH", f"{root}/env/bin:{root}/sub/later:{os.environ['PATH']}:{root}:.")
    await shell("echo 2 > env/bin/old; echo 2 > env/bin/rg; mv env e")
    text = await shell("mkdir sub/later && echo 2 > sub/later/rg")
    assert [path.name for path in (root / "env" / "bin").iterdir()] == ["old"]
    assert '"sub/later" is now later.refused' in text


@pytest.mark.long
async def test_exec_packages_of_servers_read_only_also_missing(
    shell: Commands, tmp_path: Path
) -> None:
    root = shell.builtin.root
    write(root, "package.json", "sub/package.json", "node_modules/@a/server/i.js")
    write(root, "node_modules/.bin/other", "node_modules/b/i.js")
    write_servers(
        tmp_path,
        a={"command": "npx", "args": ["-y", "@a/server@1.2"]},
        b={"command": "pnpm", "args": ["dlx", "later"], "cwd": str(root / "sub")},
    )
    toolbox = use_toolbox(shell, tmp_path)
    names = ("package.json", "node_modules/@a/server/i.js", "node_modules/.bin/other")
    for name in (*names, "sub/package.json"):
        await shell(f"echo 2 > {name}; rm -f {name}; echo 2 > {name}")
        assert (root / name).read_text() == "1\n", name
    for name in (".npmrc", "node_modules/.bin/server", "sub/node_modules/later/i.js"):
        await shell(f"mkdir -p $(dirname {name}); echo 2 > {name}")
        assert not (root / name).exists(), name
    assert await shell("echo 2 > node_modules/b/i.js") == "[exit code 0]"
    files = toolbox.host.server_config("shell")
    assert files is not None and isinstance(files.builtin, ShellServer) and files.builtin.files
    for name in (*names, ".npmrc", "sub/node_modules/later/i.js"):
        assert files.builtin.files.extra_permissions("write", {"path": name, "content": ""}), name


def test_files_what_runs_later_needs_own_permission(tmp_path: Path) -> None:
    files = FilesServer(tmp_path)
    write(tmp_path, "sub/.vscode/tasks.json", "a.py")
    (tmp_path / "link").symlink_to("sub/.vscode")
    names = [*FOREIGN_SETTINGS, *(f"x/y/z/{name}" for name in FOREIGN_SETTINGS), "AGENTS.md"]
    for name in (*names, "link/tasks.json", ".agent/commands/a.md", ".VSCode/tasks.json"):
        (extra,) = files.extra_permissions("write", {"path": name, "content": "2"})
        assert extra.name == "changes_run_later", name
    for name in ("a.py", "sub/AGENTS.md", "vscode/tasks.json"):
        assert files.extra_permissions("write", {"path": name, "content": "2"}) == [], name
    patch = (
        "*** Begin Patch\n*** Update File: a.py\n*** Move to: .husky/a\n@@\n-1\n+2\n*** End Patch"
    )
    assert files.extra_permissions("apply_patch", {"input": patch})
    shell = ShellServer(tmp_path, files=files)
    assert shell.extra_permissions("exec", {"cmd": ["apply_patch", patch]})


@pytest.mark.slow
def test_run_what_runs_later_is_not_covered_by_approving_files(
    agent: RunAgent, script: Callable[..., str], tmp_path: Path
) -> None:
    write_tasks = (
        "<|channel|>commentary to=functions.files__write<|message|>"
        '{"path":".vscode/tasks.json","content":"2"}<|call|>'
    )
    (tmp_path / "root").mkdir()
    options = ("run", "go", "--tools", "files", "--root", str(tmp_path / "root"), "--json-events")
    for approve, exists in (("files", False), ("files,files.changes_run_later", True)):
        ran = agent(*options, "--approve", approve, "--engine", script(write_tasks, DONE))
        check_stream(ran.events)
        assert (tmp_path / "root" / ".vscode" / "tasks.json").exists() == exists, approve


@pytest.mark.parametrize(
    "order", [("HEAD", "objects/k", "refs/k", "config"), ("config", "commondir", "HEAD")]
)
async def test_files_no_bare_repository(tmp_path: Path, order: tuple[str, ...]) -> None:
    files = FilesServer(tmp_path)
    with pytest.raises(ToolError, match="makes a git repository"):
        for name in order:
            await files.call("write", {"path": f"lib/{name}", "content": "x"})
    assert not {"HEAD", "objects", "refs"} <= {path.name for path in (tmp_path / "lib").iterdir()}
    added = "".join(f"*** Add File: p/{name}\n+x\n" for name in (*order, "refs/x", "objects/x"))
    with pytest.raises(ToolError, match="makes a git repository"):
        await files.call("apply_patch", {"input": f"*** Begin Patch\n{added}*** End Patch"})
    write(tmp_path, "bare/HEAD", "bare/objects/k", "bare/refs/k")
    with pytest.raises(ToolError, match="makes a git repository"):
        await files.call("write", {"path": "bare/config", "content": "x"})
    await files.close()


def test_toolbox_program_s_own_files_not_changed() -> None:
    """A checkout in which the program runs, as the README sets it up."""
    checkout = Path(sandbox_isolation.__file__).parents[2]
    toolbox = build_toolbox(ToolboxOptions(tools="files", root=checkout))
    config = toolbox.host.server_config("files")
    assert config is not None and isinstance(config.builtin, FilesServer)
    names = ["tui/app.py", "agent/new.py", "tools/x.py", "models.toml", "pyproject.toml"]
    for name in (*names, "packaging/wheel/a.py"):
        with pytest.raises(ToolError, match="of this program"):
            config.builtin.preview("write", {"path": name, "content": "x"})
    assert config.builtin.preview("write", {"path": "docs/new.md", "content": "x"})


def test_own_paths_are_all_that_is_packaged() -> None:
    checkout = Path(sandbox_isolation.__file__).parents[2]
    packages = {path.parent.name for path in checkout.glob("*/__init__.py")} - {"tests"}
    names = {path.name for path in sandbox_isolation.own_paths() if path.parent == checkout}
    assert packages | {"models.toml", "pyproject.toml"} <= names


@pytest.mark.long
async def test_exec_no_set_uid_file_or_device(shell: Commands) -> None:
    lines = ["chmod 4755 f", "chmod u+s f", "chmod g+s f", "install -m 4755 /bin/true g"]
    lines += ["mknod c c 1 3", "python3 -c 'import os; os.mknod(\"m\", 0o104755)'"]
    lines += ["python3 -c 'import os; os.open(\"o\", os.O_CREAT | os.O_WRONLY, 0o6755)'"]
    await shell("cp /bin/true f; mkdir d; chmod 2777 d; " + "; ".join(lines))
    for path in shell.builtin.root.rglob("*"):
        assert path.is_dir() or path.is_file(), path
        assert not path.lstat().st_mode & 0o6000, path
    assert await shell("touch x; chmod 755 x; mkfifo p; mkdir -m 1777 t; rm p") == "[exit code 0]"


IN_HOME = (".bashrc", ".profile", ".ssh/authorized_keys", ".ssh/id", ".local/bin/git", ".gitconfig")
IN_HOME += (".config/systemd/user/a.service", ".config/autostart/a.desktop", ".gnupg/k", ".netrc")


@pytest.mark.parametrize("exists", [True, False])
async def test_exec_home_as_root_start_files_read_only_and_keys_unreadable(
    shell: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    root = shell.builtin.root
    monkeypatch.setenv("HOME", str(root))
    keys = (".ssh/id", ".gnupg/k", ".netrc")
    if exists:
        write(root, *IN_HOME, ".config/other/file", "notes/a", text="of the person\n")
    toolbox = use_toolbox(shell, tmp_path, allow_home=True)
    for name in IN_HOME:
        folder = str(Path(name).parent)
        await shell(
            f"mkdir -p {folder}; echo 2 > {name}; rm -rf {name}; mv {folder} x; echo 2 > {name}"
        )
        path = root / name
        assert path.read_text() == "of the person\n" if exists else not path.exists(), name
    if exists:
        text = await shell(f"cat {' '.join(keys)}; cat notes/a; ls; echo 2 > .config/other/file")
        assert text.count("of the person") == 1 and "notes" in text
        assert (root / ".config" / "other" / "file").read_text() == "2\n"
        files = FilesServer(root)
        for name in keys:
            with pytest.raises(ToolError, match="files with keys"):
                await files.call("read", {"path": name})
            with pytest.raises(ToolError, match="files with keys"):
                await files.call("write", {"path": name, "content": "2"})
        matches = await files.call("search", {"query": "person"})
        assert "notes/a:1" in matches and ".netrc" not in matches
        assert files.extra_permissions("write", {"path": ".local/bin/git", "content": "2"})
    await toolbox.host.close()


@pytest.mark.slow
def test_run_home_as_root_needs_option(
    agent: RunAgent, script: Callable[..., str], tmp_path: Path
) -> None:
    root = tmp_path / "people" / "me"
    root.mkdir(parents=True)
    engine = ("--engine", script(DONE))
    for folder, verb in ((root, "is"), (root.parent, "holds")):
        options = ("run", "go", "--root", str(folder), *engine)
        for tools in ("shell", "files", "files.write"):
            refused = agent(*options, "--tools", tools, env={"HOME": str(root)})
            assert refused.code == 2 and f"{verb} your home folder" in refused.err
            assert "--allow-home" in refused.err and "Traceback" not in refused.err
        assert agent(*options, "--tools", "python,files.read", env={"HOME": str(root)}).code == 0
    allowed = agent(*options, "--tools", "shell", "--allow-home", env={"HOME": str(root)})
    assert allowed.code == 0
    assert agent(*options, "--tools", "files", env={"HOME": str(root)}).code == 0, "asked once"
    listed = agent("approvals", "list", env={"HOME": str(root)})
    assert "the home folder as a root" in listed.out


def test_files_hooks_that_git_runs_need_own_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home := tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    root = tmp_path / "root"
    write(root, "a.py", ".hooks/pre-commit", "sub/deep/hooks/x", ".own/pre-push")
    for folder in (root, root / "sub"):
        subprocess.run(["git", "init", "-q", folder], check=True)
    with (root / ".git/config").open("a") as file:
        file.write("[core] hooksPath = .hooks\n")
    (root / "sub/.git/config").write_text("[core]\nhooksPath = deep/hooks\n")
    (home / ".gitconfig").write_text("[core]\nhooksPath = .own\n[alias]\nx = !a.py\n")
    files = FilesServer(root)
    for name in (".hooks/pre-commit", ".hooks/new", "sub/deep/hooks/x", ".own/pre-push"):
        (extra,) = files.extra_permissions("write", {"path": name, "content": "2"})
        assert extra.name == "changes_run_later", name
    assert files.extra_permissions("write", {"path": "a.py", "content": "2"}) == []


def test_rule_files_are_scripts_behind_any_options(tmp_path: Path) -> None:
    rules = (
        "run python3 -O a.py", "run node --no-warnings b.js x", "run python3 -W ignore c.py d.py",
        "run ./e.sh", "run A=1 sh -eu f.sh", "run ls g.py", "write h.py",
    )  # fmt: skip
    found = [path.name for path in rule_files(tmp_path, rules)]
    assert found == ["a.py", "b.js", "c.py", "e.sh", "f.sh"]


@pytest.mark.parametrize("name", ["rebase-merge", "rebase-apply", "sequencer"])
def test_disarm_renames_a_repository_in_the_middle_of_work(tmp_path: Path, name: str) -> None:
    """``git rebase --continue`` runs what its list of steps says."""
    subprocess.run(["git", "init", "-q", tmp_path / "new"], check=True)
    repository = tmp_path / "new/.git"
    for hook in (repository / "hooks").glob("*"):
        hook.unlink()
    assert disarm(repository) is None, "a new one stays"
    write(repository, f"{name}/git-rebase-todo")
    assert disarm(repository) is not None
