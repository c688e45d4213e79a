"""The wheel, installed elsewhere, started where folders have our packages' names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support.invariants import check
from tests.support.program import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--wheel-dir", out, ROOT],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return next(out.glob("*.whl"))


def test_it_holds_the_program_and_not_the_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"agent", "tools", "tui"}
    assert "agent/models.toml" in names
    assert any(name.startswith("agent/tiny/core") for name in names)
    assert any(name.endswith("licenses/NOTICE") for name in names)
    assert not any("test" in name for name in names)
    assert wheel.stat().st_size < 9_000_000


def test_it_works_beside_folders_of_the_same_names(wheel: Path, tmp_path: Path, home: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    ours = sysconfig.get_paths()["purelib"]
    theirs = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    zipfile.ZipFile(wheel).extractall(theirs)
    # The dependencies are those of this environment; its link to the checkout is not followed.
    (Path(theirs) / "dependencies.pth").write_text(ours + "\n")
    for name in ("agent", "tools", "tui"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong package')\n")
    entry = tmp_path / "venv" / "bin" / "agent"
    entry.write_text(f"#!{python}\nfrom agent.cli.main import main\nmain()\n")
    entry.chmod(0o755)
    done = subprocess.run(
        [entry, "run", "Multiply 123*456 using the mcp.code_interpreter tool.", "--json-events"],
        cwd=tmp_path, env={**os.environ, "AGENT_HOME": str(home)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    final = check([json.loads(line) for line in done.stdout.splitlines()])
    assert final["output"][1]["output"] == "56088"
