"""The process in which the model's Python code runs, as a script that imports nothing of ours. JSON
lines on stdin: ``{"id": n, "code": text}``, ``{"interrupt": n}`` (KeyboardInterrupt). Frames on stdout:
a FRAME_HEADER (kind, id of the run, bytes of text) and UTF-8 text. Kinds: ``r`` ready, once, id 0; then
per run ``o`` stdout, ``e`` stderr, last ``+`` success or ``-`` failure."""

import ast
import builtins
import ctypes
import io
import itertools
import json
import linecache
import os
import re
import signal
import struct
import sys
import threading
import time
import traceback
import warnings
from collections import deque
from types import CodeType, FrameType, TracebackType
from typing import IO, Any

FRAME_HEADER = struct.Struct("!cIH")
MAX_FRAME_CHARS = 16_000
"""Characters of a frame's text; each has at most 4 bytes, and 16 bits count them."""
MAX_LIVE_FRAMES = 5_000
"""Frames of a run after which its output is sent by size only, and all of it as stdout."""
FLUSH_SECONDS = 0.05
"""Output is sent in pieces, so that a loop of prints does not become a flood of messages."""
FLUSH_CHARS = 8192
MAX_HEAD_CHARS, MAX_TAIL_CHARS = 1_500_000, 100_000
"""Beginning and end of one run's output that are sent; what is between is counted and dropped."""
DATA_FOLDER = "/mnt/data"
"""Where gpt-oss was trained to keep its files."""
MAX_NAMED_FILES = 20
TRACEBACK_FRAMES = 8


class OutputSender:
    """Sends one run's output to the parent in pieces, and drops what is too much of it."""

    def __init__(self, file: IO[bytes]) -> None:
        """``file``: has a buffer that is larger than a frame, so that an interrupt splits none."""
        self._file = file
        self._lock = threading.RLock()
        self._id: int | None = None
        self._frames = 0
        self._stream = "stdout"
        self._pending: list[str] = []
        self._pending_chars = 0
        self._last_flush = 0.0
        self._head_room = 0
        self._dropped = 0
        self._tail: deque[str] = deque()
        self._tail_chars = 0
        self._has_output = threading.Event()
        self.column = 0
        """0 if the output so far is empty or ends with a newline, else 1."""

    def send(self, kind: bytes, text: str = "") -> None:
        """Write a message to the parent, in as many frames as its text needs."""
        with self._lock:
            for start in range(0, len(text) or 1, MAX_FRAME_CHARS):
                data = text[start : start + MAX_FRAME_CHARS].encode("utf-8", "replace")
                self._file.write(FRAME_HEADER.pack(kind, self._id or 0, len(data)) + data)
                self._frames += 1
            self._file.flush()

    def send_text(self, stream: str, text: str) -> None:
        self.send(b"e" if stream == "stderr" else b"o", text)

    def begin(self, run_id: int) -> None:
        with self._lock:
            self._id, self._head_room, self._dropped, self.column = run_id, MAX_HEAD_CHARS, 0, 0
            self._frames = 0

    def end(self, ok: bool) -> None:
        with self._lock:
            self.flush()
            if self._dropped:
                if gone := self._dropped - self._tail_chars:
                    self._tail.appendleft(f"\n[... {gone:,} characters dropped ...]\n")
                self.send(b"o", "".join(self._tail))
                self._tail.clear()
                self._tail_chars = 0
            self.send(b"+" if ok else b"-")
            self._id = None

    def add(self, stream: str, text: str) -> None:
        """Take a piece of output; thread-safe."""
        with self._lock:
            if self._id is None or not text:
                return  # a thread that outlived its run; the output is not read
            self.column = 0 if text.endswith("\n") else 1
            live = self._frames < MAX_LIVE_FRAMES
            if stream != self._stream and (live or self._stream == "stderr"):
                self.flush()
                self._stream = stream if live else "stdout"
            head, rest = text[: self._head_room], text[self._head_room :]
            self._head_room -= len(head)
            if head:
                self._pending.append(head)
                self._pending_chars += len(head)
                if self._pending_chars > FLUSH_CHARS or (
                    live and time.monotonic() > self._last_flush + FLUSH_SECONDS
                ):
                    self.flush()
                elif live:
                    self._has_output.set()
            if rest:
                self._drop(rest)

    def flush(self) -> None:
        with self._lock:
            if self._pending:
                text = "".join(self._pending)
                self._pending.clear()
                self._pending_chars, self._last_flush = 0, time.monotonic()
                self.send_text(self._stream, text)

    def pump(self) -> None:
        """Send what a run wrote before it went quiet; runs for ever in a thread of its own."""
        quiet = threading.Event()
        while True:
            self._has_output.wait()
            self._has_output.clear()
            quiet.wait(FLUSH_SECONDS)
            self.flush()

    def _drop(self, text: str) -> None:
        self._dropped += len(text)
        self._tail.append(text[-MAX_TAIL_CHARS:])
        self._tail_chars += len(self._tail[-1])
        while len(self._tail) > 1 and self._tail_chars - len(self._tail[0]) >= MAX_TAIL_CHARS:
            self._tail_chars -= len(self._tail.popleft())


