"""What of a machine is unused, read from made files of several machines."""

import importlib.machinery
import importlib.util
import os
import stat
from pathlib import Path

import pytest

from agent.engine.placement import hardware
from agent.engine.placement.hardware import (
    WHEEL_INDEX,
    Hardware,
    Vendor,
    compile_command,
    wheel_command,
)
from tests.support.program import ROOT

NVIDIA = {
    "sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
    "sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n",
}
NVIDIA_DRIVER = {
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65",
    "proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: \t\t NVIDIA GeForce RTX 4090\nIRQ: 1",
    "dev/nvidiactl": "",
}
AMD = {
    "sys/bus/pci/devices/0000:03:00.0/vendor": "0x1002\n",
    "sys/bus/pci/devices/0000:03:00.0/class": "0x120000\n",
    "dev/dri/renderD128": "",
}
INTEL = {
    "sys/bus/pci/devices/0000:00:02.0/vendor": "0x8086\n",
    "sys/bus/pci/devices/0000:00:02.0/class": "0x030000\n",
    "sys/bus/pci/devices/0000:00:1f.3/vendor": "0x8086\n",
    "sys/bus/pci/devices/0000:00:1f.3/class": "0x040300\n",
    "dev/dri/renderD128": "",
}
VIRTUAL = {
    "sys/bus/pci/devices/0000:00:01.0/vendor": "0x1af4\n",
    "sys/bus/pci/devices/0000:00:01.0/class": "0x030000\n",
}
UBUNTU = {"usr/bin/apt-get": "", "etc/os-release": "NAME=Ubuntu\nID=ubuntu\n"}
CUDA_WHEEL = wheel_command("cu125", "nvidia-cuda-runtime-cu12", "nvidia-cublas-cu12")
VULKAN_WHEEL = wheel_command("vulkan")


def machine(
    root: Path, *trees: dict[str, str], system: str = "Linux", processor: str = "x86_64"
) -> Hardware:
    """A machine with these files."""
    for path, text in {path: text for tree in trees for path, text in tree.items()}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return Hardware(root, system, processor)


