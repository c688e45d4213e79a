"""llama.cpp's own programs, built once from the source that the installed bindings were built from.

``python -m tests.bench.build`` does it ahead of time (about 15 minutes on two cores).
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.bench import CACHE, Skipped, progress

PROGRAMS = ("llama-server", "llama-bench")
OPTIONS = (
    # The kernels are those of the bindings, which take llama.cpp's defaults too (GGML_NATIVE, OpenMP).
    "-DCMAKE_BUILD_TYPE=Release",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
)


def folder() -> Path:
    """Where they are built."""
    return CACHE / f"llama.cpp-{importlib.metadata.version('llama-cpp-python')}"


def ready() -> bool:
    """They have been built."""
    return all((folder() / "bin" / name).is_file() for name in PROGRAMS)


@functools.cache
def program(name: str) -> Path:
    """The path of one of PROGRAMS, built now if it is not there. Raises Skipped."""
    built = folder()
    if not ready():
        if not shutil.which("cmake") or not (shutil.which("c++") or shutil.which("clang++")):
            raise Skipped("llama-server is not built, and there is no cmake or no C++ compiler.")
        progress(f"building llama-server in {built} (once, many minutes) …")
        _build(_source(importlib.metadata.version("llama-cpp-python")), built)
    return built / "bin" / name


def _source(version: str) -> Path:
    """llama.cpp as the source distribution of the bindings holds it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / f"llama_cpp_python-{version}"
    if not (folder / "PKG-INFO").is_file():
        _run(
            sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
            "--no-binary", "llama-cpp-python", "--dest", str(CACHE), f"llama-cpp-python=={version}",
        )  # fmt: skip
        packed = folder.with_name(f"{folder.name}.tar.gz")
        with tarfile.open(packed) as tar:
            tar.extractall(CACHE, filter="data")
        packed.unlink()
    return folder / "vendor" / "llama.cpp"


def _build(source: Path, built: Path) -> None:
    options = [*OPTIONS, *os.environ.get("CMAKE_ARGS", "").split()]
    _run("cmake", "-S", str(source), "-B", str(built), *options)
    jobs = str(os.cpu_count() or 1)
    _run("nice", "cmake", "--build", str(built), "-j", jobs, "--target", *PROGRAMS)


def _run(*command: str) -> None:
    """Quietly; its last words are the reason when it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        words = " ".join(done.stdout.split()[-40:])
        raise Skipped(f"llama-server cannot be built: {command[0]} failed ({words})")


if __name__ == "__main__":
    for wanted in PROGRAMS:
        print(program(wanted))
