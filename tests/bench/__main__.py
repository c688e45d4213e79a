from __future__ import annotations

import importlib
import os
import platform
import sys
import time

from tests.bench import GROUPS, Skipped, progress, table

names = sys.argv[1:] or GROUPS
if unknown := set(names) - set(GROUPS):
    sys.exit(f"No such group: {', '.join(unknown)} (there are {', '.join(GROUPS)})")
rows = []
began = time.monotonic()
for name in names:
    group = time.monotonic()
    progress(f"measuring {name} …")
    try:
        rows += importlib.import_module(f"tests.bench.{name}").rows()
    except Skipped as reason:
        progress(f"{name} is left out: {reason}")
    progress(f"{name} took {time.monotonic() - group:.0f} s")
print(table(rows))
print(
    f"\n{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f};"
    f" {time.monotonic() - began:.0f} s"
)
