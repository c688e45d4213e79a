"""The wheel: its contents, and the program installed from it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support.invariants import check
from tests.support.program import ROOT
from tests.support.waiting import HANG_SECONDS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built once."""
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--wheel-dir", out, ROOT],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return next(out.glob("*.whl"))


def test_wheel_contains_program_without_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    packages = {name.split("/")[0] for name in names if not re.search(r"\.(dist-info|data)/", name)}
    assert packages == {"agent", "tools", "tui"}
    assert "tools/demo/server.py" in names, "--demo-tools needs it"
    assert any(name.endswith(".data/data/share/man/man1/agent.1") for name in names)
    assert "agent/models.toml" in names
    assert any(name.startswith("agent/tiny/core") for name in names)
    assert any(name.endswith("licenses/NOTICE") for name in names)
    assert not any("test" in name for name in names)
    assert not any(name.startswith("agent/tiny/train") for name in names)
    assert wheel.stat().st_size < 12_500_000


def test_wheel_runs_beside_same_named_folders(wheel: Path, tmp_path: Path, home: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    dependencies = sysconfig.get_paths()["purelib"]
    purelib = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    zipfile.ZipFile(wheel).extractall(purelib)
    # Dependencies come from this environment, whose link to the checkout (a .pth) is not followed.
    (Path(purelib) / "dependencies.pth").write_text(dependencies + "\n")
    for name in ("agent", "tools", "tui"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong package')\n")
    entry = tmp_path / "venv" / "bin" / "agent"
    entry.write_text(f"#!{python}\nfrom agent.__main__ import main\nmain()\n")
    entry.chmod(0o755)
    done = subprocess.run(
        [entry, "run", "Multiply 123*456 using the mcp.code_interpreter tool.", "--json-events"],
        cwd=tmp_path, env={**os.environ, "AGENT_HOME": str(home)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    final = check([json.loads(line) for line in done.stdout.splitlines()])
    assert final["output"][1]["output"] == "56088"
