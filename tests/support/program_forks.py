"""Forks a process that has imported `agent`: most of the CPU time of a start is imports.

``python program_forks.py FD MODULE …`` listens at the socket FD until its stdin ends. It imports once
something connects, the modules too. A `fork_relay.py` connects, passes its streams and later the
signals that end programs, and ends as its fork does. The fork has the relay's arguments, environment
and folder, and ends as `python -m agent` does; if the first argument is the file of a script, it runs
that. A `forks.TerminalFork` passes a terminal, which becomes the fork's. What a start imports by itself
is left to the tests that start `python -m agent`.
"""

from __future__ import annotations

import ast
import atexit
import fcntl
import gc
import importlib
import os
import runpy
import select
import signal
import socket
import sys
import tempfile
import termios
import threading
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

IMPORTED = (
    *("agent.cli.main", "agent.cli.run", "agent.cli.mcp", "agent.models.loader"),
    *("agent.engine.llama.engine", "agent.engine.scripted", "agent.formats.harmony.format"),
    *("tools.mcp.host", "tools.mcp.connection", "mcp", "openai_harmony", "llama_cpp", "numpy"),
    *("agent.engine.llama.draft_model", "agent.engine.placement.cpu_probe", "agent.cli.models"),
    *("agent.cli.doctor", "agent.formats.markup.format", "anyio._backends._asyncio", "gguf"),
    *("httpcore2", "jsonschema", "llguidance", "psutil", "tomlkit"),
)
"""What a fork finds imported. None of these reads the environment while it is imported, as tui and
huggingface_hub do."""
STREAM_COUNT = 3
TERMINAL = b"t"
"""The byte before streams that are a terminal."""


class Origin:
    """The process that is forked."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._forks: dict[socket.socket, int] = {}
        """The relays that wait, and the processes that they wait for."""
        self._ended, self._end = os.pipe()
        os.set_blocking(self._end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._end)

    def serve(self) -> list[str] | None:
        """Fork for each relay; returns the arguments in a fork, None at the end of stdin."""
        while True:
            waiting = [self._listener, sys.stdin, self._ended, *self._forks]
            ready, _, _ = select.select(waiting, (), ())
            if sys.stdin in ready:
                return None
            if self._ended in ready:
                os.read(self._ended, 1 << 10)
                self._tell_ended()
            for link in self._forks.keys() & ready:  # the relay was killed
                os.kill(self._forks[link], signal.SIGKILL)
            if self._listener in ready and (arguments := self._fork()) is not None:
                return arguments

    def _tell_ended(self) -> None:
        for link, pid in list(self._forks.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                with suppress(OSError):  # the relay was killed
                    link.sendall(str(os.waitstatus_to_exitcode(status)).encode())
                link.close()
                del self._forks[link]

    def _fork(self) -> list[str] | None:
        link, _ = self._listener.accept()
        kind, streams, _, _ = socket.recv_fds(link, 1, STREAM_COUNT)
        with link.makefile(encoding="ascii") as lines:
            request = lines.readline()
        pid = os.fork() if request else None  # without one, the relay was killed
        if pid != 0:
            for stream in streams:
                os.close(stream)
            if pid is None:
                link.close()
            else:
                with suppress(OSError):  # the relay was killed
                    link.sendall(f"{pid:16}".encode())
                self._forks[link] = pid
            return None
        arguments, folder, environment = ast.literal_eval(request)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        own = [link, self._listener, *self._forks]
        for descriptor in (self._ended, self._end, *streams, *(each.detach() for each in own)):
            os.close(descriptor)
        if kind == TERMINAL:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        return list(arguments)


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    ready, _, _ = select.select([listener, sys.stdin], (), ())
    if sys.stdin in ready:  # the end, and there was no fork
        return
    for module in (*IMPORTED, *sys.argv[2:]):
        importlib.import_module(module)
    events = importlib.import_module("agent.events")
    for model in vars(events).values():  # else each fork builds their validators
        if isinstance(model, type) and issubclass(model, events.WireModel):
            model.model_rebuild()
    encoding = importlib.import_module("agent.formats.harmony.encoding")
    ranks = importlib.import_module("agent.tiny.vocabulary").ranks
    importlib.import_module("agent.store.reserve").RESERVED_PAGES = 16
    importlib.import_module("tools.config.servers").STARTUP_SECONDS = 300.0
    with tempfile.TemporaryDirectory() as folder:
        loaded = encoding.load_encoding(ranks, Path(folder))
    importlib.import_module("agent.formats.harmony.format")._grammars(loaded)._build_tokenizer()
    tempfile.tempdir = None  # each fork reads TMPDIR by itself
    gc.freeze()  # else the first collection of each fork copies what they share
    arguments = Origin(listener).serve()
    if arguments is None:
        return
    try:
        _run(arguments)
    except SystemExit as end:
        _end(end.code)
    _end(0)


def _run(arguments: list[str]) -> None:
    if arguments and arguments[0].endswith(".py"):
        sys.argv, sys.path[0] = arguments, str(Path(arguments[0]).parent)
        runpy.run_path(arguments[0], run_name="__main__")
    else:
        from agent import __main__ as program

        sys.argv = [program.__file__, *arguments]
        program.main()


def _end(code: object) -> NoReturn:
    """End as Python does, but free nothing: that would copy most of the memory that forks share."""
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if not stream.closed:
                stream.flush()
        except OSError:
            code = 120
    os._exit((code or 0) & 0xFF)


if __name__ == "__main__":
    main()
