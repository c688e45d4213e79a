"""The process in which the model's Python code runs. Stands alone, imports nothing of ours.

JSON lines on stdin: ``{"id": n, "code": text}`` runs code in the one lasting namespace,
``{"interrupt": n}`` raises KeyboardInterrupt in it. JSON lines on stdout: ``{"ready": true}`` once,
then per run ``{"id": n, "stream": "stdout"|"stderr", "text": …}``… and ``{"id": n, "ok": bool}``.
"""

from __future__ import annotations

import ast
import builtins
import io
import itertools
import json
import linecache
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import deque
from types import CodeType, FrameType, TracebackType
from typing import IO, Any

FLUSH_SECONDS = 0.05
"""Output is sent in pieces, so that a loop of prints does not become a flood of messages."""
FLUSH_SIZE = 8192
HEAD, TAIL = 1_500_000, 100_000
"""Characters of one run's output that are sent; what lies between is counted and dropped."""
FILES = 20
"""Of the files that a run made so many are named."""
FRAMES = 8
"""Of a traceback that are shown: the last."""


class Sender:
    """One run's output on its way to the parent."""

    def __init__(self, to: IO[str]) -> None:
        self._to = to
        self._lock = threading.RLock()
        self._id: int | None = None
        self._stream = "stdout"
        self._pending: list[str] = []
        self._size = 0
        self._flushed = 0.0
        self._room = 0
        self._dropped = 0
        self._tail: deque[tuple[str, str]] = deque()
        self._kept = 0
        self._work = threading.Event()
        self.column = 0
        """0: the output so far ends with a line's end (or is empty)."""

    def send(self, message: dict[str, Any]) -> None:
        with self._lock:
            self._to.write(json.dumps(message) + "\n")
            self._to.flush()

    def begin(self, number: int) -> None:
        with self._lock:
            self._id, self._room, self._dropped, self.column = number, HEAD, 0, 0

    def end(self, ok: bool) -> None:
        with self._lock:
            self.flush()
            if self._dropped:
                if gone := self._dropped - self._kept:
                    self._tail.appendleft(("stdout", f"\n[... {gone:,} characters dropped ...]\n"))
                for stream, texts in itertools.groupby(self._tail, key=lambda part: part[0]):
                    text = "".join(part[1] for part in texts)
                    self.send({"id": self._id, "stream": stream, "text": text})
                self._tail.clear()
                self._kept = 0
            self.send({"id": self._id, "ok": ok})
            self._id = None

    def add(self, stream: str, text: str) -> None:
        with self._lock:
            if self._id is None or not text:
                return  # a thread that outlived its run; nobody listens
            self.column = 0 if text.endswith("\n") else 1
            if stream != self._stream:
                self.flush()
                self._stream = stream
            head, rest = text[: self._room], text[self._room :]
            self._room -= len(head)
            if head:
                self._pending.append(head)
                self._size += len(head)
                if self._size > FLUSH_SIZE or time.monotonic() > self._flushed + FLUSH_SECONDS:
                    self.flush()
                else:
                    self._work.set()
            if rest:
                self._drop(stream, rest)

    def flush(self) -> None:
        with self._lock:
            if self._pending:
                text = "".join(self._pending)
                self._pending.clear()
                self._size, self._flushed = 0, time.monotonic()
                self.send({"id": self._id, "stream": self._stream, "text": text})

    def pump(self) -> None:
        """Send what a run that has gone quiet has written; a thread of its own."""
        quiet = threading.Event()
        while True:
            self._work.wait()
            self._work.clear()
            quiet.wait(FLUSH_SECONDS)
            self.flush()

    def _drop(self, stream: str, text: str) -> None:
        self._dropped += len(text)
        self._tail.append((stream, text[-TAIL:]))
        self._kept += len(self._tail[-1][1])
        while len(self._tail) > 1 and self._kept - len(self._tail[0][1]) >= TAIL:
            self._kept -= len(self._tail.popleft()[1])


class Stream(io.TextIOBase):
    """sys.stdout or sys.stderr."""

    encoding = "utf-8"

    def __init__(self, sender: Sender, name: str) -> None:
        self._sender = sender
        self.name = name

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._sender.add(self.name, text)
        return len(text)


