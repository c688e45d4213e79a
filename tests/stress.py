"""Runs the test suite again and again, alone and next to busy processes: ``python -m tests.stress``.

The runs differ in the order of the tests, the number of processes and, with ``--user``, the user. Each
prints a line, the tests that failed and where its output is. No run starts after ``--minutes``, and
one that goes on for twice as long is killed.
"""

import argparse
import contextlib
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

SPINNERS, WRITERS = 6, 2
"""Busy processes: those that only compute, and those that write to the disk."""
SPIN = "while True: pass"
WRITE = """
import os, sys
while True:
    with open(sys.argv[1], "wb") as file:
        for _ in range(64):
            file.write(os.urandom(1 << 20))
            file.flush()
            os.fsync(file.fileno())
"""


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """One run of the suite."""

    busy: bool
    """Next to busy processes."""
    processes: int
    order: int | None
    """The seed of a random order; None: the usual one."""
    user: str | None = None

    def __str__(self) -> str:
        order = "usual order" if self.order is None else f"order {self.order}"
        user = f", as {self.user}" if self.user else ""
        return f"{'busy' if self.busy else 'quiet'}, {self.processes} processes, {order}{user}"


def plan_runs(quiet: int, busy: int, seed: int, user: str | None) -> list[SuiteRun]:
    """Return the runs: 1, 2, 4 and 6 processes, random orders, the last of each kind as ``user``."""
    variants = [(4, None), (2, seed), (1, seed + 1), (4, seed + 2)]
    runs = [SuiteRun(False, *variants[n % 4]) for n in range(quiet)]
    runs += [SuiteRun(True, 6, None if n % 2 == 0 else seed + 3 + n) for n in range(busy)]
    if user:
        for kind in (False, True):
            last = max((n for n, run in enumerate(runs) if run.busy is kind), default=None)
            if last is not None:
                runs[last] = SuiteRun(kind, 6 if kind else 4, None, user)
    return runs


@contextlib.contextmanager
def busy_processes(folder: Path) -> Iterator[None]:
    """Run processes that take the cores and the disk for the duration of the block."""
    commands = [[sys.executable, "-c", SPIN] for _ in range(SPINNERS)]
    commands += [[sys.executable, "-c", WRITE, str(folder / f"disk{n}")] for n in range(WRITERS)]
    running = [subprocess.Popen(command) for command in commands]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def run_suite(run: SuiteRun, options: Sequence[str], seconds: float) -> tuple[bool, str]:
    """Run pytest; returns whether all tests passed, and its summary with the tests that failed."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        command = [sys.executable, "-m", "pytest", "--numprocesses", str(run.processes)]
        command += [
            "--dist",
            "loadfile",
            "--no-loadscope-reorder",
            "--tb=short",
            "-m",
            "not long",
            *options,
        ]
        environment = dict(os.environ)
        if run.order is not None:
            command += ["--random-order", f"--random-order-seed={run.order}"]
        if run.user:
            shutil.chown(folder, run.user)
            group = pwd.getpwnam(run.user).pw_gid
            ids = [f"--reuid={run.user}", "--init-groups", f"--regid={group}"]
            command = [
                "setpriv",
                *ids,
                "--inh-caps=-all",
                *command,
                "-o",
                f"cache_dir={name}/cache",
            ]
            environment |= {"HOME": name, "USER": run.user}
        if run.busy:
            stack.enter_context(busy_processes(folder))
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            out, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            return False, f"killed after {seconds / 60:.0f} minutes"
        lines = out.splitlines()
        summary = next((line for line in reversed(lines) if re.match(r"\d+ \w+", line)), lines[-1])
        failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
        if process.returncode == 0:
            return True, summary
        log = Path(tempfile.mkstemp(prefix="stress-", suffix=".log")[1])
        log.write_text(out)
        return False, "\n  ".join([summary, *failed, f"its output: {log}"])


def main() -> int:
    """Run as the command line says; returns 1 where a test failed in any run."""
    options = argparse.ArgumentParser(prog="python -m tests.stress", description=__doc__)
    options.add_argument("--quiet", type=int, default=5, help="runs with nothing else beside them")
    options.add_argument("--busy", type=int, default=3, help="runs next to eight busy processes")
    options.add_argument("--minutes", type=float, default=180, help="start no run after them")
    options.add_argument("--seed", type=int, default=1, help="of the random orders")
    options.add_argument("--user", help="run one of each kind as this user (root only)")
    arguments, others = options.parse_known_args()
    began, passed = time.monotonic(), True
    for run in plan_runs(arguments.quiet, arguments.busy, arguments.seed, arguments.user):
        spent = time.monotonic() - began
        if spent > arguments.minutes * 60:
            print(f"not run, {arguments.minutes:.0f} minutes are over: {run}", flush=True)
            continue
        good, summary = run_suite(run, others, 2 * 60 * arguments.minutes - spent)
        passed &= good
        print(f"{run}: {summary}", flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
