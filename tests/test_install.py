"""What `make demo` and install.sh install, and what they say where something is missing."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.gpu.environment import llama_version
from tests.support.package_index import LLAMA, PackageIndex
from tests.support.program import ROOT
from tests.support.waiting import HANG_SECONDS

COMPILERS = ("c++", "g++", "clang++", "cc", "gcc", "clang", "cmake", "ninja")
TOOLS = (
    "sh",
    "dirname",
    "find",
    "grep",
    "id",
    "mktemp",
    "rm",
    "sed",
    "tail",
    "tee",
    "touch",
    "uname",
)
"""The programs of the system that install.sh runs."""
NOWHERE = "http://127.0.0.1:9/whl"
"""Nothing listens here."""
PIP = """#!/bin/sh
case "$*" in
    --version) echo "pip 24.0 from {venv}/lib/python3.11/site-packages/pip (python 3.11)" ;;
    "cache list"*) ;;
    *--only-binary*) exit {from_index} ;;
    *) echo "$*" >> {venv}/calls; printf '{says}'; exit {code} ;;
esac
"""
"""A pip that writes down what it is to install; ``from_index``: whether the index lacks llama.cpp."""


def link_programs(folder: Path, names: Iterable[str]) -> str:
    """A PATH that has these programs of the system and nothing else."""
    folder.mkdir(exist_ok=True)
    for name in names:
        if (program := shutil.which(name)) and not (folder / name).exists():
            (folder / name).symlink_to(program)
    return str(folder)


def write_program(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout without tests, an environment or an installed package."""
    folder = tmp_path / "a checkout"
    folder.mkdir()
    for name in ("Makefile", "README.md", "LICENSE", "NOTICE", "install.sh", "models.toml"):
        shutil.copy2(ROOT / name, folder)
    shutil.copy2(ROOT / "pyproject.toml", folder)
    for name in ("agent", "tools", "tui", "packaging/wheel"):
        ignored = shutil.ignore_patterns("__pycache__", "train")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    return folder


