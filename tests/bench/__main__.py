from __future__ import annotations

import importlib
import sys

from tests.bench import GROUPS, table

names = sys.argv[1:] or GROUPS
if unknown := set(names) - set(GROUPS):
    sys.exit(f"No such group: {', '.join(unknown)} (there are {', '.join(GROUPS)})")
rows = []
for name in names:
    print(f"measuring {name} …", file=sys.stderr)
    rows += importlib.import_module(f"tests.bench.{name}").rows()
print(table(rows))