class Worker:
    """The namespace, and the run that is under way."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._names: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
        self._cell = 0
        self._folder = os.getcwd()  # noqa: PTH109 - pathlib costs milliseconds here
        self.current: int | None = None
        self.running = False

    def run(self, number: int, code: str) -> None:
        self.current = number
        signal.signal(signal.SIGINT, self.interrupted)  # an earlier run may have changed it
        self._sender.begin(number)
        before = self._files()
        try:
            ok = self._execute(code)
            if made := [f"{self._folder}/{name}" for name in sorted(self._files() - before)]:
                self._show("stdout", f"[saved: {', '.join(made[:FILES])}]")
        except KeyboardInterrupt:  # it came while the run's own handling was under way
            ok = False
        finally:
            self.running, self.current = False, None
        self._sender.end(ok)

    def _execute(self, source: str) -> bool:
        self._cell += 1
        name = f"<cell {self._cell}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        try:
            body, last = _compiled(source, name)
            self.running = True
            exec(body, self._names)
            if last is not None:
                value = eval(last, self._names)
                if value is not None:
                    self._names["_"] = value
                    self._show("stdout", repr(value))
            self._figures()
        except SystemExit as leaving:
            if leaving.code not in (None, 0):
                self._show("stderr", f"SystemExit: {leaving.code}")
                return False
        except BaseException as error:
            self.running = False
            self._show("stderr", _report(error))
            return False
        finally:
            self.running = False
        return True

    def _figures(self) -> None:
        """What was drawn and not shown, as pictures in the working folder."""
        plots = sys.modules.get("matplotlib.pyplot")
        if plots is None:
            return
        for number in plots.get_fignums():
            name = next(
                name
                for name in (f"figure-{count}.png" for count in itertools.count(1))
                if not os.path.lexists(f"{self._folder}/{name}")
            )
            plots.figure(number).savefig(f"{self._folder}/{name}", bbox_inches="tight")
            plots.close(number)

    def _files(self) -> set[str]:
        """The names of what lies in the working folder."""
        try:
            with os.scandir(self._folder) as entries:
                return {entry.name for entry in entries if not entry.name.startswith(".")}
        except OSError:
            return set()

    def _show(self, stream: str, text: str) -> None:
        if self._sender.column:
            text = f"\n{text}"
        self._sender.add(stream, text)

    def interrupted(self, number: int, frame: FrameType | None) -> None:
        """On SIGINT; between runs it means nothing."""
        if self.running:
            raise KeyboardInterrupt


def _compiled(source: str, name: str) -> tuple[CodeType, CodeType | None]:
    tree = ast.parse(source, name)
    last = None
    if tree.body and isinstance(statement := tree.body[-1], ast.Expr):
        tree.body.pop()
        last = compile(ast.Expression(statement.value), name, "eval")
    return compile(tree, name, "exec"), last


def _report(error: BaseException) -> str:
    """The traceback from the cell's own code on, as Jupyter shows it."""
    place: TracebackType | None = error.__traceback__
    while place is not None and not place.tb_frame.f_code.co_filename.startswith("<cell "):
        place = place.tb_next
    inner = place
    while inner is not None and inner.tb_next is not None:
        if inner.tb_next.tb_frame.f_code.co_filename == __file__:
            inner.tb_next = None  # our handler of SIGINT
        inner = inner.tb_next
    try:
        lines = traceback.format_exception(type(error), error, place, limit=-FRAMES)
    except Exception:  # an exception whose own text fails
        return type(error).__name__
    return "".join(lines).rstrip("\n")


def _no_input(prompt: object = "") -> str:
    raise EOFError("input() does not work here: nobody can type an answer")


def listen(lines: IO[str], worker: Worker, jobs: deque[dict[str, Any]], more: Any) -> None:
    """Read requests in a thread of their own, so that an interrupt is heard during a run."""
    main = threading.main_thread().ident
    assert main is not None
    for line in lines:
        message = json.loads(line)
        if "interrupt" not in message:
            jobs.append(message)
            more.release()
        elif message["interrupt"] == worker.current:
            # A real signal: it also ends a blocking system call.
            signal.pthread_kill(main, signal.SIGINT)
    os._exit(0)  # the parent is gone


def main() -> None:
    lines = os.fdopen(os.dup(0), "r", encoding="utf-8")
    sender = Sender(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    # What native code prints must not reach the protocol.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    worker = Worker(sender)
    sys.stdin = io.StringIO()
    sys.stdout, sys.stderr = Stream(sender, "stdout"), Stream(sender, "stderr")
    builtins.input = _no_input
    warnings.filterwarnings("ignore", message=".*non-interactive")  # plt.show(): see _figures
    sys.path.append("")
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(100_000)
    jobs: deque[dict[str, Any]] = deque()
    more = threading.Semaphore(0)
    threading.Thread(target=listen, args=(lines, worker, jobs, more), daemon=True).start()
    threading.Thread(target=sender.pump, daemon=True).start()
    sender.send({"ready": True})
    while True:
        more.acquire()
        job = jobs.popleft()
        worker.run(job["id"], job["code"])


if __name__ == "__main__":
    main()