@pytest.fixture(autouse=True)
def no_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without nvcc and hipcc."""
    monkeypatch.setattr(hardware, "_has_program", lambda name: False)


@pytest.mark.parametrize(
    ("trees", "gpus"),
    [
        ([], []),
        ([VIRTUAL], []),
        ([NVIDIA, INTEL], ["Intel", "NVIDIA"]),
        ([NVIDIA_DRIVER], ["NVIDIA"]),  # a Jetson's is on no PCI bus
        ([AMD], ["AMD"]),
        ([{"usr/lib/wsl/lib/libcuda.so.1": ""}], ["NVIDIA"]),
    ],
)
def test_gpus_are_those_of_llama_backends(
    tmp_path: Path, trees: list[dict[str, str]], gpus: list[Vendor]
) -> None:
    assert machine(tmp_path, *trees).gpus == gpus


def test_apple_gpu_is_of_arm_alone(tmp_path: Path) -> None:
    mac = machine(tmp_path, system="Darwin", processor="arm64")
    assert mac.gpus == ["Apple"]
    assert mac.gpu_remedy("Apple", has_backend=False) == wheel_command("metal")
    assert machine(tmp_path, system="Darwin").gpus == []


@pytest.mark.parametrize(
    ("vendor", "trees", "remedy"),
    [
        ("NVIDIA", [NVIDIA, NVIDIA_DRIVER], CUDA_WHEEL),
        ("NVIDIA", [NVIDIA, UBUNTU], "sudo ubuntu-drivers install"),
        ("NVIDIA", [NVIDIA, {"usr/bin/pacman": ""}], "sudo pacman -S nvidia"),
        ("NVIDIA", [NVIDIA, {".dockerenv": ""}], "start it with --gpus all"),
        ("NVIDIA", [NVIDIA, NVIDIA_DRIVER, {".dockerenv": ""}], CUDA_WHEEL),
        ("AMD", [AMD, {"usr/share/vulkan/icd.d/radeon.json": ""}], VULKAN_WHEEL),
        ("AMD", [AMD, UBUNTU], f"sudo apt install mesa-vulkan-drivers && {VULKAN_WHEEL}"),
        ("AMD", [AMD, {"usr/bin/pacman": ""}], f"sudo pacman -S vulkan-radeon && {VULKAN_WHEEL}"),
        ("Intel", [INTEL, {"usr/bin/dnf": ""}], "sudo dnf install mesa-vulkan-drivers && "),
        ("AMD", [{"run/.containerenv": ""}], "start it with --device /dev/dri --device /dev/kfd"),
        ("AMD", [AMD, {"lib/ld-musl-x86_64.so.1": ""}], compile_command("-DGGML_VULKAN=on")),
    ],
)
def test_gpu_remedy_fits_the_machine(
    tmp_path: Path, vendor: Vendor, trees: list[dict[str, str]], remedy: str
) -> None:
    assert remedy in machine(tmp_path, *trees).gpu_remedy(vendor, has_backend=False)


def test_gpu_remedy_compiles_where_there_is_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "_has_program", lambda name: True)
    both = machine(tmp_path, NVIDIA_DRIVER, AMD)
    assert both.gpu_remedy("NVIDIA", has_backend=False) == compile_command("-DGGML_CUDA=on")
    assert both.gpu_remedy("AMD", has_backend=False) == compile_command("-DGGML_HIP=on")
    assert "update its driver" in both.gpu_remedy("NVIDIA", has_backend=True)


def test_gpu_name_is_the_drivers(tmp_path: Path) -> None:
    both = machine(tmp_path, NVIDIA, NVIDIA_DRIVER, AMD)
    assert both.gpu_name("NVIDIA") == "NVIDIA GeForce RTX 4090"
    assert both.gpu_name("AMD") == "AMD GPU"


@pytest.mark.parametrize(
    ("flags", "built_for", "unused"),
    [
        ("sse2 avx2 avx512f", "CPU : AVX = 1 | AVX2 = 1 | ", ["AVX512"]),
        ("sse2 avx2 avx512f", "CPU : AVX2 = 1 | AVX512 = 1 | ", []),
        ("sse2 avx2 avx512f", "CPU : SSE3 = 1 | ", ["AVX2", "AVX512"]),
        ("sse2 avx", "CPU : AVX = 1 | ", []),
    ],
)
def test_unused_instruction_sets(
    tmp_path: Path, flags: str, built_for: str, unused: list[str]
) -> None:
    cpu = {"proc/cpuinfo": f"processor\t: 0\nflags\t\t: {flags}\n\nprocessor\t: 1\n"}
    assert machine(tmp_path, cpu).unused_features(built_for) == unused
    assert Hardware(tmp_path / "nowhere").unused_features("") == []


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("user/max_user_namespaces", "0", "sudo sysctl -w user.max_user_namespaces=15000"),
        ("user/max_user_namespaces", "95000", ""),
        ("kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "_unprivileged_userns=0"),
    ],
)
def test_blocked_namespaces_have_a_command(
    tmp_path: Path, name: str, value: str, remedy: str
) -> None:
    command = machine(tmp_path, {f"proc/sys/{name}": f"{value}\n"}).namespace_remedy
    assert remedy in command and bool(command) == bool(remedy)


@pytest.mark.parametrize(
    ("trees", "wsl", "container", "is_musl"),
    [
        ({"proc/sys/kernel/osrelease": "6.1.0-18-amd64"}, 0, "", False),
        ({"proc/sys/kernel/osrelease": "5.15.90.1-microsoft-standard-WSL2"}, 2, "", False),
        ({"proc/sys/kernel/osrelease": "4.4.0-19041-Microsoft"}, 1, "", False),
        ({".dockerenv": "", "lib/ld-musl-x86_64.so.1": ""}, 0, "Docker", True),
        ({"run/.containerenv": "", "lib64/ld-linux-x86-64.so.2": ""}, 0, "Podman", False),
        ({"var/run/secrets/kubernetes.io/serviceaccount/token": ""}, 0, "Kubernetes", False),
    ],
)
def test_surroundings(
    tmp_path: Path, trees: dict[str, str], wsl: int, container: str, is_musl: bool
) -> None:
    made = machine(tmp_path, trees)
    assert (made.wsl, made.container, made.is_musl) == (wsl, container, is_musl)


def test_commands_are_of_what_installed_this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware.sys, "executable", "/a b/bin/python")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: importlib.machinery.ModuleSpec(name, None)
    )
    command = compile_command("-DGGML_CUDA=on")
    assert command.startswith("CMAKE_ARGS=\"-DGGML_CUDA=on\" '/a b/bin/python' -m pip install ")
    assert "--force-reinstall --no-cache-dir llama-cpp-python==" in command
    assert f"--extra-index-url {WHEEL_INDEX}/cu125 llama-cpp-python==" in CUDA_WHEEL
    assert wheel_command("cpu", "more").endswith(" more")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert " uv pip install --python '/a b/bin/python' " in compile_command("")
    assert "--reinstall-package llama-cpp-python llama-cpp-python==" in compile_command("")
    assert f"--no-build --index {WHEEL_INDEX}/vulkan " in wheel_command("vulkan")


def test_installer_takes_wheels_of_the_same_index() -> None:
    script = ROOT / "install.sh"
    assert WHEEL_INDEX in script.read_text()
    assert script.stat().st_mode & stat.S_IXUSR and os.access(script, os.X_OK)
