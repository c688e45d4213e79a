"""Runs the test suite as CI does: ``python -m tests.ci [pytest's options]``.

A test that fails is repeated once after the run, alone. It fails the run only if it fails again; one
that passes then is printed as ``FLAKY`` at the end. The exit code is pytest's.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

MAX_REPEATED = 20
"""Failed tests that are repeated. Where more fail, the program is at fault and not the tests."""


class FailureList:
    """A pytest plugin that writes the names of failed tests to a file, one per line."""

    def __init__(self, path: Path, root: Path) -> None:
        self._path = path
        self._root = os.path.relpath(root)
        self._names: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._names[os.path.normpath(f"{self._root}/{report.nodeid}")] = None

    def pytest_sessionfinish(self) -> None:
        self._path.write_text("".join(f"{name}\n" for name in self._names))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--failed-tests", metavar="FILE", help="write the names of failed tests there")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("failed_tests")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailureList(Path(path), config.rootpath))


def run_pytest(*arguments: str) -> tuple[int, list[str]]:
    """Run pytest in a process of its own; returns its exit code and the names of failed tests."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "failed"
        command = [sys.executable, "-m", "pytest", "-p", "tests.ci", "--failed-tests", str(path)]
        code = subprocess.run([*command, *arguments], check=False).returncode
        return code, path.read_text().splitlines() if path.exists() else []


def main(arguments: list[str]) -> int:
    """Run the suite and repeat what failed; returns the exit code."""
    code, failed = run_pytest(*arguments)
    if code != pytest.ExitCode.TESTS_FAILED or not 0 < len(failed) <= MAX_REPEATED:
        return code
    print(f"\nRepeating {len(failed)} failed tests, one at a time …", flush=True)
    broken = [name for name in failed if run_pytest(name)[0]]
    print()
    for name in failed:
        print(f"{'FAILED twice' if name in broken else 'FLAKY'} {name}")
    return int(pytest.ExitCode.TESTS_FAILED if broken else pytest.ExitCode.OK)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
