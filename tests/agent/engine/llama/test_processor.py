"""Performance cores and power saving, read from what Linux and macOS say of a processor."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from agent.engine.llama.processor import performance_cores, power_saving

MakeSystem = Callable[[dict[str, str]], Path]


@pytest.fixture
def make_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeSystem:
    """Makes a folder like /sys, for a Linux of so many cores without a battery."""

    def make(files: dict[str, str]) -> Path:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text + "\n")
        numbers = {
            int(name.split("/cpu/cpu")[1].split("/")[0]) for name in files if "/cpu/cpu" in name
        }
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: numbers, raising=False)
        monkeypatch.setattr(psutil, "sensors_battery", lambda: None, raising=False)
        monkeypatch.setattr(sys, "platform", "linux")
        return tmp_path

    return make


def core_files(name: str, values: list[str]) -> dict[str, str]:
    return {f"devices/system/cpu/cpu{n}/{name}": value for n, value in enumerate(values)}


def test_performance_cores_of_a_hybrid_processor_count_two_threads_once(
    make_system: MakeSystem,
) -> None:
    clocks = core_files(
        "cpufreq/cpuinfo_max_freq", ["5100000"] * 2 + ["4900000"] * 2 + ["3800000"] * 4
    )
    siblings = core_files(
        "topology/thread_siblings_list", ["0-1", "0-1", "2-3", "2-3", "4", "5", "6", "7"]
    )
    assert performance_cores(make_system(clocks | siblings)) == 2


def test_performance_cores_capacity_comes_before_the_clock(make_system: MakeSystem) -> None:
    capacities = core_files("cpu_capacity", ["446"] * 4 + ["871"] * 3 + ["1024"])
    clocks = core_files("cpufreq/cpuinfo_max_freq", ["2000000"] * 8)
    assert performance_cores(make_system(capacities | clocks)) == 4


@pytest.mark.parametrize(
    "files",
    [
        core_files("cpufreq/cpuinfo_max_freq", ["4500000", "4400000"]),
        core_files("topology/thread_siblings_list", ["0", "1"]),
        core_files("cpu_capacity", ["none", "1024"]),
    ],
    ids=["alike", "unknown", "unreadable"],
)
def test_performance_cores_that_are_alike_or_unknown_are_none(
    make_system: MakeSystem, files: dict[str, str]
) -> None:
    assert performance_cores(make_system(files)) is None


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"firmware/acpi/platform_profile": "low-power"}, "low-power profile"),
        ({"firmware/acpi/platform_profile": "balanced"}, None),
        (core_files("cpufreq/scaling_governor", ["powersave"]), "power-saving governor"),
        (
            core_files("cpufreq/scaling_governor", ["powersave"])
            | core_files("cpufreq/energy_performance_preference", ["balance_performance"]),
            None,
        ),
        (core_files("cpufreq/energy_performance_preference", ["power"]), "power-saving governor"),
        ({}, None),
    ],
)
def test_power_saving_of_linux_is_named(
    make_system: MakeSystem, files: dict[str, str], reason: str | None
) -> None:
    assert power_saving(make_system(files)) == reason


def test_power_saving_on_battery_is_named(
    make_system: MakeSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_system({"firmware/acpi/platform_profile": "low-power"})
    battery = SimpleNamespace(power_plugged=False)
    monkeypatch.setattr(psutil, "sensors_battery", lambda: battery, raising=False)
    assert power_saving(folder) == "on battery, low-power profile"


@pytest.fixture
def mac(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts a command of macOS on PATH that prints a text."""
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(psutil, "sensors_battery", lambda: None, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def put(name: str, output: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\nprintf '{output}'\n")
        (tmp_path / name).chmod(0o755)

    return put


def test_performance_cores_and_power_saving_of_macos(mac: Callable[[str, str], None]) -> None:
    mac("sysctl", "2\\n8\\n")
    assert performance_cores() == 8
    mac("sysctl", "1\\n8\\n")
    assert performance_cores() is None, "all alike"
    mac("pmset", "System-wide:\\n lowpowermode         1\\n")
    assert power_saving() == "low power mode"
    mac("pmset", " lowpowermode         0\\n")
    assert power_saving() is None
