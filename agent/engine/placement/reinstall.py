"""Writes the commands that put another build of llama.cpp into this environment. pip and uv do not
notice other CMAKE_ARGS: pip builds again with --no-cache-dir, uv with --reinstall-package."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shlex
import sys

WHEEL_INDEX = "https://abetlen.github.io/llama-cpp-python/whl"
"""Wheels that the authors of llama-cpp-python have built; a folder for each kind."""


def compile_command(options: str) -> str:
    fresh = "--reinstall-package llama-cpp-python"
    return f'CMAKE_ARGS="{options}" {_install("--force-reinstall --no-cache-dir", fresh)}'


def wheel_command(kind: str, *packages: str) -> str:
    """The command that installs llama.cpp's wheel of a kind (cpu, vulkan, cu125, …) and packages."""
    index = f"{WHEEL_INDEX}/{kind}"
    command = _install(
        f"--force-reinstall --only-binary :all: --extra-index-url {index}",
        f"--reinstall-package llama-cpp-python --no-build --index {index}",
    )
    return " ".join((command, *packages))


def _install(pip_options: str, uv_options: str) -> str:
    python = shlex.quote(sys.executable)
    if importlib.util.find_spec("pip"):
        command = f"{python} -m pip install --no-deps {pip_options}"
    else:
        command = f"uv pip install --python {python} --no-deps {uv_options}"
    return f"{command} llama-cpp-python=={importlib.metadata.version('llama-cpp-python')}"
