"""Writes what was measured into docs/gpu.md."""

from __future__ import annotations

import datetime
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench import COLUMNS as BENCH_COLUMNS
from tests.gpu import BENCH_GROUPS, ROOT

PAGE = ROOT / "docs" / "gpu.md"
BEGIN, END = "<!-- measured by make gpu -->\n", "<!-- end -->\n"
COLUMNS = {
    "engine": ("engine tests", "result"),
    "memory": (
        *("model", "context", "KV", "experts on CPU", "device", "planned, GB", "buffers, GB"),
        *("ratio", "free before − after, GB"),
    ),
    "tokens": ("model", "KV", "equal", "ties", "different", "largest error of a logit"),
}
"""Of the stages that are no groups of tests.bench."""
DRIVER_COMMANDS = (
    "nvidia-smi --query-gpu=name,driver_version --format=csv,noheader",
    "rocm-smi --showproductname --showdriverversion --csv",
    "vulkaninfo --summary",
    "system_profiler SPDisplaysDataType",
)


@dataclass
class Results:
    """What one run has measured."""

    backend: str
    build: str
    """Version of the bindings, and the options that they were compiled with."""
    card: str
    tables: dict[str, list[str]] = field(default_factory=dict)
    """Rows by stage."""
    notes: list[str] = field(default_factory=list)
    """Sentences: what did not run, and why."""


def card_and_driver() -> str:
    """The card and its driver as the vendor's program names them, else the processor."""
    for command in DRIVER_COMMANDS:
        program, *arguments = command.split()
        if shutil.which(program):
            done = subprocess.run(
                [program, *arguments], capture_output=True, text=True, check=False
            )
            lines = [" ".join(line.split()) for line in done.stdout.splitlines() if line.strip()]
            named = [
                x for x in lines if re.search(r"deviceName|driverInfo|Chipset|GPU|NVIDIA|,", x)
            ]
            if done.returncode == 0 and named:
                return "; ".join(named[:4]).replace("|", "/")
    return f"no GPU: the CPU of this {platform.machine()} machine"


def markdown(results: Results) -> str:
    """The section of the page."""
    day = datetime.date.today().isoformat()
    parts = [f"## {results.card}\n\n{results.backend}, {results.build}; {day}."]
    parts += [f"- {note}" for note in results.notes]
    bench = [row for group in BENCH_GROUPS for row in results.tables.get(group, [])]
    tables = {stage: results.tables.get(stage, []) for stage in COLUMNS} | {"speed": bench}
    for stage, rows in tables.items():
        if rows:
            names = COLUMNS.get(stage, BENCH_COLUMNS)
            head = f"| {' | '.join(names)} |\n|{'---|' * len(names)}"
            parts.append("\n".join((f"### {stage.capitalize()}\n", head, *rows)))
    return "\n\n".join(parts) + "\n"


def write(results: Results, page: Path = PAGE) -> None:
    """Replace what a page says was measured."""
    before, _, rest = page.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\n{markdown(results)}\n{END}{after}")
