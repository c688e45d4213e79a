"""Finds what of this machine a build of llama.cpp leaves unused, and the surroundings it runs in, from
files below a root folder (tests make one). Sources: https://docs.kernel.org/filesystems/sysfs.html (PCI
devices), https://docs.kernel.org/admin-guide/sysctl/user.html (user namespaces)."""

import importlib.metadata
import importlib.util
import os
import platform
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agent.util.programs import find_program

Vendor = Literal["NVIDIA", "AMD", "Intel", "Apple"]
_PCI_VENDORS: dict[str, Vendor] = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}
_PCI_CLASSES = ("0x03", "0x12")
"""Display controllers and processing accelerators."""
_CPU_FEATURES = {"avx2": "AVX2", "avx512f": "AVX512"}
"""Flags of /proc/cpuinfo, and what llama.cpp calls them."""
_NAMESPACE_SETTINGS = {
    "user/max_user_namespaces": ("0", "15000"),
    "kernel/unprivileged_userns_clone": ("0", "1"),
    "kernel/apparmor_restrict_unprivileged_userns": ("1", "0"),
}
"""Files of /proc/sys: what forbids user namespaces to programs of ordinary users, what allows them."""
_PACKAGE_MANAGERS = {
    "apt-get": "apt install", "dnf": "dnf install", "apk": "apk add", "pacman": "pacman -S",
}  # fmt: skip
_MESA = {
    "apk": {"AMD": "mesa-vulkan-ati", "Intel": "mesa-vulkan-intel"},
    "pacman": {"AMD": "vulkan-radeon", "Intel": "vulkan-intel"},
}
"""The packages of Vulkan drivers where they are not called mesa-vulkan-drivers."""
_NVIDIA = {"dnf": "akmod-nvidia", "pacman": "nvidia"}
"""The packages of NVIDIA's driver where they are not called nvidia-driver."""
WHEEL_INDEX = "https://abetlen.github.io/llama-cpp-python/whl"
"""Wheels that the authors of llama-cpp-python have built; a folder for each kind."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """A machine as its files describe it."""

    root: Path = Path("/")
    """The folder that stands for ``/``."""
    system: str = platform.system()
    machine: str = platform.machine()

    def text(self, path: str | Path) -> str:
        try:
            return (self.root / path).read_text(errors="replace").strip()
        except OSError:
            return ""

    def has(self, pattern: str) -> bool:
        return any(self.root.glob(pattern))

    @property
    def wsl(self) -> int:
        """The version of the Windows Subsystem for Linux that this is; 0: none."""
        release = self.text("proc/sys/kernel/osrelease")
        return 0 if "microsoft" not in release.lower() else 1 if "Microsoft" in release else 2

    @property
    def container(self) -> str:
        """The runtime of the container that this is; empty: not a container."""
        marks = {".dockerenv": "Docker", "run/.containerenv": "Podman"}
        marks["var/run/secrets/kubernetes.io"] = "Kubernetes"
        return next((name for mark, name in marks.items() if self.has(mark)), "")

    @property
    def is_musl(self) -> bool:
        return self.has("lib/ld-musl-*") and not self.has("lib*/ld-linux*")

    @property
    def gpus(self) -> list[Vendor]:
        if self.system == "Darwin":
            return ["Apple"] if self.machine == "arm64" else []
        vendors: dict[Vendor, None] = {}
        if self.has("proc/driver/nvidia/version") or self.has("usr/lib/wsl/lib/libcuda.so*"):
            vendors["NVIDIA"] = None
        for device in sorted(self.root.glob("sys/bus/pci/devices/*")):
            vendor = _PCI_VENDORS.get(self.text(device / "vendor"))
            if vendor and self.text(device / "class").startswith(_PCI_CLASSES):
                vendors[vendor] = None
        return list(vendors)

    def gpu_name(self, vendor: Vendor) -> str:
        """The driver's name for the first GPU of a vendor, else the vendor alone."""
        for file in sorted(self.root.glob("proc/driver/nvidia/gpus/*/information")):
            for line in self.text(file).splitlines():
                if vendor == "NVIDIA" and line.startswith("Model:"):
                    return line.removeprefix("Model:").strip()
        return f"{vendor} GPU"

    def gpu_remedy(self, vendor: Vendor, *, has_backend: bool) -> str:
        """Return commands or packages that make llama.cpp use a GPU. ``has_backend``: for any."""
        if problem := self._driver_problem(vendor):
            return problem
        if has_backend:
            return "llama.cpp is built for GPUs and does not see it: update its driver"
        has_wheels = not self.is_musl and self.machine == "x86_64"
        match vendor:
            case "Apple":
                return wheel_command("metal")
            case "NVIDIA" if _has_program("nvcc") or not has_wheels:
                first = "" if _has_program("nvcc") else "install the CUDA toolkit, then: "
                return first + compile_command("-DGGML_CUDA=on")
            case "NVIDIA":
                # The packages have the libraries of CUDA that the wheel is linked with.
                return wheel_command("cu125", "nvidia-cuda-runtime-cu12", "nvidia-cublas-cu12")
            case "AMD" if _has_program("hipcc"):
                return compile_command("-DGGML_HIP=on")
        if not has_wheels:
            return (
                f"install glslc and Vulkan's headers, then: {compile_command('-DGGML_VULKAN=on')}"
            )
        names = {manager: packages.get(vendor, "") for manager, packages in _MESA.items()}
        driver = f"{self._install_command(names, 'mesa-vulkan-drivers')} && "
        has_driver = self.has("usr/share/vulkan/icd.d/*")
        return ("" if has_driver else driver) + wheel_command("vulkan")

    def _driver_problem(self, vendor: Vendor) -> str:
        """Why no program can use a GPU; empty: nothing is in the way."""
        nodes = {"NVIDIA": "dev/nvidiactl", "AMD": "dev/dri/renderD*", "Intel": "dev/dri/renderD*"}
        if vendor == "Apple" or self.wsl:
            return ""
        files = list(self.root.glob(nodes[vendor]))
        if not files and self.container:
            options = "--gpus all" if vendor == "NVIDIA" else "--device /dev/dri --device /dev/kfd"
            options = options.removesuffix(" --device /dev/kfd") if vendor == "Intel" else options
            return f"the container does not have it: start it with {options}"
        if vendor == "NVIDIA" and not self.has("proc/driver/nvidia/version"):
            command = self._install_command(_NVIDIA, "nvidia-driver")
            if "ID=ubuntu" in self.text("etc/os-release").splitlines():
                command = "sudo ubuntu-drivers install"
            return f"NVIDIA's driver is missing: {command}"
        if files and not any(os.access(file, os.R_OK | os.W_OK) for file in files):
            return "you may not open it: sudo usermod -aG render,video $USER, then log in again"
        return ""

    def _install_command(self, names: dict[str, str], name: str) -> str:
        """This system's command for a package; ``names``: those that differ from ``name``."""
        for manager, command in _PACKAGE_MANAGERS.items():
            if self.has(f"usr/bin/{manager}") or self.has(f"sbin/{manager}"):
                return f"sudo {command} {names.get(manager) or name}"
        return f"install {name}"

    def unused_features(self, built_for: str) -> list[str]:
        """Instruction sets, in llama.cpp's names, that its build (``AVX2 = 1 | …``) does not use."""
        lines = self.text("proc/cpuinfo").splitlines()
        flags = next((line.split() for line in lines if line.startswith("flags")), [])
        return [
            name
            for flag, name in _CPU_FEATURES.items()
            if flag in flags and f"{name} = 1" not in built_for
        ]

    @property
    def namespace_remedy(self) -> str:
        """The command that allows user namespaces, which bubblewrap needs; empty: they are allowed."""
        return " && ".join(
            f"sudo sysctl -w {file.replace('/', '.')}={allows}"
            for file, (forbids, allows) in _NAMESPACE_SETTINGS.items()
            if self.text(f"proc/sys/{file}") == forbids
        )


def _has_program(name: str) -> bool:
    folders = ("/usr/local/cuda/bin", "/opt/rocm/bin")
    return bool(find_program(name)) or any(Path(f"{folder}/{name}").is_file() for folder in folders)


def compile_command(options: str) -> str:
    """The command that builds llama.cpp again. pip and uv do not notice other CMAKE_ARGS: pip builds
    again with --no-cache-dir, uv with --reinstall-package."""
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
