"""Runs the client scenarios that revisions of MCP require, one after the other: ``make conformance``.

Arguments: revisions, or nothing for all, and scenarios, or nothing for all of the revisions. The exit
code is 1 where one fails; what was said there is in the folder ``.cache/conformance``.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = Path(__file__).with_name("node_modules")
SUITE = (
    str(MODULES / "node" / "bin" / "node"),
    str(MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"),
)
REVISIONS = ("2025-11-25", "2026-07-28")
SCENARIO_SECONDS = 300


def scenarios(revision: str) -> list[str]:
    """Return the names of a revision's client scenarios: those it requires and those added since."""
    command = [*SUITE, "list", "--client", "--requirements", revision]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    required = listed.partition("Client scenarios")[2].partition("Run and reported")[0]
    added = listed.partition("added-after-release")[2].partition("pending")[0]
    names = re.findall(r"^ +- (\S+)$", required, re.M)
    return names + re.findall(r"^ +- (\S+) \[client\]$", added, re.M)


def passes(revision: str, scenario: str, folder: Path) -> bool:
    """Run one scenario; its log is in the folder."""
    client = shlex.join([sys.executable, "-m", "tests.conformance.person"])
    log = folder / f"{scenario.replace('/', '_')}.txt"
    with log.open("w") as output:
        done = subprocess.run(
            [
                *SUITE, "client", "--command", client, "--scenario", scenario,
                "--spec-version", revision, "--timeout", str(SCENARIO_SECONDS * 1000), "--verbose",
            ],
            cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
    return done.returncode == 0


def failures(revision: str, wanted: list[str]) -> Iterator[str]:
    """Run a revision's scenarios, all or those that are wanted; yield the names of those that fail."""
    folder = ROOT / ".cache" / "conformance" / revision
    folder.mkdir(parents=True, exist_ok=True)
    names = [name for name in scenarios(revision) if name in wanted or not wanted]
    for number, name in enumerate(names, 1):
        passed = passes(revision, name, folder)
        print(
            f"{number}/{len(names)} {revision} {name}: {'ok' if passed else 'FAILED'}", flush=True
        )
        if not passed:
            yield name


def main(words: list[str]) -> int:
    """Run what the words name; returns the exit code."""
    revisions = [word for word in words if word in REVISIONS] or REVISIONS
    wanted = [word for word in words if word not in REVISIONS]
    failed = [f"{each} {name}" for each in revisions for name in failures(each, wanted)]
    print(f"failed: {', '.join(failed)}" if failed else "all pass")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
