"""Which programs PATH names: none in the folder that one works in."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from agent.util.programs import (
    PACKAGED,
    find_program,
    is_left_out,
    module_arguments,
    require_program,
    search_path,
    set_root,
)

NAME = "agent-test-program"


def add_program(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_text("#!/bin/sh\necho ran\n")
    (folder / NAME).chmod(0o755)
    return str(folder / NAME)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "root").mkdir()
    set_root(tmp_path / "root")
    return tmp_path / "root"


def test_find_program_outside_of_root_only(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_program(root / "bin")
    good = add_program(tmp_path / "good")
    for entry in (f"{root}/bin", f"{root}/../root/bin", "root/bin", ".", ""):
        monkeypatch.setenv("PATH", f"{entry}:{tmp_path}/none")
        assert find_program(NAME) is None, entry
        assert is_left_out(NAME) == entry.startswith("/")
        with pytest.raises(FileNotFoundError):
            require_program(NAME)
        monkeypatch.setenv("PATH", f"{entry}:{tmp_path}/good")
        assert find_program(NAME) == good and search_path() == f"{tmp_path}/good"
    assert find_program("./any") == "./any"


def test_find_program_working_folder_left_out(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = add_program(tmp_path / "folder" / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path}/folder/bin")
    assert find_program(NAME) == good
    monkeypatch.chdir(tmp_path / "folder")
    assert find_program(NAME) is None
    monkeypatch.chdir("/")
    assert find_program(NAME) == good, "a service's working folder holds everything"


def test_find_program_packaged_in_our_own_environment_only(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = f"{sysconfig.get_path('platlib')}/{PACKAGED['bwrap']}"
    fake = tmp_path / "packages" / PACKAGED["bwrap"]
    for file in (fake, root / PACKAGED["bwrap"]):
        file.parent.mkdir(parents=True)
        file.write_text("#!/bin/sh\necho []\n")
        file.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.syspath_prepend(tmp_path / "packages")
    monkeypatch.chdir(root)
    assert find_program("bwrap") == (own if Path(own).is_file() else None)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bwrap").symlink_to(fake)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_program("bwrap") == f"{tmp_path}/bin/bwrap", "that of the system goes first"


def test_find_program_links_through_root_left_out(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link of which one step is in the root can be led elsewhere from there."""
    add_program(root / "bin")
    add_program(tmp_path / "real")
    (root / "step").symlink_to(tmp_path / "real")
    links = {"entry": root / "bin", "through": root / "step", "relative": Path("root/bin")}
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
        monkeypatch.setenv("PATH", str(tmp_path / name))
        assert find_program(NAME) is None, name
    for name, target in {"file": root / "bin" / NAME, "steps": root / "step" / NAME}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / NAME).symlink_to(target)
        monkeypatch.setenv("PATH", str(tmp_path / name))
        assert find_program(NAME) is None, name
    (tmp_path / "direct").symlink_to("real")
    monkeypatch.setenv("PATH", str(tmp_path / "direct"))
    assert find_program(NAME) == f"{tmp_path}/direct/{NAME}"
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.setenv("PATH", f"{tmp_path}/loop")
    assert find_program(NAME) is None


def test_open_in_browser_uses_programs_outside_of_root(root: Path, tmp_path: Path) -> None:
    add_program(root / "bin")
    (root / "bin" / NAME).write_text("#!/bin/sh\ntouch shadow\n")
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / NAME).write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    (tmp_path / "good" / NAME).chmod(0o755)
    code = (
        "import sys, threading; from pathlib import Path\n"
        "from agent.util.programs import open_in_browser, set_root\n"
        "set_root(Path(sys.argv[1])); open_in_browser('http://127.0.0.1/')\n"
        "[t.join() for t in threading.enumerate() if t.name == 'browser']\n"
    )
    path = f"{root}/bin:{tmp_path}/good:/usr/bin:/bin"
    environment = {**os.environ, "PATH": path, "BROWSER": NAME}
    subprocess.run([sys.executable, "-c", code, root], env=environment, check=True)
    assert (tmp_path / "opened").read_text() == "http://127.0.0.1/\n"
    assert not list(Path().glob("shadow"))


def test_module_arguments_run_module_with_its_arguments_wherever_it_is(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("raise SystemExit('the wrong module')")
    command = [sys.executable, *module_arguments("tools.demo.server"), "nothing"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "tools/demo/server.py" in done.stderr and "the wrong module" not in done.stderr
