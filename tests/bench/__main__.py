"""Measures the groups that are named on the command line, by default all, and prints their table."""

import argparse
import importlib
import os
import platform
import sys
import time

from tests.bench import GROUPS, BenchmarkSkippedError, markdown_table, progress


def main() -> None:
    """Run ``python -m tests.bench``."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description="Benchmarks beside peers; prints one table."
    )
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    groups = parser.parse_args().groups or GROUPS
    if unknown := set(groups) - set(GROUPS):
        sys.exit(f"No such group: {', '.join(unknown)} (there are {', '.join(GROUPS)})")
    # Programs are measured as people start them: with their byte code.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    rows = []
    began = time.monotonic()
    for name in groups:
        group_began = time.monotonic()
        progress(f"measuring {name} …")
        try:
            rows += importlib.import_module(f"tests.bench.{name}").rows()
        except BenchmarkSkippedError as reason:
            progress(f"{name} is left out: {reason}")
        progress(f"{name} took {time.monotonic() - group_began:.0f} s")
    print(markdown_table(rows))
    print(
        f"\n{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f};"
        f" {time.monotonic() - began:.0f} s"
    )


if __name__ == "__main__":
    main()