def run(
    folder: Path, *command: str, path: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with no other variables than these."""
    return subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        env={"PATH": path, "HOME": str(folder), "LLAMA_INDEX": NOWHERE, **(env or {})},
        timeout=HANG_SECONDS,
    )  # fmt: skip


@pytest.mark.long
def test_demo_needs_no_compiler(checkout: Path, package_index: PackageIndex) -> None:
    broken = checkout / ".venv" / "bin"
    broken.mkdir(parents=True)
    (broken / "python").symlink_to("/nowhere/python")  # as after an upgrade of Python
    system = {file.name for folder in ("/usr/bin", "/bin") for file in Path(folder).iterdir()}
    path = link_programs(checkout / "bin", system - set(COMPILERS))
    env = {
        "PYTHON": sys.executable,
        "LLAMA_INDEX": f"{package_index.address}/whl",
        "PIP_INDEX_URL": f"{package_index.address}/simple",
        "PIP_CONFIG_FILE": os.devnull,
    }
    made = run(checkout, "make", ".venv/.runs", path=path, env=env)
    assert made.returncode == 0, made.stdout + made.stderr
    assert any(
        path.startswith(f"/whl/cpu/{LLAMA}/llama_cpp_python") for path in package_index.paths
    )
    assert "No compiled llama.cpp" not in made.stdout
    installed = {file.name for file in checkout.glob(".venv/lib/python*/site-packages/*")}
    assert "llama_cpp" in installed and not installed & {"mypy", "pytest", "matplotlib"}
    requests = len(package_index.paths)
    demo = run(checkout, "make", "demo", path=path, env=env)
    assert demo.returncode == 0 and "56088" in demo.stdout, demo.stdout + demo.stderr
    assert len(package_index.paths) == requests, "it is installed once"


@pytest.mark.parametrize(
    ("from_index", "variables", "notes"),
    [
        (0, {}, []),
        (1, {}, ["No compiled llama.cpp", "llama.cpp is compiled"]),
        (1, {"LLAMA_WHEEL": "none"}, ["llama.cpp is compiled"]),
        (0, {"CMAKE_ARGS": "-DGGML_CUDA=on"}, ["llama.cpp is compiled"]),
    ],
)
def test_llama_is_compiled_where_the_index_has_none(
    tmp_path: Path, from_index: int, variables: dict[str, str], notes: list[str]
) -> None:
    says = r"Collecting numpy<3,>=2 (from x)\n  [5/178] Building\n  [6/178] Building\nother\n"
    pip = PIP.format(venv=tmp_path / "env", from_index=from_index, says=says, code=0)
    write_program(tmp_path / "env/bin/pip", pip)
    write_program(tmp_path / "bin/c++", "")
    path = link_programs(tmp_path / "bin", TOOLS)
    ran = run(ROOT, "sh", "install.sh", "--venv", str(tmp_path / "env"), path=path, env=variables)
    assert ran.returncode == 0, ran.stderr
    known = ("No compiled llama.cpp", "llama.cpp is compiled")
    assert [text for text in known if text in ran.stdout] == notes
    calls = (tmp_path / "env/calls").read_text().splitlines()
    assert len(calls) == 1 + bool(notes) and calls[-1].endswith("--editable .")
    assert ("--no-cache-dir" in calls[0]) == ("CMAKE_ARGS" in variables)
    assert "compiling llama.cpp: 5/178" in ran.stdout and "6/178" not in ran.stdout


@pytest.mark.parametrize(
    ("says", "sentence"),
    [
        ("NewConnectionError(x)", "pip cannot reach the package index"),
        ("  error: no space", "pip could not install this"),
    ],
)
def test_failed_pip_is_explained(tmp_path: Path, says: str, sentence: str) -> None:
    pip = PIP.format(venv=tmp_path / "env", from_index=0, says=says + r"\n", code=1)
    write_program(tmp_path / "env/bin/pip", pip)
    path = link_programs(tmp_path / "bin", TOOLS)
    ran = run(ROOT, "sh", "install.sh", "--venv", str(tmp_path / "env"), path=path)
    assert ran.returncode == 1 and sentence in ran.stderr
    assert says in (tmp_path / "env/install.log").read_text()


@pytest.mark.parametrize(
    ("manager", "commands"),
    [
        ("apt-get", ["apt install python3 python3-venv", "python3.12-venv", "apt install g++"]),
        ("dnf", ["dnf install python3.12", "dnf install python3.12", "dnf install gcc-c++"]),
        ("apk", ["apk add python3", "apk add python3", "apk add g++"]),
        ("pacman", ["pacman -S python", "pacman -S python", "pacman -S gcc"]),
    ],
)  # fmt: skip
def test_what_is_missing_is_named_with_this_systems_command(
    tmp_path: Path, manager: str, commands: list[str]
) -> None:
    path = link_programs(tmp_path / "bin", TOOLS)
    write_program(tmp_path / "bin" / manager, "")
    python = tmp_path / "no-venv"  # of the Debian kind: its module venv is in a package of its own
    write_program(
        python, '#!/bin/sh\ncase "$2" in *ensurepip*) exit 1 ;; *print*) echo 3.12 ;; esac\n'
    )
    pip = PIP.format(venv=tmp_path / "env", from_index=1, says="", code=0)
    write_program(tmp_path / "env/bin/pip", pip)

    def explain(environment: str, **variables: str) -> str:
        target = str(tmp_path / environment)
        ran = run(ROOT, "sh", "install.sh", "--venv", target, path=path, env=variables)
        assert ran.returncode == 1 and len(ran.stderr.splitlines()) == 1
        return ran.stderr

    no_python, no_venv, no_compiler = commands
    sentence = explain("new")
    assert "Python 3.11 or newer is needed: " in sentence and no_python in sentence
    assert no_venv in explain("new", PYTHON=str(python))
    sentence = explain("env")
    assert "no C++ compiler: " in sentence and no_compiler in sentence
    for variables in ({}, {"LLAMA_WHEEL": "none"}, {"CMAKE_ARGS": "-DGGML_CUDA=on"}):
        assert no_compiler in explain("new", PYTHON=sys.executable, **variables)
        assert not (tmp_path / "new").exists(), "it is said before anything is made"


def test_compiled_wheel_in_pips_cache_needs_no_compiler(tmp_path: Path) -> None:
    path = link_programs(tmp_path / "bin", TOOLS)
    python = tmp_path / "python"
    write_program(python, f'#!/bin/sh\n[ "$2" != venv ] || touch {tmp_path}/made\n')
    wheel = tmp_path / "cache/wheels/aa" / f"llama_cpp_python-{llama_version()}-py3-none-any.whl"
    env = {"PYTHON": str(python), "PIP_CACHE_DIR": str(tmp_path / "cache"), "LLAMA_WHEEL": "none"}
    for is_cached in (False, True):
        if is_cached:
            wheel.parent.mkdir(parents=True)
            wheel.touch()
        run(ROOT, "sh", "install.sh", "--venv", str(tmp_path / "env"), path=path, env=env)
        assert (tmp_path / "made").exists() == is_cached


def test_uv_installs_and_removes_the_command(tmp_path: Path) -> None:
    path = link_programs(tmp_path / "bin", TOOLS)
    write_program(tmp_path / "bin/c++", "")
    write_program(
        tmp_path / "bin/uv",
        f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\n[ "$1" != pip ] || exit "${{AWAY:-0}}"\n',
    )
    (tmp_path / ".cache/agent-local").mkdir(parents=True)

    def calls(*arguments: str, **variables: str) -> tuple[list[str], str]:
        (tmp_path / "calls").unlink(missing_ok=True)
        env = {"HOME": str(tmp_path), **variables}
        ran = run(ROOT, "sh", "install.sh", *arguments, path=path, env=env)
        assert ran.returncode == 0, ran.stderr
        return (tmp_path / "calls").read_text().splitlines(), ran.stdout

    done, _ = calls()
    assert f"--default-index {NOWHERE}/cpu " in done[0]
    assert f"--find-links {NOWHERE}/cpu/{LLAMA}/ ." in done[1]
    done, text = calls(AWAY="1")
    assert "compiled, which takes" in text and "--find-links" not in done[1]
    done, _ = calls(CMAKE_ARGS="-DGGML_CUDA=on")
    assert f"--reinstall-package {LLAMA} ." in done[0]
    done, text = calls("--uninstall")
    assert done == ["tool uninstall agent-local"] and ".cache/agent-local" in text
