"""Reads of the processor what decides thread counts: usable and performance cores, power saving."""

import os
import subprocess
import sys
from pathlib import Path

from agent.util.programs import find_program

SYSTEM_FOLDER = Path("/sys")
PERFORMANCE_SHARE = 0.75
"""A core with at least this share of the fastest one's speed is a performance core. The clocks of equal
cores differ by a few per cent; efficiency cores have 0.4 to 0.7 of the speed."""


def usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def performance_cores(system_folder: Path = SYSTEM_FOLDER) -> int | None:
    """Physical performance cores that this process may use; None: all cores are equal, or unknown.
    Linux: by ``cpu_capacity`` or the highest clock; macOS: ``sysctl``."""
    if sys.platform == "darwin":
        levels = _run_command("sysctl", "-n", "hw.nperflevels", "hw.perflevel0.physicalcpu").split()
        return int(levels[1]) if len(levels) == 2 and levels[0] != "1" else None
    if not hasattr(os, "sched_getaffinity"):
        return None
    cores = [system_folder / f"devices/system/cpu/cpu{n}" for n in os.sched_getaffinity(0)]
    for speed_file in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        texts = [_read_text(core / speed_file) for core in cores]
        speeds = [int(text) if text.isdecimal() else 0 for text in texts]
        least = PERFORMANCE_SHARE * max(speeds)
        fast = [core for core, speed in zip(cores, speeds, strict=True) if speed >= least]
        if min(speeds) > 0 and len(fast) < len(cores):
            # Two threads of one core list each other.
            siblings = {_read_text(core / "topology/thread_siblings_list") or core for core in fast}
            return len(siblings)
    return None


def power_saving(system_folder: Path = SYSTEM_FOLDER) -> str | None:
    """Why the processor runs slower than it could, in a few words; None: nothing says that it does."""
    import psutil

    reasons = []
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    if battery is not None and battery.power_plugged is False:
        reasons.append("on battery")
    if sys.platform == "darwin":
        if "lowpowermode 1" in " ".join(_run_command("pmset", "-g").split()):
            reasons.append("low power mode")
    elif sys.platform == "linux":
        clock = system_folder / "devices/system/cpu/cpu0/cpufreq"
        preference = _read_text(clock / "energy_performance_preference")
        # With a preference, the governor "powersave" is the ordinary one (intel_pstate, amd_pstate).
        governor = "" if preference else _read_text(clock / "scaling_governor")
        if _read_text(system_folder / "firmware/acpi/platform_profile") == "low-power":
            reasons.append("low-power profile")
        elif preference == "power" or governor == "powersave":
            reasons.append("power-saving governor")
    return ", ".join(reasons) or None


def _run_command(*command: str) -> str:
    if (program := find_program(command[0])) is None:
        return ""
    try:
        return subprocess.run(
            [program, *command[1:]], capture_output=True, text=True, timeout=2, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _read_text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
