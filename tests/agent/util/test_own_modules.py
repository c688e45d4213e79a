import subprocess
import sys
from pathlib import Path

from agent.util.own_modules import module_arguments


def test_module_arguments_run_module_with_its_arguments_wherever_it_is(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("raise SystemExit('the wrong module')")
    command = [sys.executable, *module_arguments("tools.demo.server"), "nothing"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "tools/demo/server.py" in done.stderr and "the wrong module" not in done.stderr
