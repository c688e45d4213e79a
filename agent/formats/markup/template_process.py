"""Renders a chat template of unknown origin in a child process with limits of memory and time, which
Jinja's sandbox does not have: ``{{ 'a' * 10**10 }}``. The child is started while the model's vocabulary
is read, stays for later prompts and ends with this process."""

import json
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock, Timer
from typing import Any

from agent.errors import AgentError
from agent.formats.markup import template_child

RENDER_TIMEOUT_SECONDS = 120.0
"""Time that one rendering may take on a busy machine; the limit of its CPU time ends it earlier."""
RETRY_SECONDS = 60.0
"""Time after a failure of the child before another is started."""
_FLAW = "it takes too much time or memory"


class UnusableTemplateError(AgentError):
    """The template cannot be used; the message says why."""


class TemplateProcess:
    """A child that renders one template; after a rendering ended it, another one does."""

    def __init__(self, source: str) -> None:
        """Start the child; the template is compiled meanwhile."""
        self._source, self._lock = {"source": source}, Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._retry_at = 0.0
        self._start()

    def render(self, request: Mapping[str, Any]) -> str:
        with self._lock:
            if self._child is None and time.monotonic() < self._retry_at:
                raise UnusableTemplateError(_FLAW)
            child = self._child or self._start()
            watchdog = Timer(RENDER_TIMEOUT_SECONDS, child.kill)
            watchdog.start()
            try:
                _write(child, request)
                line = child.stdout.readline() if child.stdout else b""
            finally:
                watchdog.cancel()
            if not line.endswith(b"\n"):
                _end(child)
                self._child, self._retry_at = None, time.monotonic() + RETRY_SECONDS
                raise UnusableTemplateError(_FLAW)
        answer: dict[str, str] = json.loads(line)
        if "error" in answer:
            raise UnusableTemplateError(answer["error"])
        return answer["text"]

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-I", template_child.__file__]
        try:
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                cwd=Path("/"), start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise UnusableTemplateError(f"it cannot be rendered: {error.strerror}") from error
        self._child = child
        weakref.finalize(self, _end, child)
        _write(child, self._source)
        return child


def _write(child: subprocess.Popen[bytes], message: Mapping[str, Any]) -> None:
    assert child.stdin is not None
    with suppress(OSError):  # it has ended, as the answer that is read next shows
        child.stdin.write(json.dumps(message).encode() + b"\n")
        child.stdin.flush()


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        with suppress(OSError):  # what is left to be written
            if pipe is not None:
                pipe.close()
