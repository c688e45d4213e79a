"""Makes the environment: packages, bindings and programs of one build of llama.cpp for the local GPU.

Only the standard library is used here: this runs in whatever Python the machine has. The bindings are
the Python files of llama-cpp-python's source, on the libraries that llama-server and llama-bench use:
nothing is compiled twice, and all sides run the same kernels.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.engine.placement.hardware import Hardware
from tests.gpu import ALL_LAYERS, CARRIED, FOLDER, ROOT

CMAKE_OPTIONS = {
    "cpu": "",
    "cuda": "-DGGML_CUDA=on -DCMAKE_CUDA_ARCHITECTURES={architecture}",
    "metal": "-DGGML_METAL=on",
    "rocm": "-DGGML_HIP=on",
    "vulkan": "-DGGML_VULKAN=on",
}
"""Options of llama.cpp's CMakeLists.txt, by backend. ROCm's compiler asks the card by itself."""
COMPILERS = {"NVIDIA": ("cuda", "nvcc"), "AMD": ("rocm", "hipcc"), "Apple": ("metal", "xcrun")}
"""By vendor: the backend, and the program that compiles it; without it, Vulkan is taken."""
TEST_PACKAGES = ("pytest", "pytest-asyncio", "pytest-timeout", "hypothesis", "openai")
UNUSED_SOURCE = (
    *("docs", "models", "tests", "media", "benches", "examples", "conversion", "gguf-py"),
    *("tools/ui/src", "tools/ui/static", "tools/ui/tests"),
)
"""Folders of llama.cpp's source that these programs are built without."""


class SetupError(Exception):
    """What is missing on this machine, in a sentence."""


def local_backend(hardware: Hardware) -> str:
    """The backend for this machine's first GPU; ``cpu`` where there is none."""
    for vendor in hardware.gpus:
        backend, compiler = COMPILERS.get(vendor, ("vulkan", "glslc"))
        return backend if shutil.which(compiler) else "vulkan"
    return "cpu"


