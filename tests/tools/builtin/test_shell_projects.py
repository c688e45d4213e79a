"""Work in a repository: the tools that a developer starts every day run in the sandbox."""

import os
import pwd
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import Commands
from tools.sandbox.isolation import ResourceLimits

pytestmark = pytest.mark.slow

CARGO = '[package]\nname = "hello"\nversion = "0.1.0"\nedition = "2021"\n'
PACKAGE = '{"name": "work", "version": "1.0.0", "dependencies": {"left": "file:left.tgz"}}'


@pytest.fixture
def repository(shell: Commands) -> Commands:
    """The shell, with its usual limits, in the root of a repository."""
    root = shell.builtin.root
    shell.builtin.limits = ResourceLimits()
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / "a.txt").write_text("one\n")
    return shell


async def run(shell: Commands, line: str) -> str:
    """Run a line in the root; under Landlock it asks for the permission to change the root."""
    text = await shell(line, changes_git=shell.isolation == "landlock", timeout=300_000)
    assert text.endswith("[exit code 0]"), text
    return text


async def test_files_and_folders(repository: Commands) -> None:
    await run(repository, "mkdir src && touch src/b && rm -r src && sed -i s/one/two/ a.txt")
    assert (repository.builtin.root / "a.txt").read_text() == "two\n"


async def test_commit(repository: Commands) -> None:
    identity = "-c user.name=Ada -c user.email=ada@example.org"
    await repository(f"git add -A && git {identity} commit -qm first", changes_git=True)
    assert "first" in await repository("git log --oneline")


async def test_virtual_environment_and_pytest(repository: Commands) -> None:
    root = repository.builtin.root
    (root / "test_sum.py").write_text("def test_sum():\n    assert 1 + 1 == 2\n")
    await run(repository, "python3 -m venv env && env/bin/python -m pip --version")
    line = f"{shlex.quote(sys.executable)} -m pytest -q -p no:cacheprovider test_sum.py"
    assert "1 passed" in await run(repository, line)


@pytest.mark.long
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
async def test_npm_install_from_file(repository: Commands) -> None:
    root = repository.builtin.root
    (root / "left").mkdir()
    (root / "left/package.json").write_text('{"name": "left", "version": "1.0.0"}')
    (root / "package.json").write_text(PACKAGE)
    await run(repository, "npm pack ./left --silent && mv left-1.0.0.tgz left.tgz")
    await run(repository, "npm install --offline --no-audit --no-fund")
    assert (root / "node_modules/left/package.json").exists()


def _has_cargo() -> bool:
    """Whether cargo is installed, and not below the home folder of another user, which is hidden."""
    if (program := shutil.which("cargo")) is None:
        return False
    homes = (Path(user.pw_dir) for user in pwd.getpwall() if user.pw_dir != "/")
    hidden = any(home != Path.home() and Path(program).is_relative_to(home) for home in homes)
    return not hidden or Path(program).is_relative_to(Path.home())


@pytest.mark.skipif(not _has_cargo(), reason="there is no cargo that this user sees")
async def test_cargo_build(repository: Commands) -> None:
    root = repository.builtin.root
    (root / "src").mkdir()
    (root / "Cargo.toml").write_text(CARGO)
    (root / "src/main.rs").write_text('fn main() { println!("built"); }\n')
    assert "built" in await run(repository, "cargo run --offline --quiet")


async def test_programs_below_home_run_and_what_is_beside_them_is_hidden(
    shell: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".cargo/bin").mkdir(parents=True)
    (home / ".rustup").mkdir()
    (home / ".cargo/bin/hello").write_text("#!/bin/sh\necho hello from $RUSTUP_HOME\n")
    (home / ".cargo/bin/hello").chmod(0o755)
    (home / ".cargo/credentials.toml").write_text("token")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{home}/.cargo/bin", prepend=os.pathsep)
    assert await shell("hello") == f"hello from {home}/.rustup\n[exit code 0]"
    for line in (f"cat {home}/.cargo/credentials.toml", f"echo x > {home}/.cargo/bin/hello"):
        assert "[exit code 1]" in await shell(line)