class OutputStream(io.TextIOBase):
    """Replaces sys.stdout or sys.stderr."""

    encoding = "utf-8"

    def __init__(self, sender: OutputSender, name: str) -> None:
        self._sender = sender
        self.name = name

    def close(self) -> None:
        """Do nothing: later runs print here too."""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._sender.add(self.name, text)
        return len(text)


class CodeRunner:
    """The namespace of the code, and the run that is in progress."""

    def __init__(self, sender: OutputSender) -> None:
        self._sender = sender
        # Never replaced by others: print() of a thread crashes where its stream is freed meanwhile.
        self._streams = OutputStream(sender, "stdout"), OutputStream(sender, "stderr")
        self._names: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
        self._cell = 0
        self._folder = os.getcwd()  # noqa: PTH109 - pathlib costs milliseconds here
        self.current: int | None = None
        self.running = False

    def run(self, run_id: int, code: str) -> None:
        self.current = run_id
        signal.signal(signal.SIGINT, self.on_interrupt)  # an earlier run may have changed it
        # So it may these: what is printed must not vanish.
        sys.stdout, sys.stderr = self._streams
        self._sender.begin(run_id)
        before = self._files()
        try:
            ok = self._execute(code)
            names = sorted(self._files() - before)
            # A name that would look like another line is quoted.
            quoted = [name if name.isprintable() else ascii(name) for name in names]
            if new_files := [f"{self._folder}/{name}" for name in quoted]:
                self._print("stdout", f"[saved: {', '.join(new_files[:MAX_NAMED_FILES])}]")
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
            body, last = _compile(source, name, self._folder)
            self.running = True
            exec(body, self._names)
            if last is not None:
                value = eval(last, self._names)
                if value is not None:
                    self._names["_"] = value
                    self._print("stdout", repr(value))
            self._save_figures()
        except SystemExit as error:
            if error.code not in (None, 0):
                self._print("stderr", f"SystemExit: {error.code}")
                return False
        except BaseException as error:
            self.running = False
            self._print("stderr", _format_error(error) + self._folder_hint(error))
            return False
        finally:
            self.running = False
        return True

    def _folder_hint(self, error: BaseException) -> str:
        """Say where the files are, to code that put the path of DATA_FOLDER together itself."""
        if isinstance(error, OSError) and _below_data_folder(error.filename) is not None:
            return f"\n{DATA_FOLDER} is {self._folder} here."
        return ""

    def _save_figures(self) -> None:
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
        try:
            with os.scandir(self._folder) as entries:
                return {entry.name for entry in entries if not entry.name.startswith(".")}
        except OSError:
            return set()

    def _print(self, stream: str, text: str) -> None:
        if self._sender.column:
            text = f"\n{text}"
        self._sender.add(stream, text)

    def on_interrupt(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGINT; between runs it is ignored."""
        if self.running:
            raise KeyboardInterrupt


def _below_data_folder(path: object) -> str | None:
    """The rest of a path below DATA_FOLDER, from its slash on; None for another path."""
    if not isinstance(path, str) or not path.startswith(DATA_FOLDER):
        return None
    rest = path.removeprefix(DATA_FOLDER)
    return rest if rest[:1] in ("", "/") else None


def _compile(source: str, name: str, folder: str) -> tuple[CodeType, CodeType | None]:
    """Compile all but a last expression, and that expression by itself, to print its value. Paths in
    DATA_FOLDER become those in ``folder``."""
    tree = ast.parse(source, name)
    for node in ast.walk(tree) if DATA_FOLDER in source else ():
        if isinstance(node, ast.Constant) and (rest := _below_data_folder(node.value)) is not None:
            node.value = folder + rest
    last = None
    if tree.body and isinstance(statement := tree.body[-1], ast.Expr):
        tree.body.pop()
        last = compile(ast.Expression(statement.value), name, "eval")
    return compile(tree, name, "exec"), last


_NOTEBOOK_LINE = re.compile(r"\s*(?:\w+\s*=\s*)?[!%]")


def _format_error(error: BaseException) -> str:
    """Return the traceback from the cell's own code on, as Jupyter shows it."""
    outer: TracebackType | None = error.__traceback__
    while outer is not None and not outer.tb_frame.f_code.co_filename.startswith("<cell "):
        outer = outer.tb_next
    inner = outer
    while inner is not None and inner.tb_next is not None:
        if inner.tb_next.tb_frame.f_code.co_filename == __file__:
            inner.tb_next = None  # our handler of SIGINT
        inner = inner.tb_next
    try:
        lines = traceback.format_exception(type(error), error, outer, limit=-TRACEBACK_FRAMES)
    except Exception:  # an exception whose own text fails
        return type(error).__name__
    if isinstance(error, SyntaxError) and _NOTEBOOK_LINE.match(error.text or ""):
        lines.append("There are no shell lines (!) or magics (%) here: only Python.")
    return "".join(lines).rstrip("\n")


def _no_input(prompt: object = "") -> str:
    raise EOFError("input() does not work here: there is no person to type an answer")


def read_requests(
    lines: IO[str], runner: CodeRunner, jobs: deque[dict[str, Any]], more: Any
) -> None:
    """Read requests from the parent; in a thread, so that an interrupt is seen during a run."""
    main = threading.main_thread().ident
    assert main is not None
    for line in lines:
        message = json.loads(line)
        if "interrupt" not in message:
            jobs.append(message)
            more.release()
        elif message["interrupt"] == runner.current:
            # A real signal: it also ends a blocking system call.
            signal.pthread_kill(main, signal.SIGINT)
    os._exit(0)  # the parent is gone


def main() -> None:
    if sys.platform == "linux":
        # PR_SET_PDEATHSIG: the parent stops this process between runs, so it cannot see stdin end.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    lines = os.fdopen(os.dup(0), "r", encoding="utf-8")
    sender = OutputSender(os.fdopen(os.dup(1), "wb", buffering=1 << 17))
    # Output of native code must not reach the protocol.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    runner = CodeRunner(sender)
    sys.stdin = io.StringIO()
    builtins.input = _no_input
    warnings.filterwarnings("ignore", message=".*non-interactive")  # plt.show(): see _save_figures
    sys.path.append("")
    sys.set_int_max_str_digits(100_000)
    jobs: deque[dict[str, Any]] = deque()
    more = threading.Semaphore(0)
    threading.Thread(target=read_requests, args=(lines, runner, jobs, more), daemon=True).start()
    threading.Thread(target=sender.pump, daemon=True).start()
    sender.send(b"r")
    while True:
        more.acquire()
        job = jobs.popleft()
        runner.run(job["id"], job["code"])


if __name__ == "__main__":
    main()
