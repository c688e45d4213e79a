"""What CI does with a failed test."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SAMPLED
from tests.support.program import ROOT

TESTS = """
from pathlib import Path
def test_good(): pass
def test_bad(): assert 0
def test_flaky():
    ran = Path("ran")
    was_run = ran.exists()
    ran.touch()
    assert was_run
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tests", "code", "summary"),
    [
        (TESTS, 1, ["FAILED twice test_it.py::test_bad", "FLAKY test_it.py::test_flaky"]),
        (TESTS.replace("assert 0", "pass"), 0, ["FLAKY test_it.py::test_flaky"]),
        ("import nothing_like_it", 1, []),
    ],
)
def test_failed_test_is_repeated_once_alone(
    tmp_path: Path, tests: str, code: int, summary: list[str]
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]")
    (tmp_path / "test_it.py").write_text(tests)
    ran = subprocess.run(
        [sys.executable, "-m", "tests.ci", "-p", "xdist", "--numprocesses", "2", "test_it.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in ran.stdout.splitlines() if line.startswith(("FLAKY", "FAILED twice"))]
    assert (ran.returncode, sorted(lines)) == (code, summary), ran.stdout + ran.stderr


def test_sampled_tests_exist() -> None:
    """A test that is renamed must not run all of its cases again."""
    for name in SAMPLED:
        file, _, function = name.partition("::")
        files = list(ROOT.glob(f"{file}*"))
        assert files and all(f"def {function}" in each.read_text() for each in files if function)
