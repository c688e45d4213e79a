"""Runs the quick tests against the newest version of every dependency, whatever pyproject.toml allows.

``python -m tests.newest [PYTEST-ARGUMENTS]`` makes ``.venv-newest``, prints which limits of
pyproject.toml the newest versions exceed, and ends as pytest does. llama.cpp may be compiled.
"""

import subprocess
import sys
import tomllib
import venv

from packaging.requirements import Requirement

from tests.support.program import ROOT

FOLDER = ROOT / ".venv-newest"
QUICK = ("-m", "not slow", "--numprocesses", "4", "--dist", "loadfile")


def names() -> list[str]:
    """The packages that the program and its tests need, without their versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needs = [*project["dependencies"], *extras["browser"], *extras["dev"]]
    packages = {Requirement(need).name for need in needs}
    return sorted(packages - {project["name"]})


def main(arguments: list[str]) -> int:
    """Install and test; returns pytest's exit code."""
    if not (FOLDER / "bin" / "pip").exists():
        venv.create(FOLDER, with_pip=True, clear=True)
    pip = [FOLDER / "bin" / "pip"]
    subprocess.run([*pip, "install", "--quiet", "--upgrade", "pip", *names()], check=True, cwd=ROOT)
    subprocess.run(
        [*pip, "install", "--quiet", "--no-deps", "--editable", "."], check=True, cwd=ROOT
    )
    # Only a report: it names each limit of ours, and of other packages, that is exceeded.
    subprocess.run([*pip, "check"], cwd=ROOT)
    command = [FOLDER / "bin" / "python", "-m", "pytest", *(arguments or QUICK)]
    return subprocess.run(command, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
