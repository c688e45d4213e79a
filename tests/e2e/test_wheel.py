"""The wheel: its contents, and the program installed from it."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.invariants import check
from tests.support.program import PROBE, ROOT
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


@pytest.fixture(scope="module")
def entry(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of the wheel in a fresh environment, beside packages that have our names."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    dependencies = sysconfig.get_paths()["purelib"]
    purelib = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    zipfile.ZipFile(wheel).extractall(purelib)
    # Dependencies come from this environment, whose link to the checkout (a .pth) is not followed.
    (purelib / "dependencies.pth").write_text(dependencies + "\n")
    for name in ("agent", "tools", "tui"):
        (purelib / name).mkdir()
        (purelib / name / "__init__.py").write_text("raise SystemExit('the wrong package')\n")
    command = folder / "bin" / "agent"
    command.write_text(f"#!{python}\nfrom agent_local import main\nmain()\n")
    command.chmod(0o755)
    return command


RunEntry = Callable[..., str]


@pytest.fixture
def run(entry: Path, tmp_path: Path, home: Path) -> RunEntry:
    """Run the installed command in a folder that has packages of our names, too; its stdout."""
    for name in ("agent", "tools", "tui"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong package')\n")

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [entry, *arguments],
            cwd=tmp_path, env={**os.environ, "AGENT_HOME": str(home)},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_wheel_contains_program_without_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    packages = {name.split("/")[0] for name in names if not re.search(r"\.(dist-info|data)/", name)}
    assert packages == {"agent_local"}
    own = {name.removeprefix("agent_local/") for name in names}
    assert "tools/demo/server.py" in own, "--demo-tools needs it"
    assert any(name.endswith(".data/data/share/man/man1/agent.1") for name in names)
    page = {f"agent/server/page/{name}" for name in ("index.html", "app.js", "style.css")}
    assert own >= page | {"agent/cli/clients.toml"}
    assert own >= {"agent/models.toml", "agent/py.typed", "tools/py.typed", "tui/py.typed"}
    assert any(name.startswith("agent/tiny/core") for name in own)
    assert any(name.endswith("licenses/NOTICE") for name in names)
    assert not any("test" in name for name in names)
    assert not any(name.startswith("agent/tiny/train") for name in own)
    assert wheel.stat().st_size < 12_500_000


def test_wheel_page_for_indexes_has_no_dead_links(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        page = archive.read(name).decode()
    assert "## Five things to do" in page and "Where to read on" not in page
    assert [link for link in re.findall(r"\]\(([^)]*)\)", page) if "://" not in link] == []


@pytest.mark.long
def test_wheel_runs_beside_packages_of_same_names(run: RunEntry) -> None:
    stdout = run("run", "Multiply 123*456 using the mcp.code_interpreter tool.", "--json-events")
    final = check([json.loads(line) for line in stdout.splitlines()])
    assert final["output"][1]["output"] == "56088"


@pytest.mark.long
def test_wheel_child_processes_run_its_own_modules(run: RunEntry, home: Path) -> None:
    assert "Asia/Tokyo:" in run("run", "--demo-tools", "-q", "What time is it in Asia/Tokyo?")
    (home / "cache" / PROBE).unlink()
    assert "runs llama.cpp" in run("doctor")  # a child has tried the processor


def test_source_distribution_has_tests_and_pages(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", tmp_path],
        check=True, cwd=ROOT, capture_output=True,
    )  # fmt: skip
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {"CHANGELOG.md", "README.md", "docs/install.md", "tests/e2e/test_wheel.py"}
    assert names >= {"packaging/wheel/agent_local/__init__.py", "Makefile", "models.toml"}
    assert not any(name.startswith(".venv") or name.endswith("unfinished.xz") for name in names)