@dataclass(frozen=True)
class Environment:
    """The environment of one backend, in a folder of its own."""

    backend: str
    architecture: str = "native"
    """That CUDA is compiled for: ``native`` is the local card's, ``90-real`` an H100's or H200's."""

    @property
    def folder(self) -> Path:
        """Also the cache of tests.bench: it builds and writes models there."""
        return FOLDER / self.backend

    @property
    def python(self) -> Path:
        """The environment's Python."""
        return self.folder / "venv" / "bin" / "python"

    @property
    def variables(self) -> dict[str, str]:
        """What the stages and the compiler have in their environment."""
        found = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "AGENT_HOME": str(self.folder / "home"),
            "AGENT_BENCH": str(self.folder),
            "AGENT_BENCH_GPU_LAYERS": "0" if self.backend == "cpu" else str(ALL_LAYERS),
            "CMAKE_ARGS": CMAKE_OPTIONS[self.backend].format(architecture=self.architecture),
        }
        if self.backend == "cpu":
            found["AGENT_BENCH_SHAPE"] = "small"
        found.setdefault("AGENT_BENCH_THREADS", str(min(8, max(1, (os.cpu_count() or 1) // 2))))
        if shutil.which("ninja"):
            found.setdefault("CMAKE_GENERATOR", "Ninja")
        if self.backend == "cuda" and (toolkit := self.folder / "toolkit").exists():
            found["CUDACXX"] = str(toolkit / "bin" / "nvcc")
            found["CMAKE_ARGS"] += f" -DCUDAToolkit_ROOT={toolkit}"
            found["LD_LIBRARY_PATH"] = f"{toolkit}/lib:{os.environ.get('LD_LIBRARY_PATH', '')}"
        return found

    def run(self, *command: str | Path, seconds: float | None = None) -> None:
        """Run a command with the variables, and show what it prints. Raises SetupError."""
        done = subprocess.run(command, cwd=ROOT, env=self.variables, check=False, timeout=seconds)
        if done.returncode:
            words = " ".join(map(str, command[1:3]))
            raise SetupError(f"{Path(command[0]).name} {words} failed: see above.")

    def make(self) -> None:
        """Install and compile what is not there yet. Raises SetupError."""
        if shutil.which("cmake") is None:
            raise SetupError("There is no cmake; pip install cmake brings one.")
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.python.exists():
            # What is carried is the least: it may leave out what this Python has.
            site = CARRIED.exists()
            venv.create(
                self.folder / "venv", with_pip=True, symlinks=True, system_site_packages=site
            )
        ready, needs = self.folder / "venv" / ".ready", requirements()
        if not ready.exists() or ready.read_text() != "\n".join(needs):
            index = ("--no-index", "--find-links", CARRIED / "wheels") if CARRIED.exists() else ()
            self.run(self.python, "-m", "pip", "install", "--quiet", *index, *needs)
            ready.write_text("\n".join(needs))
        source = self.unpack_source()
        self._install_bindings(source)
        if self.backend == "cuda":
            compose_toolkit(self.folder / "toolkit", nvidia_folders())
        self.run(self.python, "-m", "tests.bench.build_llama")

    def unpack_source(self) -> Path:
        """The folder of llama-cpp-python's source, carried or downloaded. Raises SetupError."""
        name = f"llama_cpp_python-{llama_version()}"
        folder = self.folder / name
        if not (folder / "PKG-INFO").exists():
            archive = next(CARRIED.glob(f"{name}.tar.*"), None)
            bench = Path("~/.cache/agent-bench").expanduser() / name
            if archive is not None:
                shutil.unpack_archive(archive, self.folder)
            elif (bench / "PKG-INFO").exists():
                folder.symlink_to(bench)
            else:
                self.run(
                    sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary",
                    ":all:", "--dest", self.folder, f"llama-cpp-python=={llama_version()}",
                )  # fmt: skip
                shutil.unpack_archive(self.folder / f"{name}.tar.gz", self.folder)
        return folder

    def _install_bindings(self, source: Path) -> None:
        packages = next((self.folder / "venv" / "lib").glob("python*/site-packages"))
        target = packages / "llama_cpp"
        if target.exists():
            return
        shutil.copytree(
            source / "llama_cpp", target, ignore=shutil.ignore_patterns("lib", "server")
        )
        (target / "lib").symlink_to(self.folder / f"llama.cpp-{llama_version()}" / "bin")
        about = packages / f"llama_cpp_python-{llama_version()}.dist-info"
        about.mkdir()
        shutil.copy(source / "PKG-INFO", about / "METADATA")


def llama_version() -> str:
    """The version of llama-cpp-python that pyproject.toml begins at."""
    needs = _project()["dependencies"]
    return next(need for need in needs if "llama-cpp" in need).partition(">=")[2].split(",")[0]


def requirements() -> list[str]:
    """All packages of the environment but llama-cpp-python: its own needs, ours, and the tests'."""
    project = _project()
    tests = project["optional-dependencies"]["dev"]
    ours = [need for need in project["dependencies"] if "llama-cpp" not in need]
    return ["diskcache", *ours, *(x for x in tests if x.partition(">")[0] in TEST_PACKAGES)]


def _project() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def nvidia_folders() -> list[Path]:
    """Folders that parts of CUDA may be in: that of nvcc, and those of NVIDIA's Python packages."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    found = [Path(nvcc).resolve().parents[1], Path("/usr/local/cuda")]
    for packages in [Path(path) for path in sys.path if path.endswith("-packages")]:
        found += sorted(packages.glob("nvidia/*/"))
    return [folder for folder in found if folder.is_dir()]


def compose_toolkit(target: Path, folders: list[Path]) -> None:
    """Link parts of CUDA that lie in several folders into one, as its installer would.

    Nothing is made where nvcc's own folder has cuBLAS. Raises SetupError.
    """
    real = ("bin/nvcc", "include/cuda_runtime.h")  # bin/nvcc alone may be a script that calls it
    has_nvcc = [folder for folder in folders if all((folder / name).exists() for name in real)]
    if not has_nvcc:
        raise SetupError("There is no nvcc: install the CUDA toolkit.")
    if any(has_nvcc[0].glob("lib*/libcublas.so")) or target.exists():
        return
    (target / "lib" / "stubs").mkdir(parents=True)
    (target / "lib64").symlink_to("lib")
    for folder in [*has_nvcc, *folders]:
        for part in ("bin", "include", "lib", "nvvm"):
            _link_tree(folder / part, target / part)
    for file in list((target / "lib").glob("*.so.*")):
        short = target / "lib" / f"{file.name.partition('.so')[0]}.so"
        if not short.exists():  # Python packages have no unversioned names
            short.symlink_to(file.name)
    if not (target / "lib" / "libcublas.so").exists():
        raise SetupError("There is no cuBLAS: pip install nvidia-cublas, or the CUDA toolkit.")
    if not (stub := target / "lib" / "stubs" / "libcuda.so").exists():
        empty = ("-x", "c", "/dev/null", "-shared", "-Wl,-soname,libcuda.so.1")
        subprocess.run(["cc", *empty, "-o", stub], check=True)  # the driver has the real one


def _link_tree(source: Path, target: Path) -> None:
    """Link the files of a folder, folder by folder, where there are none yet."""
    if not source.is_dir():
        return
    target.mkdir(exist_ok=True)
    for entry in source.iterdir():
        if entry.is_dir():
            _link_tree(entry, target / entry.name)
        elif not (target / entry.name).exists():
            (target / entry.name).symlink_to(entry.resolve())


def pack(python: str, without: list[str]) -> None:
    """Collect wheels for a Python version on this kind of machine, and the source, in CARRIED.

    ``without``: distributions that the other machine's Python has.
    """
    wheels, name = CARRIED / "wheels", f"llama_cpp_python-{llama_version()}"
    wheels.mkdir(parents=True, exist_ok=True)
    tags = [f"manylinux_2_{minor}_{platform.machine()}" for minor in (17, 28, 31, 34, 35)]
    platforms = (
        [word for tag in tags for word in ("--platform", tag)] if sys.platform == "linux" else []
    )
    subprocess.run(
        [
            sys.executable, "-m", "pip", "download", "--quiet", "--dest", wheels, "--only-binary",
            ":all:", "--python-version", python, *platforms, *requirements(),
        ],
        check=True,
    )  # fmt: skip
    for wheel in wheels.iterdir():
        if wheel.name.partition("-")[0].replace("_", "-").lower() in without:
            wheel.unlink()
    source = Environment("cpu")
    source.folder.mkdir(parents=True, exist_ok=True)
    folder = source.unpack_source()
    unused = tuple(f"{name}/vendor/llama.cpp/{path}" for path in UNUSED_SOURCE)

    def keep(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if entry.name.startswith(unused) else entry

    with tarfile.open(CARRIED / f"{name}.tar.xz", "w:xz", dereference=True) as tar:
        for part in ("PKG-INFO", "llama_cpp", "vendor"):
            tar.add(folder / part, f"{name}/{part}", filter=keep)
