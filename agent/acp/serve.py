"""Runs `agent acp`: the protocol over stdin and stdout."""

import asyncio
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, cast

from acp.agent.connection import AgentSideConnection
from acp.exceptions import RequestError

from agent import bootstrap
from agent.acp.agent import AcpAgent
from agent.config.launch import LaunchOptions
from agent.runtime.runtime import Runtime
from agent.server.http.signals import run_until_signal
from agent.util.process import EXIT_DONE, private_stdout
from agent.util.sanitize import echo

CLOSE_SECONDS = 5.0
"""Time that turns, tools and the engine have to end once the editor is gone."""
MAX_LINE_BYTES = 64 << 20


def main(launch: LaunchOptions) -> int:
    """Serve until stdin ends, or until SIGTERM or SIGINT; return the exit code. Raises UserError."""
    # The tools are those of each session's folder.
    runtime = bootstrap.create_runtime(replace(launch, tools="none"))
    asyncio.run(_serve(runtime, launch))
    return EXIT_DONE


async def _serve(runtime: Runtime, launch: LaunchOptions) -> None:
    store = await asyncio.to_thread(bootstrap.open_store, runtime)
    agent = AcpAgent(runtime, launch, store)
    connection = AgentSideConnection(
        cast(Any, agent), MessageLines(), listening=False, use_unstable_protocol=True
    )
    await runtime.start()
    await run_until_signal(connection.listen())
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await agent.close()
            await runtime.close()
    except TimeoutError:
        echo("agent: tools or engine did not end in time.", file=sys.stderr)
    if store is not None:
        await asyncio.to_thread(store.close)
    os._exit(EXIT_DONE)  # a thread may still read stdin, and nothing ends that


class MessageLines:
    """Reads and writes JSON-RPC messages, a line each, in threads; stdout belongs to it from then on.
    Malformed lines and other JSON than objects are answered with an error: the SDK's own transport
    ignores the former, and its loop ends at the latter."""

    def __init__(self) -> None:
        self._out = os.fdopen(private_stdout(), "wb")  # other output would read as messages
        self._in = sys.stdin.buffer
        self._reader, self._writer = ThreadPoolExecutor(1, "stdin"), ThreadPoolExecutor(1, "stdout")

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None: stdin or stdout has ended."""
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(self._reader, self._read_line):
            try:
                return _parse(line)
            except RequestError as error:
                refusal = {"jsonrpc": "2.0", "id": None, "error": error.to_error_obj()}
            try:
                await self.send(refusal)
            except OSError:
                break
        return None

    def _read_line(self) -> bytes:
        """The next line that is not blank; for a line that is too long, invalid JSON."""
        while line := self._in.readline(MAX_LINE_BYTES):
            rest = line
            while len(rest) == MAX_LINE_BYTES and not rest.endswith(b"\n"):
                rest = self._in.readline(MAX_LINE_BYTES)
            if rest is not line:
                return b"{"
            if line.strip():
                return line
        return b""

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message once those before it are written. Raises OSError if the reader is gone."""
        data = json.dumps(message, separators=(",", ":"), default=str).encode() + b"\n"
        await asyncio.get_running_loop().run_in_executor(self._writer, self._write, data)

    def _write(self, data: bytes) -> None:
        self._out.write(data)
        self._out.flush()

    async def close(self) -> None:
        """Leave the streams open: their threads may be reading and writing."""


def _parse(line: bytes) -> dict[str, Any]:
    """The message of a line. Raises RequestError."""
    try:
        message = json.loads(line, parse_constant=int)  # refuses NaN by a ValueError
        if b"\\ud" in line.lower():  # lone surrogates, which cannot be encoded again
            text = json.dumps(message, ensure_ascii=False)
            message = json.loads(text.encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise RequestError.parse_error() from None
    if not isinstance(message, dict) or not _is_message(message):
        raise RequestError.invalid_request()
    return message


def _is_message(message: dict[str, Any]) -> bool:
    """Whether the SDK's loop can take it: a request, a notification or a response."""
    if not isinstance(message.get("id"), str | int | None):
        return False
    if "method" in message:
        return isinstance(message["method"], str)
    error = message.get("error")
    is_error = isinstance(error, dict) and isinstance(error.get("code"), int)
    return "id" in message and ("result" in message or is_error)
