"""Renders a chat template of unknown origin in a child process with limits of memory and time, which
Jinja's sandbox does not have: ``{{ 'a' * 10**10 }}``. The child is started while the model's vocabulary
is read, stays for later prompts and ends with this process."""

import json
import select
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from agent.errors import AgentError
from agent.formats.markup import template_child

RENDER_TIMEOUT_SECONDS = 120.0
"""Time that one rendering may take on a busy machine; the limit of its CPU time ends it earlier."""
RETRY_SECONDS = 60.0
"""Time after a failure of the child before another is started."""
READ_BYTES = 1 << 16


class UnusableTemplateError(AgentError):
    """The template cannot be used; the message says why."""


class TemplateProcess:
    """A child that renders one template; after a rendering ended it, another one does."""

    def __init__(self, source: str) -> None:
        """Start the child; the template is compiled meanwhile."""
        self._source, self._lock = {"source": source}, Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._flaw, self._retry_at, self._compiled = "", 0.0, False
        self._start()

    def render(self, request: Mapping[str, Any]) -> str:
        with self._lock:
            if self._child is None and time.monotonic() < self._retry_at:
                raise UnusableTemplateError(self._flaw)
            child = self._child or self._start()
            if not self._compiled:
                answer = self._read(child)
                if "error" in answer:
                    raise self._failed(child, answer["error"])
                self._compiled = True
            self._write(child, request)
            answer = self._read(child)
        if "error" in answer:
            raise UnusableTemplateError(answer["error"])
        return answer["text"]

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-I", template_child.__file__]
        try:
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                bufsize=0, cwd=Path("/"), start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise UnusableTemplateError(f"it cannot be rendered: {error.strerror}") from error
        self._child, self._compiled = child, False
        weakref.finalize(self, _end, child)
        self._write(child, self._source)
        return child

    def _write(self, child: subprocess.Popen[bytes], message: Mapping[str, Any]) -> None:
        assert child.stdin is not None
        data = memoryview(json.dumps(message).encode() + b"\n")
        with suppress(OSError):  # it has ended, as the answer that is read next shows
            while data:
                data = data[child.stdin.write(data) or 0 :]

    def _read(self, child: subprocess.Popen[bytes]) -> dict[str, str]:
        """The child's next answer. Raises UnusableTemplateError where it has none."""
        assert child.stdout is not None
        deadline, line = time.monotonic() + RENDER_TIMEOUT_SECONDS, bytearray()
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([child.stdout], [], [], left)[0]:
                raise self._failed(child, "it takes too long")
            if not (data := child.stdout.read(READ_BYTES)):
                raise self._failed(child, "it takes too much time or memory")
            line += data
        answer: dict[str, str] = json.loads(line)
        return answer

    def _failed(self, child: subprocess.Popen[bytes], reason: str) -> UnusableTemplateError:
        _end(child)
        self._child, self._flaw = None, reason
        self._retry_at = time.monotonic() + RETRY_SECONDS
        return UnusableTemplateError(reason)


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
