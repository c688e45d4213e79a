"""Runs ``make gpu``: makes the environment, runs the stages, and writes docs/gpu.md."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict

from agent.engine.placement.hardware import Hardware
from tests.bench import progress
from tests.gpu import BENCH_GROUPS, ROOT, STAGES
from tests.gpu.environment import (
    CMAKE_OPTIONS,
    Environment,
    SetupError,
    llama_version,
    local_backend,
    pack,
)
from tests.gpu.page import Results, card_and_driver, write

ENGINE_TESTS = ("tests/agent/engine/llama", "tests/agent/engine/placement")
TWENTY_B_BYTES = 42_000_000_000
"""Free bytes of a card on which gpt-oss-20b's shape is measured: engine, llama-server and llama-bench
have it at once."""
_ROW = re.compile(r"^(?: *\d+ s: )?(\|.*\|)$")


def stage_command(environment: Environment, stage: str) -> list[str]:
    """The command of a stage."""
    python = str(environment.python)
    if stage == "engine":
        on_gpu = [] if environment.backend == "cpu" else ["-p", "tests.gpu.on_gpu"]
        return [python, "-m", "pytest", *on_gpu, "-o", "addopts=", "-q", *ENGINE_TESTS]
    package = "tests.bench" if stage in BENCH_GROUPS else f"tests.gpu.{stage}"
    return [python, "-m", package, *([stage] if stage in BENCH_GROUPS else [])]


def run_stage(environment: Environment, stage: str, seconds: float) -> tuple[list[str], str]:
    """Run a stage for at most so long; returns the rows of its table, and what went wrong."""
    is_group = stage in BENCH_GROUPS  # they write each row to stderr, and at the end all to stdout
    process = subprocess.Popen(
        stage_command(environment, stage), cwd=ROOT, env=environment.variables, text=True,
        stdout=subprocess.DEVNULL if is_group else subprocess.PIPE,
        stderr=subprocess.PIPE if is_group else None, start_new_session=True,
    )  # fmt: skip
    timer = threading.Timer(seconds, os.killpg, (process.pid, signal.SIGKILL))
    timer.start()
    rows, last = [], "no output"
    for line in (process.stderr if is_group else process.stdout) or ():
        print(line, end="", file=sys.stderr, flush=True)
        last = line.strip() or last
        if row := _ROW.match(line.rstrip()):
            rows.append(row[1])
    code = process.wait()
    timer.cancel()
    if stage == "engine":
        rows = [f"| {' '.join(ENGINE_TESTS)} | {last} |"]
    if code == -signal.SIGKILL:
        return rows, f"{stage} was stopped after {seconds:.0f} s."
    return rows, f"{stage} ended with code {code}: {last}" if code else ""


def free_bytes(environment: Environment) -> int:
    """What the largest GPU has free."""
    program = (
        "from agent.engine.placement.devices import list_devices;"
        "print(max([d.free for d in list_devices() if d.kind in ('gpu', 'igpu')], default=0))"
    )
    command = [environment.python, "-c", program]
    done = subprocess.run(
        command, cwd=ROOT, env=environment.variables, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SetupError(f"The build does not run: {done.stderr.strip().splitlines()[-1:]}")
    return int(done.stdout)


def measure(environment: Environment, stages: list[str], minutes: float) -> Results:
    """Make the environment and run the stages, all in so many minutes. Raises SetupError."""
    ends_at = time.monotonic() + 60 * minutes
    progress(f"building llama.cpp for {environment.backend} in {environment.folder} …")
    environment.make()
    if environment.backend != "cpu":
        free = free_bytes(environment)
        if not free:
            raise SetupError(f"llama.cpp's {environment.backend} build sees no GPU here.")
        if free > TWENTY_B_BYTES:
            os.environ["AGENT_BENCH_SHAPE"] = "20b"
    options = environment.variables["CMAKE_ARGS"] or "llama.cpp's defaults"
    build = f"llama-cpp-python {llama_version()} ({options})"
    results = Results(environment.backend, build, card_and_driver())
    saved = environment.folder / "results.json"
    if saved.exists():  # of stages that ran before, on the same card and build
        old = Results(**json.loads(saved.read_text()))
        if (old.card, old.build) == (results.card, results.build):
            results = old
    for stage in stages:
        seconds, problem = ends_at - time.monotonic(), f"{stage} was left out: the time was over."
        if seconds > 0:
            progress(f"stage {stage} …")
            results.tables[stage], problem = run_stage(environment, stage, seconds)
        others = [note for note in results.notes if not note.startswith(f"{stage} ")]
        results.notes = others + ([problem] if problem else [])
        saved.write_text(json.dumps(asdict(results), indent=1))
    return results


def main() -> None:
    """Run ``python -m tests.gpu``."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"{', '.join(STAGES)}; pack")
    parser.add_argument("--backend", choices=sorted(CMAKE_OPTIONS), help="default: that of the GPU")
    parser.add_argument("--architecture", default="native", help="of CUDA, say 90-real")
    parser.add_argument("--minutes", type=float, default=12, help="of all together")
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--no-page", action="store_true", help="leave docs/gpu.md as it is")
    parser.add_argument(
        "--python", default="3.12", help="of the machine that wheels are packed for"
    )
    parser.add_argument("--without", default="", help="packages that it has, with commas")
    options = parser.parse_args()
    try:
        if options.stages == ["pack"]:
            return pack(options.python, options.without.split(","))
        if unknown := set(options.stages) - set(STAGES):
            parser.error(f"there is no stage {', '.join(unknown)}")
        backend = options.backend or local_backend(Hardware())
        environment = Environment(backend, options.architecture)
        if options.build_only:
            return environment.make()
        results = measure(environment, options.stages or list(STAGES), options.minutes)
    except SetupError as problem:
        sys.exit(str(problem))
    if not options.no_page:
        write(results)
    progress("; ".join(results.notes) or "all stages ran")


if __name__ == "__main__":
    main()
