"""Builds llama.cpp's own programs from the source distribution of the installed bindings.

They are built at first use, or by ``python -m tests.bench.build_llama``, with the bindings' libraries
(three minutes on two cores). With CMAKE_ARGS, which name a GPU, all of llama.cpp is compiled.
"""

import functools
import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.bench import CACHE, BenchmarkSkippedError, progress

PROGRAMS = ("llama-server", "llama-bench")
CMAKE_OPTIONS = (
    # The kernels are those of the bindings, which take llama.cpp's defaults too (GGML_NATIVE, OpenMP).
    "-DCMAKE_BUILD_TYPE=Release",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
)


def build_folder() -> Path:
    """The folder below CACHE in which the programs are built."""
    return CACHE / f"llama.cpp-{importlib.metadata.version('llama-cpp-python')}"


def is_built() -> bool:
    """Whether all of PROGRAMS have been built."""
    return all((build_folder() / "bin" / name).is_file() for name in PROGRAMS)


@functools.cache
def llama_program(name: str) -> Path:
    """The path of one of PROGRAMS; builds them if necessary. Raises BenchmarkSkippedError."""
    target = build_folder()
    if not is_built():
        if not shutil.which("cmake") or not (shutil.which("c++") or shutil.which("clang++")):
            raise BenchmarkSkippedError(
                "llama-server is not built, and there is no cmake or no C++ compiler."
            )
        progress(f"building llama-server in {target} (once, a few minutes) …")
        _build(llama_source(), target)
    return target / "bin" / name


def llama_source() -> Path:
    """The folder of llama.cpp in the source distribution of the bindings, downloaded once."""
    version = importlib.metadata.version("llama-cpp-python")
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / f"llama_cpp_python-{version}"
    if not (folder / "PKG-INFO").is_file():
        _run_quietly(
            sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
            "--no-binary", "llama-cpp-python", "--dest", str(CACHE), f"llama-cpp-python=={version}",
        )  # fmt: skip
        archive = folder.with_name(f"{folder.name}.tar.gz")
        shutil.unpack_archive(archive, CACHE)
        archive.unlink()
    return folder / "vendor" / "llama.cpp"


def _build(source: Path, target: Path) -> None:
    options = [*CMAKE_OPTIONS, *os.environ.get("CMAKE_ARGS", "").split()]
    bindings = Path(sysconfig.get_path("platlib")) / "llama_cpp" / "lib"
    if not os.environ.get("CMAKE_ARGS") and any(bindings.glob("libggml-cpu.*")):
        libraries = target / "lib"  # a copy outlives the environment
        shutil.copytree(bindings, libraries, dirs_exist_ok=True)
        options += [f"-DLLAMA={source}", f"-DLIBRARIES={libraries}"]
        source = Path(__file__).with_name("llama")
    _run_quietly("cmake", "-S", str(source), "-B", str(target), *options)
    jobs = str(os.cpu_count() or 1)
    _run_quietly("nice", "cmake", "--build", str(target), "-j", jobs, "--target", *PROGRAMS)


def _run_quietly(*command: str) -> None:
    """Run a command without output. Raises BenchmarkSkippedError with the end of what it printed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        words = " ".join(done.stdout.split()[-40:])
        raise BenchmarkSkippedError(f"llama-server cannot be built: {command[0]} failed ({words})")


if __name__ == "__main__":
    try:
        for name in PROGRAMS:
            print(llama_program(name))
    except BenchmarkSkippedError as problem:
        sys.exit(str(problem))
