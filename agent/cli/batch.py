"""`agent batch`: answers the lines of a batch file, with progress, and continues a stopped run."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from agent import bootstrap
from agent.config.launch import LaunchOptions
from agent.errors import UserError, user_errors
from agent.events import MIN_SPEED_TOKENS
from agent.runtime.runtime import Runtime
from agent.server.app import create_app
from agent.server.batch import jobs
from agent.server.http.errors import ApiError
from agent.server.http.options import ServerOptions
from agent.server.http.signals import SAME_SIGNAL_SECONDS, stop_on_signals
from agent.server.responses.models import ServedModels
from agent.server.responses.service import ResponseService
from agent.util.process import EXIT_CANCELLED, EXIT_DONE, EXIT_FAILED, exit_on_signals
from agent.util.sanitize import echo
from agent.util.user_files import refuse_link

DEFAULT_PARALLEL = 16
MAX_REPORTS = 10
"""Number of progress lines if stderr is not a terminal."""
MAX_FAULTS = 5
"""Lines whose fault --dry-run prints."""


def main(
    file: Path,
    output: Path | None,
    launch: LaunchOptions,
    *,
    dry_run: bool,
    parallel: int | None,
    aliases: tuple[str, ...],
) -> int:
    """Answer the lines and return the exit code. Raises UserError."""
    if output is None and not dry_run:
        raise UserError("Name a file for the results with -o, or count tokens with --dry-run.")
    lines = list(jobs.read_lines(_read(file)))
    if not lines:
        raise UserError(f"{file} has no requests.")
    results = None if output is None or dry_run else _open_results(output, file)
    if results is not None and (changed := results.forget_changed(lines)):
        what = (
            "1 line has changed and is" if changed == 1 else f"{changed} lines have changed and are"
        )
        echo(f"agent: {what} asked again.", file=sys.stderr)
    parallel = parallel or DEFAULT_PARALLEL
    runtime = bootstrap.create_runtime(launch, tools="none", serves_engine=False, parallel=parallel)
    options = ServerOptions(expose_tools=True, store=False, aliases=aliases)
    try:
        return asyncio.run(_run(launch, runtime, lines, results, parallel, options))
    finally:
        exit_on_signals()


def _read(file: Path) -> list[str]:
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return data.decode("utf-8-sig").split("\n")
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8 text.") from error


def _open_results(path: Path, source: Path) -> jobs.ResultLog:
    """The file of results with those of an earlier run. Raises UserError."""
    refuse_link(path)
    try:
        # Earlier results cannot be read from a device or a pipe.
        if str(path) == "-" or (path.exists() and not (path.is_file() or path.is_dir())):
            raise UserError("--output: the results need a file that a later run can continue.")
        if path.exists() and source.exists() and path.samefile(source):
            raise UserError("--output: the results need another file than the requests.")
        return jobs.ResultLog(path)
    except ValueError as error:
        message = f"--output: {path} has lines that are not results; name another file."
        raise UserError(message) from error
    except BlockingIOError as error:
        raise UserError(f"--output: another program is writing {path}.") from error
    except OSError as error:
        raise UserError(f"--output: {path} cannot be used: {error.strerror}.") from error


async def _run(
    launch: LaunchOptions,
    runtime: Runtime,
    lines: list[jobs.Line],
    results: jobs.ResultLog | None,
    parallel: int,
    options: ServerOptions,
) -> int:
    working = asyncio.current_task()
    assert working is not None
    stop_on_signals(lambda _: working.cancel(), same_seconds=SAME_SIGNAL_SECONDS)
    app = create_app(ServedModels(runtime, bootstrap.turn_options(launch, runtime.model)), options)
    progress = BatchProgress(len(lines), sys.stderr)
    runner = jobs.BatchRunner(app, parallel)
    try:
        await runtime.start()
        with progress.bar:
            await runtime.ready(progress.load)
            if results is None:
                return await _count(app.state.service, lines, progress)
            failure = f"--output: {results.path} cannot be written"
            with user_errors(OSError, failure=failure), results:
                missing = results.missing(lines)
                progress.begin(len(lines) - len(missing))
                digests = {line.custom_id: line.digest for line in missing}

                def take(result: dict[str, Any]) -> None:
                    results.add(result | {"request_digest": digests[result["custom_id"]]})
                    progress.advance(jobs.output_tokens(result))

                await runner.run(missing, take)
        echo(progress.summary(results), file=sys.stderr)
        return EXIT_FAILED if results.failed else EXIT_DONE
    except asyncio.CancelledError:
        echo(
            f"agent: stopped; {progress.done} of {len(lines)} are done; the same command continues.",
            file=sys.stderr,
        )
        return EXIT_CANCELLED
    finally:
        await runner.close()
        await runtime.close()


async def _count(
    service: ResponseService, lines: Iterable[jobs.Line], progress: BatchProgress
) -> int:
    counts: list[int] = []
    faults: list[str] = []
    progress.begin(0)
    for line in lines:
        try:
            if isinstance(line, jobs.WrongLine):
                raise line.error
            counts.append(await jobs.count_tokens(service, line))
        except ApiError as error:
            name = "" if isinstance(line, jobs.WrongLine) else f"{line.custom_id}: "
            faults.append(f"{name}{error}")
        progress.advance(0)
    progress.bar.stop()
    for fault in faults[:MAX_FAULTS]:
        echo(f"agent: {fault}", file=sys.stderr)
    if len(faults) > MAX_FAULTS:
        echo(f"agent: and {len(faults) - MAX_FAULTS} more.", file=sys.stderr)
    echo(
        f"{len(counts)} requests with {sum(counts):,} tokens, {max(counts, default=0):,} in the"
        f" longest; {len(faults)} wrong lines."
    )
    return EXIT_FAILED if faults else EXIT_DONE


class BatchProgress:
    """Says how far the work is: as a bar on a terminal, else a line at every tenth."""

    def __init__(self, total: int, out: TextIO) -> None:
        self.total, self.done = total, 0
        self._out, self._tokens, self._began, self._done_before = out, 0, time.monotonic(), 0
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(file=out),
            transient=True,
            disable=not out.isatty(),
        )
        self._task = self.bar.add_task("Loading the model", total=1.0, note="")

    def load(self, share: float) -> None:
        self.bar.update(self._task, completed=share)

    def begin(self, done: int) -> None:
        """Begin to count lines, of which an earlier run has ``done``."""
        self.done = self._done_before = done
        self._began = time.monotonic()
        self.bar.update(self._task, description="", total=self.total, completed=done)
        if 0 < done < self.total:
            self._say(f"{done} of {self.total} were done before.")

    def advance(self, tokens: int) -> None:
        self.done, self._tokens = self.done + 1, self._tokens + tokens
        self.bar.update(self._task, completed=self.done, note=self._note())
        before, now = (n * MAX_REPORTS // self.total for n in (self.done - 1, self.done))
        if self.bar.disable and now > before:
            self._say(self._note())

    def summary(self, results: jobs.ResultLog) -> str:
        seconds = time.monotonic() - self._began
        failed = f"; {results.failed} failed, as {results.path} says" if results.failed else ""
        if self.done == self._done_before:
            return f"All {self.done} requests were done before{failed}."
        is_sure = self._tokens >= MIN_SPEED_TOKENS
        return (
            f"{self.done - self._done_before} requests, {self._tokens:,} tokens in {seconds:.1f} s"
            f"{f' ({self._tokens / seconds:.0f} tokens/s)' if is_sure else ''}{failed}."
        )

    def _note(self) -> str:
        seconds = time.monotonic() - self._began
        left = seconds / (self.done - self._done_before) * (self.total - self.done)
        ends = time.strftime("%H:%M", time.localtime(time.time() + left))
        speed = (
            f" {self._tokens / seconds:.0f} tokens/s," if self._tokens >= MIN_SPEED_TOKENS else ""
        )
        return f"{self.done} of {self.total},{speed} ends about {ends}"

    def _say(self, text: str) -> None:
        if self.bar.disable:
            echo(f"agent: {text}", file=self._out)
        else:
            self.bar.print(text)
